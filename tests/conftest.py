"""Settings that have to be made before anything is imported, and which tests are left out."""

import os
import signal
from importlib.util import find_spec
from pathlib import Path

from hypothesis import HealthCheck, settings

from effort import LONG, cases

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what runs in the background ignore Ctrl-C

# The tests fill all cores by themselves, and threads of the BLAS that wait for a core keep it busy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if not Path("/dev/nvidiactl").exists():  # without a GPU, Triton's kernels can only be interpreted
    os.environ.setdefault("TRITON_INTERPRET", "1")

settings.register_profile(
    "s3vm", max_examples=cases(20, 2_000), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("s3vm")

if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
    import plain

    plain.install()

LEFT_OUT = {}  # what is not collected, and why
if not LONG:
    LEFT_OUT["long"] = "S3VM_LONG is not set: the tests marked long were left out (make test-long)"
if find_spec("torch") is None:
    LEFT_OUT["torch"] = 'torch is not installed: the tests of the GPU backend and of tensors were left out (".[gpu]")'
if find_spec("mlflow") is None:
    LEFT_OUT["tools"] = "the tools of tests/ecosystem are not installed: their scripts were left out (make test-long)"
collect_ignore = ["ecosystem", *(["test_gpu.py"] if "torch" in LEFT_OUT else [])]  # what looks for doctests imports all


def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if any(item.get_closest_marker(mark) for mark in LEFT_OUT)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter):
    for reason in LEFT_OUT.values():
        terminalreporter.write_line(reason)
