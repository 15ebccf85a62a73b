"""Eq. 1 with a graph, as plainly as can be: the kernel and the Laplacian as dense float64 matrices over all rows.

A function is ``f = K a + b`` at all rows, labelled ones first. SciPy minimises over a and b, or over the functions of a
given mean over the unlabelled rows. Only the rows, the graph's Laplacian and the costs are taken from the problem.
"""

from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from s3vm.problem.graph import NeighborGraph


def with_graph(problem, graph_cost, n_neighbors=5):
    """The problem with the graph of all its rows, at this cost in every column."""
    graph = NeighborGraph.of(problem.all_rows(), n_neighbors)
    return replace(problem, graph=graph, graph_cost=np.full(problem.n_columns, float(graph_cost)))


class DenseRisk:
    """``||f||^2 / 2 + sum_i C_i l(f_i, y_i) + C* mean_u u(f) + c/2 (1/n) f'Lf`` of column k."""

    def __init__(self, problem, k=0):
        X = np.asarray(problem.all_rows(), np.float64)
        self.problem, self.n_l = problem, problem.n_labeled
        self.K = problem.kernel.gram(X, X)
        self.L = problem.graph.laplacian.toarray()
        self.y, self.C = problem.targets[:, k], problem.costs[:, k]
        self.gaps, self.c = float(problem.unlabeled_cost[k]), float(problem.graph_cost[k])
        # Functions as v in K^(1/2): well conditioned, and the norm is that of v.
        values, vectors = np.linalg.eigh(self.K)
        self.root = vectors[:, values > 1e-12] * np.sqrt(values[values > 1e-12])

    def of_scores(self, f):
        """All but the norm, and its derivative with respect to f at every row."""
        labeled, unlabeled = self.problem.labeled_loss, self.problem.unlabeled_loss
        f_l, f_u = f[: self.n_l], f[self.n_l :]
        value = self.C @ labeled.value(f_l, self.y) + self.c / 2 * f @ self.L @ f / len(f)
        slope = self.c * self.L @ f / len(f)
        slope[: self.n_l] += self.C * labeled.grad(f_l, self.y)
        if self.gaps:
            value += self.gaps * unlabeled.value(f_u).mean()
            slope[self.n_l :] += self.gaps / len(f_u) * unlabeled.grad(f_u)
        return value, slope

    def of_expansion(self, weights, intercept):
        """R of ``f = K weights + intercept``."""
        f = self.K @ weights + intercept
        return weights @ self.K @ weights / 2 + self.of_scores(f)[0]

    def norm(self, f, mean=None):
        """``||f||^2`` of the function that is f at all rows, up to the constant if it has this mean."""
        Z = self.root if mean is None else self.root - self.root[self.n_l :].mean(axis=0)
        v = np.linalg.lstsq(Z, f - (mean or 0.0), rcond=None)[0]
        return v @ v

    def of_model(self, model, k=0):
        """R of an expansion on some of the rows."""
        first = {row.tobytes(): at for at, row in reversed(list(enumerate(self._rows())))}
        weights = np.zeros(len(self.K))
        np.add.at(weights, [first[row.tobytes()] for row in self._as_rows(model.centers)], model.weights[:, k])
        return self.of_expansion(weights, model.intercept[k])

    def _rows(self):
        return self._as_rows(self.problem.all_rows())

    @staticmethod
    def _as_rows(rows):
        return np.ascontiguousarray(rows, np.float64)

    def minimum(self, mean=None, start=None, penalty=0.0):
        """The lowest R and f at all rows; with this mean over the unlabelled rows if one is given, or else with a free
        intercept b that costs ``penalty b^2 / 2``. `start` is f at all rows where the search begins."""
        Z = self.root if mean is None else self.root - self.root[self.n_l :].mean(axis=0)

        def risk(point):
            v, b = point[:-1], (point[-1] if mean is None else mean)
            value, slope = self.of_scores(Z @ v + b)
            of_b = slope.sum() + penalty * b if mean is None else 0.0
            return v @ v / 2 + value + penalty * b**2 / 2, np.append(v + Z.T @ slope, of_b)

        point = np.zeros(Z.shape[1] + 1)
        if start is not None:
            point[:-1] = np.linalg.lstsq(Z, start - mean, rcond=None)[0]
        options = {"maxiter": 20000, "maxfun": 200000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 50}
        found = minimize(risk, point, jac=True, method="L-BFGS-B", options=options)
        return found.fun, Z @ found.x[:-1] + (found.x[-1] if mean is None else mean)
