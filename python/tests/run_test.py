"""How calls run: without the GIL, watched, stopped, in several threads and after a fork."""

import errno
import gc
import io
import os
import pickle
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import gigaknn
import numpy as np
from gigaknn._arguments import Bar
from support import random_rows, run_python


class Runs(unittest.TestCase):
    def setUp(self):
        self.x = random_rows(3000, 16)

    def test_ctrl_c_stops_within_a_second(self):
        result = run_python(
            """
            import gigaknn, numpy as np, os, signal, tempfile, threading, time
            x = np.random.default_rng(0).integers(256, size=(100000, 128)).astype(np.float32)  # distances are the same however they are summed
            ten = np.tile(x, (10, 1))
            def stopped_after(work, seconds=0.5):
                sent = []
                def interrupt():
                    sent.append(time.monotonic())
                    os.kill(os.getpid(), signal.SIGINT)
                threading.Timer(seconds, interrupt).start()
                try:
                    work()
                except KeyboardInterrupt as error:
                    assert not isinstance(error, gigaknn.Error)
                    print(time.monotonic() - sent[0])
            stopped_after(lambda: gigaknn.knn_graph(ten, 10))
            stopped_after(lambda: gigaknn.knn_graph(ten, 10, progress=lambda *report: None))
            stopped_after(lambda: gigaknn.kmeans(x, 8192, rows_per_cluster=0, iterations=1000))
            stopped_after(lambda: gigaknn.build(x, recall=0.95))
            # A graph that is one, of lists of one row each.
            others = (np.arange(len(x)) + 1) % len(x)
            graph = gigaknn.KnnGraph.from_arrays(((x - x[others]) ** 2).sum(axis=1, keepdims=True), others[:, None], base=x)
            stopped_after(lambda: graph.merge(graph))
            stopped_after(lambda: graph.extend(ten))
            stopped_after(lambda: graph.paths(0, len(x) // 2, 10000))
            index = gigaknn.build(ten, index="IVF64,Flat", iterations=1)
            stopped_after(lambda: index.search(ten, 10, nprobe=64))
            stopped_after(lambda: index.search_exact(ten, 10))
            with tempfile.TemporaryDirectory() as folder:
                stopped_after(lambda: index.save(f"{folder}/x.gknn"), 0.05)
                assert os.listdir(folder) == []
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            print(gigaknn.knn(x[:2], x[:100], 1).ids.ravel())
            """,
            timeout=300,
        )
        lines = result.stdout.splitlines()
        self.assertEqual((result.returncode, len(lines)), (0, 11), result.stderr + result.stdout)
        for seconds in lines[:10]:
            self.assertLess(float(seconds), 1)
        self.assertEqual(lines[10], "[0 1]")

    def test_handlers_of_the_users_own_run_after_the_call(self):
        result = run_python(
            """
            import gigaknn, numpy as np, os, signal, threading
            x = np.random.default_rng(0).random((30000, 64), dtype=np.float32)
            seen = []
            signal.signal(signal.SIGINT, lambda *signal: seen.append("handled"))
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            while not seen: graph = gigaknn.knn_graph(x, 5)
            print(seen, graph.exact)
            """
        )
        self.assertEqual(result.stdout, "['handled'] True\n", result.stderr)

    def test_progress_is_told_to_a_callable(self):
        reports = []
        gigaknn.knn_graph(self.x, 5, progress=lambda *report: reports.append(report))
        self.assertTrue(all(isinstance(stage, str) and 0 <= done <= total for stage, done, total in reports))
        self.assertEqual(reports[-1][1], reports[-1][2])

    def test_what_the_callable_raises_ends_the_call(self):
        def stop(stage, done, total):
            raise LookupError("enough")

        with self.assertRaisesRegex(LookupError, "enough"):
            gigaknn.knn_graph(self.x, 5, progress=stop)

    def test_the_callable_may_call(self):
        found = []
        gigaknn.knn_graph(self.x, 5, progress=lambda *report: found.append(gigaknn.knn(self.x[:1], self.x, 1).ids[0, 0]))
        self.assertEqual(set(found), {0})

    def test_progress_is_a_bar(self):
        try:
            import tqdm  # noqa: F401
        except ImportError:
            self.skipTest("no tqdm")
        before, sys.stderr = sys.stderr, io.StringIO()
        try:
            gigaknn.knn_graph(self.x, 5, progress=True)
            shown = sys.stderr.getvalue()
        finally:
            sys.stderr = before
        self.assertIn("graph: 100%", shown)

    def test_a_stage_that_comes_again_has_a_bar_of_its_own(self):
        class Shown:
            all = []

            def __init__(self, total, desc, **_):
                self.n, self.total = 0, total
                self.all.append(self)

            def update(self, by):
                self.n += by

            def close(self):
                pass

        with mock.patch.dict(sys.modules, {"tqdm.auto": mock.Mock(tqdm=Shown)}):
            bar = Bar()
            for total in (40, 2, 2):
                for done in range(total + 1):
                    bar("search", done, total)
        self.assertEqual([(one.n, one.total) for one in Shown.all], [(40, 40), (2, 2), (2, 2)])

    def test_a_bar_without_tqdm_is_one_error(self):
        with mock.patch.dict(sys.modules, {"tqdm.auto": None}), mock.patch.object(sys, "unraisablehook") as second:
            with self.assertRaisesRegex(ImportError, r"^progress=True needs tqdm \(pip install tqdm\)"):
                gigaknn.knn_graph(self.x, 5, progress=True)
            gc.collect()
        second.assert_not_called()

    def test_other_threads_run_meanwhile(self):
        x = random_rows(20000, 64)
        done = threading.Event()
        worker = threading.Thread(target=lambda: (gigaknn.knn_graph(x, 10, threads=1), done.set()))
        ticks = 0
        worker.start()
        while not done.is_set():
            time.sleep(0.005)
            ticks += 1
        worker.join()
        self.assertGreater(ticks, 5)

    def test_eight_threads_find_the_same(self):
        expected = gigaknn.knn_graph(self.x, 10)
        graphs = [None] * 8

        def build(i):
            graphs[i] = gigaknn.knn_graph(self.x, 10)

        threads = [threading.Thread(target=build, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for graph in graphs:
            np.testing.assert_array_equal(graph.ids, expected.ids)

    def test_searches_of_eight_threads_scale_with_the_cores(self):
        """Each by one thread of the library. The best of some tries: others may have the cores meanwhile."""
        cores = gigaknn.available_threads()
        if cores < 2:
            self.skipTest("one core")
        x = random_rows(20000, 64)
        index = gigaknn.build(x, index="IVF64,Flat")
        expected = index.search(x[:1000], 10, nprobe=32, threads=1)

        def searches_a_second(threads, repeats):
            def search(own):
                found.extend(index.search(x[:1000], 10, nprobe=32, threads=1) for _ in range(own))

            found, workers = [], [threading.Thread(target=search, args=(repeats // threads,)) for _ in range(threads)]
            begin = time.perf_counter()
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            seconds = time.perf_counter() - begin
            self.assertEqual(len(found), repeats)
            for distances, ids in found:
                np.testing.assert_array_equal(ids, expected.ids)
                np.testing.assert_array_equal(distances, expected.distances)
            return repeats / seconds

        speedups = []
        while len(speedups) < 8 and max(speedups, default=0) < 1.3:
            alone = searches_a_second(1, 8)
            speedups.append(searches_a_second(8, 16) / alone)
        self.assertGreaterEqual(max(speedups), 1.3, speedups)

    def test_a_fork_after_use_goes_on(self):
        # With and without other threads at work, of which the child has none.
        result = run_python(
            """
            import gigaknn, numpy as np, os, signal, sys, threading
            x = np.random.default_rng(0).random((3000, 32), dtype=np.float32)
            index = gigaknn.build(x, index="IVF16,Flat")
            expected = gigaknn.knn(x[:10], x, 5).ids
            gigaknn.knn(x[:10], x[:100], 5, device="emulated")

            def fork():
                child = os.fork()
                if child == 0:
                    signal.alarm(30)
                    same = all((found == expected).all() for found in (
                        gigaknn.knn(x[:10], x, 5).ids, gigaknn.knn(x[:10], x, 5, device="emulated").ids, index.search(x[:10], 5, nprobe=16).ids))
                    sys.exit(0 if same else 1)
                return os.waitpid(child, 0)[1]

            print(fork())
            stop = threading.Event()
            def work():
                while not stop.is_set(): gigaknn.knn(x, x, 5)
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads: thread.start()
            print(fork(), fork())
            stop.set()
            for thread in threads: thread.join()
            print(fork(), (gigaknn.knn(x[:10], x, 5).ids == expected).all())
            """,
            timeout=240,
        )
        self.assertEqual(result.stdout, "0\n0 0\n0 True\n", result.stderr)

    def test_a_fork_waits_for_nothing_that_a_thread_of_its_parent_was_at(self):
        # The first search of an opened index prepares it, for as long as that takes; an addition holds what guards changes.
        result = run_python(
            """
            import gigaknn, numpy as np, os, signal, sys, tempfile, threading, time
            x = np.random.default_rng(0).random((100000, 32), dtype=np.float32)
            folder = tempfile.TemporaryDirectory()
            gigaknn.build(x, index="Flat").save(f"{folder.name}/x.gknn")

            def fork(thread, work):
                thread.start()
                time.sleep(0.02)
                child = os.fork()
                if child == 0:
                    signal.alarm(30)
                    work()
                    os._exit(0)
                thread.join()
                return os.waitpid(child, 0)[1]

            for _ in range(3):
                index = gigaknn.open(f"{folder.name}/x.gknn")
                search = lambda: index.search(x[:2], 5)
                print(fork(threading.Thread(target=search), search))
                print(fork(threading.Thread(target=lambda: index.add(x)), lambda: index.remove([3])))
            """,
            timeout=240,
        )
        self.assertEqual(result.stdout, "0\n" * 6, result.stderr)

    def test_the_process_ends_while_daemon_threads_are_at_work(self):
        for keywords in ("", "progress=lambda *_: None", "progress=lambda *_: sum(range(100000))"):
            result = run_python(
                f"""
                import gigaknn, numpy as np, threading, time
                x = np.random.default_rng(0).random((100, 64), dtype=np.float32)

                def work():
                    while True: gigaknn.knn(x[:2], x, 1, {keywords})

                for _ in range(3): threading.Thread(target=work, daemon=True).start()
                time.sleep(0.3)
                print("end", flush=True)
                """
            )
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "end\n", ""))

    def test_what_was_registered_before_the_import_may_still_join_threads(self):
        result = run_python(
            """
            import atexit, threading
            stop = threading.Event()

            def end():
                stop.set()
                worker.join(60)
                print(worker.is_alive())

            atexit.register(end)
            import gigaknn, numpy as np
            x = np.random.default_rng(0).random((100, 64), dtype=np.float32)

            def work():
                while not stop.is_set(): gigaknn.knn(x[:2], x, 1, progress=lambda *_: None)

            worker = threading.Thread(target=work, daemon=True)
            worker.start()
            """
        )
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "False\n", ""))

    def test_a_signal_that_something_else_ignores_ends_nothing(self):
        result = run_python(
            """
            import ctypes, gigaknn, numpy as np, os, threading
            x = np.random.default_rng(0).random((20000, 32), dtype=np.float32)
            ctypes.CDLL(None).signal(2, ctypes.c_void_p(1))  # SIG_IGN, without a word to Python
            threading.Timer(0.05, lambda: os.kill(os.getpid(), 2)).start()
            print(gigaknn.knn_graph(x, 10).k)
            """
        )
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "10\n", ""))

    def test_processes_of_multiprocessing(self):
        result = run_python(
            """
            import gigaknn, multiprocessing, numpy as np
            x = np.random.default_rng(0).random((1000, 8), dtype=np.float32)
            gigaknn.knn(x, x, 5)
            def work(i):
                return gigaknn.knn(x[i:i + 1], x, 1).ids[0, 0]
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(pool.map(work, range(5)) == list(range(5)))
            """
        )
        self.assertEqual(result.stdout, "True\n", result.stderr)

    def test_errors_are_those_of_python(self):
        for name, python in (
            ("InvalidArgument", ValueError),
            ("InvalidData", ValueError),
            ("CorruptFile", ValueError),
            ("FileError", OSError),
            ("OutOfMemory", MemoryError),
            ("DeviceError", RuntimeError),
            ("Unsupported", NotImplementedError),
        ):
            self.assertTrue(issubclass(getattr(gigaknn, name), (gigaknn.Error,)) and issubclass(getattr(gigaknn, name), python))

    def test_modules_for_other_libraries_are_there_by_name(self):
        result = run_python(
            """
            import sys, gigaknn
            before = "gigaknn.faiss" in sys.modules
            print(before, gigaknn.faiss.IndexFlatL2(4).ntotal, gigaknn.plot.__name__, hasattr(gigaknn, "knnn"))
            try:
                import sklearn
            except ImportError:
                pass
            else:
                gigaknn.sklearn.KNNTransformer()
            """
        )
        self.assertEqual(result.stdout, "False 0 gigaknn.plot False\n", result.stderr)

    def test_files_that_are_not_there(self):
        for call, name in (
            (gigaknn.open, "/none/x.npy"),
            (gigaknn.KnnGraph.load, "/none/x.npy"),
            (gigaknn.read_vectors, "/none/x.npy"),
            (lambda path: gigaknn.knn(path, self.x, 1), "/none/x.npy"),
            (gigaknn.knn_graph(self.x[:50], 2).save, "/none/x.knng"),
        ):
            with self.assertRaises(FileNotFoundError) as caught:
                call(name)
            self.assertIsInstance(caught.exception, gigaknn.FileNotFound)
            self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.ENOENT, name))
            self.assertRegex(str(caught.exception), f"^{name}: cannot (open|write): No such file or directory$")
        with self.assertRaises(gigaknn.FileError) as caught:
            gigaknn.open("/tmp")
        self.assertEqual((type(caught.exception), caught.exception.errno, caught.exception.filename), (gigaknn.FileError, None, "/tmp"))
        denied = pickle.loads(pickle.dumps(gigaknn.FileError("x.npy: cannot open: Permission denied")))
        self.assertIsInstance(denied, PermissionError)
        self.assertEqual((denied.errno, str(denied)), (errno.EACCES, "x.npy: cannot open: Permission denied"))

    def test_names_of_files_that_have_colons(self):
        for path in ("/none/a: b.npy", "/none/a: b: c.npy"):
            with self.assertRaises(FileNotFoundError) as caught:
                gigaknn.read_vectors(path)
            self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.ENOENT, path))
        self.assertEqual(gigaknn.FileError("/tmp: cannot be replaced: is not a regular file").filename, "/tmp")

    def test_messages_with_bytes_that_are_not_utf_8(self):
        saved = gigaknn.knn_graph(self.x[:50], 2).save
        for call in (gigaknn.open, gigaknn.KnnGraph.load, gigaknn.read_vectors, saved):
            path = os.fsdecode(b"/none/\xff.knng" if call is saved else b"/none/\xff.npy")
            with self.assertRaises(gigaknn.FileNotFound) as caught:
                call(path)
            self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.ENOENT, path))
        with tempfile.TemporaryDirectory() as folder:
            header = b"{'descr': '<\xff4', 'fortran_order': False, 'shape': (1, 1), }\n"
            path = Path(folder, "x.npy")
            path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(4))
            with self.assertRaisesRegex(gigaknn.Unsupported, "npy type '<\udcff4' is not supported"):
                gigaknn.read_vectors(path)

    def test_what_the_build_says_of_itself(self):
        self.assertRegex(gigaknn.__version__, r"^\d+\.\d+\.\d+$")
        self.assertIn("cpu", gigaknn.devices())
        self.assertGreaterEqual(gigaknn.available_threads(), 1)
        self.assertIsInstance(gigaknn.isa_of("cpu"), str)

    def test_the_command_line_is_there(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        Path(f"{folder.name}/x.h5").write_bytes(b"")  # which the wheel's cannot read
        for command in ([sys.executable, "-m", "gigaknn"], [str(Path(sysconfig.get_path("scripts")) / "gigaknn")]):
            result = subprocess.run([*command, "--version"], capture_output=True, text=True)
            self.assertIn(gigaknn.__version__, result.stdout, result.stderr)
            result = subprocess.run([*command, "info", f"{folder.name}/x.h5"], capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)
            np.save(f"{folder.name}/x.npy", self.x)  # nor write: told before anything is searched
            result = subprocess.run([*command, "search", "x.npy", "--queries", "x.npy", "-k", "1", "-o", "y.h5"], cwd=folder.name, capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)

    def test_indexes_of_the_command_line_are_those_of_the_module(self):
        with tempfile.TemporaryDirectory() as folder:
            np.save(f"{folder}/x.npy", self.x)
            subprocess.run([sys.executable, "-m", "gigaknn", "build", "x.npy", "--index", "IVF16,PQ8", "-o", "a.gknn", "--quiet"], cwd=folder, check=True)
            gigaknn.build(self.x, index="IVF16,PQ8").save(f"{folder}/b.gknn")
            self.assertEqual(Path(f"{folder}/a.gknn").read_bytes(), Path(f"{folder}/b.gknn").read_bytes())

    def test_an_import_takes_little(self):
        result = run_python("import sys, numpy; before = set(sys.modules); import gigaknn; print(sorted(m.partition('.')[0] for m in set(sys.modules) - before))")
        self.assertEqual(set(eval(result.stdout)) - {"gigaknn"} - set(sys.stdlib_module_names), set(), "nothing but NumPy is imported")
        code = "import time, numpy; begin = time.perf_counter(); import gigaknn; print(time.perf_counter() - begin)"
        self.assertLess(min(float(run_python(code).stdout) for _ in range(5)), 0.3)


if __name__ == "__main__":
    unittest.main()
