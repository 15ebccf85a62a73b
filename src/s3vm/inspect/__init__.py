"""What a fitted classifier says about its data: numbers, plots and HTML reports."""
