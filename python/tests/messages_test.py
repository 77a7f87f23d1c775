"""What is told of arguments that are wrong: the error, in one line that names the argument."""

import tempfile
import unittest
from pathlib import Path

import gigaknn
import gigaknn.faiss
import numpy as np
from support import random_rows, run_python


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
            (lambda: gigaknn.NNDescent(self.x).update(None, self.x[:1], np.ma.masked_equal([1], 1)), "updated_indices has masked values"),
            (lambda: gigaknn.to_device(masked, "emulated"), "x has masked values"),
        )
        # Of lists those that they are made of.
        self.assert_told(
            (lambda: gigaknn.knn(list(masked), self.x), "queries has masked values"),
            (lambda: gigaknn.knn([tuple(row) for row in masked], self.x), "queries has masked values"),
            (lambda: gigaknn.knn([[0.5, 0.5, 0.5, np.ma.masked]], self.x, allow_nonfinite=True), "queries has masked values"),
            (lambda: gigaknn.knn(self.x, [*self.x, masked[0], np.ma.masked_all(4)]), "base has masked values"),
            (lambda: gigaknn.kmeans(self.x, 3, weights=[*[1.0] * 99, np.ma.masked]), "weights has masked values"),
            (lambda: gigaknn.recall([np.ma.masked_equal([1], 1)], [[1]]), "ids has masked values"),
            (lambda: gigaknn.NNDescent(list(masked)), "data has masked values"),
        )
        lists = [np.ma.masked_array(row) for row in self.x]  # of which nothing is masked
        np.testing.assert_array_equal(gigaknn.knn(lists, self.x, 2).ids, gigaknn.knn(self.x, self.x, 2).ids)
        np.testing.assert_array_equal(gigaknn.knn(np.ma.masked_array(self.x), self.x, 2).ids, gigaknn.knn(self.x, self.x, 2).ids)

    def test_bytes_of_packed_bits(self):
        """What uint8 does not hold is not cast to other bits."""
        bits = random_rows(30, 4, np.uint8)
        for metric in ("bit_hamming", "bit_jaccard"):
            index = gigaknn.NNDescent(bits, metric, n_neighbors=3)
            for value in (300, -1, -1.0, 0.7, np.nan, np.inf, 2**70):
                wrong = bits.astype(object)
                wrong[2, 1] = value
                given = [wrong.tolist(), wrong, wrong.astype(np.float64)]
                if value in (300, -1):
                    given.append(wrong.astype(np.int64))
                for rows in given:
                    text = r"packed bits are whole numbers from 0 to 255, got \S+ in row 2"
                    self.assert_told(
                        (lambda: gigaknn.NNDescent(rows, metric, n_neighbors=3), f"data: {text}"),
                        (lambda: index.query(rows), f"query_data: {text}"),
                        (lambda: index.update(xs_fresh=rows), f"xs_fresh: {text}"),
                    )
            for other in (bits + 5j, bits.astype("datetime64[s]")):
                with self.assertRaises((TypeError, ValueError)):
                    gigaknn.NNDescent(other, metric, n_neighbors=3)
            for same in (bits.tolist(), bits.astype(np.int64), bits.astype(np.float64), bits.astype(object)):
                np.testing.assert_array_equal(index.query(same, k=3)[0], index.query(bits, k=3)[0])
                np.testing.assert_array_equal(gigaknn.NNDescent(same, metric, n_neighbors=3).neighbor_graph[1], index.neighbor_graph[1])
        self.assert_told(
            (lambda: gigaknn.NNDescent([["a", "b"]], "bit_hamming"), "data must be rows of numbers of one length"),
            (lambda: gigaknn.NNDescent(3, "bit_hamming"), r"data must be rows, of shape \[n, d\]"),
        )

    def test_names_that_no_file_has(self):
        name, x = "a\0b", self.x
        flat = gigaknn.faiss.IndexFlatL2(4)
        flat.add(x)
        self.assert_told(
            (lambda: gigaknn.open(name), r"path has a byte of 0, as no file's name has: 'a\\x00b'"),
            (lambda: self.index.save(name), "path has a byte of 0"),
            (lambda: self.graph.save(name), "path has a byte of 0"),
            (lambda: gigaknn.KnnGraph.load(name), "path has a byte of 0"),
            (lambda: gigaknn.read_vectors(name), "path has a byte of 0"),
            (lambda: gigaknn.knn(x, Path(name)), "base has a byte of 0"),
            (lambda: gigaknn.knn([name, name], x), "queries has a byte of 0"),
            (lambda: gigaknn.faiss.write_index(flat, name), "fname has a byte of 0"),
            (lambda: gigaknn.faiss.read_index(name), "fname has a byte of 0"),
        )
        for call in (lambda: gigaknn.open(3), lambda: self.index.save(3), lambda: self.graph.save(3)):
            self.assert_told((call, "path must be a path, got 3"), error=TypeError)
        with tempfile.TemporaryDirectory() as folder:
            self.graph.save(Path(folder, "\udcff.knng"))  # which is no UTF-8
            self.assertEqual(len(gigaknn.KnnGraph.load(folder.encode() + b"/\xff.knng")), 100)

    def test_more_threads_than_any_machine_has(self):
        x = self.x
        self.assert_told(
            (lambda: gigaknn.knn(x, x, 1, threads=2**31 - 1), "threads must be at most 65536, got 2147483647"),
            (lambda: self.index.search(x, 1, threads=2**16 + 1), "threads must be at most 65536, got 65537"),
        )
        np.testing.assert_array_equal(gigaknn.knn(x, x, 2, threads=2**16).ids, gigaknn.knn(x, x, 2).ids)

    def test_memory_that_ran_out_is_an_error_of_the_librarys(self):
        result = run_python(
            """
            import gigaknn, numpy as np, resource
            x = np.random.default_rng(0).random((2000, 4), dtype=np.float32)
            gigaknn.knn(x, x, 1)
            taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (taken + 32 * 2**20,) * 2)
            try:
                gigaknn.knn(x, x, 2000)  # results of 48 MB, for which the machine has room
            except gigaknn.OutOfMemory as error:
                print(error)
            """
        )
        self.assertEqual(result.stdout, "memory ran out; memory= is a budget for what a call allocates\n", result.stderr)

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
