"""Names for what is passed around."""

from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]

Rows = Any
"""Rows of features: a C-contiguous 2-D array or a CSR matrix, in the precision of the computation."""
