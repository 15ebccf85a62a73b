"""
More rows than memory
=====================

The unlabelled rows of a semi-supervised problem may far exceed memory. Here they are a folder of Parquet files. It is
small, so that the example runs in seconds, but nothing below would change with a thousand times the rows: they are read
one buffer at a time, shuffled, and forgotten.
"""

# %%
# A folder of files
# -----------------
# Twenty files of 20,000 rows: points around two interleaved moons, in columns of very different scale. One row in 4,000
# has a label.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import make_moons
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import s3vm
from s3vm import TSG, FileSource, S3VMClassifier

folder = Path(tempfile.mkdtemp())
for number in range(20):
    X, y = make_moons(20_000, noise=0.2, random_state=number)
    known = np.random.RandomState(number).rand(len(y)) < 1 / 4000
    columns = {"height": X[:, 0], "weight": 70 + 1000 * X[:, 1], "kind": pa.array(y, mask=~known)}
    pq.write_table(pa.table(columns), folder / f"part-{number:02}.parquet", row_group_size=5000)

# %%
# Labelled rows, counts and scales in one pass
# --------------------------------------------
# `target` names the column of labels. `scaler` reads all rows once: it finds the labelled ones, which are kept, counts
# the others, and fits scikit-learn's `StandardScaler`. `scaler(sample=100_000)` would look at some rows only.

source = FileSource(folder, target="kind")
scaler = source.scaler()
scaled = source.scaled(scaler)
labeled, labels = scaled.labeled()
print(f"{len(labels)} labelled rows, {source.n_rows:,} unlabelled ones; scales {scaler.scale_.round(2)}")

# %%
# The fit
# -------
# `passes=1` makes one pass over all unlabelled rows. The checkpoint is written every ten seconds: if this process were
# killed, the same line would resume from there and end with the same model to the last bit.

clf = S3VMClassifier(TSG(passes=1, batch_size=512), random_state=0)
clf.fit(scaled, checkpoint=folder / "run.checkpoint", every=10, resume=True)
print(f"{clf.n_iter_} iterations; {clf.safety_}")

# %%
# A model like any other
# ----------------------
# With the scaler in front it takes rows as they are in the files, and knows the column names.

model = make_pipeline(scaler, clf)
s3vm.save(model, folder / "moons.s3vm")

# %%
# For comparison, what the labelled rows alone can do. Both get scaled rows here.

svm = SVC(C=10).fit(labeled, labels)
X_test, y_test = make_moons(5000, noise=0.2, random_state=1000)
X_test = (np.column_stack([X_test[:, 0], 70 + 1000 * X_test[:, 1]]) - scaler.mean_) / scaler.scale_
for name, learnt in (("the labelled rows alone", svm), ("all rows", clf)):
    print(f"error with {name}: {1 - learnt.score(X_test, y_test):.1%}")

# %%
# The boundary of both, with a sample of the rows.

height, weight = np.meshgrid(np.linspace(-2.5, 2.5, 200), np.linspace(-2.5, 2.5, 200))
points = np.column_stack([height.ravel(), weight.ravel()])
figure, axes = plt.subplots(figsize=(6.4, 4.2))
axes.scatter(*scaled.sample(seed=0, size=2000).T, s=4, color="0.8", label="a sample of the unlabelled rows")
axes.scatter(*labeled.T, c=labels, cmap="coolwarm", s=30, edgecolor="black", label="labelled rows")
for name, learnt, style in (("labelled rows alone", svm, "dashed"), ("all rows", clf, "solid")):
    boundary = learnt.decision_function(points).reshape(height.shape)
    axes.contour(height, weight, boundary, levels=[0], colors="black", linestyles=style)
    axes.plot([], [], color="black", linestyle=style, label=f"boundary of {name}")
axes.set(xlabel="height, scaled", ylabel="weight, scaled", title=f"{source.n_rows:,} rows in files")
axes.legend(loc="upper right", fontsize="small")
figure.tight_layout()
