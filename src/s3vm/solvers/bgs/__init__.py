"""BGS3VM, budgeted stochastic gradients on a neighbour graph."""
