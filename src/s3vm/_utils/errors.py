"""Errors that several rooms raise or catch."""

__all__ = ["RowsError"]


class RowsError(ValueError):
    """The rows themselves are at fault: a damaged file, or a stream that has ended."""
