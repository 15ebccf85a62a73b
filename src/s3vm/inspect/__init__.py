"""What a fitted classifier says of some rows: numbers, plots and a report."""
