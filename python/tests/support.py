"""What the tests share. They test the gigaknn that is installed: python -m unittest discover -s python/tests -p '*_test.py'"""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np


def random_rows(n, d, dtype=np.float32, seed=0):
    values = np.random.default_rng(seed).random((n, d), dtype=np.float32)
    return values if dtype == np.float32 else (values * 100).astype(dtype)


def clustered_rows(n, d, seed=0):
    """Rows around 50 centres."""
    random = np.random.default_rng(seed)
    return (random.random((50, d))[random.integers(50, size=n)] * 4 + random.normal(size=(n, d)) * 0.3).astype(np.float32)


def true_neighbors(queries, base, k):
    """(squared distances, ids) by NumPy alone, in float64."""
    distances = ((queries[:, None, :].astype(np.float64) - base[None].astype(np.float64)) ** 2).sum(axis=2)
    ids = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, ids, axis=1), ids


def available_memory():
    """Bytes that programs may take without swapping."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


def run_python(code, timeout=120, **environment):
    """Runs `code` in a Python of its own."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    # A shell starts what is in the background with SIGINT ignored, and Python then leaves it so.
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env={**os.environ, **environment}, preexec_fn=heed)
