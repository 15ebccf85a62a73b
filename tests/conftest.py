"""Settings that have to be made before anything is imported."""

import os
import signal
from pathlib import Path

from hypothesis import HealthCheck, settings

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what runs in the background ignore Ctrl-C

if not Path("/dev/nvidiactl").exists():  # without a GPU, Triton's kernels can only be interpreted
    os.environ.setdefault("TRITON_INTERPRET", "1")

settings.register_profile("quick", max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("quick"), max_examples=2_000)
settings.load_profile("long" if os.environ.get("S3VM_LONG") else "quick")

if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
    import plain

    plain.install()
