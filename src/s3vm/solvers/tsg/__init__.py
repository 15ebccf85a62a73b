"""TSGS3VM, triply stochastic gradients, anchored at the supervised solution."""
