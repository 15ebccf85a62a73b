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

from s3vm._utils.compiled import compiled
from s3vm._utils.typing import Array
from s3vm.solvers.gram import add_rows

AWAY, REST, MARGIN, ERROR = -1, 0, 1, 2
_FLAT = 1e-13  # a slope of f that is only rounding
_CLOSE = 1e-9  # tolerance on f and on coefficients
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


class _Fixed(NamedTuple):
    ridge: float
    mean_of_mean: float
    target: float
    s: float


class _Rows(NamedTuple):
    label: Array
    share: Array
    mean: Array
    cap: Array
    a: Array
    side: Array
    place: Array
    f: Array
    low: Array  # f at which the row enters the margin
    high: Array
    left: Array  # how far `a` still has to move
    drift: Array  # the effect of all these moves on f


class _Margin(NamedTuple):
    """The rows on the margin; R, their kernel matrix being R'R, in the upper triangle; how many rows, and events."""

    members: Array
    number: Array
    factor: Array


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
        self._gram, self._fixed = gram, _Fixed(ridge, float(share @ mean) + ridge, target, s)
        f = point.f + ridge * (point.a + point.lift * share)
        start = point.a.copy(), point.side.copy(), point.place.copy(), f
        self._rows = _Rows(label, share, mean, np.zeros(n), *start, *(np.zeros(n) for _ in range(4)))
        self._constants = np.array([point.lift, point.intercept])
        self._margin = _Margin(np.empty(n, np.intp), np.zeros(2, np.intp), np.empty((_ROOM, _ROOM)))
        self.resize(np.arange(n), cap)
        self._begin(np.flatnonzero(self._rows.place == MARGIN))

    def resize(self, at: Array, cap: Array) -> None:
        """Changes the boxes of rows that are not on the margin; `settle` then moves them to where they belong."""
        _resize(self._gram, self._rows, self._fixed, at, cap)

    def settle(self) -> bool:
        """Follows the path until every row is where it belongs. False if rounding prevents it from ending."""
        number = self._margin.number
        most = int(number[1]) + _PATIENCE[0] + _PATIENCE[1] * len(self._rows.a)
        while not _follow(self._gram, self._rows, self._margin, self._fixed, self._constants, most):
            if number[1] >= most:
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
                _enter(self._gram, self._margin, j, ridge)

    def _make_room(self, n_rows: int) -> None:
        """Makes room on the margin for `n_rows` more."""
        factor, needed = self._margin.factor, int(self._margin.number[0]) + n_rows
        room = len(factor)
        if needed > room:
            self._margin = self._margin._replace(factor=np.pad(factor, (0, max(room, needed - room))))


def side_of(f: Array, s: float) -> Array:
    """The side on which an unlabelled row counts."""
    return np.where(f > -s, 1.0, np.where(f < s, -1.0, 0.0))


# The events, as compiled code, which changes its arguments in place.

_compiled = compiled(error_model="numpy")


@_compiled
def _follow(gram, rows, margin, fixed, constants, most):
    """Follows the path to its end; False if it stops before, for lack of room on the margin or of patience."""
    n, ridge = len(rows.a), fixed.ridge
    while margin.number[1] < most:
        k = margin.number[0]
        members = margin.members[:k]
        lift, intercept, step = _direction(rows, margin, fixed, constants)
        slope = rows.drift + lift * rows.mean + intercept
        add_rows(gram, members, step, slope, ridge)
        # The next event, if there is one before all rows have arrived.
        time, entering, leaving = 1.0, -1, -1
        for r in range(n):
            if abs(slope[r]) > _FLAT:
                wait = ((rows.high[r] if slope[r] > 0 else rows.low[r]) - rows.f[r]) / slope[r]
                if wait < time:
                    time, entering = wait, r
        for i in range(k):
            j = members[i]
            end = rows.side[j] * rows.cap[j] if step[i] * rows.side[j] > 0 else 0.0
            if step[i] != 0.0 and (end - rows.a[j]) / step[i] < time:
                time, leaving = (end - rows.a[j]) / step[i], i
        if leaving < 0 and entering >= 0 and k == len(margin.factor):
            return False
        time = max(time, 0.0)
        for i in range(k):
            rows.a[members[i]] += time * step[i]
        for r in range(n):
            rows.a[r] += time * rows.left[r]
            rows.f[r] += time * slope[r]
            rows.left[r] *= 1 - time
            rows.drift[r] *= 1 - time
        constants[0] += time * lift
        constants[1] += time * intercept
        margin.number[1] += 1
        if leaving < 0 and entering < 0:
            if _all_belong(gram, rows, fixed):
                return True
            continue
        if leaving >= 0:
            j = members[leaving]
            inner = step[leaving] * rows.side[j] < 0
            rows.a[j] = 0.0 if inner else rows.side[j] * rows.cap[j]
            rows.place[j] = REST if inner else ERROR
            _leave(margin, leaving)
        else:
            j = entering
            rows.place[j] = MARGIN
            _enter(gram, margin, j, ridge)
        _set_out(gram, rows, j, fixed)
    return False


@_compiled
def _all_belong(gram, rows, fixed):
    """Whether all rows, having arrived, are where they belong. Those that are not start moving again."""
    result = True
    for j in range(len(rows.a)):
        place = rows.place[j]
        if place in (REST, ERROR):
            f, side = rows.f[j], rows.side[j]
            stays = side * f >= 1 - _CLOSE if place == REST else side * f <= 1 + _CLOSE
            if side == 0:
                stays = abs(f) <= _CLOSE - fixed.s
            elif rows.label[j] == 0:
                stays = stays and side * f >= -_CLOSE - fixed.s
            if not stays:
                _find_place(rows, j, fixed)
                result = False
            _set_out(gram, rows, j, fixed)
    return result


@_compiled
def _resize(gram, rows, fixed, at, cap):
    for i in range(len(at)):
        j = at[i]
        rows.cap[j] = cap[i]
        amount = rows.a[j] * rows.side[j]
        if cap[i] == 0:
            rows.place[j] = AWAY
        elif rows.place[j] == AWAY or rows.label[j] * rows.side[j] < 0:
            _find_place(rows, j, fixed)
        elif rows.place[j] == MARGIN and not 0 <= amount <= cap[i]:
            rows.place[j] = REST if amount < 0 else ERROR
        _set_out(gram, rows, j, fixed)


@_compiled
def _find_place(rows, j, fixed):
    """Places row j where f says."""
    f, side = rows.f[j], rows.label[j]
    if side == 0:
        side = 1.0 if f > -fixed.s else (-1.0 if f < fixed.s else 0.0)
    rows.side[j] = side
    rows.place[j] = ERROR if side * f < abs(side) else REST


@_compiled
def _set_out(gram, rows, j, fixed):
    """Where row j moves, now that its place or box may have changed, and at which f it enters the margin."""
    side, place, cap = rows.side[j], rows.place[j], rows.cap[j]
    is_inside = -_CLOSE * cap <= side * rows.a[j] <= (1 + _CLOSE) * cap
    # A row that is still on its way into the box cannot be on the margin.
    low = 1.0 if place == REST and side != 0 and is_inside else -np.inf
    high = 1.0 if place == ERROR and is_inside else np.inf
    rows.low[j], rows.high[j] = (low, high) if side >= 0 else (-high, -low)
    left = 0.0
    if place != MARGIN:
        left = (side * cap if place == ERROR else 0.0) - rows.a[j]
    change = left - rows.left[j]
    rows.left[j] = left
    if change != 0.0:
        rows.drift[j] += fixed.ridge * change
        row = gram[j]
        for r in range(len(rows.drift)):
            rows.drift[r] += change * row[r]


@_compiled
def _direction(rows, margin, fixed, constants):
    """How the coefficient of the mean, the intercept and the margin's coefficients a change while all rows move:

    ``mean_of_mean lift + intercept + mean'a = balance``, ``lift + sum a = total``, ``mean lift + intercept + K a = f``,

    with what is missing now, and the effect of the others, on the right.
    """
    k = margin.number[0]
    balance, total = fixed.target - fixed.ridge * constants[0], -constants[0]
    for r in range(len(rows.a)):
        balance -= rows.share[r] * (rows.f[r] + rows.drift[r])
        total -= rows.a[r] + rows.left[r]
    # Forward, with R': the mean, a constant, and f.
    factor = margin.factor
    u, v, w = np.empty(k), np.empty(k), np.empty(k)
    for i in range(k):
        j = margin.members[i]
        u[i], v[i], w[i] = rows.mean[j], 1.0, rows.side[j] - rows.f[j] - rows.drift[j]
    mm, m1, oo = fixed.mean_of_mean, 1.0, 0.0
    for i in range(k):
        row = factor[i]
        x, y, z = u[i] / row[i], v[i] / row[i], w[i] / row[i]
        u[i], v[i], w[i] = x, y, z
        for c in range(i + 1, k):
            u[c] -= row[c] * x
            v[c] -= row[c] * y
            w[c] -= row[c] * z
        mm -= x * x
        m1 -= x * y
        oo -= y * y
        balance -= x * z
        total -= y * z
    # The first two equations, a being eliminated.
    determinant = mm * oo - m1 * m1
    lift = (balance * oo - m1 * total) / determinant
    intercept = (mm * total - m1 * balance) / determinant
    # Backward, with R.
    a = np.empty(k)
    for i in range(k - 1, -1, -1):
        a[i] = (w[i] - lift * u[i] - intercept * v[i] - _dot(factor[i, i + 1 : k], a[i + 1 :])) / factor[i, i]
    return lift, intercept, a


@compiled(fastmath={"reassoc"})  # or the sum would not be vectorised
def _dot(x, y):
    result = 0.0
    for i in range(len(x)):
        result += x[i] * y[i]
    return result


@_compiled
def _enter(gram, margin, j, ridge):
    """Row j enters the margin: one more column of R."""
    k, factor = margin.number[0], margin.factor
    new, own = np.empty(k), gram[j, j] + ridge
    for i in range(k):
        new[i] = gram[j, margin.members[i]]
    for i in range(k):
        row = factor[i]
        new[i] /= row[i]
        for c in range(i + 1, k):
            new[c] -= row[c] * new[i]
        own -= new[i] * new[i]
        row[k] = new[i]
    factor[k, k] = np.sqrt(max(own, 0.1 * ridge))
    margin.members[k] = j
    margin.number[0] += 1


@_compiled
def _leave(margin, position):
    """A row leaves the margin: the columns of R after it move up, and rotations of rows make it triangular again."""
    k, factor = margin.number[0] - 1, margin.factor
    for i in range(position, k):
        margin.members[i] = margin.members[i + 1]
    for c in range(k + 1):
        for i in range(max(position, c - 1), k):
            factor[c, i] = factor[c, i + 1]
    for c in range(position, k):
        upper, lower = factor[c], factor[c + 1]
        size = np.hypot(upper[c], lower[c])
        cosine, sine = upper[c] / size, lower[c] / size
        for i in range(c, k):
            above, below = upper[i], lower[i]
            upper[i] = cosine * above + sine * below
            lower[i] = cosine * below - sine * above
    margin.number[0] = k
