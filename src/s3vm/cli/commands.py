"""The commands and their options, as `s3vm --help` shows them: the help is the docstring, "$" marks the examples."""

from pathlib import Path

from s3vm.cli import options
from s3vm.cli.options import InputFiles, Settings, Verbosity, names_option, option


class Fit(Verbosity, Settings, InputFiles):
    """Train a model on labelled and unlabelled rows, and save it.

    Rows whose label is empty, NA, None or ? are unlabelled. Features are standardised, and C and gamma are tuned by
    cross-validation on the labelled rows. Ctrl-C stops the training and saves the model so far. Files larger than a
    quarter of the memory are streamed.

    $ s3vm fit mails.csv --target label -o spam.s3vm
    $ s3vm fit few.csv -t label --unlabeled many.parquet --test held.csv --report fit.html
    $ s3vm fit data.npz --mark -1 --C 10 --gamma 0.05 --weight 1
    $ s3vm fit folder/ -t label --checkpoint run.checkpoint --resume --max-seconds 3600
    """

    output: str | None = option(None, "FILE", "Model file; by default DATA's name with .s3vm.", "--output", "-o")
    test: str | None = options.TEST
    report: str | None = options.REPORT


class OnModel(Verbosity):
    """A command that takes a model."""

    module = "model"
    model: str = options.MODEL


class OnRows(OnModel):
    """A command that takes a model and rows."""

    data: str = options.DATA
    file_format: str | None = options.FORMAT
    jobs: int = options.JOBS


class RowsWritten(OnRows):
    """A command that writes rows."""

    output: str = options.OUTPUT

    def __post_init__(self) -> None:
        if self.output == "-" and self.json:
            raise ValueError("--json needs a file for the rows: -o out.csv")
        if self.output == "-" and self.file_format not in (None, "csv", "jsonl"):
            raise ValueError(f"--format {self.file_format}: standard output is csv or jsonl; give a file, -o FILE")
        if self.output not in ("-", ""):
            options.check_ending(self.output, ".csv", ".csv.gz", ".jsonl", ".ndjson", ".parquet", ".pq")


class Predict(RowsWritten):
    """Predict the class of every row of a file of any size.

    Columns are matched by name, in any order; other columns are ignored.

    $ s3vm predict spam.s3vm new.parquet -o out.csv
    $ s3vm predict spam.s3vm new.csv --probabilities --keep id -o out.parquet
    $ s3vm predict spam.s3vm new.csv | head
    """

    scores: bool = option(False, None, "Add the scores.", "--scores")
    probabilities: bool = option(False, None, "Add the probabilities.", "--probabilities", "-p")
    keep: list[str] = names_option("Columns of DATA to copy to the output.", None)
    drop: list[str] = options.DROP
    zero_based: bool | None = options.ZERO_BASED


class Evaluate(OnRows):
    """Test a model on labelled rows.

    Rows without a label are skipped.

    $ s3vm evaluate spam.s3vm held.csv --target label
    $ s3vm evaluate m.s3vm test.npz --json
    """

    target: str | None = options.TARGET
    mark: list[str] = options.MARK
    zero_based: bool | None = options.ZERO_BASED
    positive: str | None = options.POSITIVE


class Info(OnModel):
    """Describe a model file.

    $ s3vm info spam.s3vm
    $ s3vm info spam.s3vm --json
    """

    hidden = ("quiet", "verbose")


class Export(OnModel):
    """Convert a model to ONNX, or to a smaller one that predicts nearly the same.

    $ s3vm export spam.s3vm spam.onnx
    $ s3vm export spam.s3vm small.onnx --compress unlabelled.parquet
    $ s3vm export spam.s3vm small.s3vm --compress unlabelled.parquet --tolerance 0.005
    """

    hidden = ("verbose",)
    output: str | None = options.argument(None, "OUTPUT", "An .onnx file, or .s3vm with --compress.")
    named: str | None = option(None, "FILE", "The same as OUTPUT.", "--output", "-o")
    compress: str | None = option(
        None, "FILE", "Make the model smaller, using rows like those to predict.", callback=options.from_stream
    )
    tolerance: float = option(0.01, "NUMBER", "Fraction of rows whose class may change.")

    def __post_init__(self) -> None:
        if (self.output is None) == (self.named is None):
            raise ValueError("give one file to write: s3vm export MODEL OUTPUT, or -o OUTPUT")
        options.check_ending(self.path, ".onnx", *([".s3vm"] if self.compress else []))

    @property
    def path(self) -> str:
        return self.output or self.named or ""


class Tune(Verbosity, Settings, InputFiles):
    """Choose C, gamma and the weight of the unlabelled rows by cross-validation on the labelled ones.

    [bold]s3vm fit[/] makes the same choice; this command shows the candidates.

    $ s3vm tune mails.csv --target label
    $ s3vm tune mails.csv -t label --kernel matern --json
    """

    module = "fit"
    hidden = ("threshold", "positive", *options.LONG_RUNS)


class Compare(Verbosity, Settings, InputFiles):
    """Compare s3vm with an SVM, a forest, boosting, logistic regression, self-training and label spreading.

    Errors are measured by cross-validation on the labelled rows, or on the rows of --test. It says which to take.

    $ s3vm compare mails.csv --target label
    $ s3vm compare few.csv -t label --unlabeled many.parquet --test held.csv --report compare.html
    """

    hidden = ("solver", *options.OF_CLASSES, *options.LONG_RUNS)
    test: str | None = options.TEST
    max_rows: int = options.column_option(5000, "N", "Size of the random sample of unlabelled rows; 0 uses all.")
    time_limit: float = option(60.0, "SECONDS", "Start no fit of another method after this time.", "--max-seconds")
    solvers: list[str] = options.model_option(
        (), "NAME", "Run this s3vm solver, too. Repeatable.", "--solver", autocompletion=options.complete_solver
    )
    report: str | None = options.REPORT


class Label(Verbosity, Settings, InputFiles):
    """Label the rows of a CSV file in the browser, the most informative ones first.

    Shows one row after the other, takes its label by a key, and saves every label at once; the model is fitted again
    meanwhile, and chooses the rows that come next. Another call with the same output continues.

    $ s3vm label mails.csv --target label --classes spam,ham
    $ s3vm label photos.csv -t kind -o labelled.csv --port 8000 --no-browser
    """

    hidden = ("unlabeled", "quiet", *options.OF_CLASSES, *options.LONG_RUNS)
    classes: list[str] = names_option("The classes; more can be added on the page.", None)
    data: str = options.argument(..., "DATA", "CSV or TSV file; - is standard input.", callback=options.from_stream)
    output: str | None = option(None, "FILE", "CSV or TSV file; by default DATA-labelled.csv.", "--output", "-o")
    port: int = option(0, "N", "Port on 127.0.0.1; 0 takes a free one.")
    browser: bool = option(True, None, "Open the page.", "--browser/--no-browser")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output is None and Path(self.data).name.startswith("stdin."):
            raise ValueError("--output FILE is needed for rows of standard input")
        for path in (self.data, self.output):
            options.check_ending(path, ".csv", ".tsv")


class Suggest(RowsWritten):
    """Choose the rows of a file to label next, the most informative first.

    They are in doubt, near many others, and differ from each other and from labelled rows; every fifth is drawn at
    random. Rows of a CSV file are written with all their columns. Rows are counted from 1.

    $ s3vm suggest spam.s3vm mails.csv -n 20 -o next.csv
    $ s3vm suggest spam.s3vm mails.csv -t label | head
    """

    n: int = option(20, "N", "How many rows.", "--number", "-n")
    target: str | None = options.TARGET
    mark: list[str] = options.MARK
    seed: int = option(0, "NUMBER", "The same seed suggests the same rows.")


class Demo(Verbosity):
    """Try it on handwritten digits with a handful of labels. Takes half a minute.

    $ s3vm demo
    $ s3vm demo --picture demo.png
    """

    hidden = ("verbose",)
    picture: str | None = options.output_option(None, "FILE", "Also draw a picture.", "--picture", "-o")
    jobs: int = options.JOBS

    def __post_init__(self) -> None:
        options.check_ending(self.picture, ".png", ".svg", ".pdf")


COMMANDS = (Fit, Predict, Evaluate, Info, Export, Tune, Compare, Label, Suggest, Demo)
