"""How much is tried: a little in `make test`, much in `make test-long` (which sets S3VM_LONG).

`docs/reliability.md` has the table. `make test` leaves out tests marked `long`, and those marked `torch` where torch
is not installed; `conftest.py` says so in a line each.
"""

import os
from collections.abc import Iterable
from itertools import combinations
from random import Random

LONG = bool(os.environ.get("S3VM_LONG"))


def cases(quick, long):
    """What is tried, or how much of it."""
    return long if LONG else quick


def pairwise(combos: Iterable[tuple]) -> list[tuple]:
    """As few of the combinations as have every pair of values that occurs in them; all of them in `make test-long`.

    Most faults come of one value or of two that meet. The choice is greedy: first those with the most new pairs.
    """
    combos = list(combos)
    if LONG:
        return combos
    order = Random(0).sample(combos, len(combos))  # or the first values would come most often
    pairs = {combo: set(combinations(enumerate(map(str, combo)), 2)) for combo in order}
    missing, chosen = set().union(*pairs.values()), []
    for most in range(max(map(len, pairs.values())), 0, -1):
        for combo, its in pairs.items():
            if len(its & missing) >= most:
                chosen.append(combo)
                missing -= its
    return sorted(chosen, key=combos.index)
