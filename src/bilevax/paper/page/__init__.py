"""A report as charts, tables and one HTML page."""
