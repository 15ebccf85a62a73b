"""Files and arguments that are nearly right: an error of our own that says what is wrong, or a result; never a crash.

Each target is fuzzed in a process of its own (see `fuzzing`): no other exception, no crash of compiled code, at most 20
seconds a case and 100 MB above what the process had before. What was found is kept in tests of its own, by what it was.
"""

import pytest

from effort import cases
from fuzzing import run_apart

HOW_MANY = {  # what takes longest comes first
    "command line": cases(50, 100_000),
    "checkpoints": cases(40, 10_000),
    "calls": cases(20, 5_000),
    "output files": cases(100, 20_000),
    "hostile numbers": 3_000,  # a second each
    "models": cases(300, 100_000),
    "tables": cases(300, 100_000),
}


@pytest.mark.parametrize(
    "target",
    [pytest.param(name, marks=pytest.mark.long) if name == "hostile numbers" else name for name in HOW_MANY],
)
def test_fuzz(target):
    outcomes = run_apart(target, 0, HOW_MANY[target])
    assert sum(outcomes.values()) == HOW_MANY[target]
    fine = sum(count for name, count in outcomes.items() if name.endswith((" 0", "loaded", "read")))
    assert 0.02 < fine / HOW_MANY[target] < 0.9, "most cases should be wrong, and some right"
