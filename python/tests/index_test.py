"""Indexes."""

import copy
import os
import pickle
import tempfile
import threading
import unittest
import warnings
from pathlib import Path
from unittest import mock

import gigaknn
import gigaknn.faiss
import numpy as np
from gigaknn import _core
from support import clustered_rows, random_rows


class Indexes(unittest.TestCase):
    def setUp(self):
        self.x = clustered_rows(3000, 16)
        self.queries = clustered_rows(3010, 16)[-10:]
        self.truth = gigaknn.knn(self.queries, self.x, 5)

    def test_pickles_and_copies(self):
        x = clustered_rows(2000, 16)
        queries = x[:50].copy()
        for recipe in ("Flat", "IVF16,Flat", "IVF16,PQ8,RFlat"):
            index = gigaknn.build(x, index=recipe, keys=[f"row {i}" for i in range(len(x))])
            index.remove([3])
            for made in (pickle.loads(pickle.dumps(index)), copy.deepcopy(index)):
                found, expected = made.search(queries, 5), index.search(queries, 5)
                np.testing.assert_array_equal(found.ids, expected.ids)
                np.testing.assert_array_equal(found.distances, expected.distances)
                np.testing.assert_array_equal(found.keys, expected.keys)
                self.assertEqual((repr(made), made.next_id), (repr(index), index.next_id))
            made.remove([4])
            self.assertEqual((len(made), len(index)), (1998, 1999))
        index = gigaknn.build(x, index="IVF16,Flat", recall=0.9)
        made = pickle.loads(pickle.dumps(index))
        self.assertEqual((made.recall, len(made.curve)), (index.recall, len(index.curve)))
        with self.assertRaisesRegex(TypeError, "neither pickled nor copied"):
            pickle.dumps(gigaknn.build(np.zeros((9, 4), np.uint8), index="Flat", metric="hamming"))

    def test_every_kind(self):
        for recipe, kind, least in (
            ("Flat", "flat", 1),
            ("IVF16,Flat", "ivf_flat", 1),
            ("IVF16,PQ16,RFlat", "ivf_pq", 0.95),
            ("IVF16,PQ8", "ivf_pq", 0.3),
            ("PCA8,IVF16,SQ8,RFlat", "ivf_sq", 0.9),
            ("IVF16,RaBitQ4,RFlat", None, 0.9),
            ("OPQ8,IVF16,PQ8,RFlat", "ivf_transformed", 0.9),
        ):
            with self.subTest(recipe):
                index = gigaknn.build(self.x, index=recipe)
                found = index.search(self.queries, 5, nprobe=16, refine=10)
                self.assertGreaterEqual(gigaknn.recall(found.ids, self.truth.ids), least)
                self.assertEqual((index.shape, len(index), index.dtype, index.metric), ((3000, 16), 3000, np.float32, "l2"))
                if kind:
                    self.assertEqual(index.kind, kind)
                with tempfile.TemporaryDirectory() as folder:
                    index.save(f"{folder}/a.gknn")
                    for map in (False, True):
                        opened = gigaknn.open(f"{folder}/a.gknn", map=map)
                        np.testing.assert_array_equal(opened.search(self.queries, 5, nprobe=16, refine=10).ids, found.ids)

    def test_packed_bits_have_an_exact_index(self):
        bits = random_rows(200, 8, np.uint8)
        index = gigaknn.build(bits, index="Flat", metric="hamming")
        np.testing.assert_array_equal(index.search(bits[:5], 3).ids, gigaknn.knn(bits[:5], bits, 3, metric="hamming").ids)
        with self.assertRaises(NotImplementedError):
            index.add(bits[:1])
        with self.assertRaises(NotImplementedError):
            gigaknn.build(bits, index="IVF4,Flat", metric="hamming")

    def test_the_same_on_every_device_and_for_any_number_of_threads(self):
        index = gigaknn.build(self.x, index="IVF16,PQ8")
        found = index.search(self.queries, 5, nprobe=4)
        np.testing.assert_array_equal(index.search(self.queries, 5, nprobe=4, threads=1).distances, found.distances)
        other = gigaknn.build(self.x, index="IVF16,PQ8", device="emulated", threads=1)
        np.testing.assert_array_equal(other.search(self.queries, 5, nprobe=4).distances, found.distances)

    def test_filters(self):
        index = gigaknn.build(self.x, index="IVF16,Flat")
        some = np.arange(0, 3000, 7)
        found = index.search(self.queries, 5, nprobe=16, only=some)
        np.testing.assert_array_equal(found.ids, some[gigaknn.knn(self.queries, self.x[some], 5).ids])
        best = self.truth.ids[:, 0]
        self.assertFalse(np.isin(index.search(self.queries, 5, nprobe=16, exclude=best).ids, best).any())
        with self.assertRaisesRegex(ValueError, "only and exclude"):
            index.search(self.queries, 5, only=[1], exclude=[2])

    def test_radius(self):
        index = gigaknn.build(self.x, index="IVF16,Flat")
        for a, b in zip(index.search_radius(self.queries, 1.0, nprobe=16), gigaknn.radius_search(self.queries, self.x, 1.0)):
            np.testing.assert_array_equal(a, b)

    def test_changes(self):
        index = gigaknn.build(self.x[:1000], index="IVF8,Flat", ids=np.arange(1000) + 50)
        self.assertEqual(index.next_id, 1050)
        index.add(self.x[1000:1500])
        index.add(self.x[1500:1600], ids=np.arange(100) + 5000)
        index.update(self.x[2000:2001], [5000])
        index.remove([50, 51])
        self.assertEqual((len(index), index.next_id), (1598, 5100))
        np.testing.assert_array_equal(index.ids, np.concatenate((np.arange(52, 1550), np.arange(100) + 5000)))
        np.testing.assert_array_equal(index.reconstruct([5000, 1050]), self.x[[2000, 1000]])
        np.testing.assert_array_equal(index.search(self.x[2000:2001], 1, nprobe=8).ids, [[5000]])
        with self.assertRaisesRegex(ValueError, "50"):
            index.remove([50])
        with self.assertRaisesRegex(gigaknn.InvalidData, "5001"):
            index.add(self.x[:1], ids=[5001])
        self.assertEqual(len(index), 1598)

    def test_a_recall_is_asked_for(self):
        x = clustered_rows(20000, 16, seed=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            index = gigaknn.build(x, recall=0.9)
        queries = x[index.held_out[:200]]
        found = index.search(queries, 10)
        self.assertGreaterEqual(gigaknn.recall(found.ids, gigaknn.knn(queries, x, 10).ids), 0.85)
        with tempfile.TemporaryDirectory() as folder:
            index.save(f"{folder}/a.gknn")
            opened = gigaknn.open(f"{folder}/a.gknn", recall=0.9)
            self.assertEqual(opened.curve, index.curve)
            np.testing.assert_array_equal(opened.search(queries, 10).ids, found.ids)
        with self.assertRaisesRegex(ValueError, "keeps the recall of 10 neighbours, not of 20"):
            index.search(queries, 20)
        self.assertEqual(index.search(queries, 20, nprobe=3).ids.shape, (200, 20))
        with self.assertRaisesRegex(ValueError, "recall is instead of nprobe"):
            index.search(queries, 10, recall=0.9, nprobe=3)

    def test_a_curve_is_measured_by_queries(self):
        index = gigaknn.build(self.x, index="IVF32,Flat")
        with self.assertRaisesRegex(ValueError, "keeps no curve of recall"):
            index.search(self.queries, 5, recall=0.9)
        curve = index.measure(self.queries, k=5)
        self.assertEqual(curve, index.curve)
        recalls = [point.recall for point in curve]
        self.assertEqual(recalls, sorted(recalls))
        self.assertEqual(index.search(self.queries, 5, recall=recalls[0]).ids.shape, (10, 5))

    def test_a_save_that_fails_at_the_curve_leaves_the_file_that_was_there(self):
        def fail(made, curve, run):
            raise gigaknn.FileError(f"{made}: cannot write: No space left on device")

        index = gigaknn.build(self.x, index="IVF16,Flat")
        index.measure(self.queries, k=5, seconds=1)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.gknn")
            gigaknn.build(self.x[:100], index="Flat").save(path)
            old = path.read_bytes()
            with mock.patch.object(_core, "store_curve", fail), self.assertRaises(gigaknn.FileError) as caught:
                index.save(path)
            self.assertEqual((str(caught.exception), caught.exception.filename), (f"{path}: cannot write: No space left on device", str(path)))
            self.assertTrue(path.read_bytes() == old)
            self.assertEqual(os.listdir(folder), ["a.gknn"])
            index.save(path)
            self.assertEqual((gigaknn.open(path).curve, os.listdir(folder)), (index.curve, ["a.gknn"]))

    def test_files_with_a_curve_are_written_as_those_without(self):
        plain, measured = (gigaknn.build(self.x[:500], index="IVF4,Flat") for _ in range(2))
        measured.measure(self.queries, k=5, seconds=1)
        mask = os.umask(0o027)
        self.addCleanup(os.umask, mask)
        for index in (plain, measured):
            with self.subTest(points=len(index.curve)), tempfile.TemporaryDirectory() as folder:
                path, link, pipe = (f"{folder}/{name}" for name in ("a.gknn", "link", "pipe"))
                index.save(path)
                self.assertEqual(os.stat(path).st_mode & 0o777, 0o640)
                os.chmod(path, 0o600)
                os.symlink("a.gknn", link)
                index.save(link)
                self.assertEqual((os.readlink(link), os.stat(path).st_mode & 0o777, gigaknn.open(path).curve), ("a.gknn", 0o600, index.curve))
                os.mkfifo(pipe)
                for wrong in (folder, pipe):
                    with self.assertRaisesRegex(gigaknn.FileError, f"^{wrong}: cannot be replaced: is not a regular file$"):
                        index.save(wrong)
                for wrong, kind in ((f"{folder}/none/a.gknn", FileNotFoundError), (f"{path}/a.gknn", gigaknn.FileError)):
                    with self.assertRaisesRegex(kind, f"^{wrong}: cannot write: (No such file or|Not a) directory$") as caught:
                        index.save(wrong)
                    self.assertEqual(caught.exception.filename, wrong)
                self.assertEqual(sorted(os.listdir(folder)), ["a.gknn", "link", "pipe"])

    def test_names_of_other_formats_are_refused(self):
        plain, measured = (gigaknn.build(self.x[:500], index="IVF4,Flat") for _ in range(2))
        measured.measure(self.queries, k=5, seconds=1)
        with tempfile.TemporaryDirectory() as folder:
            for index in (plain, measured):
                for name, suffix in (("x.faiss", ".faiss"), ("x.npy", ".npy"), ("x.knng", ".knng"), ("x.FBIN", ".fbin"), ("x.gknn.h5", ".h5")):
                    path = f"{folder}/{name}"
                    told = f"^an index is written to a .gknn file, and {suffix} is the name of another format, got {path}$"
                    with self.assertRaisesRegex(gigaknn.InvalidArgument, told):
                        index.save(path)
                self.assertEqual(os.listdir(folder), [])
                for name in ("x.gknn", "x", "x.index", "faiss"):
                    index.save(Path(folder, name))
                    self.assertEqual(len(gigaknn.open(f"{folder}/{name}")), 500)
                    os.unlink(f"{folder}/{name}")

    def test_a_file_of_faiss_is_told(self):
        flat = gigaknn.faiss.IndexFlatL2(16)
        flat.add(self.x)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("x.faiss", "x", "x.gknn"):
                path = f"{folder}/{name}"
                gigaknn.faiss.write_index(flat, path)
                with self.assertRaisesRegex(gigaknn.Unsupported, f"^{path}: is an index of Faiss: gigaknn.faiss.read_index reads it$"):
                    gigaknn.open(path)
            for name, content in (("text.faiss", b"no index at all"), ("cut.gknn", b"")):
                path = Path(folder, name)
                path.write_bytes(content)
                with self.assertRaises(gigaknn.CorruptFile):
                    gigaknn.open(path)

    def test_a_curve_of_other_rows_is_told(self):
        x = np.random.default_rng(5).random((900, 8), dtype=np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            index = gigaknn.build(x, index="IVF9,Flat", recall=0.8)
            index.search(x[:5], 3)
        index.add(x[:100])
        with self.assertWarnsRegex(gigaknn.RecallWarning, "was measured among 900 rows, there are 1000 now"):
            index.search(x[:5], 3)
        index.measure(x[:200], k=10)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            index.search(x[:5], 3)

    def test_of_fewer_neighbours_than_its_curve_is_of_a_recall_is_reached_too(self):
        """Of a hundred as many rows are compared by full vectors as there are codes that tell nothing apart."""
        x = np.random.default_rng(6).standard_normal((3000, 24)).astype(np.float32)
        index = gigaknn.build(x, index="IVF4,PQ4,RFlat", recall=0.9, k=100)
        for k in (100, 10, 1):
            self.assertGreater(gigaknn.recall(index.search(x[:200] + 0.1, k).ids, index.search_exact(x[:200] + 0.1, k).ids), 0.85, k)

    def test_a_recall_that_codes_cannot_reach_is_warned_of(self):
        with self.assertWarnsRegex(gigaknn.RecallWarning, "recall 1.0 is not reached; the best is 0"):
            index = gigaknn.build(random_rows(3000, 64), index="IVF4,PQ1,RFlat", recall=1.0, k=1)
        self.assertIsNone(index.recall)
        with self.assertRaisesRegex(ValueError, "recall 1.0 is beyond the curve; the best is 0"):
            index.search(random_rows(1, 64), 1, recall=1.0)

    def test_eight_threads_find_the_same(self):
        index = gigaknn.build(self.x, index="IVF16,Flat")
        expected = index.search(self.x, 10, nprobe=4)
        found = [None] * 8

        def search(i):
            found[i] = index.search(self.x, 10, nprobe=4)

        threads = [threading.Thread(target=search, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in found:
            np.testing.assert_array_equal(result.ids, expected.ids)
            np.testing.assert_array_equal(result.distances, expected.distances)

    def test_searches_beside_changes_see_all_or_nothing(self):
        index = gigaknn.build(self.x[:1000], index="IVF8,Flat")
        seen, failed = [], []
        begun, stop = threading.Event(), threading.Event()

        def search():
            try:
                while not stop.is_set():
                    seen.append(len(index.search_radius(self.x[:1], 1e9, nprobe=8).ids))
                    begun.set()
            except Exception as error:
                failed.append(error)
                begun.set()

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        begun.wait(60)
        for begin in range(1000, 3000, 500):
            index.add(self.x[begin : begin + 500], progress=lambda *report: None)
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        self.assertTrue(seen)
        self.assertLessEqual(set(seen), {1000, 1500, 2000, 2500, 3000})

    def test_codes_are_decoded(self):
        for recipe, most in (("IVF8,SQfp16", 1e-6), ("IVF8,SQ8", 1e-3), ("IVF8,PQ16", 0.01), ("IVF8,PQ8", 0.3)):
            rows = gigaknn.build(self.x, index=recipe).reconstruct([7, 2999, 0])
            self.assertEqual((rows.dtype, rows.shape), (np.float32, (3, self.x.shape[1])))
            self.assertLess(((rows - self.x[[7, 2999, 0]]) ** 2).mean() / self.x.var(), most, recipe)

    def test_wrong_arguments(self):
        flat, lists = (gigaknn.build(self.x, index=recipe) for recipe in ("Flat", "IVF8,Flat"))
        for call, error, text in (
            (lambda: gigaknn.build(self.x, index="HNSW32"), NotImplementedError, "recipe 'HNSW32' is not built"),
            (lambda: gigaknn.build(self.x, index=7), TypeError, "index must be a string"),
            (lambda: gigaknn.build(self.x, recall=2), ValueError, "recall must be above 0"),
            (lambda: gigaknn.build(self.x, recall=0.9, k=2900), ValueError, "nine tenths of the 3000 rows"),
            (lambda: gigaknn.build(self.x, index="Flat", ids=[1]), ValueError, "id"),
            (lambda: gigaknn.open("/none/a.gknn"), OSError, "/none/a.gknn"),
            (lambda: gigaknn.build(self.x).search(self.x[:, :3]), ValueError, "3"),
            (lambda: gigaknn.build(self.x).search(self.x, nprobe=0), ValueError, "nprobe"),
            (lambda: gigaknn.build(self.x, index="IVF8,PQ8").search_exact(self.x[:1], 1), NotImplementedError, "full vectors"),
            (lambda: gigaknn.build(self.x, index="IVF8,PQ8").reconstruct([3000]), ValueError, "3000"),
            (lambda: gigaknn.build(self.x, index="Flat", k=-5), ValueError, "k must be at least 1, got -5"),
            (lambda: gigaknn.build(self.x, recall=0.9, k=0), ValueError, "k must be at least 1, got 0"),
            (lambda: gigaknn.open("/none/a.gknn", k=-5), ValueError, "k must be at least 1, got -5"),
            (lambda: flat.search(self.x[:1], recall=7), ValueError, "recall must be above 0 and at most 1, got 7"),
            (lambda: lists.search(self.x[:1], recall=7), ValueError, "recall must be above 0 and at most 1, got 7"),
            (lambda: flat.search(self.x[:1], recall="a"), TypeError, "recall must be a number, got 'a'"),
            (lambda: flat.measure(self.x[:9], seconds=float("nan")), ValueError, "seconds must be at least 0, got nan"),
            (lambda: flat.measure(self.x[:9], seconds=-1), ValueError, "seconds must be at least 0, got -1.0"),
            (lambda: flat.measure(self.x[:9], until=2), ValueError, "until must be above 0 and at most 1, got 2"),
        ):
            with self.assertRaisesRegex(error, text) as caught:
                call()
            self.assertNotIn("\n", str(caught.exception))

    def test_no_ids_are_not_those_of_rows(self):
        x = random_rows(5, 3)
        index = gigaknn.build(x, index="Flat")
        for call in (lambda: index.add(x[:2], []), lambda: index.update(x[:2], []), lambda: gigaknn.build(x, index="Flat", ids=[])):
            with self.assertRaisesRegex(gigaknn.InvalidArgument, "0 ids"):
                call()
        index.add(x[:0], [])
        self.assertEqual(index.ids.tolist(), [0, 1, 2, 3, 4])


if __name__ == "__main__":
    unittest.main()
