"""How long the first fit takes: with an empty compile cache, and with a warm one.

python benchmarks/compile.py
"""

import os
import subprocess
import sys
import tempfile

CODE = """
import time
start = time.perf_counter()
import s3vm
light = time.perf_counter()
import numpy as np
from scipy import sparse
from s3vm import S3VMClassifier
loaded = time.perf_counter()
X = np.random.RandomState(0).normal(size=(2000, 28))
y = np.where(np.arange(2000) < 200, (X[:, 0] > 0).astype(int), -1)
again = time.perf_counter()
S3VMClassifier(random_state=0).fit(X, y).predict(X)
dense = time.perf_counter()
S3VMClassifier(random_state=0).fit(sparse.csr_array(X), y).predict(X)
last = time.perf_counter()
print(f"import s3vm {light - start:.2f} s, with scikit-learn {loaded - start:.2f} s, "
      f"first fit {dense - again:.2f} s, first sparse fit {last - dense:.2f} s")
"""

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        for label in ("empty cache:", "warm cache: "):
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            print(label, subprocess.check_output([sys.executable, "-c", CODE], env=environment, text=True).strip())
