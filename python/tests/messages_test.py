"""What is told of arguments that are wrong: the error, in one line that names the argument."""

import unittest

import gigaknn
import gigaknn.faiss
import numpy as np
from support import random_rows


class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.x = random_rows(100, 4)
        cls.graph = gigaknn.knn_graph(cls.x, 3)
        cls.index = gigaknn.build(cls.x, index="IVF4,Flat")

    def assert_told(self, *cases, error=gigaknn.InvalidArgument):
        for call, text in cases:
            with self.subTest(text), self.assertRaisesRegex(error, text) as caught:
                call()
            self.assertNotIn("\n", str(caught.exception))

    def test_numbers_beyond_those_of_the_library(self):
        x, huge = self.x, 2**70
        self.assert_told(
            (lambda: gigaknn.knn(x, x, k=huge), "k must be a whole number of at most 63 bits, got one of 71"),
            (lambda: gigaknn.knn(x, x, k=-huge), "k must be"),
            (lambda: gigaknn.knn(x, x, shards=2**31), "shards must be a whole number of at most 31 bits, got one of 32"),
            (lambda: self.index.search(x, nprobe=huge), "nprobe must be"),
            (lambda: self.index.search(x, k=huge), "k must be"),
            (lambda: self.graph.path(0, huge), "b must be"),
            (lambda: self.graph.paths(0, 1, huge), "count must be"),
            (lambda: gigaknn.kmeans(x, 3, iterations=huge), "iterations must be"),
            (lambda: gigaknn.kmeans(x, 3, levels=2**40), "levels must be"),
            (lambda: gigaknn.build(x, index="IVF4,Flat", iterations=2**40), "iterations must be"),
            (lambda: gigaknn.recall([[1]], [[1]], k=huge), "k must be"),
            (lambda: gigaknn.knn(x, x, 1, memory=2**2000), "memory is beyond"),
            (lambda: gigaknn.NNDescent(x, n_neighbors=huge), "n_neighbors must be"),
            (lambda: gigaknn.knn(x, x, 1, threads=huge), "threads must be"),
        )
        self.assert_told(
            (lambda: gigaknn.knn(x, x, k=2**62), "k of 4611686018427387904 for each of 100 queries"),
            (lambda: self.index.search(x, 2**57), "k of"),
            (lambda: self.index.search_exact(x, 2**57), "k of"),
            error=gigaknn.OutOfMemory,
        )
        self.assertEqual(self.index.search(x[:2], 3, nprobe=2**40).ids.shape, (2, 3))

    def test_truth_is_no_number(self):
        x = self.x
        self.assert_told(
            (lambda: gigaknn.knn(x, x, k=True), "k must be a whole number, got True"),
            (lambda: gigaknn.knn(x, x, k=np.True_), "k must be a whole number"),
            (lambda: gigaknn.knn(x, x, memory=True), "memory must be a number, got True"),
            (lambda: gigaknn.radius_search(x, x, True), "radius must be a number, got True"),
            (lambda: gigaknn.knn_graph(x, 3, recall=True), "recall must be a number, got True"),
            error=TypeError,
        )

    def test_what_is_no_rows(self):
        x = self.x
        for wrong, name in ((None, "None"), (b"abc", "bytes"), ({1}, "set"), ({"a": 1}, "dict"), (iter([x]), "list_iterator"), (3, "int"), (object(), "object")):
            self.assert_told((lambda: gigaknn.knn(wrong, x), f"queries must be rows: an array .*; got {name}"), (lambda: self.index.search(wrong), f"queries must be rows.*got {name}"), error=TypeError)
        self.assert_told(
            (lambda: gigaknn.knn(x, [[1, 2], [1]]), "base: row 1 has 1 values, row 0 has 2"),
            (lambda: gigaknn.knn(x, [["a", "b"]]), "base must be numbers: could not convert"),
            (lambda: gigaknn.NNDescent([[1, 2], [1]]), "data must be rows of numbers of one length"),
            (lambda: gigaknn.kmeans(x, 3, weights="a"), "weights must be numbers"),
            (lambda: gigaknn.recall([[1], [1, 2]], [[1]]), "ids must be an array of 2 dimensions: its lists differ in length"),
        )

    def test_sparse_rows(self):
        try:
            from scipy import sparse
        except ImportError:
            self.skipTest("no SciPy")
        for rows in (sparse.csr_matrix(self.x), sparse.csc_array(self.x)):
            self.assert_told(
                (lambda: gigaknn.knn(rows, self.x), r"queries is sparse, and gigaknn has dense rows alone: queries.toarray\(\)"), (lambda: gigaknn.build(rows), r"x is sparse.*x.toarray\(\)")
            )
            self.assert_told((lambda: gigaknn.NNDescent(rows), r"data.toarray\(\)"), error=gigaknn.Unsupported)

    def test_masked_values(self):
        masked = np.ma.masked_less(self.x, 0.1)
        self.assert_told(
            (lambda: gigaknn.knn(masked, self.x), "queries has masked values"),
            (lambda: gigaknn.kmeans(masked, 3), "x has masked values"),
            (lambda: gigaknn.kmeans(self.x, 3, weights=masked[:, 0]), "weights has masked values"),
            (lambda: gigaknn.recall(np.ma.masked_equal([[1]], 1), [[1]]), "ids has masked values"),
            (lambda: gigaknn.knn(self.x, self.x, keys=np.ma.masked_less(np.arange(100), 3)), "keys has masked values"),
            (lambda: gigaknn.NNDescent(masked), "data has masked values"),
        )
        np.testing.assert_array_equal(gigaknn.knn(np.ma.masked_array(self.x), self.x, 2).ids, gigaknn.knn(self.x, self.x, 2).ids)

    def test_few_rows(self):
        x = self.x
        self.assert_told(
            (lambda: gigaknn.knn_graph(x[:0], 3), "a graph needs at least 2 rows, got 0"),
            (lambda: gigaknn.knn_graph(x[:1], 3, recall=0.9), "a graph needs at least 2 rows, got 1"),
            (lambda: gigaknn.kmeans(x[:0], 3), "k-means needs at least 1 row, got 0"),
        )

    def test_rows_of_a_graph(self):
        self.assert_told((lambda: self.graph.path(0, 10**9), "b must be a row, from 0 to 99, got 1000000000"), (lambda: self.graph.path(-1, 3), "a must be a row, from 0 to 99, got -1"))

    def test_ids_that_are_none(self):
        flat = gigaknn.faiss.IndexFlatL2(4)
        flat.add(self.x)
        self.assert_told(
            (lambda: self.index.reconstruct(None), "ids must be whole numbers, got None"),
            (lambda: flat.reconstruct(None), "key must be a whole number, got None"),
            (lambda: flat.reconstruct_batch(None), "key must be whole numbers, got None"),
            error=TypeError,
        )

    def test_ids_of_either_order_of_bytes(self):
        for order in "<>":
            self.assert_told((lambda: self.index.reconstruct(np.array([2**63], order + "u8")), r"ids must be below 2\*\*63, got 9223372036854775808"))
            self.assertEqual(self.index.reconstruct(np.array([3], order + "u8")).shape, (1, 4))

    def test_keys_without_an_order(self):
        x, keys = self.x, set(range(100))
        named = gigaknn.build(x, index="Flat", keys=[f"row {i}" for i in range(100)])
        self.assert_told(
            (lambda: gigaknn.knn(x, x, keys=keys), "keys must be a list or an array of keys, got a set, which has no order"),
            (lambda: gigaknn.knn_graph(x, 3, keys=frozenset(keys)), "a set, which has no order"),
            (lambda: named.ids_of({"row 1"}), "a set, which has no order"),
            (lambda: named.update(x[:1], keys={"row 1"}), "a set, which has no order"),
            (lambda: gigaknn.knn(x, x, keys=5), "keys must be a list or an array of keys, got 5"),
            (lambda: gigaknn.knn(x, x, keys="ab"), "keys must be a list or an array of keys, got 'ab'"),
            error=TypeError,
        )
        self.assertEqual(named.search(x[:1], 1, only={"row 7"}).keys[0, 0], "row 7")  # which need none


if __name__ == "__main__":
    unittest.main()
