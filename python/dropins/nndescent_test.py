"""NNDescent beside the real pynndescent."""

import pickle
import unittest
import warnings

import gigaknn
import numpy as np
import pynndescent
import pynndescent.distances
from support import clustered_rows, random_rows


def recall_of(found, truth):
    return np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, truth)]) / truth.shape[1]


def readme_script(NNDescent, train, test):
    """What the README and the guide of pynndescent do."""
    index = NNDescent(train)
    index.prepare()
    neighbors, distances = index.query(test, k=15)
    return index.neighbor_graph, (neighbors, distances)


class Descent(unittest.TestCase):
    def test_its_examples_run(self):
        train, test = clustered_rows(12000, 16), clustered_rows(12200, 16)[-200:]
        graph_truth = gigaknn.knn_graph(train, 29, metric="euclidean")
        truth = gigaknn.knn(test, train, 15, metric="euclidean")
        recalls = {}
        for name, kind in (("gigaknn", gigaknn.NNDescent), ("pynndescent", pynndescent.NNDescent)):
            (ids, distances), (found, found_distances) = readme_script(kind, train, test)
            self.assertEqual((ids.shape, distances.shape, found.shape, found_distances.shape), ((12000, 30), (12000, 30), (200, 15), (200, 15)))
            self.assertEqual((ids.dtype, distances.dtype, found.dtype, found_distances.dtype), (np.int32, np.float32, np.int32, np.float32))
            np.testing.assert_array_equal(ids[:, 0], np.arange(12000))
            np.testing.assert_allclose(distances[:, 1], graph_truth.distances[:, 0], rtol=0.5)
            recalls[name] = recall_of(ids[:, 1:], graph_truth.ids), recall_of(found, truth.ids)
        print(f"recall of the graph and of queries: {recalls}")
        self.assertGreater(recalls["gigaknn"][0], min(0.97, recalls["pynndescent"][0] - 0.01))
        self.assertGreater(recalls["gigaknn"][1], min(0.95, recalls["pynndescent"][1] - 0.01))

    def test_distances_are_its(self):
        x = random_rows(600, 8)
        bits = random_rows(600, 8, np.uint8)
        for metric, kwds in (("euclidean", None), ("l2", None), ("sqeuclidean", None), ("cosine", None), ("manhattan", None), ("chebyshev", None), ("minkowski", {"p": 1.0}),
                             ("hellinger", None), ("bit_hamming", None), ("bit_jaccard", None)):
            rows = bits if metric.startswith("bit") else x
            theirs = pynndescent.distances.named_distances[metric]
            more = tuple((kwds or {}).values())
            index = gigaknn.NNDescent(rows, metric, metric_kwds=kwds, n_neighbors=10)
            for asked, (ids, distances) in ((rows, index.neighbor_graph), (rows[:20], index.query(rows[:20], k=5))):
                with self.subTest(metric):
                    expected = [[theirs(row, rows[j], *more) for j in near] for row, near in zip(asked[:20], ids)]
                    expected = np.nan_to_num(expected)  # its hellinger of a row and itself: the root of what rounding left
                    np.testing.assert_allclose(distances[:20], expected, rtol=1e-4, atol=1e-3)
                    self.assertTrue((np.diff(distances, axis=1) >= 0).all())

    def test_rows_of_zeros(self):
        x = random_rows(300, 8)
        zeros = [3, 7, 299]
        with_zeros = x.copy()
        with_zeros[zeros] = 0
        for metric in ("cosine", "hellinger"):
            theirs = pynndescent.distances.named_distances[metric]
            for rows in (x, with_zeros):
                index = gigaknn.NNDescent(rows, metric, n_neighbors=10)
                queries = np.concatenate((np.zeros((1, 8), np.float32), rows[:10]))
                most = index.query(queries, k=300)
                for asked, (ids, distances) in ((rows, index.neighbor_graph), (queries, index.query(queries, k=10)), (queries, most)):
                    with self.subTest(metric, has_zeros=rows is with_zeros, k=ids.shape[1]):
                        expected = np.array([[theirs(row, rows[j]) for j in near] for row, near in zip(asked, ids)])
                        np.testing.assert_allclose(distances, np.nan_to_num(expected), rtol=1e-4, atol=1e-3)
                        self.assertTrue((np.diff(distances, axis=1) >= 0).all())
                        self.assertTrue(all(len(np.unique(near)) == len(near) for near in ids))
                self.assertTrue((most[0] >= 0).all())
                self.assertEqual(index.dim, 8)
            index.update(xs_updated=x[zeros], updated_indices=zeros)
            np.testing.assert_array_equal(index.neighbor_graph[1], gigaknn.NNDescent(x, metric, n_neighbors=10).neighbor_graph[1])
        # The lists of its class have these distances, too, but for pairs of zeros by cosine.
        for metric, between in (("cosine", 1), ("hellinger", 0)):
            ids, distances = pynndescent.NNDescent(with_zeros, metric=metric, n_neighbors=10).neighbor_graph
            expected = np.where(np.isin(ids[zeros], zeros), between, 1)
            expected[:, 0] = 0  # itself
            np.testing.assert_allclose(distances[zeros], expected, atol=1e-6)

    def test_many_rows_of_zeros(self):
        x = clustered_rows(12000, 16)
        x[::100] = 0
        index = gigaknn.NNDescent(x, "cosine", n_neighbors=10)
        ids, distances = index.neighbor_graph
        self.assertFalse(distances[::100].any())
        self.assertFalse(x[ids[::100]].any())
        ids, distances = index.query(np.zeros((1, 16), np.float32), k=10)
        self.assertFalse(x[ids].any() or distances.any())

    def test_updates_and_copies(self):
        x, more = random_rows(500, 8), random_rows(700, 8)[500:]
        index = gigaknn.NNDescent(x, n_neighbors=7)
        index.query(x[:2])
        index.update(xs_fresh=more, xs_updated=more[:2] + 1, updated_indices=[4, 9])
        rows = np.concatenate((x, more))
        rows[[4, 9]] = more[:2] + 1
        fresh = gigaknn.NNDescent(rows, n_neighbors=7)
        for changed in (index, pickle.loads(pickle.dumps(index))):
            for a, b in zip((*changed.neighbor_graph, *changed.query(rows[:9])), (*fresh.neighbor_graph, *fresh.query(rows[:9]))):
                np.testing.assert_array_equal(a, b)
        index.compress_index()
        with self.assertWarnsRegex(UserWarning, "Compressed"):
            self.assertIsNone(index.neighbor_graph)
        with self.assertRaisesRegex(NotImplementedError, "compressed"):
            index.update(xs_fresh=more)

    def test_a_refused_update_changes_nothing(self):
        x = random_rows(300, 8)
        index = gigaknn.NNDescent(x, n_neighbors=7)
        before = (*index.neighbor_graph, *index.query(x[:9]))
        bad = x[:4].copy()
        bad[2, 3] = np.nan
        for change in ({"xs_fresh": bad}, {"xs_updated": bad, "updated_indices": [0, 1, 2, 3]}):
            with self.assertRaises(ValueError):
                index.update(**change)
            for a, b in zip((*index.neighbor_graph, *index.query(x[:9])), before):
                np.testing.assert_array_equal(a, b)

    def test_many_rows_of_bits(self):
        bits = np.random.default_rng(0).integers(256, size=(10000, 8), dtype=np.uint8)
        for metric, name in (("bit_hamming", "hamming"), ("bit_jaccard", "jaccard")):
            index = gigaknn.NNDescent(bits, metric, n_neighbors=5)
            for prepare in (lambda: None, index.prepare):
                prepare()
                np.testing.assert_array_equal(index.query(bits[:50], k=5)[0], gigaknn.knn(bits[:50], bits, 5, metric=name).ids)

    def test_few_rows(self):
        ids, distances = gigaknn.NNDescent(random_rows(3, 4), n_neighbors=5).neighbor_graph
        np.testing.assert_array_equal(ids[:, 3:], -1)
        self.assertTrue(np.isinf(distances[:, 3:]).all() and np.isfinite(distances[:, :3]).all())

    def test_arguments(self):
        x = random_rows(50, 4)
        with self.assertWarnsRegex(UserWarning, "n_trees is ignored"):
            gigaknn.NNDescent(x, n_trees=8)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gigaknn.NNDescent(x, n_trees=8, low_memory=True, n_jobs=-1, random_state=np.random.RandomState(3))
        for call, error, text in (
            (lambda: gigaknn.NNDescent(x, metric="canberra"), NotImplementedError, "metric 'canberra' is not gigaknn's"),
            (lambda: gigaknn.NNDescent(x, metric=np.dot), NotImplementedError, "is not gigaknn's"),
            (lambda: gigaknn.NNDescent(x, metric="minkowski", metric_kwds={"p": 3}), NotImplementedError, "1, 2 or inf, got 3"),
            (lambda: gigaknn.NNDescent(x, init_graph=x), NotImplementedError, "init_graph is not taken"),
            (lambda: gigaknn.NNDescent(x, trees=3), TypeError, "no argument 'trees'"),
            (lambda: gigaknn.NNDescent(x).query(x[:, :2]), ValueError, "2 columns, expected 4"),
            (lambda: gigaknn.NNDescent(x).update(xs_updated=x[:1]), ValueError, "come together"),
            (lambda: gigaknn.NNDescent(x).update(xs_updated=x[:1], updated_indices=[50]), ValueError, "from 0 to 49"),
        ):
            with self.assertRaisesRegex(error, text):
                call()


if __name__ == "__main__":
    unittest.main()
