"""What stands in for other libraries, which take -1 for the last row: lists that an approximate search leaves short are whole there."""

import unittest
import warnings
from unittest import mock

import gigaknn
import numpy as np
from gigaknn._search import with_whole_lists
from gigaknn._searcher import CosineSearcher, Searcher
from support import random_rows


def blobs(n, d=8):
    """Groups of 60 and of 205 rows by turns, far apart: cells around the small ones hold fewer than 60 others."""
    random = np.random.default_rng(0)
    group = np.repeat(np.arange(2 * n // 265 + 2), np.tile([60, 205], n // 265 + 1))[:n]
    return (random.random((group[-1] + 1, d))[group] * 1000 + random.normal(size=(n, d))).astype(np.float32)


class Lists(unittest.TestCase):
    def test_lists_without_any_row_become_those_of_an_exact_search(self):
        x = np.random.default_rng(0).integers(2, size=(40, 3)).astype(np.float32)  # many rows are the same: more than k before a row itself
        for k in (1, 4, 39):
            exact = gigaknn.knn_graph(x, k)
            distances, ids = with_whole_lists(np.full((40, k), np.inf, np.float32), np.full((40, k), -1), None, x, metric="l2")
            np.testing.assert_array_equal(ids, exact.ids)
            np.testing.assert_array_equal(distances, exact.distances)
            distances, ids = with_whole_lists(np.full((3, k), np.inf, np.float32), np.full((3, k), -1), x[:3] + 0.25, x, metric="l2")
            np.testing.assert_array_equal(ids, gigaknn.knn(x[:3] + 0.25, x, k).ids)

    def test_nearly_all_rows_are_found_exactly(self):
        x = np.random.default_rng(0).random((12_000, 2), dtype=np.float32)
        searcher = Searcher(x, 0.9, metric="l2", device="cpu")
        distances, ids = searcher.nearest(x[:2], 11_500, 1)
        expected = gigaknn.knn(x[:2], x, 11_500)
        np.testing.assert_array_equal(ids, expected.ids)
        np.testing.assert_array_equal(distances, expected.distances)

    def test_whole_lists_stay_as_they_are(self):
        x = random_rows(50, 4)
        graph = gigaknn.knn_graph(x, 3)
        ids, distances = graph.ids.copy(), graph.distances.copy()
        ids[:, 1] = 49  # wrong, and whole
        ids[7, 1:], distances[7, 1:] = -1, np.inf
        made = with_whole_lists(distances, ids, None, x, metric="l2")
        np.testing.assert_array_equal(made[1][7], graph.ids[7])
        np.testing.assert_array_equal(np.delete(made[1], 7, axis=0), np.delete(ids, 7, axis=0))
        np.testing.assert_array_equal(ids[7, 1:], -1)  # what was given is not changed
        self.assertIs(with_whole_lists(graph.distances, graph.ids, None, x, metric="l2")[1], graph.ids)

    def test_what_is_found_among_others_is_the_callers_own(self):
        """A graph's lists are read-only: these are copies, also where an exact search filled some."""
        for x, recall in ((random_rows(50, 4), 1.0), (blobs(12000), 0.9)):
            searcher = Searcher(x, recall, metric="euclidean", device="cpu", seed=0)
            for found in (*searcher.nearest_others(60 if len(x) > 60 else 3, None), *searcher.nearest(x[:3], 2, None)):
                self.assertTrue(found.flags.writeable and found.flags.c_contiguous)

    def test_rows_among_others(self):
        x = blobs(20000)
        graph = gigaknn.knn_graph(x, 60, recall=0.9, metric="euclidean")
        short = graph.ids[:, -1] < 0
        self.assertGreater(short.sum(), 100)  # else this tests nothing
        exact = gigaknn.knn_graph(x, 60, metric="euclidean")
        searcher = Searcher(x, 0.9, metric="euclidean", device="cpu", seed=0)
        for distances, ids in (searcher.nearest_others(60, None), with_own_rows_left_out(gigaknn.NNDescent(x, n_neighbors=61, recall=0.9).neighbor_graph)):
            np.testing.assert_array_equal(ids[short], exact.ids[short])
            np.testing.assert_array_equal(distances[short], exact.distances[short])
            np.testing.assert_array_equal(ids[~short], graph.ids[~short])

    def test_queries(self):
        x, queries = random_rows(12000, 4), random_rows(12050, 4)[-50:]
        x[::1000] = 0
        few = gigaknn.build(x, index="IVF1000,Flat", metric="euclidean")
        self.assertTrue((few.search(queries, 400).ids[:, -1] < 0).all())
        with mock.patch.object(Searcher, "index_for", lambda self, k, threads: gigaknn.build(self._rows, index="IVF1000,Flat", metric=self._options["metric"])):
            ids, distances = gigaknn.NNDescent(x, n_neighbors=5).query(queries, k=400)
            by_cosine = CosineSearcher(x, 0.9, device="cpu", seed=0).nearest(queries, 400, None)
        exact = gigaknn.knn(queries, x, 400, metric="euclidean")
        np.testing.assert_array_equal(ids, exact.ids)
        np.testing.assert_array_equal(distances, exact.distances)
        exact = CosineSearcher(x, 1.0, device="cpu", seed=0).nearest(queries, 400, None)
        for found, expected in zip(by_cosine, exact):
            np.testing.assert_array_equal(found, expected)

    def test_an_index_that_missed_its_recall_is_searched_as_well_as_it_was_measured(self):
        x, queries = random_rows(3000, 16), random_rows(3050, 16)[-50:]
        index = gigaknn.build(x, index="IVF64,Flat", metric="euclidean")
        index.measure(queries, k=5, seconds=1)
        best = index.curve[-1]
        self.assertGreater(best.nprobe, 16)  # else this tests nothing
        with mock.patch.object(Searcher, "index_for", lambda *_: index):
            distances, ids = Searcher(x, 0.9, metric="euclidean", device="cpu", seed=0).nearest(queries, 5, None)
        expected = index.search(queries, 5, nprobe=best.nprobe, refine=best.refine)
        np.testing.assert_array_equal(ids, expected.ids)
        np.testing.assert_array_equal(distances, expected.distances)
        self.assertTrue((index.search(queries, 5).ids != expected.ids).any())

    def test_what_umap_takes(self):
        for dtype in (np.float32, np.uint8):
            x = random_rows(400, 8, dtype)
            graph = gigaknn.knn_graph(x, 100, index="IVF8,Flat", nprobe=1)
            short = graph.ids[:, -1] < 0
            self.assertTrue(short.any())
            self.assertEqual(graph.to_csr().nnz, (graph.ids >= 0).sum())
            exact = gigaknn.knn_graph(x, 100)
            for made, expected in zip(graph.to_umap(), exact.to_umap()):
                np.testing.assert_array_equal(made[short], expected[short])
            np.testing.assert_array_equal(graph.to_umap()[0][~short, 1:], graph.ids[~short])
            least = (graph.ids >= 0).sum(axis=1).min()
            np.testing.assert_array_equal(graph.to_umap(least + 1)[0][:, 1:], graph.ids[:, :least])

    def test_what_umap_takes_of_words_of_bfloat16(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("no ml_dtypes")
        x = random_rows(400, 8).astype(ml_dtypes.bfloat16)
        graph = gigaknn.knn_graph(x, 100, index="IVF8,Flat", nprobe=1)
        short = graph.ids[:, -1] < 0
        exact = gigaknn.knn_graph(x, 100).to_umap()
        np.testing.assert_array_equal(graph.to_umap()[0][short], exact[0][short])
        with mock.patch.dict("sys.modules", ml_dtypes=None), warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(graph.to_umap()[0][short], exact[0][short])

    def test_short_lists_that_are_not_searched_again_are_told(self):
        x = random_rows(400, 8)
        by_labels = gigaknn.knn_graph(x, 6, labels=np.arange(400) // 4)
        of_arrays = gigaknn.KnnGraph.from_arrays([[1, np.inf], [1, 2], [1, 3]], [[1, -1], [0, 2], [1, 0]], base=x[:3])
        for graph, text, most in ((by_labels, "400 lists have fewer than 6 rows, and UMAP needs whole ones: n_neighbors must be at most 4", 4), (of_arrays, "1 lists have fewer than 2 rows.*at most 2", 2)):
            with self.assertRaisesRegex(gigaknn.InvalidArgument, f"^{text}$"):
                graph.to_umap()
            self.assertTrue((graph.to_umap(most)[0] >= 0).all())

    def test_queries_as_pynndescent_takes_them(self):
        x = np.abs(random_rows(60, 6))
        index = gigaknn.NNDescent(x, n_neighbors=5)
        ids, distances = index.query(x[:0], k=2)
        self.assertEqual((ids.shape, ids.dtype, distances.shape, distances.dtype), ((0, 2), np.int32, (0, 2), np.float32))
        np.testing.assert_array_equal(index.query(x[:4], k=2, return_distances=False), index.query(x[:4], k=2)[0])
        np.testing.assert_array_equal(index.query_indices(x[:4], k=2), index.query(x[:4], k=2)[0])
        with self.assertRaisesRegex(gigaknn.InvalidArgument, "n at least 1"):
            index.update(xs_fresh=x[:0])

    def test_hellinger_takes_nothing_below_zero(self):
        x = np.array([[-1, -1], [1, 1], [1, 3], [-1, -3]], np.float32)
        with self.assertRaisesRegex(gigaknn.InvalidArgument, "hellinger takes no value below zero"):
            gigaknn.NNDescent(x, "hellinger", n_neighbors=3)
        with self.assertRaisesRegex(gigaknn.InvalidArgument, "query_data: hellinger"):
            gigaknn.NNDescent(np.abs(x), "hellinger", n_neighbors=3).query(x)


def with_own_rows_left_out(graph):
    ids, distances = graph
    return distances[:, 1:], ids[:, 1:]


if __name__ == "__main__":
    unittest.main()
