#!/usr/bin/env python3
"""What Python adds to a call, to each row of it, and to the import, by the gigaknn that is installed in the environment of bench/setup_peers:

    bench/.venv/bin/pip install "$(python/build_wheel build/python_dist)" && bench/.venv/bin/python bench/python_overhead.py

Of a call on a single row, whose work is next to nothing, the median time. Of many rows the same search through Python and through the C++ library alone (bench/shim.cpp), in turns. Searches a
second of several threads of Python, each by one thread of the library: they grow with the cores where the GIL is not held. Results go to bench/results/<machine>/python_overhead.{json,md}.
"""

import statistics
import subprocess
import sys
import threading
import time

import gigaknn
import kept
import numpy as np

ROWS = (1, 1000, 100_000)  # of a search


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


def of_each_row(engine, rounds):
    """Seconds of searches of so many rows, through Python and without, in turns."""
    x = np.random.default_rng(0).random((64, 4), dtype=np.float32)
    queries = np.random.default_rng(1).random((max(ROWS), 4), dtype=np.float32)
    index, bare = gigaknn.build(x, index="IVF2,Flat", iterations=10), engine.ivf(x, "l2", "IVF2,Flat", 10)
    found = {}
    for count in ROWS:
        some = queries[:count]
        assert np.array_equal(index.search(some, 1, nprobe=2, threads=engine.threads).ids, bare.search(some, 1, 2, count)[1])
        seconds = {"through Python": [], "without": []}
        for _ in range(rounds * (3 if count > 10_000 else 300)):
            seconds["through Python"].append(median_seconds(lambda: index.search(some, 1, nprobe=2, threads=engine.threads), 1))
            seconds["without"].append(float(bare.search(some, 1, 2, count)[0].sum()))
        found[str(count)] = {name: statistics.median(all_of_them) for name, all_of_them in seconds.items()}
    return found


def of_calls():
    from gigaknn._arguments import rows, run_of

    x = np.random.default_rng(0).random((64, 4), dtype=np.float32)
    index = gigaknn.build(x, index="Flat")
    query = x[:1]
    assert index.search(query, 1).ids[0, 0] == 0
    view, run = rows(query, "query"), run_of(1, None, None)
    return {
        "a search of one row": median_seconds(lambda: index.search(query, 1, threads=1), 20000),
        "of it in the module": median_seconds(lambda: index._index.search(view, 1, None, None, None, None, run), 20000),
        "of it to look at the array": median_seconds(lambda: rows(query, "query"), 20000),
        "import numpy": import_seconds("import numpy"),
        "import gigaknn after numpy": import_seconds("import numpy; begin = time.perf_counter(); import gigaknn"),
    }


def markdown(results):
    rows = {r["row"]: r for r in results}
    lines = ["# What Python adds", "", "Made by `bench/python_overhead.py`; do not edit.", ""]
    lines += kept.origins(results)
    if "calls" in rows:
        lines += ["", "| | seconds |", "|---|---|"] + [f"| {name} | {seconds:.3g} |" for name, seconds in rows["calls"]["seconds"].items()]
        lines += ["", "Targets: under 20e-6 a call, an import under 0.3."]
    if "rows" in rows:
        found = rows["rows"]["seconds"]
        lines += ["", "| rows of a search | ms through Python | ms without | us more |", "|---|---|---|---|"]
        lines += [f"| {int(count):,} | {1e3 * s['through Python']:.4g} | {1e3 * s['without']:.4g} | {1e6 * (s['through Python'] - s['without']):.1f} |" for count, s in found.items()]
        more = {int(count): s["through Python"] - s["without"] for count, s in found.items()}
        lines += ["", f"From {min(more):,} to {max(more):,} rows that is {1e9 * (more[max(more)] - more[min(more)]) / (max(more) - min(more)):.2f} ns a row (target: none)."]
    if "threads" in rows:
        lines += ["", f"Queries a second of several threads of Python, {rows['threads']['cores']} cores: " +
                  ", ".join(f"{threads}: {rate:,.0f}" for threads, rate in rows["threads"]["queries"].items()) + "."]
    return "\n".join([*lines, ""])


def main():
    arguments, engine, header = kept.start(__doc__, 9, "calls, rows, threads")
    header["peers"] = f"Python {sys.version.split()[0]}, NumPy {np.__version__}"
    row = lambda name, measure: lambda: {"row": name, "commit": gigaknn.__commit__, "rounds": arguments.rounds, **measure()}
    work = {
        "calls": row("calls", lambda: {"seconds": of_calls()}),
        "rows": row("rows", lambda: {"seconds": of_each_row(engine, arguments.rounds)}),
        "threads": row("threads", lambda: {"cores": gigaknn.available_threads(), "queries": {str(threads): rate for threads, rate in scaling().items()}}),
    }
    kept.run("python_overhead", work, markdown, header, arguments)


if __name__ == "__main__":
    main()
