"""PyTorch: unlabelled rows from a `DataLoader`, labelled ones as tensors."""

import torch
from sklearn.datasets import make_moons
from torch.utils.data import DataLoader, TensorDataset

from s3vm import S3VMClassifier

X, y = make_moons(1_000, noise=0.1, random_state=0)
rows, labels = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
for data in (rows[40:], TensorDataset(rows[40:]), TensorDataset(rows[40:], labels[40:])):
    loader = DataLoader(data, batch_size=64, shuffle=True)
    clf = S3VMClassifier(C=10, gamma=2.0, random_state=0).fit(rows[:40], labels[:40], X_unlabeled=loader)
    assert clf.score(rows, labels) > 0.97
assert clf.predict_proba(rows[:3]).shape == (3, 2)
