"""The reproduction of the paper: data, experiments, records, report."""
