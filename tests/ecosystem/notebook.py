"""Jupyter: a fit with progress leaves one line in the notebook, not a block per update."""

import nbformat
from nbclient import NotebookClient

CELL = """
import numpy as np
from sklearn.datasets import make_moons
from s3vm import S3VMClassifier

X, y = make_moons(300, noise=0.1, random_state=0)
S3VMClassifier("tsg", random_state=0, verbose=1).fit(X, np.where(np.arange(300) < 40, y, -1)).score(X, y)
"""
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
NotebookClient(notebook).execute()
shown = [output for output in notebook.cells[0].outputs if output.output_type != "execute_result"]
assert len(shown) == 1, shown
line = shown[0]["data"]["text/plain"]
assert line.startswith("done after 400 iterations in "), line
assert "\n" not in line
