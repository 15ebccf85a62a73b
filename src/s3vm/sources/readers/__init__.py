"""Tables in files (csv, parquet, svmlight, npz, npy): read whole or a batch at a time, written a batch at a time.

A table is rows of numbers, and perhaps a label for some of them. Whatever a file looks like, `stream` makes batches of
it, each read when it is asked for; csv and parquet files may be of any size. `read` puts the batches together.
"""

try:
    import pyarrow  # noqa: F401
except ImportError:
    raise ImportError('files of rows need pyarrow, which is not installed: pip install "s3vm[cli]"') from None
from s3vm.sources.readers.errors import TableError
from s3vm.sources.readers.labels import label_key
from s3vm.sources.readers.table import (
    Batch,
    TableStream,
    chained,
    files_of,
    has_names,
    stem_of,
    stream,
    svmlight_columns,
)
from s3vm.sources.readers.whole import Table, read, read_columns
from s3vm.sources.readers.writer import Writer

__all__ = ["Batch", "Table", "TableError", "TableStream", "Writer"]
__all__ += ["chained", "files_of", "has_names", "label_key", "read", "read_columns", "stem_of", "stream"]
__all__ += ["svmlight_columns"]
