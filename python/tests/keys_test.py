"""Keys of the user's own, carried into results."""

import gc
import pickle
import tempfile
import threading
import time
import types
import unittest

import gigaknn
import numpy as np
from gigaknn._changes import Changes
from gigaknn._names import Names
from support import random_rows, run_python

try:
    import pyarrow
except ImportError:
    pyarrow = None

try:
    import pandas
except ImportError:
    pandas = None


class Interrupted:
    """The library's index, in whose call Ctrl-C came when the rows were there."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def add(self, *arguments):
        self.inner.add(*arguments)
        raise KeyboardInterrupt


class Keys(unittest.TestCase):
    def setUp(self):
        self.x = random_rows(300, 8)
        self.names = [f"row {i}" for i in range(300)]
        self.array = np.array(self.names, dtype=object)

    def assert_named(self, found, names=None):
        np.testing.assert_array_equal(found.keys, (self.array if names is None else names)[found.ids], strict=True)

    def test_results_have_the_shape_of_their_ids(self):
        found = gigaknn.knn(self.x[:7], self.x, 5, keys=self.names)
        self.assert_named(found)
        distances, ids = found  # a pair still
        self.assertIs(ids, found.ids)
        self.assertIsNone(gigaknn.knn(self.x[:7], self.x, 5).keys)
        self.assert_named(gigaknn.radius_search(self.x[:7], self.x, 0.3, keys=self.names))
        self.assert_named(gigaknn.radius_graph(self.x, 0.2, keys=self.names))
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)).keys, found.keys)

    def test_any_sequence_is_taken_as_what_it_is(self):
        for keys, expected in (
            (list(range(1000, 1300)), np.arange(1000, 1300)),
            (np.arange(300, dtype=np.uint16), np.arange(300, dtype=np.uint16)),
            (np.arange("2020-01-01", "2020-10-27", dtype="M8[D]"), np.arange("2020-01-01", "2020-10-27", dtype="M8[D]")),
            (np.array(self.names), np.array(self.names)),
            ([2**70 + i for i in range(300)], np.array([2**70 + i for i in range(300)], dtype=object)),
        ):
            self.assert_named(gigaknn.knn(self.x[:7], self.x, 5, keys=keys), expected)
        mixed = [1, "a", (2, 3)] * 100
        found = gigaknn.knn(self.x[:3], self.x, 1, keys=mixed)
        self.assertEqual(found.keys[:, 0].tolist(), [1, "a", (2, 3)])
        pairs = [(i, "x") for i in range(300)]
        self.assertEqual(gigaknn.knn(self.x[:2], self.x, 1, keys=pairs).keys[:, 0].tolist(), pairs[:2])

    def test_a_missing_row_has_no_key(self):
        for keys in ([5, 6, 7], ["a", "b", "c"]):
            found = gigaknn.knn(self.x[:3], self.x[:3], 5, keys=keys)
            self.assertEqual((found.keys.shape, found.keys.dtype), ((3, 5), object))
            self.assertEqual(found.keys[:, 3:].tolist(), [[None, None]] * 3)
            self.assertEqual(found.keys[:, 0].tolist(), keys)

    def test_times_stay_times_beside_missing_rows(self):
        for unit in ("D", "us", "ns"):
            times, spans = np.array([1, 2, 3], dtype=f"M8[{unit}]"), np.array([1, 2, 3], dtype=f"m8[{unit}]")
            for keys in (times, spans):
                found = gigaknn.knn(self.x[:3], self.x[:3], 4, keys=keys)
                self.assertIsNone(found.keys[0, 3])
                for key, expected in zip(found.keys[:, 0], keys):
                    self.assertIs(type(key), type(expected))
                    self.assertEqual((key, key.dtype), (expected, expected.dtype))
            index = gigaknn.build(self.x[:3], index="Flat", keys=times)
            index.add(self.x[3:4], keys=["later"])
            self.assertEqual([(type(key), key) for key in index.search(self.x[:4], 1).keys[:, 0]], [*((np.datetime64, time) for time in times), (str, "later")])

    def test_they_are_copies(self):
        keys = np.arange(300)
        graph, index = gigaknn.knn_graph(self.x, 4, keys=keys), gigaknn.build(self.x, index="Flat", keys=keys)
        keys[:] = -1
        self.assert_named(graph, np.arange(300))
        self.assert_named(index.search(self.x[:7], 5), np.arange(300))
        with self.assertRaisesRegex(ValueError, "read-only"):
            graph.row_keys[0] = 7
        if pandas:
            series = pandas.Series(np.arange(300))
            graph = gigaknn.knn_graph(self.x, 4, keys=series)
            series[:] = -1
            self.assert_named(graph, np.arange(300))

    @unittest.skipUnless(pandas, "no pandas")
    def test_data_frames(self):
        frame = pandas.DataFrame(self.x, index=self.names, copy=False)
        self.assert_named(gigaknn.knn(frame[:7], frame, 5, keys=frame.index))
        frame = pandas.DataFrame(self.x, index=pandas.RangeIndex(10, 310), copy=False)
        found = gigaknn.knn_graph(frame, 3, keys=frame.index)
        np.testing.assert_array_equal(found.keys, found.ids + 10, strict=True)
        pairs = pandas.MultiIndex.from_product([range(30), list("abcdefghij")])
        self.assertEqual(gigaknn.knn(frame[11:12], frame, 1, keys=pairs).keys[0, 0], (1, "b"))

    def test_graphs_carry_them_on(self):
        graph = gigaknn.knn_graph(self.x, 4, keys=self.names)
        self.assert_named(graph)
        np.testing.assert_array_equal(graph.row_keys, self.array)
        self.assert_named(pickle.loads(pickle.dumps(graph)))
        for part in (gigaknn.knn_graph(self.x[:200], 4, keys=self.names[:200]),):
            self.assert_named(part.extend(self.x[200:], keys=self.names[200:]))
            self.assert_named(part.merge(gigaknn.knn_graph(self.x[200:], 4, keys=self.names[200:])))
        reduced, _ = graph.remove([0, 7])
        self.assert_named(reduced, np.delete(self.array, [0, 7]))
        self.assert_named(gigaknn.knn_graph(self.x, 4, index="IVF4,Flat", keys=self.names))
        with tempfile.TemporaryDirectory() as folder:
            graph.save(f"{folder}/a.knng")
            self.assertIsNone(gigaknn.KnnGraph.load(f"{folder}/a.knng").keys)
            self.assert_named(gigaknn.KnnGraph.load(f"{folder}/a.knng", keys=self.names))
        with self.assertRaisesRegex(ValueError, "keys= is needed where a graph has keys"):
            graph.extend(self.x[:2])
        with self.assertRaisesRegex(ValueError, "one of the graphs has keys"):
            graph.merge(gigaknn.knn_graph(self.x, 4))

    def test_indexes_carry_them_on(self):
        index = gigaknn.build(self.x[:200], index="IVF4,Flat", keys=self.names[:200])
        index.add(self.x[200:290], keys=self.names[200:290])
        index.remove([3])
        index.update(self.x[295:296], [5])
        self.assertEqual(index.search(self.x[295:296], 1, nprobe=4).keys[0, 0], "row 5")
        index.update(self.x[296:297], [5], keys=["another"])
        self.assertEqual(index.search(self.x[296:297], 1, nprobe=4).keys[0, 0], "another")
        names = self.array.copy()
        names[5] = "another"
        self.assert_named(index.search(self.x[:20], 5, nprobe=2), names)
        self.assert_named(index.search_exact(self.x[:20], 5), names)
        self.assert_named(index.search_radius(self.x[:20], 0.3), names)
        with tempfile.TemporaryDirectory() as folder:
            index.save(f"{folder}/a.gknn")
            self.assertIsNone(gigaknn.open(f"{folder}/a.gknn").search(self.x[:2], 1).keys)
            self.assert_named(gigaknn.open(f"{folder}/a.gknn", keys=names[:290]).search(self.x[:20], 5), names)
            with self.assertRaisesRegex(ValueError, "keys must be one for each of the 290 rows"):
                gigaknn.open(f"{folder}/a.gknn", keys=names[:289])

    def test_rows_are_named_by_key(self):
        index = gigaknn.build(self.x[:200], index="IVF4,Flat", keys=self.names[:200])
        some = np.array([7, 11, 150])
        for options in ({"only": self.array[some]}, {"only": {f"row {i}" for i in some}}, {"only": some}, {"only": list(some)}):
            np.testing.assert_array_equal(index.search(self.x[:9], 3, nprobe=4, **options).ids, index.search(self.x[:9], 3, nprobe=4, only=some).ids)
        others = index.search_exact(self.x[:9], 3, exclude=np.array(self.names[:5])).ids
        np.testing.assert_array_equal(others, index.search_exact(self.x[:9], 3, exclude=range(5)).ids)
        self.assertEqual(set(index.search_radius(self.x[:9], 9, nprobe=4, only=["row 3"]).keys), {"row 3"})
        for none in ([], (), set(), index.row_keys[np.zeros(200, bool)], np.array([], dtype="U3"), np.array([]), np.array([], dtype=np.int64)):
            self.assertEqual(index.search(self.x[:2], 1, only=none).ids.tolist(), [[-1], [-1]])
            np.testing.assert_array_equal(index.search_exact(self.x[:2], 3, exclude=none).ids, index.search_exact(self.x[:2], 3).ids)
        index.remove(keys=["row 3", "row 199"])
        self.assertEqual(set(range(200)) - set(index.ids.tolist()), {3, 199})
        index.add(self.x[200:202], keys=["row 3", "row 200"])  # a key that is free again
        np.testing.assert_array_equal(index.ids_of(["row 200", "row 3", "row 0", "row 3"]), [201, 200, 0, 200])
        index.update(self.x[250:252], keys=["row 3", "row 9"])
        self.assertEqual(index.search(self.x[250:252], 1, nprobe=4).ids[:, 0].tolist(), [200, 9])
        index.update(self.x[252:253], [9], keys=["nine"])
        np.testing.assert_array_equal(index.ids_of(["nine"]), [9])
        with tempfile.TemporaryDirectory() as folder:
            index.save(f"{folder}/a.gknn")
            again = gigaknn.open(f"{folder}/a.gknn", keys=index.row_keys)
            np.testing.assert_array_equal(again.ids_of(["nine", "row 3"]), [9, 200])
            again.remove(keys=["nine"])
        with self.assertRaisesRegex(ValueError, "read-only"):
            index.row_keys[0] = "x"
        self.assertIsNone(gigaknn.build(self.x, index="Flat").row_keys)

    def test_keys_of_every_type_name_rows(self):
        for keys in ([2**70 + i for i in range(300)], np.arange("2020-01-01", "2020-10-27", dtype="M8[D]"), np.arange(300).astype("M8[ns]"), np.arange(300) / 2, [(i, "x") for i in range(300)]):
            index = gigaknn.build(self.x, index="Flat", keys=keys)
            np.testing.assert_array_equal(index.ids_of([keys[5], keys[299]]), [5, 299])
        # Whole numbers are ids wherever ids may stand.
        index = gigaknn.build(self.x, index="Flat", keys=np.arange(300) + 1000)
        self.assertEqual(index.search(self.x[:1], 1, only=[5]).keys.tolist(), [[1005]])
        self.assertEqual(index.search(self.x[:1], 1, only=index.ids_of(np.array([1005]))).ids.tolist(), [[5]])
        index.remove(keys=[1005])
        self.assertNotIn(5, index.ids)

    def test_keys_that_name_no_row_or_several(self):
        shared = gigaknn.build(self.x, index="Flat", keys=["a", "b", "b"] * 100)
        keyed, plain = gigaknn.build(self.x, index="Flat", keys=self.names), gigaknn.build(self.x, index="Flat")
        for call, error, text in (
            (lambda: keyed.search(self.x[:1], only=["row 1", "x"]), ValueError, "no row has the key 'x'"),
            (lambda: keyed.search(self.x[:1], only="row 1"), TypeError, "must be a list or an array of keys, got 'row 1'"),
            (lambda: keyed.search(self.x[:1], only=""), TypeError, "only must be whole numbers"),
            (lambda: keyed.remove(keys=["row 1", "row 1"]), ValueError, "the key 'row 1' is there twice"),
            (lambda: keyed.update(self.x[:2], keys=["row 1", "row 1"]), ValueError, "the key 'row 1' is there twice"),
            (lambda: keyed.update(self.x[:1], keys=["x"]), ValueError, "no row has the key 'x'"),
            (lambda: keyed.update(self.x[:1]), ValueError, "update needs the ids or the keys"),
            (lambda: keyed.remove(), ValueError, "remove needs the ids of rows or their keys"),
            (lambda: keyed.remove([1], keys=["row 1"]), ValueError, "one of both"),
            (lambda: keyed.search(self.x[:1], only=[["row 1"]]), ValueError, "rows are not found by these keys: unhashable"),
            (lambda: shared.search(self.x[:1], only=["b"]), ValueError, "the key 'b' is of several rows, 1 and 299 among them: say their ids"),
            (lambda: shared.remove(keys=["a"]), ValueError, "the key 'a' is of several rows"),
            (lambda: plain.remove(keys=["a"]), ValueError, "made without keys"),
            (lambda: plain.ids_of(["a"]), ValueError, "made without keys"),
            (lambda: plain.search(self.x[:1], only=["a"]), TypeError, "only must be whole numbers"),
        ):
            with self.assertRaisesRegex(error, text) as caught:
                call()
            self.assertNotIn("\n", str(caught.exception))
        self.assertEqual((len(keyed), len(shared), len(plain)), (300, 300, 300))
        shared.remove(np.flatnonzero(np.arange(300) % 3 != 0)[:-1])
        np.testing.assert_array_equal(shared.ids_of(["b"]), [299])  # of one row by now

    def test_what_was_not_added_leaves_no_key(self):
        index = gigaknn.build(self.x[:200], index="IVF4,Flat", keys=self.names[:200])
        with self.assertRaises(ValueError):
            index.add(self.x[:1, :3], keys=["wrong"])
        index.add(self.x[200:], keys=self.names[200:])
        self.assert_named(index.search(self.x, 3, nprobe=4))

    def test_an_add_that_fails_leaves_the_keys_as_they_were(self):
        index = gigaknn.build(self.x[:200], index="IVF4,Flat", keys=np.arange(200))
        for wrong, keys in ((np.full((1, 8), np.nan, np.float32), ["s"]), (self.x[:0], np.array([], dtype="U3"))):
            try:
                index.add(wrong, keys=keys)
            except gigaknn.InvalidData:
                pass
            self.assertEqual((index.row_keys.dtype, len(index.row_keys), index.search(self.x[:1], 1).keys.dtype), (np.int64, 200, np.int64))
        index.add(self.x[200:201], keys=["s"])
        self.assertEqual((index.row_keys[200], index.row_keys[199]), ("s", 199))

    def test_keys_are_those_of_the_rows_where_an_add_was_interrupted_behind_them(self):
        index = gigaknn.build(self.x[:200], index="IVF4,Flat", keys=self.names[:200])

        inner = index._index
        index._index = Interrupted(inner)
        with self.assertRaises(KeyboardInterrupt):
            index.add(self.x[200:], keys=self.names[200:])
        index._index = inner
        self.assert_named(index.search(self.x, 3, nprobe=4))
        self.assertEqual(len(index.row_keys), index.next_id)

    def test_what_would_wait_for_its_own_change_is_refused(self):
        """Without the refusal each of these hangs."""
        result = run_python(
            """
            import copy, gigaknn, numpy as np, pickle
            x = np.random.default_rng(0).random((20000, 16), dtype=np.float32)
            names = [f"row {i}" for i in range(40000)]
            changes = lambda index, **more: (lambda: index.add(x[:1], **more), lambda: index.update(x[:1], [3]), lambda: index.remove([3]))
            for keyed in (False, True):
                index = gigaknn.build(x, index="IVF16,PQ8,RFlat", **({"keys": names[:20000]} if keyed else {}))
                added = {"keys": names[20000:]} if keyed else {}
                asked = [*changes(index, **({"keys": ["more"]} if keyed else {}))]
                if keyed:
                    asked += [lambda: pickle.dumps(index)]
                    asked += [lambda: copy.deepcopy(index), lambda: index.remove(keys=["row 3"]), lambda: index.update(x[:1], keys=["row 3"])]
                for ask in asked:
                    try:
                        index.add(x, **added, progress=lambda *report: ask())
                    except gigaknn.Unsupported as error:
                        assert "is being changed by the call that reports here" in str(error) and "\\n" not in str(error), error
                    else:
                        raise AssertionError("nothing was reported")
                    assert len(index) == index.next_id == 20000
                found = []
                index.add(x, **added, progress=lambda *report: found.append(index.search(x[:1], 1).ids[0, 0]))
                assert set(found) == {0}, found
                if keyed:
                    asks = (lambda: index.search(x[:1], 1, only=["row 3"]).ids[0, 0], lambda: index.ids_of(["row 3"])[0])
                    index.update(x[:20000], np.arange(20000), progress=lambda *report: found.extend(ask() for ask in asks))
                    assert set(found) == {0, 3}, found
                assert len(index) == 40000 and len(copy.deepcopy(index)) == 40000
                index.remove([3])
            print("done")
            """
        )
        self.assertEqual(result.stdout, "done\n", result.stderr)

    def test_what_a_thread_of_the_librarys_reports_is_of_the_change(self):
        changes, told = Changes(), []

        def ask():
            try:
                with changes.alone():
                    told.append("alone")
            except gigaknn.Unsupported:
                told.append("refused")

        def in_a_thread(work):
            thread = threading.Thread(target=work)
            thread.start()
            return thread

        with changes.alone():
            in_a_thread(changes.watched(ask)).join(60)
            self.assertEqual(told, ["refused"])
            ask()
            changes.watched(ask)()
            ask()  # the report's end does not end the change
            self.assertEqual(told, ["refused"] * 4)
            waiting = in_a_thread(ask)  # another thread waits
        waiting.join(60)
        self.assertEqual(told, ["refused"] * 4 + ["alone"])
        ask()
        self.assertEqual(told[-1], "alone")
        self.assertEqual([changes.watched(progress) for progress in (None, True, False, 3)], [None, True, False, 3])

    def test_numbers_do_not_become_text(self):
        index = gigaknn.build(self.x[:2], index="Flat", keys=[7, 8])
        index.add(self.x[2:3], keys=np.array(["c"]))
        self.assertEqual(sorted(map(str, index.search(self.x[:1], 3).keys[0])), ["7", "8", "c"])
        self.assertIn(7, index.search(self.x[:1], 3).keys[0].tolist())

    def test_searches_beside_additions(self):
        index = gigaknn.build(self.x[:50], index="Flat", keys=self.names[:50])
        failed, stop = [], threading.Event()

        def search():
            while not stop.is_set():
                try:
                    self.assert_named(index.search(self.x, 3))
                except Exception as error:
                    failed.append(error)
                    return

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        for i in range(50, 300, 5):
            index.add(self.x[i : i + 5], keys=self.names[i : i + 5])
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])

    def test_wrong_keys_are_refused(self):
        plain, keyed = gigaknn.build(self.x, index="Flat"), gigaknn.build(self.x, index="Flat", keys=self.names)
        for call, text in (
            (lambda: gigaknn.knn(self.x, self.x, keys=["a"]), r"keys must be one for each of the 300 rows, got shape \[1\]"),
            (lambda: gigaknn.knn_graph(self.x, keys=self.x), r"one for each of the 300 rows, got shape \[300, 8\]"),
            (lambda: gigaknn.build(self.x, ids=np.arange(300), keys=self.names), "ids and keys do not go together"),
            (lambda: plain.add(self.x[:1], keys=["a"]), "made without keys"),
            (lambda: plain.update(self.x[:1], [1], keys=["a"]), "made without keys"),
            (lambda: keyed.add(self.x[:1]), "this index has keys: keys= is needed"),
            (lambda: keyed.add(self.x[:1], [400], keys=["a"]), "ids= does not go with it"),
            (lambda: keyed.update(self.x[:1], [400]), "ids must be below 300"),
        ):
            with self.assertRaisesRegex(gigaknn.InvalidArgument, text):
                call()
        for keys in (None, ["x"]):
            with self.assertRaisesRegex(gigaknn.InvalidData, "negative"):
                keyed.update(self.x[:1], [-1], keys=keys)

    def test_what_tells_rows_apart_by_number_is_ids(self):
        index = gigaknn.build(self.x[:5], index="Flat", keys=[10, 0, 5, 1, 2])
        with self.assertRaises(TypeError):
            index.search(self.x[:1], 5, only=np.array([False, False, True, False, True]))
        with self.assertRaises(TypeError):
            index.search(self.x[:1], 5, only=list(np.array([False, False, True, False, True])))
        ids = index.search(self.x[:1], 2, only=[1, 2]).ids

        class Strange:
            """As an array of Arrow's is, and one of Torch's."""

            def __init__(self, values, **more):
                self._values = np.array(values)
                self.__dict__.update(more)

            def __array__(self, dtype=None, copy=None):
                return self._values.astype(dtype or self._values.dtype)

            def __len__(self):
                return len(self._values)

            def __iter__(self):
                return iter([object()] * len(self._values))

        for more in ({}, {"dtype": "whole numbers", "shape": (2,)}):
            np.testing.assert_array_equal(index.search(self.x[:1], 2, only=Strange([1, 2], **more)).ids, ids)
            with self.assertRaises(TypeError):
                index.search(self.x[:1], 2, only=Strange([True, False, True, False, False], **more))
            named = gigaknn.build(self.x[:5], index="Flat", keys=list("abcde"))
            self.assertEqual(set(named.search(self.x[:1], 2, only=Strange(["b", "e"], **more)).keys[0]), {"b", "e"})

    @unittest.skipUnless(pyarrow, "needs pyarrow")
    def test_arrays_of_arrow_are_ids_or_keys(self):
        index = gigaknn.build(self.x[:5], index="Flat", keys=[10, 0, 5, 1, 2])
        ids = index.search(self.x[:1], 2, only=[1, 2]).ids
        np.testing.assert_array_equal(index.search(self.x[:1], 2, only=pyarrow.array([1, 2])).ids, ids)
        named = gigaknn.build(self.x[:5], index="Flat", keys=list("abcde"))
        self.assertEqual(set(named.search(self.x[:1], 2, only=pyarrow.array(["b", "e"])).keys[0]), {"b", "e"})

    def test_rows_and_keys_are_replaced_at_once(self):
        n = 3000
        x = np.zeros((n, 4), np.float32)
        x[:, 0] = np.arange(n)
        y = x.copy()
        y[:, 1] = 1
        old, new = [f"old{i}" for i in range(n)], [f"new{i}" for i in range(n)]
        index = gigaknn.build(x, index="Flat", keys=old)
        done, seen, wrong = threading.Event(), set(), []

        def look():
            searches = (index.search, index.search_exact, lambda query, k, **more: index.search_radius(query, 1, **more))
            try:
                while not done.is_set():
                    for search in searches:
                        found = search(y[7:8], 1, threads=1)
                        seen.add((found.keys.ravel()[0], found.distances.ravel()[0]))
                        for only in ("old7", "new7"):  # one of them is there
                            try:
                                found = search(y[7:8], 1, only=[only], threads=1)
                                seen.add((found.keys.ravel()[0], found.distances.ravel()[0]))
                            except gigaknn.InvalidArgument as error:
                                self.assertIn("no row has the key", str(error))
            except BaseException as error:
                wrong.append(error)

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            rounds, late = 0, time.monotonic() + 60
            while thread.is_alive() and (rounds < 60 or (len(seen) < 2 and time.monotonic() < late)):
                index.update(y, np.arange(n), keys=new)
                time.sleep(0.001 * (rounds % 3))
                index.update(x, np.arange(n), keys=old)
                rounds += 1
        finally:
            done.set()
            thread.join(60)
        self.assertEqual((wrong, seen), ([], {("new7", 0), ("old7", 1)}))

    def test_a_search_does_not_wait_for_what_waits_for_it(self):
        x = np.random.default_rng(0).random((20000, 16), dtype=np.float32)
        index = gigaknn.build(x, index="IVF16,PQ8,RFlat", keys=np.arange(20000) + 7)
        found = []

        def search(*report):
            thread = threading.Thread(target=lambda: found.append(index.search(x[:1], 1).keys[0, 0]), daemon=True)
            thread.start()
            thread.join(60)

        index.update(x, np.arange(20000), keys=np.arange(20000) + 9, progress=search)
        self.assertEqual(set(found), {7})
        self.assertEqual(index.search(x[:1], 1).keys[0, 0], 9)

    def test_a_filter_by_key_is_of_the_moment_of_its_search(self):
        """Others change the index between the look for its keys and the search."""
        x = np.arange(3, dtype=np.float32)[:, None]
        for filter_, changed, ids, keys in (
            ({"exclude": ["a"]}, lambda index: (index.remove(keys=["a"]), index.add(x[:1], keys=["a"])), [1, 2], ["b", "c"]),
            ({"only": ["a"]}, lambda index: index.remove(keys=["a"]), [0], ["a"]),
            ({"only": ["a"]}, lambda index: index.update(x[:1], [0], keys=["z"]), [0], ["a"]),
            ({"only": ["c"]}, lambda index: (index.update(x[:2], [1, 2], keys=["c", "b"]), index.update(x, [0, 1, 2], keys=list("xyz"))), [2], ["c"]),
        ):
            for search in ("search", "search_exact", "search_radius"):
                index = gigaknn.build(x, index="Flat", keys=list("abc"))
                look = index._names.ids_of

                def looked(asked, now=None, **more):
                    found = look(asked, now, **more)
                    index._names.ids_of = look
                    changed(index)
                    return found

                index._names.ids_of = looked
                found = getattr(index, search)(x[:1], 9 if search == "search_radius" else len(ids), **filter_)
                np.testing.assert_array_equal(found.ids.ravel(), ids, str(filter_))
                np.testing.assert_array_equal(found.keys.ravel(), keys)
                np.testing.assert_array_equal(found.distances.ravel(), np.square(ids).astype(np.float32))

    def test_names_are_those_of_the_version_of_the_rows(self):
        class Rows:
            version, next_id = 5, 2

            def moment(self):
                return types.SimpleNamespace(version=self.version)

        rows = Rows()
        names = Names(rows, np.array(["a", "b"]))
        told = lambda: "".join(names.now()[1])
        with names.replaced([1], np.array(["c"])):
            self.assertEqual(told(), "ab")
            rows.version += 1  # the rows are replaced
            self.assertEqual(told(), "ac")
        self.assertEqual(told(), "ac")
        with self.assertRaises(KeyboardInterrupt), names.replaced([0], np.array(["d"])):
            raise KeyboardInterrupt
        self.assertEqual(told(), "ac")
        with self.assertRaises(KeyboardInterrupt), names.replaced([0], np.array(["d"])):
            rows.version += 1
            raise KeyboardInterrupt
        self.assertEqual(told(), "dc")
        with self.assertRaises(KeyboardInterrupt), names.added(np.array(["e"])):
            raise KeyboardInterrupt
        self.assertEqual(told(), "dc")
        ended = names.replaced([0], np.array(["f"]))
        ended.__enter__()  # what an interrupt ends before its own end does nothing
        names.settle()
        rows.version += 1
        self.assertEqual(told(), "dc")
        ended_too = names.added(np.array(["x"]))
        ended_too.__enter__()
        with names.added(np.array(["e"])):
            rows.version, rows.next_id = rows.version + 1, 3
        self.assertEqual(told(), "dce")
        with names.replaced([0], np.array(["g"])):
            rows.version += 1
        del ended, ended_too  # which comes to its end now
        gc.collect()
        self.assertEqual(told(), "gce")

    def test_keys_are_those_of_the_rows_where_a_change_ends_behind_the_rows(self):
        index = gigaknn.build(self.x, index="Flat", keys=self.names)
        index._index = Interrupted(index._index)
        with self.assertRaises(KeyboardInterrupt):
            index.update(self.x[:2] + 1, [4, 5], keys=["four", "five"])
        self.assertEqual(index.search(self.x[:1] + 1, 1).keys[0, 0], "four")
        index._index.add = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        with self.assertRaises(KeyboardInterrupt):
            index.update(self.x[:2], [4, 5], keys=["x", "y"])
        self.assertEqual(index.row_keys[4], "four")


if __name__ == "__main__":
    unittest.main()
