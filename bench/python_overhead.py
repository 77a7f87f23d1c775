#!/usr/bin/env python3
"""What Python adds to a call, and the import: JSON, by the gigaknn that is installed.

Of a call on a single row, whose work is next to nothing, the median time; and how it grows with the rows of a result, whose arrays are not copied.
"""

import json
import statistics
import subprocess
import sys
import time

import gigaknn
import numpy as np


def median_seconds(call, repeats):
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def import_seconds(code):
    command = [sys.executable, "-c", f"import time; begin = time.perf_counter(); {code}; print(time.perf_counter() - begin)"]
    return statistics.median(float(subprocess.run(command, capture_output=True, check=True, text=True).stdout) for _ in range(9))


def main():
    from gigaknn import _core
    from gigaknn._arguments import rows, run_of

    x = np.random.default_rng(0).random((64, 4), dtype=np.float32)
    index = gigaknn.build(x, index="Flat")
    query = x[:1]
    assert index.search(query, 1).ids[0, 0] == 0
    view, run = rows(query, "query"), run_of(1, None, None)
    result = {
        "version": gigaknn.__version__,
        "commit": gigaknn.__commit__,
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "seconds": {
            "search of one row": median_seconds(lambda: index.search(query, 1, threads=1), 20000),
            "the same, of it in the module": median_seconds(lambda: index._index.search(view, 1, None, None, None, None, run), 20000),
            "rows of an array": median_seconds(lambda: rows(query, "query"), 20000),
            "import numpy": import_seconds("import numpy"),
            "import gigaknn after numpy": import_seconds("import numpy; begin = time.perf_counter(); import gigaknn"),
        },
    }
    assert isinstance(_core.version(), str)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
