"""Charts, tables and pages, described once: what the reports and the apps draw with."""
