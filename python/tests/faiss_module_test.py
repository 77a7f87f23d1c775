"""gigaknn.faiss by itself; python/dropins compare it with the real one."""

import os
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

import gigaknn
import gigaknn.faiss as faiss
import numpy as np
from gigaknn import _core
from gigaknn._arguments import run_of
from gigaknn.faiss import _held
from support import random_rows


class Faiss(unittest.TestCase):
    def setUp(self):
        self.x = random_rows(400, 8)
        self.flat = faiss.IndexFlatL2(8)
        self.flat.add(self.x)

    def test_assign_has_a_column_for_each_neighbour(self):
        """As faiss-cpu 1.15.1; that of Kmeans is flat there, too."""
        inverted = faiss.index_factory(8, "IVF4,Flat")
        inverted.train(self.x)
        inverted.add(self.x)
        for index in (self.flat, inverted):
            for k in (1, 3):
                labels = index.assign(self.x[:5], k)
                self.assertEqual((labels.shape, labels.dtype), ((5, k), np.int64))
                given = np.zeros((5, k), np.int64)
                self.assertIs(index.assign(self.x[:5], k, given), given)
                np.testing.assert_array_equal(given, labels)
        kmeans = faiss.Kmeans(8, 4)
        kmeans.train(self.x)
        self.assertEqual([found.shape for found in kmeans.assign(self.x[:5])], [(5,), (5,)])

    def test_selectors_of_two(self):
        a, b = faiss.IDSelectorRange(0, 10), faiss.IDSelectorBatch([5, 7, 300])
        for kind, labels in ((faiss.IDSelectorAnd, {5, 7}), (faiss.IDSelectorOr, {*range(10), 300}), (faiss.IDSelectorXOr, {*range(10), 300} - {5, 7})):
            selector = kind(a, b)
            ids = self.flat.search(self.x[:3], 20, params=faiss.SearchParameters(sel=selector))[1]
            self.assertTrue(all(set(row[row >= 0]) == labels for row in ids))
            self.assertEqual([selector.is_member(label) for label in (5, 6, 300, 399)], [label in labels for label in (5, 6, 300, 399)])
            rest = self.flat.search(self.x[:1], 400, params=faiss.SearchParameters(sel=faiss.IDSelectorNot(selector)))[1][0]
            self.assertEqual(set(rest[rest >= 0]), set(range(400)) - labels)

    def test_a_map_behind_what_it_is_around(self):
        for text, kind in (("IVF4,Flat,IDMap", faiss.IndexIDMap), ("Flat,IDMap2", faiss.IndexIDMap2), ("IDMap,IVF4,Flat", faiss.IndexIDMap)):
            index = faiss.index_factory(8, text)
            self.assertIs(type(index), kind)
            index.train(self.x)
            index.add_with_ids(self.x, np.arange(400) + 1000)
            np.testing.assert_array_equal(index.search(self.x[:9], 1)[1][:, 0], np.arange(9) + 1000)
            np.testing.assert_array_equal(faiss.vector_to_array(index.id_map), np.arange(400) + 1000)
        with self.assertRaisesRegex(NotImplementedError, "^[^\n]*IDMap,RFlat[^\n]*$"):
            faiss.index_factory(8, "IVF4,PQ4,IDMap,RFlat")

    def test_pairwise_distances(self):
        a, b = self.x[:7].astype(np.float64), self.x[:50].astype(np.float64)
        difference = a[:, None] - b[None]
        for metric, expected in (
            (faiss.METRIC_L2, (difference**2).sum(axis=2)),
            (faiss.METRIC_INNER_PRODUCT, a @ b.T),
            (faiss.METRIC_L1, np.abs(difference).sum(axis=2)),
            (faiss.METRIC_Linf, np.abs(difference).max(axis=2)),
        ):
            np.testing.assert_allclose(faiss.pairwise_distances(a, b, metric), expected, rtol=1e-5, atol=1e-5)
        self.assertEqual(faiss.pairwise_distances(a, b[:0]).shape, (7, 0))

    def test_flags_of_read_index(self):
        with tempfile.TemporaryDirectory() as folder:
            faiss.write_index(self.flat, f"{folder}/x.faiss")
            self.assertEqual(faiss.read_index(f"{folder}/x.faiss", faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY).ntotal, 400)

    def test_flat_indexes_without_rows_are_written(self):
        x = random_rows(20, 8)
        with tempfile.TemporaryDirectory() as folder:
            for index in (faiss.IndexFlatL2(8), faiss.IndexFlatIP(8), faiss.IndexIDMap(faiss.IndexFlatL2(8))):
                faiss.write_index(index, f"{folder}/x.faiss")
                back = faiss.read_index(f"{folder}/x.faiss")
                self.assertIs(type(back), type(index))
                self.assertEqual((back.ntotal, back.d, back.metric_type), (0, 8, index.metric_type))
                back.add_with_ids(x, np.arange(20) + 5) if isinstance(index, faiss.IndexIDMap) else back.add(x)
                labels = np.arange(20) + (5 if isinstance(index, faiss.IndexIDMap) else 0)
                self.assertEqual(sorted(back.search(x[3:4], 20)[1][0]), list(labels))

    def test_what_faiss_would_not_read_is_not_written(self):
        x = random_rows(400, 50)
        with tempfile.TemporaryDirectory() as folder:
            index = faiss.index_factory(50, "IVF4,SQ6")
            index.train(x)
            with self.assertRaisesRegex(gigaknn.Unsupported, "^this IndexIVFScalarQuantizer: scalar codes, as product codes of 52 parts do not divide 50"):
                faiss.write_index(index, f"{folder}/x.faiss")
            index = faiss.index_factory(50, "IVF4,SQ8,RFlat")
            index.train(x)
            index.add(x)
            index.k_factor = 1001
            with self.assertRaisesRegex(gigaknn.InvalidArgument, "factor of 1 to 1000"):
                faiss.write_index(index, f"{folder}/x.faiss")
            index.k_factor = 1000
            faiss.write_index(index, f"{folder}/x.faiss")
            self.assertEqual(faiss.read_index(f"{folder}/x.faiss").k_factor, 1000)
            self.assertIsInstance(index, faiss.IndexRefine)
            self.assertNotIsInstance(object.__new__(faiss.IndexRefine), faiss.IndexRefineFlat)

    def test_files_are_named_by_paths(self):
        """As everywhere else; what is no path names no file."""
        with tempfile.TemporaryDirectory() as folder:
            paths = Path(folder, "x.faiss"), os.fsencode(f"{folder}/y.faiss")
            for path in paths:
                faiss.write_index(self.flat, path)
                self.assertEqual(faiss.read_index(path).ntotal, 400)
            entry = next(entry for entry in list(os.scandir(folder)) if entry.name == "x.faiss")
            self.assertEqual(faiss.read_index(entry).ntotal, 400)
            Path(entry).unlink()
            faiss.write_index(self.flat, entry)
            for wrong in (None, 7, self.x):
                for call in (faiss.read_index, lambda path: faiss.write_index(self.flat, path)):
                    with self.assertRaisesRegex(TypeError, "^fname must be a path, got "):
                        call(wrong)
            self.assertEqual(sorted(os.listdir(folder)), ["x.faiss", "y.faiss"])
        self.assertFalse(any(map(os.path.exists, ("None", "7", str(paths[1])))))

    def test_rows_stay_where_their_removal_is_stopped(self):
        """Labels behind those that go move up, and so all rows are put into an index anew: until that is there, the old one is."""
        for stop in (KeyboardInterrupt, MemoryError):
            with mock.patch.object(_held._index, "build", side_effect=stop), self.assertRaises(stop):
                self.flat.remove_ids([0, 7])
            self.assertEqual(self.flat.ntotal, 400)
            np.testing.assert_array_equal(self.flat.reconstruct_n(), self.x)
        self.assertEqual(self.flat.remove_ids([0, 7, 4000]), 2)
        np.testing.assert_array_equal(self.flat.reconstruct_n(), np.delete(self.x, [0, 7], axis=0))
        self.flat.add(self.x[:1])
        self.assertEqual(self.flat.search(self.x[:1], 1)[1].tolist(), [[398]])
        self.assertEqual((self.flat.remove_ids(faiss.IDSelectorAll()), self.flat.ntotal), (399, 0))
        self.flat.add(self.x[:3])
        self.assertEqual(self.flat.search(self.x[:3], 1)[1].ravel().tolist(), [0, 1, 2])
        self.flat.reset()
        self.assertEqual((self.flat.ntotal, self.flat.remove_ids([0])), (0, 0))

    def test_labels_that_would_move_are_refused(self):
        """Faiss calls rows without lists by their numbers, which move where one goes."""
        with tempfile.TemporaryDirectory() as folder:
            gigaknn.build(self.x[:6].astype(np.float16), index="Flat").save(f"{folder}/x.gknn")
            _core.export_faiss(f"{folder}/x.gknn", f"{folder}/x.faiss", 1, 1.0, _core.FaissMap.where_needed, run_of(None, None, None))
            index = faiss.read_index(f"{folder}/x.faiss")
        self.assertIsInstance(index, faiss.IndexScalarQuantizer)
        for refused in (lambda: index.remove_ids([0]), lambda: index.add_with_ids(self.x[:1], [9])):
            with self.assertRaisesRegex(gigaknn.Unsupported, "by their number"):
                refused()
        self.assertEqual(index.search(self.x[:2], 1)[1].ravel().tolist(), [0, 1])
        with self.assertRaisesRegex(gigaknn.InvalidArgument, "at most 65504"):
            index.search(self.x[:2] + 70000, 1)
        index.reset()
        self.assertEqual(index.ntotal, 0)

    def test_what_was_read_is_not_trained_again(self):
        index = faiss.index_factory(8, "PCA5,IVF4,Flat")
        index.train(self.x)
        index.add(self.x)
        self.assertEqual((index.d, index.index.d), (8, 5))
        again = faiss.deserialize_index(faiss.serialize_index(index))
        self.assertEqual((again.d, faiss.extract_index_ivf(again).d), (8, 5))
        again.reset()
        with self.assertRaisesRegex(gigaknn.Unsupported, "not trained again"):
            again.train(self.x)

    def test_lengths_of_any_size_become_one(self):
        x = np.array([[1e38] * 64, [3e-44] * 64], np.float32)
        faiss.normalize_L2(x)
        np.testing.assert_allclose(x, 0.125, rtol=1e-6)

    def test_an_add_that_was_interrupted_when_its_rows_were_there_has_given_their_labels(self):
        index = faiss.index_factory(8, "IVF4,Flat")
        index.train(self.x)
        real = gigaknn.Index.add

        def add(*arguments, **options):
            real(*arguments, **options)
            raise KeyboardInterrupt

        with mock.patch.object(gigaknn.Index, "add", add), self.assertRaises(KeyboardInterrupt):
            index.add(self.x[:5])
        index.add(self.x[5:7])
        index.nprobe = 4
        self.assertEqual(index.search(self.x[:7], 1)[1].ravel().tolist(), list(range(7)))

    def test_labels_of_a_map_do_not_move(self):
        with tempfile.TemporaryDirectory() as folder:
            made = faiss.IndexIDMap(faiss.IndexFlatL2(8))
            made.add_with_ids(self.x[:9], np.arange(9) + 100)
            faiss.write_index(made, f"{folder}/x.faiss")
            for index in (made, faiss.clone_index(made), faiss.read_index(f"{folder}/x.faiss")):
                told = "^this IndexFlat(L2)? is within an IndexIDMap, whose labels would move: use that$"
                with self.assertRaisesRegex(NotImplementedError, told):
                    index.index.remove_ids([100])
                self.assertEqual(index.id_map.tolist(), list(range(100, 109)))
                self.assertEqual((index.remove_ids([100]), index.id_map.tolist()), (1, list(range(101, 109))))
                index.index.reset()
                self.assertEqual(index.ntotal, 0)

    def test_labels_go_on_behind_the_largest(self):
        """Faiss's IndexIVF counts its rows: 5, 6."""
        index = faiss.index_factory(8, "IVF4,Flat")
        index.train(self.x)
        index.add_with_ids(self.x[:5], np.arange(7, 12))
        index.add(self.x[5:7])
        index.nprobe = 4
        self.assertEqual(index.search(self.x[:7], 1)[1].ravel().tolist(), list(range(7, 14)))

    def test_a_range_beyond_float32_is_of_all_rows(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(self.flat.range_search(self.x[:2], 1e39)[0].tolist(), [0, 400, 800])
        # As Faiss: nearer than the float32 of what is asked for.
        line = faiss.IndexFlatL2(1)
        line.add(np.sqrt(np.array([[0.1], [0.2]], np.float64)).astype(np.float32))
        distance = float(line.search(np.zeros((1, 1)), 1)[0][0, 0])
        self.assertEqual(line.range_search(np.zeros((1, 1)), distance)[0].tolist(), [0, 0])

    def test_kmeans_without_a_round(self):
        """As faiss-cpu 1.15.1."""
        for spherical in (False, True):
            kmeans = faiss.Kmeans(8, 4, niter=0, nredo=2, spherical=spherical, verbose=False)
            self.assertEqual((kmeans.train(self.x), len(kmeans.obj), kmeans.centroids.shape, kmeans.index.ntotal), (0.0, 0, (4, 8), 4))
        with self.assertRaisesRegex(gigaknn.InvalidArgument, "^nredo must be at least 1, got 0$"):
            faiss.Kmeans(8, 4, nredo=0).train(self.x)

    def test_masked_values_are_refused(self):
        masked, ids = np.ma.masked_less(self.x, 0.1), np.ma.masked_less(np.arange(400), 3)
        x = self.x.copy()
        changed = np.ma.masked_less(x, 0.1)
        mapped = faiss.IndexIDMap(faiss.IndexFlatL2(8))
        for call, name in (
            (lambda: self.flat.add(masked), "x"),
            (lambda: self.flat.search(masked, 1), "x"),
            (lambda: self.flat.search(list(masked), 1), "x"),
            (lambda: self.flat.range_search(masked, 1), "x"),
            (lambda: faiss.index_factory(8, "IVF4,Flat").train(masked), "x"),
            (lambda: mapped.add_with_ids(self.x, ids), "ids"),
            (lambda: self.flat.remove_ids(ids), "indices"),
            (lambda: self.flat.reconstruct_batch(ids), "key"),
            (lambda: faiss.IDSelectorBitmap(np.ma.masked_equal([1, 2], 1)), "bitmap"),
            (lambda: faiss.knn(self.x, masked, 1), "xb"),
            (lambda: faiss.pairwise_distances(self.x, masked), "xb"),
            (lambda: faiss.normalize_L2(changed), "x"),
            (lambda: faiss.Kmeans(8, 4).train(self.x, weights=masked[:, 0]), "weights"),
        ):
            with self.subTest(name), self.assertRaisesRegex(gigaknn.InvalidArgument, f"^{name} has masked values[^\n]*$"):
                call()
        self.assertEqual((self.flat.ntotal, mapped.ntotal), (400, 0))
        np.testing.assert_array_equal(x, self.x)

    def test_parameters_that_nobody_reads_are_not_set(self):
        flat, product = (faiss.index_factory(8, "IVF4,Flat", metric) for metric in (faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT))
        for parameters, name, value, text in (
            (flat.cp, "spherical", True, "spherical of ClusteringParameters stays False, got True"),
            (product.cp, "spherical", False, "spherical of ClusteringParameters stays True, got False"),
            (flat.cp, "nredo", 5, "nredo of ClusteringParameters stays 1, got 5"),
            (flat.cp, "max_points_per_centroid", 1000, "max_points_per_centroid of ClusteringParameters stays 256, got 1000"),
            (faiss.ClusteringParameters(), "nitre", 20, "nitre of ClusteringParameters is not set"),
            (faiss.SearchParametersIVF(), "max_codes", 100, "max_codes of SearchParametersIVF stays 0, got 100"),
            (faiss.SearchParametersIVF(), "quantizer_params", faiss.SearchParameters(), "quantizer_params of SearchParametersIVF stays None"),
            (faiss.SearchParametersIVF(), "efSearch", 100, "efSearch of SearchParametersIVF is not set.*there are nprobe, sel$"),
            (faiss.SearchParameters(), "nprobe", 3, "nprobe of SearchParameters is not set.*there is sel$"),
        ):
            before = getattr(parameters, name, None)
            with self.subTest(text):
                with self.assertRaisesRegex(AttributeError, f"^gigaknn.faiss: {text}") as caught:
                    setattr(parameters, name, value)
                self.assertNotIn("\n", str(caught.exception))
                self.assertEqual(getattr(parameters, name, None), before)

    def test_parameters_that_scripts_set_to_defaults(self):
        index = faiss.index_factory(8, "IVF4,Flat")
        for name, value in (("verbose", True), ("verbose", False), ("min_points_per_centroid", 1), ("spherical", False), ("nredo", 1), ("niter", 3), ("seed", 7), ("max_points_per_centroid", 256)):
            setattr(index.cp, name, value)
            self.assertEqual(getattr(index.cp, name), value)
        faiss.index_factory(8, "IVF4,Flat", faiss.METRIC_INNER_PRODUCT).cp.spherical = True
        copied = faiss.clone_index(index)
        self.assertEqual((copied.cp.niter, copied.cp.seed, copied.cp.min_points_per_centroid), (3, 7, 1))
        index.cp = faiss.ClusteringParameters()
        self.assertEqual((index.cp.niter, index.cp.seed), (10, 1234))
        index.train(self.x)
        index.add(self.x)
        params = faiss.SearchParametersIVF()
        params.nprobe, params.sel, params.max_codes, params.quantizer_params = 4, faiss.IDSelectorRange(0, 9), 0, None
        self.assertEqual(set(index.search(self.x[:1], 9, params=params)[1][0]), set(range(9)))

    def test_centroids_to_begin_with_are_refused(self):
        with self.assertRaisesRegex(NotImplementedError, "^Kmeans takes no init_centroids: [^\n]*$"):
            faiss.Kmeans(8, 4).train(self.x, init_centroids=self.x[:4])
        with self.assertRaisesRegex(NotImplementedError, "^Kmeans takes no init_centroids: [^\n]*$"):
            faiss.Kmeans(8, 4, init_centroids=self.x[:4])


if __name__ == "__main__":
    unittest.main()
