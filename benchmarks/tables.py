"""Error on tables with text, dates and missing values: ours and what else such a user would take.

Every csv file of a folder is a classification task: its label is the column that `TARGETS` names for it, else the last
one. A fifth of each file, at most 2,000 rows, is held out for testing; of the others, so many rows have a label. The
rivals get what scikit-learn's documentation recommends: one-hot text, scaled numbers, medians for missing values.

    python benchmarks/tables.py FOLDER --labels 50 100 150 --draws 3
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from typer.testing import CliRunner

import s3vm
from s3vm import S3VMClassifierCV, TableEncoder
from s3vm.cli.app import app

TARGETS = {  # where it is not the last column
    "Auto": "origin",
    "Caravan": "Purchase",
    "Carseats": "ShelveLoc",
    "College": "Private",
    "Default": "default",
    "OJ": "Purchase",
    "dragons": "colour",
    "german": "risk",
    "penguins": "species",
    "penguins-raw": "Species",
}
MOST_TEST, MOST_CLASSES = 2000, 12


def rival(model):
    """A model behind the usual preparation of columns."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    text = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", max_categories=50)
    )
    parts = (numbers, make_column_selector(dtype_include=[np.number, bool]))
    return make_pipeline(
        make_column_transformer(parts, (text, make_column_selector(dtype_exclude=[np.number, bool]))), model
    )


def ours(train, some, test):
    model = make_pipeline(TableEncoder(unlabeled=None), S3VMClassifierCV(unlabeled=None, random_state=0))
    return model.fit(train, some).predict(test)


def command_line(train, some, test):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        train.assign(the_label=some).to_csv(path / "train.csv", index=False)
        test.to_csv(path / "test.csv", index=False)
        for words in (
            ["fit", "train.csv", "-t", "the_label", "-o", "m.s3vm", "-q"],
            ["predict", "m.s3vm", "test.csv", "-o", "out.csv", "-q"],
        ):
            result = CliRunner().invoke(app, [str(path / word) if "." in word else word for word in words])
            assert result.exit_code == 0, result.output
        return pd.read_csv(path / "out.csv", dtype=str, keep_default_na=False)["prediction"].to_numpy()


def supervised(model):
    def predict(train, some, test):
        known = some.notna()
        return rival(model).fit(train[known], some[known]).predict(test)

    return predict


METHODS = {
    "s3vm fit": command_line,
    "TableEncoder, S3VMClassifierCV": ours,
    "random forest": supervised(RandomForestClassifier(random_state=0)),
    "logistic regression": supervised(LogisticRegressionCV(Cs=5, max_iter=2000, use_legacy_attributes=False)),
    "SVC by grid": supervised(
        GridSearchCV(SVC(), {"C": [0.3, 1, 3, 10, 100], "gamma": [0.001, 0.01, 0.1, 1, "scale"]})
    ),
}


def read(path, most):
    """The columns and the labels as text, or None if the file has no such task."""
    name = path.name.split(".")[0]
    frame = pd.read_csv(path)
    target = TARGETS.get(name, frame.columns[-1])
    if target is None or target not in frame:
        return None
    frame = frame[frame[target].notna()].sample(frac=1, random_state=0)[:most].reset_index(drop=True)
    y = frame.pop(target).astype(str)
    counts = y.value_counts()
    y, frame = y[y.isin(counts.index[counts >= 10])], frame[y.isin(counts.index[counts >= 10])]
    return (frame, "class " + y) if len(y) >= 100 and 2 <= y.nunique() <= MOST_CLASSES else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--labels", type=int, nargs="+", default=[50, 100, 150])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--rows", type=int, default=5000, help="rows of a file that are used, at most")
    options = parser.parse_args()
    print("s3vm", s3vm.__version__)
    rows = []
    for path in sorted(options.folder.glob("*.csv*")):
        task = read(path, options.rows)
        if task is None:
            print(f"{path.name} is skipped")
            continue
        X, y = task
        for n_labels in options.labels:
            for draw in range(options.draws):
                order = np.random.RandomState(draw).permutation(len(y))
                test, train = np.split(order, [min(len(y) // 5, MOST_TEST)])
                if n_labels > len(train) // 2:
                    continue
                some = y.iloc[train].where(np.arange(len(train)) < n_labels)
                row = {"file": path.name.split(".")[0], "labels": n_labels}
                for name, method in METHODS.items():
                    start = time.perf_counter()
                    try:
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore")
                            row[name] = 100 * float(np.mean(method(X.iloc[train], some, X.iloc[test]) != y.iloc[test]))
                    except (AssertionError, ValueError) as problem:
                        print(f"{path.name}, {n_labels}, {name}: {problem}")
                    row[f"seconds of {name}"] = time.perf_counter() - start
                rows.append(row)
        print(pd.DataFrame(rows)[["file", *METHODS]].groupby("file").mean().round(1).tail(1).to_string(), flush=True)
    table = pd.DataFrame(rows)
    print(table.groupby("file")[list(METHODS)].mean().round(1).to_string())
    print(table.groupby(["file", "labels"])[list(METHODS)].mean().groupby("labels").mean().round(1).to_string())
    by_file = table.groupby("file")[list(METHODS)].mean()
    print("mean over files:", by_file.mean().round(2).to_dict())
    print("best or within 0.5 points:", (by_file.le(by_file.min(axis=1) + 0.5, axis=0)).sum().to_dict())
    print("seconds:", table[[f"seconds of {name}" for name in METHODS]].mean().round(2).to_dict())


if __name__ == "__main__":
    main()
