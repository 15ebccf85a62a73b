"""The scikit-learn interface, and how it chooses weights, widths and probabilities on labelled rows."""
