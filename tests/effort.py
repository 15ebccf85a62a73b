"""How much is tried: a little in `make test`, much in `make test-long` (which sets S3VM_LONG)."""

import os

LONG = bool(os.environ.get("S3VM_LONG"))


def cases(quick: int, long: int) -> int:
    """How many cases of a test are tried."""
    return long if LONG else quick
