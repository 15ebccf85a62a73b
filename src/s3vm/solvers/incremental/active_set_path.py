"""The exact solution of an SVM on its path while boxes change: margin, error and rest sets, event by event.

The function is ``f = sum_i a_i k(x_i, .) + lift mean_u k(x_u, .) + b``. A row that counts on the side y = +1 or -1 has
``y a`` in the box ``[0, cap]``. The solution is where each row is (Karush, Kuhn and Tucker)

    at rest        ``a = 0``            and ``y f(x) >= 1``,
    on the margin  ``0 <= y a <= cap``  and ``y f(x) = 1``, or
    in error       ``y a = cap``        and ``y f(x) <= 1``,

where ``sum_i a_i + lift = 0``, and where the mean of f over the unlabelled rows is `target`. A labelled row is on the
side of its label. An unlabelled one is on the side where f puts it, +1 above -s and -1 below s, and on neither, with
``a = 0``, between: this is what CCCP's two copies of it come to once beta agrees with f, ``a`` being their sum.

The coefficient of a row that is not where it belongs moves there in a straight line. The rows on the margin
compensate: a linear system keeps their f. All is linear until an event: a row on the margin reaches an end of its box
and leaves, or f of another row reaches 1 on its side, and the row enters. When all have arrived, unlabelled rows whose
f has crossed s or -s change sides and start moving. Each time the objective of Eq. 1 falls, so this ends. (Changing
sides earlier, as soon as f crosses, leads to minima that are no better, and may cycle.)
"""

from typing import NamedTuple

import numpy as np

from s3vm._utils.typing import Array
from s3vm.solvers.incremental.path_events import AWAY, MARGIN, Fixed, Margin, Rows, enter, follow, resize

__all__ = ["AWAY", "MARGIN", "ActiveSetPath", "Point", "side_of"]

_RIDGE = 1e-10  # of the kernel's diagonal, added to it: a row and its copy can then both be on the margin
_DRIFT = 1e-6  # of f, as much as rounding may cause
_ROOM = 64  # rows on the margin that fit in at first
_PATIENCE = 1000, 20  # events, and events per row, after which the path is given up


class Point(NamedTuple):
    """A point of a path.

    Coefficients, sides (-1, 0 or +1) and places of the rows (`AWAY`, `REST`, `MARGIN` or `ERROR`), and f there; the
    coefficient of the mean; the intercept.
    """

    a: Array
    side: Array
    place: Array
    f: Array
    lift: float
    intercept: float


class ActiveSetPath:
    """A path that starts at `point`, which may be the solution for other boxes, another mean and another target.

    `gram` is the kernel matrix, possibly with room for more; `label` is 0 for an unlabelled row. The mean to hold is
    ``share @ f``, and `mean` is ``gram @ share``. A row with a box of size 0 in `cap` does not take part: its
    coefficient goes to 0. The f of `point` must agree with its coefficients; these and the places need not agree with
    the boxes.
    """

    def __init__(
        self, gram: Array, label: Array, share: Array, mean: Array, cap: Array, target: float, s: float, point: Point
    ) -> None:
        n = len(label)
        ridge = _RIDGE * float(np.diagonal(gram)[:n][(cap > 0) | (point.a != 0)].mean())
        mean = mean + ridge * share
        self._gram, self._fixed = gram, Fixed(ridge, float(share @ mean) + ridge, target, s)
        f = point.f + ridge * (point.a + point.lift * share)
        start = point.a.copy(), point.side.copy(), point.place.copy(), f
        self._rows = Rows(label, share, mean, np.zeros(n), *start, *(np.zeros(n) for _ in range(4)))
        self._constants = np.array([point.lift, point.intercept])
        self._margin = Margin(np.empty(n, np.intp), np.zeros(2, np.intp), np.empty((_ROOM, _ROOM)))
        self.resize(np.arange(n), cap)
        self._begin(np.flatnonzero(self._rows.place == MARGIN))

    def resize(self, at: Array, cap: Array) -> None:
        """Changes the boxes of rows that are not on the margin; `settle` then moves them to where they belong."""
        resize(self._gram, self._rows, self._fixed, at, cap)

    def settle(self) -> bool:
        """Follows the path until every row is where it belongs. False if rounding prevents it from ending."""
        most = self.n_events + _PATIENCE[0] + _PATIENCE[1] * len(self._rows.a)
        while not follow(self._gram, self._rows, self._margin, self._fixed, self._constants, most):
            if self.n_events >= most:
                return False
            self._make_room(1)
        return True

    def holds(self) -> bool:
        """Whether f, which was updated at each event, still agrees with the coefficients.

        It is checked on the margin. Rounding matters only for kernels with huge values.
        """
        rows, members = self._rows, self._margin.members[: self._margin.number[0]]
        lift, intercept = self._constants
        weights = rows.a + lift * rows.share
        f = self._gram[members, : len(weights)] @ weights + self._fixed.ridge * weights[members] + intercept
        return bool(np.all(np.abs(f - rows.f[members]) < _DRIFT))

    @property
    def n_events(self) -> int:
        return int(self._margin.number[1])

    @property
    def point(self) -> Point:
        rows, ridge = self._rows, self._fixed.ridge
        lift, intercept = self._constants.tolist()
        f = rows.f - ridge * (rows.a + lift * rows.share)
        return Point(rows.a.copy(), rows.side.copy(), rows.place.copy(), f, lift, intercept)

    def _begin(self, members: Array) -> None:
        """The margin at the start."""
        k, ridge = len(members), self._fixed.ridge
        self._make_room(k)
        try:
            matrix = self._gram[np.ix_(members, members)] + ridge * np.eye(k)
            self._margin.factor[:k, :k] = np.linalg.cholesky(matrix).T
            self._margin.members[:k], self._margin.number[0] = members, k
        except np.linalg.LinAlgError:  # rounding: added one by one, each row is made independent of the others
            for j in members:
                enter(self._gram, self._margin, j, ridge)

    def _make_room(self, n_rows: int) -> None:
        """Makes room on the margin for `n_rows` more."""
        factor, needed = self._margin.factor, int(self._margin.number[0]) + n_rows
        room = len(factor)
        if needed > room:
            self._margin = self._margin._replace(factor=np.pad(factor, (0, max(room, needed - room))))


def side_of(f: Array, s: float) -> Array:
    """The side on which an unlabelled row counts."""
    return np.where(f > -s, 1.0, np.where(f < s, -1.0, 0.0))
