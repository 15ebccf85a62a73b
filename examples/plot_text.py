"""
Text: sparse rows
=================

Semi-supervised SVMs began with documents: reading one takes a minute, and there are always more of them. Rows are
sparse, thousands of columns with a few dozen words each, and stay sparse throughout.
"""

# %%
# Documents
# ---------
#
# The texts are synthetic, so nothing has to be downloaded: four topics share most of their words, and each document
# draws about sixty words from its topic. Forty of 3,000 documents are labelled.

import time

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.svm import SVC

from s3vm import Polynomial, S3VMClassifier
from s3vm.inspect import plot

rng = np.random.RandomState(0)
N_DOCUMENTS, N_WORDS, TOPICS = 3000, 2000, np.array(["cooking", "politics", "science", "sport"])
common = rng.dirichlet(np.full(N_WORDS, 0.05))
own = rng.dirichlet(np.full(N_WORDS, 0.02), size=len(TOPICS))
words = 0.88 * common + 0.12 * own
topic = rng.randint(len(TOPICS), size=N_DOCUMENTS)
counts = sparse.csr_array(np.array([rng.multinomial(5 + rng.poisson(60), words[k]) for k in topic]))
X, y = TfidfTransformer(sublinear_tf=True).fit_transform(counts), TOPICS[topic]

some = np.where(rng.permutation(N_DOCUMENTS) < 40, y, None)  # None: no label
known = some != None  # noqa: E711
print(f"{X.shape[0]:,} documents, {X.shape[1]:,} words, {X.nnz / X.shape[0]:.0f} of them in a document")

# %%
# Learning from them
# ------------------
#
# For text the linear kernel is usual: a polynomial of degree 1. Labels are strings here, and missing labels mark the
# unlabelled documents (``unlabeled=None``).

svm = SVC(kernel="linear", C=10).fit(X[known], y[known])
start = time.perf_counter()
clf = S3VMClassifier(kernel=Polynomial(gamma=1, degree=1, coef0=0), unlabeled=None, random_state=0).fit(X, some)
print(f"learnt from {X.shape[0]:,} documents in {time.perf_counter() - start:.1f} s")
for name, model in {"supervised SVM": svm, "s3vm": clf}.items():
    print(f"{name}: {np.mean(model.predict(X[~known]) != y[~known]):.1%} of the others get the wrong topic")
print(clf.safety_)

# %%
# Why it works
# ------------
#
# Forty documents contain few of the words that distinguish the topics. The other documents show which words go
# together, which reveals the gap between the topics: hardly any document is near the boundary.

figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
alone = S3VMClassifier(clf.solver, kernel=clf.kernel, unlabeled=None, unlabeled_weight=0, random_state=0).fit(X, some)
for ax, model, title in zip(axes, (alone, clf), ("labelled documents alone", "all documents"), strict=True):
    plot.score_histogram(model, X, some, ax=ax).set_title(title)

# sphinx_gallery_thumbnail_number = 1
