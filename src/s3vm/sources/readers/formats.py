"""The file formats by the end of a name, and the files of a folder."""

import os
from pathlib import Path

from s3vm.sources.readers.errors import TableError
from s3vm.sources.readers.matrices import MatrixFile, NpyFile, NpzFile, SvmlightFile, is_compressed
from s3vm.sources.readers.tabular import CsvFile, ParquetFile, TabularFile, is_utf8

FORMATS: dict[str, type[TabularFile] | type[MatrixFile]] = {
    ".csv": CsvFile,
    ".tsv": CsvFile,
    ".parquet": ParquetFile,
    ".pq": ParquetFile,
    ".svmlight": SvmlightFile,
    ".libsvm": SvmlightFile,
    ".svm": SvmlightFile,
    ".npz": NpzFile,
    ".npy": NpyFile,
}


def files_of(path: str) -> list[str]:
    """The file itself; or all files of a known format in a folder and below, sorted by name.

    Names that begin with a dot or an underscore are skipped: other programs keep notes of their own there.
    """
    if not path:
        raise TableError("the file name is empty: give the name of a file or folder")
    if not Path(path).is_dir():
        return [path]
    inside = [file.relative_to(path) for file in Path(path).rglob("*") if file.is_file()]
    visible = [file for file in inside if not any(part.startswith((".", "_")) for part in file.parts)]
    files = [str(Path(path, file)) for file in sorted(visible) if _suffix_of(str(file)) in FORMATS]
    if not files:
        raise TableError(f"{path} is a folder without a file of a known format ({', '.join(FORMATS)})")
    return files


def open_file(path: str, file_format: str | None = None, header: bool | None = True) -> TabularFile | MatrixFile:
    """Opens a file, reading no more than its start."""
    kind = format_of(path, file_format)
    return kind(path, header) if issubclass(kind, CsvFile) else kind(path)


def format_of(path: str, file_format: str | None = None) -> type[TabularFile] | type[MatrixFile]:
    """The class that reads a file, by the end of its name unless its format is given."""
    if not os.path.exists(path):
        raise TableError(f"{path}: there is no such file or folder")
    suffix = _suffix_of(path) if file_format is None else f".{file_format}"
    if suffix not in FORMATS:
        raise TableError(f"{path} has an unknown format: its name must end in {', '.join(FORMATS)} (or .csv.gz)")
    if not Path(path).is_file():
        raise TableError(f"{path} is neither a file nor a folder: copy its content into a file")
    kind = FORMATS[suffix]
    if issubclass(kind, TabularFile) and not is_utf8(os.fsencode(path)):  # pyarrow takes no other names
        raise TableError(f"{path!r}: the file name is not UTF-8: rename the file")
    return kind


def _suffix_of(path: str) -> str:
    """The end of the name that says the format; that of a compression is skipped."""
    return Path(Path(path).stem if is_compressed(path) else path).suffix.lower()


def has_names(path: str | os.PathLike[str]) -> bool:
    """Whether the columns of a file, or of the files of a folder, have names."""
    return issubclass(format_of(files_of(os.fspath(path))[0]), TabularFile)
