"""k-NN graphs."""

import copy
import os
import pickle
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

import gigaknn
import numpy as np
from support import clustered_rows, random_rows, true_neighbors


class Graphs(unittest.TestCase):
    def setUp(self):
        self.x = random_rows(400, 8)
        self.graph = gigaknn.knn_graph(self.x, 6)

    def assert_same(self, a, b):
        np.testing.assert_array_equal(a.ids, b.ids)
        np.testing.assert_array_equal(a.distances, b.distances)

    def test_an_exact_graph(self):
        distances, ids = true_neighbors(self.x, self.x, 7)
        np.testing.assert_array_equal(self.graph.ids, ids[:, 1:])
        np.testing.assert_array_equal(self.graph.distances, distances[:, 1:].astype(np.float32))
        self.assertEqual((self.graph.k, len(self.graph), self.graph.metric, self.graph.exact, self.graph.recall), (6, 400, "l2", True, 1))
        self.assertEqual(repr(self.graph), "<KnnGraph of 400 rows, k 6, metric l2, exact>")

    def test_an_approximate_graph_measures_its_recall(self):
        x = clustered_rows(30000, 16)
        graph = gigaknn.knn_graph(x, 10, recall=0.8, method="ivf", seed=5)
        self.assertFalse(graph.exact)
        self.assertGreater(graph.recall, 0.75)
        self.assertTrue(graph.recall.low <= graph.recall <= graph.recall.high)
        measured = graph.measure(sample=300)
        self.assertEqual((measured, measured.sampled), (graph.recall, 300))
        self.assertGreater(measured, 0.75)
        self.assert_same(graph, gigaknn.knn_graph(x, 10, recall=0.8, method="ivf", seed=5, threads=1))

    def test_a_graph_by_an_index(self):
        graph = gigaknn.knn_graph(self.x, 6, index="IVF8,Flat", nprobe=8)
        self.assert_same(graph, self.graph)
        self.assertEqual(graph.recall, 1)
        self.assertLess(gigaknn.knn_graph(self.x, 6, index="IVF8,Flat", nprobe=1).recall, 1)

    def test_a_recall_that_is_not_reached_is_warned_of(self):
        by_index = {"index": "IVF8,Flat", "nprobe": 1}
        for recall in (0.95, 1.0):
            with self.assertWarnsRegex(gigaknn.RecallWarning, rf"^recall {recall} is not reached; the graph has 0\.\d+, with nprobe 1 and refine 4$") as caught:
                graph = gigaknn.knn_graph(self.x, 6, recall=recall, **by_index)
            self.assertEqual(caught.filename, __file__)
            self.assert_same(graph, gigaknn.knn_graph(self.x, 6, **by_index))
        measured = mock.patch.object(gigaknn.KnnGraph, "recall", graph.recall)
        with measured, self.assertWarnsRegex(gigaknn.RecallWarning, r"^recall 0.9 is not reached; the graph has 0\.\d+$"):
            gigaknn.knn_graph(self.x, 6, recall=0.9, method="ivf")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for reached in (by_index, {**by_index, "recall": 0.3}, {**by_index, "nprobe": 8, "recall": 1.0}, {"recall": 1.0}, {"recall": 0.5, "method": "ivf"}, {"labels": np.arange(400) % 4}):
                gigaknn.knn_graph(self.x, 6, **reached)

    def test_a_graph_by_labels(self):
        labels = np.arange(400) % 4
        same = gigaknn.knn_graph(self.x, 6, labels=labels)
        self.assertTrue((labels[same.ids] == labels[:, None]).all())
        other = gigaknn.knn_graph(self.x, 6, labels=labels, only="other")
        self.assertTrue((labels[other.ids] != labels[:, None]).all())
        few = gigaknn.knn_graph(self.x, 6, labels=np.arange(400) // 4)
        self.assertTrue((few.ids[:, 3:] == -1).all())
        self.assertEqual(few.report()["missing"], 1200)
        self.assertEqual(few.to_csr().nnz, 1200)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            self.graph.save(f"{folder}/a.knng")
            loaded = gigaknn.KnnGraph.load(f"{folder}/a.knng", base=self.x)
            self.assert_same(loaded, self.graph)
            self.assert_same(loaded.extend(self.x[:3]), self.graph.extend(self.x[:3]))
            with open(f"{folder}/b.knng", "wb") as file:
                file.write(b"no graph")
            with self.assertRaisesRegex(gigaknn.CorruptFile, "b.knng"):
                gigaknn.KnnGraph.load(f"{folder}/b.knng")
            with self.assertRaisesRegex(OSError, "none.knng"):
                gigaknn.KnnGraph.load(f"{folder}/none.knng")

    def test_distances_of_arrays(self):
        with self.assertRaisesRegex(gigaknn.InvalidData, "distances: row 1 has NaN"):
            gigaknn.KnnGraph.from_arrays([[1], [np.nan], [4]], [[1], [0], [1]])
        for metric, missing in (("l2", np.inf), ("inner_product", -np.inf)):
            for beside in (7.0, np.nan, missing):
                given = np.array([[1, beside], [1, beside]], np.float32)
                graph = gigaknn.KnnGraph.from_arrays(given, [[1, -1], [0, -1]], metric=metric)
                np.testing.assert_array_equal(graph.distances, [[1, missing]] * 2)
                np.testing.assert_array_equal(given[:, 1], [np.float32(beside)] * 2)

    def test_graphs_of_distances_that_round_otherwise_are_changed(self):
        x = np.random.default_rng(0).random((400, 64), dtype=np.float32)
        squares = (x * x).sum(axis=1)
        expanded = squares[:, None] + squares[None] - 2 * x @ x.T
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        for metric, distances in (("l2", expanded), ("cosine", 1 - unit @ unit.T)):
            np.fill_diagonal(distances, np.inf)
            ids = np.argsort(distances, axis=1, kind="stable")[:, :5]
            graph = gigaknn.KnnGraph.from_arrays(np.take_along_axis(distances, ids, axis=1), ids, metric=metric, base=x)
            self.assertEqual(len(graph.extend(x[:3] + 1)), 403)
            self.assertEqual(len(graph.remove([5])[0]), 399)
            with self.assertRaisesRegex(gigaknn.InvalidArgument, "not one of these vectors"):
                graph.extend(x[:3], base=x[::-1])

    def test_no_distance_by_cosine_is_negative(self):
        x = np.random.default_rng(0).random((200, 16), dtype=np.float32)
        x[100:] = 2 * x[:100]
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        distances = 1 - unit @ unit.T
        np.fill_diagonal(distances, 9)
        ids = np.argsort(distances, axis=1)[:, :5]
        given = np.take_along_axis(distances, ids, axis=1)
        self.assertLess(given.min(), 0)
        self.assertEqual(gigaknn.KnnGraph.from_arrays(given, ids, metric="cosine").distances.min(), 0)

    def test_equal_distances_of_arrays_are_put_in_the_order_of_ids(self):
        for metric, sign in (("l2", 1), ("inner_product", -1)):
            distances = sign * np.array([[1, 1, 1], [1, 2, 2], [1, 1 + 1e-12, 2], [np.inf, np.inf, 0]])  # float32 makes the second of row 2 a 1
            ids = np.array([[3, 1, 2], [0, 3, 2], [3, 0, 1], [2, 0, -1]])
            given = distances.copy(), ids.copy()
            graph = gigaknn.KnnGraph.from_arrays(distances, ids, metric=metric)
            np.testing.assert_array_equal(graph.ids, [[1, 2, 3], [0, 2, 3], [0, 3, 1], [0, 2, -1]])
            np.testing.assert_array_equal(graph.distances, np.float32(sign) * np.array([[1, 1, 1], [1, 2, 2], [1, 1, 2], [np.inf] * 3], np.float32))
            for array, as_it_was in zip((distances, ids), given):
                np.testing.assert_array_equal(array, as_it_was)
            distances[1] = sign * np.array([2, 2, 1])
            with self.assertRaisesRegex(gigaknn.InvalidArgument, " 1 lists are out of order$"):
                gigaknn.KnnGraph.from_arrays(distances, ids, metric=metric)

    def test_pickles(self):
        self.assert_same(pickle.loads(pickle.dumps(self.graph)), self.graph)
        x = clustered_rows(2000, 8)
        graph = gigaknn.knn_graph(x, 5, recall=0.9, method="ivf")
        for made in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph), copy.copy(pickle.loads(pickle.dumps(graph)))):
            self.assert_same(made, graph)
            self.assertEqual((made.method, repr(made.recall), made.recall.at), (graph.method, repr(graph.recall), 5))
            self.assertEqual(made.report()["method"], graph.method)
        self.assertIsNone(pickle.loads(pickle.dumps(gigaknn.KnnGraph.from_arrays(graph.distances, graph.ids))).recall)
        self.assertEqual(made.measure(x, sample=100).sampled, 100)
        self.assertEqual(made.recall.sampled, 100)

    def test_a_graph_by_labels_says_so_wherever_it_went(self):
        x = clustered_rows(200, 8)
        self.assertIsNone(self.graph.only)
        for only in ("same", "other"):
            graph = gigaknn.knn_graph(x, 5, labels=np.arange(200) % 4, only=only)
            with tempfile.TemporaryDirectory() as folder:
                graph.save(f"{folder}/l.knng")
                for made in (graph, pickle.loads(pickle.dumps(graph)), gigaknn.KnnGraph.load(f"{folder}/l.knng")):
                    self.assertEqual(made.only, only)
                    with self.assertRaisesRegex(gigaknn.Unsupported, "build it anew with their labels"):
                        made.extend(x, base=x)

    def test_a_graph_by_labels_is_not_measured_against_all_rows(self):
        x = clustered_rows(200, 8)
        told = "^this graph is by labels, exactly: a recall measured against all rows would say nothing of it$"
        for only in ("same", "other"):
            graph = gigaknn.knn_graph(x, 5, labels=np.arange(200) % 4, only=only)
            for made in (graph, pickle.loads(pickle.dumps(graph))):
                with self.assertRaisesRegex(gigaknn.Unsupported, told):
                    made.measure(x)
                self.assertEqual(made.recall, 1)

    def test_distances_that_are_none_are_refused(self):
        ids = [[1, 2], [0, 2], [1, 0]]
        for metric in gigaknn.metrics():
            distances = np.array([[0, 1], [-0.5, 1], [0, 1]])
            if metric == "inner_product":
                gigaknn.KnnGraph.from_arrays(-distances, ids, metric=metric)
                continue
            for exact in (False, True):
                told = f"^distances: row 1, column 0 is -0.5, and no distance by {metric} is negative$"
                with self.assertRaisesRegex(gigaknn.InvalidData, told):
                    gigaknn.KnnGraph.from_arrays(distances, ids, metric=metric, exact=exact)
        distances[1, 0] = -1e-7  # 1 less a product, rounded
        gigaknn.KnnGraph.from_arrays(distances, ids, metric="cosine")
        graph = gigaknn.KnnGraph.from_arrays([[-1e-6, 3.0], [0.0, 4.0], [3.0, 4.0]], [[1, 2], [0, 2], [0, 1]])  # squares multiplied out
        self.assertEqual(graph.distances.min(), 0)
        gigaknn.KnnGraph.from_arrays([[-0.0], [0.0]], [[1], [0]])
        gigaknn.KnnGraph.from_arrays([[-1.0], [0.0]], [[-1], [0]])  # where no row is

    def test_names_of_other_formats_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, suffix in (("x.npy", ".npy"), ("x.gknn", ".gknn"), ("x.FBIN", ".fbin"), ("x-ubyte", "-ubyte"), ("x.knng.gz", ".gz")):
                path = f"{folder}/{name}"
                told = f"^a graph is written to a .knng file, and {suffix} is the name of another format, got {path}$"
                with self.assertRaisesRegex(gigaknn.InvalidArgument, told):
                    self.graph.save(path)
            self.assertEqual(os.listdir(folder), [])
            for name in ("x.knng", "x", "x.graph", "npy"):
                self.graph.save(Path(folder, name))
                self.assert_same(gigaknn.KnnGraph.load(f"{folder}/{name}"), self.graph)

    def test_graphs_of_arrays_are_checked(self):
        ids, distances = self.graph.ids.copy(), self.graph.distances.copy()
        self.assert_same(gigaknn.KnnGraph.from_arrays(distances, ids, exact=True), self.graph)
        ids[5, 0] = 5
        with self.assertRaisesRegex(gigaknn.InvalidArgument, "1 rows name themselves"):
            gigaknn.KnnGraph.from_arrays(distances, ids)
        with self.assertRaisesRegex(ValueError, "one distance for each id"):
            gigaknn.KnnGraph.from_arrays(distances[:, :2], ids)

    def test_rows_without_neighbours_count_for_no_recall_of_a_changed_graph(self):
        x = random_rows(3000, 8)
        x[::3] = 0  # by cosine infinitely far from everything
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gigaknn.RecallWarning)
            graph = gigaknn.knn_graph(x, 5, metric="cosine", method="nn-descent", recall=0.5, allow_nonfinite=True)
            for changed, base in ((graph.remove([1], base=x)[0], np.delete(x, 1, axis=0)), (graph.extend(x[1:2], base=x, allow_nonfinite=True), np.concatenate((x, x[1:2])))):
                self.assertAlmostEqual(changed.recall, changed.measure(base, sample=3000), delta=0.08)

    def test_changed_graphs_that_miss_the_recall_asked_say_so(self):
        x = random_rows(1200, 12)
        half = gigaknn.knn_graph(x[:800], 5, index="IVF64,Flat", nprobe=1)
        other = gigaknn.knn_graph(x[800:], 5, index="IVF64,Flat", nprobe=1)
        for change in (lambda **asked: half.extend(x[800:], **asked), lambda **asked: half.merge(other, **asked)):
            with self.assertWarnsRegex(gigaknn.RecallWarning, r"^recall 0.999 is not reached"):
                change(recall=0.999)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                change()

    def test_flags_are_true_or_false(self):
        x = random_rows(50, 4)
        for call, name in ((lambda: gigaknn.knn(x, x, 1, allow_nonfinite="no"), "allow_nonfinite"), (lambda: gigaknn.kmeans(x, 2, labels="no"), "labels"),
                           (lambda: gigaknn.build(x, recall=0.9, memory_first="no"), "memory_first")):
            with self.assertRaisesRegex(TypeError, f"{name} must be True or False, got str"):
                call()

    def test_merged_and_extended_graphs_are_those_of_all_rows(self):
        a, b = gigaknn.knn_graph(self.x[:250], 6), gigaknn.knn_graph(self.x[250:], 6)
        self.assert_same(a.merge(b), self.graph)
        self.assert_same(a.extend(self.x[250:]), self.graph)
        self.assert_same(pickle.loads(pickle.dumps(a)).merge(b, base=self.x[:250]), self.graph)
        with self.assertRaisesRegex(ValueError, "other_base= is needed"):
            a.merge(pickle.loads(pickle.dumps(b)))
        with self.assertRaisesRegex(TypeError, "other must be a KnnGraph, got list"):
            a.merge([])

    def test_rows_are_removed(self):
        reduced, new_ids = self.graph.remove([0, 7])
        kept = np.delete(np.arange(400), [0, 7])
        self.assert_same(reduced, gigaknn.knn_graph(self.x[kept], 6))
        np.testing.assert_array_equal(new_ids[kept], np.arange(398))
        self.assertEqual((new_ids[0], new_ids[7]), (-1, -1))

    def test_paths(self):
        x = np.concatenate((np.arange(10.0), 100 + np.arange(10.0))).astype(np.float32)[:, None]
        graph = gigaknn.knn_graph(x, 3)
        path = graph.path(0, 9)
        self.assertEqual((path.rows[0], path.rows[-1], path.largest_step, len(path.steps)), (0, 9, path.steps.max(), len(path.rows) - 1))
        self.assertIsNone(graph.path(0, 15))
        self.assertGreater(len(graph.paths(0, 9, 5)), 1)
        with self.assertRaisesRegex(ValueError, "20"):
            graph.path(0, 20)

    def test_a_report(self):
        report = self.graph.report()
        self.assertEqual((report["rows"], report["k"], report["missing"], report["exact"]), (400, 6, 0, True))
        in_degree = np.bincount(self.graph.ids.ravel(), minlength=400)
        self.assertEqual(report["in_degree"], (in_degree.min(), np.median(in_degree), in_degree.max()))
        self.assertEqual(report["never_named"], (in_degree == 0).sum())
        self.assertEqual(report["doubts"], [])

    def test_data_that_look_wrong_are_named(self):
        x = np.random.default_rng(2).random((300, 8), dtype=np.float32)
        x[:40] = 0.5
        for asked in ({}, {"recall": 0.9, "method": "gnnd"}, {"index": "IVF4,Flat", "nprobe": 4}):
            doubts = gigaknn.knn_graph(x, 5, **asked).doubts
            self.assertEqual([doubt.split(":")[0] for doubt in doubts], ["copies", "constant rows"])

    def test_sparse_matrices(self):
        matrix = self.graph.to_csr()
        self.assertEqual((matrix.shape, matrix.nnz), ((400, 400), 2400))
        np.testing.assert_array_equal(matrix[5, self.graph.ids[5]].toarray()[0], self.graph.distances[5])
        with_self = self.graph.to_csr(mode="connectivity", include_self=True)
        np.testing.assert_array_equal(with_self.indices.reshape(400, 7)[:, 0], np.arange(400))
        self.assertEqual(with_self.data.sum(), 2800)

    def test_what_umap_takes(self):
        ids, distances = self.graph.to_umap()
        self.assertEqual((ids.shape, ids.dtype, distances.dtype), ((400, 7), np.int32, np.float32))
        np.testing.assert_array_equal(ids[:, 0], np.arange(400))
        np.testing.assert_array_equal(distances[:, 1:], np.sqrt(self.graph.distances))
        self.assertEqual(self.graph.to_umap(5)[0].shape, (400, 5))
        with self.assertRaisesRegex(ValueError, "n_neighbors must be from 1 to k"):
            self.graph.to_umap(8)
        with self.assertRaisesRegex(NotImplementedError, "inner_product"):
            gigaknn.knn_graph(self.x, 3, metric="inner_product").to_umap()

    def test_radius_graph(self):
        offsets, distances, ids = gigaknn.radius_graph(self.x, 0.3)
        values = ((self.x[:, None].astype(np.float64) - self.x[None]) ** 2).sum(2)
        np.fill_diagonal(values, np.inf)
        np.testing.assert_array_equal(np.diff(offsets), (values <= 0.3).sum(axis=1))
        np.testing.assert_array_equal(distances, values[np.repeat(np.arange(400), np.diff(offsets)), ids].astype(np.float32))

    def test_wrong_arguments(self):
        for options, error, text in (
            ({"k": 400}, ValueError, "400"),
            ({"recall": 0}, ValueError, "recall must be above 0"),
            ({"recall": "high"}, TypeError, "recall must be a number"),
            ({"method": "hnsw"}, ValueError, "hnsw"),
            ({"labels": [1, 2]}, ValueError, "label"),
            ({"labels": np.zeros(400, int), "only": "all"}, ValueError, "only must be same or other"),
            ({"only": "other"}, ValueError, "only= is of labels=, and there are none"),
            ({"nprobe": 64}, ValueError, "nprobe= is of index=, and there is none"),
            ({"refine": 4}, ValueError, "refine= is of index=, and there is none"),
            ({"sample": 100}, ValueError, "sample= is of index=, and there is none"),
            ({"index": "IVF8,Flat", "method": "ivf"}, ValueError, "do not go with it"),
            ({"index": "IVF8,Flat", "recall": 0}, ValueError, "recall must be above 0"),
            ({"index": "IVF8,Flat", "recall": "high"}, TypeError, "recall must be a number"),
            ({"index": "IVF8,Flat", "shards": 2}, ValueError, "shards must be 1 with index=, got 2"),
            ({"index": "IVF8,Flat", "only": "other"}, ValueError, "only= is of labels="),
            ({"index": "IVF8,Flat", "only": "all"}, ValueError, "only must be same or other"),
            ({"device": 0}, TypeError, "device must be a string, got 0"),
            ({"device": ""}, RuntimeError, "no device ''"),
        ):
            with self.assertRaisesRegex(error, text):
                gigaknn.knn_graph(self.x, **options)

    def test_lists_are_read_only(self):
        with self.assertRaises(ValueError):
            self.graph.ids[0, 0] = 1

    def test_rows_of_zeros_are_at_a_distance_that_others_take(self):
        x = random_rows(60, 4)
        x[3] = 0
        graph = gigaknn.knn_graph(x, 5, metric="cosine", allow_nonfinite=True)
        self.assertTrue(np.isinf(graph.distances[3]).all())
        for distances in (graph.to_umap()[1][3, 1:], graph.to_csr().getrow(3).data, graph.to_csr(include_self=True).getrow(3).data[1:]):
            np.testing.assert_array_equal(distances, np.ones(5, np.float32))
        graph = gigaknn.knn_graph(np.array([[1, 0], [-1, 0], [0, 0]], np.float32), 2, metric="cosine")
        ids, distances = graph.to_umap()
        np.testing.assert_array_equal((ids[0], distances[0]), ([0, 2, 1], [0, 1, 2]))
        np.testing.assert_array_equal([lists[0] for lists in graph.to_umap(2)], ([0, 2], [0, 1]))
        np.testing.assert_array_equal((graph.to_csr().getrow(0).indices, graph.to_csr().getrow(0).data), ([2, 1], [1, 2]))
        far = gigaknn.knn_graph(np.array([[0], [1e30], [3e30]], np.float32), 2)
        self.assertTrue(np.isinf(far.to_csr().data).any())  # of others an infinite distance is one

    def test_parallel_rows_are_no_less_than_nothing_apart(self):
        x = np.outer(np.arange(1, 200) / 7, [1, 8, 2]).astype(np.float64)
        for rows in (x.astype(np.float32), np.array([[1, 8, 2], [0.1, 0.8, 0.2], [5, 0, 1]], np.float32)):
            self.assertGreaterEqual(gigaknn.knn_graph(rows, 2, metric="cosine").distances.min(), 0)


if __name__ == "__main__":
    unittest.main()
