"""ILS3VM, the exact solution followed while rows come and leave."""
