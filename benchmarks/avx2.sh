#!/bin/sh
# Runs a command as on a machine with AVX2: keeps NumPy, OpenBLAS, PyTorch and Numba off AVX-512.
#     sh benchmarks/avx2.sh python benchmarks/engine.py
export NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR" OPENBLAS_CORETYPE=Zen ATEN_CPU_CAPABILITY=avx2
export MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 NUMBA_CPU_NAME=znver3
export NUMBA_CPU_FEATURES="+avx,+avx2,+fma,+bmi,+bmi2,+sse4.1,+sse4.2,+popcnt,+f16c,+lzcnt,+movbe"
exec "$@"
