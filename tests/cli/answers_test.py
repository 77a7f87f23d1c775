"""graph and search on every metric and type equal the float64 reference."""
import unittest

from support import (BIT_METRICS, DTYPES, METRICS, CliTest, make_bits, make_rows, nearest, read_bin, read_npy,
                     write_bin, write_npy)

N, Q, D, K = 70, 9, 7, 5


class Answers(CliTest):
    def make_files(self, metric, dtype):
        nonnegative = metric in ("chi2", "hellinger")
        if metric in BIT_METRICS:
            base, queries = make_bits(N, D, 1), make_bits(Q, D, 2)
        else:
            base = make_rows(N, D, dtype, 1, nonnegative)
            queries = make_rows(Q, D, dtype, 2, nonnegative)
        suffix = DTYPES[dtype][1]
        self.base = write_bin(self.path("base" + suffix), base, dtype)
        self.queries = write_bin(self.path("queries" + suffix), queries, dtype)
        return base, queries

    def cases(self):
        for metric in METRICS:
            for dtype in DTYPES:
                yield metric, dtype
        for metric in BIT_METRICS:
            yield metric, "u8"

    def test_search_equals_the_reference(self):
        for metric, dtype in self.cases():
            with self.subTest(metric=metric, dtype=dtype):
                base, queries = self.make_files(metric, dtype)
                self.run_cli("search", self.base, "--queries", self.queries, "-k", K, "-o", "ids.ibin",
                             "--distances", "d.fbin", "--metric", metric, "--quiet", "--verify", Q)
                ids, distances = read_bin(self.path("ids.ibin"), "i"), read_bin(self.path("d.fbin"), "f")
                self.assertEqual(len(ids), Q)
                for query, row_ids, row_distances in zip(queries, ids, distances):
                    self.assert_neighbors(metric, query, base, row_ids, row_distances)

    def test_graph_equals_the_reference(self):
        for metric, dtype in self.cases():
            with self.subTest(metric=metric, dtype=dtype):
                base, _ = self.make_files(metric, dtype)
                self.run_cli("graph", self.base, "-k", K, "-o", "g.knng", "--metric", metric, "--quiet",
                             "--verify", 20)
                self.run_cli("convert", "g.knng", "ids.ibin", "--quiet")
                self.run_cli("convert", "g.knng", "d.fbin", "--distances", "--quiet")
                ids, distances = read_bin(self.path("ids.ibin"), "i"), read_bin(self.path("d.fbin"), "f")
                self.assertEqual(len(ids), N)
                for row in range(N):
                    self.assert_neighbors(metric, base[row], base, ids[row], distances[row], exclude=row)

    def test_k_may_be_1_and_all_rows(self):
        base, queries = self.make_files("l2", "f32")
        for k in (1, N):
            self.run_cli("search", self.base, "--queries", self.queries, "-k", k, "-o", "ids.npy", "--distances",
                         "d.npy")
            for query, ids, distances in zip(queries, read_npy(self.path("ids.npy"), "q"),
                                             read_npy(self.path("d.npy"), "f")):
                self.assert_neighbors("l2", query, base, ids, distances)
        self.run_cli("graph", self.base, "-k", N - 1, "-o", "g.knng")
        self.run_cli("check", "g.knng")

    def test_equal_rows_come_in_the_order_of_their_ids(self):
        write_bin(self.path("same.fbin"), [[1.0, 2.0]] * 30)
        self.run_cli("search", "same.fbin", "--queries", "same.fbin", "-k", 4, "-o", "ids.ibin")
        self.assertEqual(read_bin(self.path("ids.ibin"), "i"), [[0, 1, 2, 3]] * 30)

    def test_radius_equals_the_reference(self):
        import struct
        for metric, radius in (("l2", 150), ("inner_product", 60), ("l1", 25)):
            base, queries = self.make_files(metric, "f32")
            self.run_cli("search", self.base, "--queries", self.queries, "--radius", radius, "-o", "found.range",
                         "--metric", metric)
            with open(self.path("found.range"), "rb") as file:
                data = file.read()
            q, total = struct.unpack_from("<ii", data)
            counts = struct.unpack_from("<%di" % q, data, 8)
            ids = struct.unpack_from("<%di" % total, data, 8 + 4 * q)
            distances = struct.unpack_from("<%df" % total, data, 8 + 4 * q + 4 * total)
            self.assertEqual((q, total), (Q, sum(counts)))
            at = 0
            for query, count in zip(queries, counts):
                within = [(i, value) for i, value in nearest(metric, query, base, N)
                          if (value >= radius if metric == "inner_product" else value <= radius)]
                self.assertEqual(list(zip(ids[at:at + count], distances[at:at + count])), within)
                at += count

    def test_random_floats_agree_across_threads_and_budgets(self):
        import random
        generator = random.Random(5)
        rows = [[generator.gauss(0, 1) for _ in range(24)] for _ in range(3000)]
        write_bin(self.path("base.fbin"), rows)
        for metric in ("l2", "cosine", "inner_product", "l1"):
            files = []
            for name, options in (("one", ["--threads", 1]), ("two", ["--threads", 2]),
                                  ("tight", ["--memory", "64MiB"])):
                self.run_cli("graph", "base.fbin", "-k", 6, "-o", name + ".knng", "--metric", metric, *options)
                with open(self.path(name + ".knng"), "rb") as file:
                    files.append(file.read())
            self.assertEqual(files[0], files[1], metric)
            self.assertEqual(files[0], files[2], metric)

    def test_npy_input_gives_the_same_answer(self):
        base, queries = self.make_files("l2", "f32")
        write_npy(self.path("base.npy"), base, "<f4", "f")
        write_npy(self.path("queries.npy"), queries, "<f4", "f")
        self.run_cli("search", "base.npy", "--queries", "queries.npy", "-k", K, "-o", "a.ibin")
        self.run_cli("search", self.base, "--queries", self.queries, "-k", K, "-o", "b.ibin")
        self.assertEqual(read_bin(self.path("a.ibin"), "i"), read_bin(self.path("b.ibin"), "i"))


if __name__ == "__main__":
    unittest.main()
