"""The report of an experiment's results."""

TABLE_1 = {
    "tsg": ("m T²", "T"),
    "bgs": ("n³", "n²"),
    "cccp": ("t n^k, 1 < k < 2.3", "n²"),
    "light": ("t n^k, 1 < k < 2.3", "n²"),
    "newton": ("n³", "n²"),
    "incremental": ("T n²", "n²"),
}
"""Time and memory in Table 1 of the paper, of the solvers that it lists."""
