"""Which law of random features approximates the RBF kernel best at equal numbers of features.

    python benchmarks/laws.py [--json]

phase        sqrt(2) cos(w.x + b), the paper's
pairs        cos(w.x) and sin(w.x) of one frequency: what `RBF()` uses
+ orthogonal the frequencies of a block made orthogonal (QR of a normal matrix, rows scaled back to normal lengths)
+ Hadamard   the frequencies of a block made by three Hadamard transforms with random signs, likewise scaled

Rows are normal; each number is the root mean square error of the kernel over pairs of rows, relative to `phase`.
"""

import argparse

import common
import numpy as np
from scipy.linalg import hadamard

ROWS, REPEATS = 300, 6


def independent(rng, n_rows, d):
    return rng.standard_normal((n_rows, d))


def orthogonal(rng, n_rows, d):
    blocks = []
    for _ in range(-(-n_rows // d)):
        Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
        blocks.append(Q * np.sqrt(rng.chisquare(d, d))[:, None])
    return np.concatenate(blocks)[:n_rows]


def structured(rng, n_rows, d):
    D = 1 << (d - 1).bit_length()
    H = hadamard(D) / np.sqrt(D)
    blocks = []
    for _ in range(-(-n_rows // D)):
        M = np.eye(D)
        for _ in range(3):
            M = H @ (rng.choice([-1.0, 1.0], D)[:, None] * M)
        blocks.append((M * np.sqrt(rng.chisquare(D, D))[:, None])[:, :d])
    return np.concatenate(blocks)[:n_rows]


def waves(rng, Z, law):
    if law == "phase":
        return np.sqrt(2 / Z.shape[1]) * np.cos(Z + 2 * np.pi * rng.random(Z.shape[1]))
    return np.concatenate([np.cos(Z), np.sin(Z)], axis=1) / np.sqrt(Z.shape[1])


LAWS = {
    "phase": ("phase", independent),
    "pairs": ("pairs", independent),
    "phase + orthogonal": ("phase", orthogonal),
    "pairs + orthogonal": ("pairs", orthogonal),
    "pairs + Hadamard": ("pairs", structured),
}


def case(d, n_features, width):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, d))
    pairs = np.triu_indices(ROWS, 1)
    distance2 = np.sum(X**2, axis=1)[:, None] + np.sum(X**2, axis=1) - 2 * X @ X.T
    gamma = width / np.median(distance2[pairs])
    exact = np.exp(-gamma * distance2)[pairs]
    error = {}
    for name, (law, draw) in LAWS.items():
        squares = []
        for _ in range(REPEATS):
            W = draw(rng, n_features if law == "phase" else n_features // 2, d)
            phi = waves(rng, np.sqrt(2 * gamma) * X @ W.T, law)
            squares.append(np.mean(((phi @ phi.T)[pairs] - exact) ** 2))
        error[name] = np.sqrt(np.mean(squares))
    relative = {name: float(value / error["phase"]) for name, value in error.items()}
    return {"d": d, "features": n_features, "median kernel value": float(np.median(exact))} | relative


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    rows = [case(d, 1024, width) for width in (1.0, 0.25) for d in (8, 18, 28, 116, 300, 784)]
    common.report("Error of the kernel, relative to random phases", rows, arguments.json)


if __name__ == "__main__":
    main()
