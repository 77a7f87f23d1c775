#!/usr/bin/env python3
"""What Python adds to a call, and the import: JSON, by the gigaknn that is installed.

Of a call on a single row, whose work is next to nothing, the median time; and searches a second of several threads of Python, each by one thread of
the library: they grow with the cores where the GIL is not held.
"""

import json
import statistics
import subprocess
import sys
import threading
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


def searches_a_second(index, queries, expected, threads, repeats=20):
    """Of `threads` threads, each of which searches `repeats` times for all queries."""
    wrong = []

    def search():
        for _ in range(repeats):
            if not np.array_equal(index.search(queries, 10, nprobe=16, threads=1).ids, expected):
                wrong.append(threading.get_ident())

    workers = [threading.Thread(target=search) for _ in range(threads)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - begin
    assert not wrong
    return threads * repeats * len(queries) / seconds


def scaling():
    """Queries a second of 1, 2, 4 and 8 threads."""
    x = np.random.default_rng(0).random((100_000, 64), dtype=np.float32)
    index = gigaknn.build(x, index="IVF256,Flat")
    queries = x[:500]
    expected = index.search(queries, 10, nprobe=16).ids
    return {threads: searches_a_second(index, queries, expected, threads) for threads in (1, 2, 4, 8)}


def main():
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
    result["cores"] = gigaknn.available_threads()
    result["queries a second, by threads of Python"] = scaling()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
