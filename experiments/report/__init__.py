"""The report of an experiment's results."""
