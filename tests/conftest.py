"""Settings that have to be made before anything is imported."""

import os
from pathlib import Path

if not Path("/dev/nvidiactl").exists():  # without a GPU, Triton's kernels can only be interpreted
    os.environ.setdefault("TRITON_INTERPRET", "1")
