"""What once went wrong without a word: results over one another, options that nothing read, recalls that were none."""
import os
import random
import struct
import unittest

from support import SANITIZED, TINY_TILES, CliTest, make_rows, read_bin, write_bin, write_npy


class Silence(CliTest):
    def setUp(self):
        super().setUp()
        write_bin(self.path("base.fbin"), make_rows(400, 16, "f32", 1))
        write_bin(self.path("queries.fbin"), make_rows(20, 16, "f32", 2))

    def refused(self, *command, saying, code=2):
        stderr = self.run_cli(*command, "--quiet", code=code).stderr
        self.assertEqual(stderr.count("\n"), 1, stderr)
        self.assertIn(saying, stderr)

    def test_no_result_is_written_over_another_or_over_what_is_read(self):
        self.run_cli("build", "base.fbin", "--index", "IVF4,Flat", "-o", "x.gknn")
        os.symlink("base.fbin", self.path("link.fbin"))
        os.mkdir(self.path("folder"))
        before = self.read("base.fbin"), self.read("queries.fbin")
        search = ["search", "base.fbin", "--queries", "queries.fbin", "-k", 3]
        for command in ([*search, "-o", "s.npy", "--distances", "folder/../s.npy"], [*search, "-o", "s.npy", "--json", "s.npy"],
                        ["kmeans", "base.fbin", "-k", 3, "-o", "km.npy", "--labels", "km.npy"],
                        ["convert", "x.gknn", "rows.npy", "--ids", "rows.npy"]):
            self.refused(*command, saying="two results would be written there")
        for command in ([*search, "-o", "s.ibin", "--distances", "link.fbin"], [*search, "-o", "s.ibin", "--json", "queries.fbin"],
                        ["search", "x.gknn", "--queries", "queries.fbin", "--radius", 5, "-o", "x.gknn"],
                        ["convert", "base.fbin", "base.fbin"], ["dedup", "base.fbin", "--radius", 1, "-o", "o.npy", "--json", "base.fbin"],
                        ["graph", "base.fbin", "-k", 3, "-o", "g.knng", "--json", "base.fbin"]):
            self.refused(*command, saying="is read, and would be overwritten")
        self.assertEqual((self.read("base.fbin"), self.read("queries.fbin")), before)
        self.run_cli(*search, "-o", "s.npy", "--distances", "d.npy", "--json", "s.json")

    def test_options_that_nothing_reads_are_refused(self):
        self.run_cli("build", "base.fbin", "--index", "IVF4,Flat", "-o", "x.gknn")
        self.run_cli("graph", "base.fbin", "-k", 3, "-o", "g.knng")
        self.refused("search", "x.gknn", "--queries", "queries.fbin", "-k", 3, "--method", "exact", "-o", "s.npy", saying="--method exact is for vectors")
        self.run_cli("build", "base.fbin", "--index", "IVF4,Flat", "--metric", "cosine", "-o", "c.gknn")
        self.refused("search", "c.gknn", "--queries", "queries.fbin", "-k", 3, "--metric", "l2", "-o", "s.npy", saying="--metric is that of the index: cosine")
        self.run_cli("search", "c.gknn", "--queries", "queries.fbin", "-k", 3, "-o", "s.npy")
        self.refused("graph", "queries.fbin", "--to", "x.gknn", "-k", 3, "-o", "s.npy", saying="--to names vectors")
        self.refused("graph", "base.fbin", "--radius", 9, "--nprobe", 3, "-o", "r.range", saying="--nprobe")
        self.refused("graph", "--extend", "g.knng", "--base", "base.fbin", "--add", "queries.fbin", "--workers", 4, "-o", "h.knng", saying="--workers")
        told = self.run_cli("search", "base.fbin", "--queries", "queries.fbin", "-k", 3, "--refine", 3, "-o", "s.npy").stderr
        self.assertIn("--refine is not used", told)
        self.run_cli("search", "base.fbin", "--queries", "queries.fbin", "-k", 3, "-o", "s.h5")
        self.refused("convert", "s.h5", "out.npy", "--dataset", "distances", "--rows", "200:", saying="--rows 200:")

    def test_check_knows_all_files_that_info_knows(self):
        self.run_cli("search", "base.fbin", "--queries", "queries.fbin", "-k", 3, "-o", "s.h5")
        self.run_cli("build", "base.fbin", "--index", "IVF4,Flat", "-o", "x.gknn")
        self.run_cli("convert", "x.gknn", "x.faiss")
        self.assertIn("sound", self.run_cli("check", "s.h5").stdout)
        checked = self.run_cli("check", "x.faiss")
        self.assertIn("sound", checked.stdout)
        self.assertIn("structure alone", checked.stderr)
        with open(self.path("cut.faiss"), "wb") as file:
            file.write(self.read("x.faiss")[:-9])
        self.refused("check", "cut.faiss", saying="cut.faiss", code=3)

    def test_a_recall_is_by_ids_where_distances_are_of_codes(self):
        self.run_cli("build", "base.fbin", "--index", "PCA4,IVF4,Flat", "-o", "x.gknn")
        self.run_cli("search", "base.fbin", "--queries", "queries.fbin", "-k", 10, "-o", "truth.npy", "--distances", "truth.fbin")
        self.run_cli("search", "x.gknn", "--queries", "queries.fbin", "-k", 10, "--nprobe", 4, "-o", "found.npy", "--distances", "found.fbin")
        by_ids = ["eval", "found.npy", "--truth", "truth.npy", "--json"]
        self.run_cli(*by_ids, "ids.json")
        told = self.run_cli(*by_ids, "both.json", "--distances", "found.fbin", "--truth-distances", "truth.fbin").stderr
        self.assertIn("are not those of the rows in the truth", told)
        ids, both = self.record("ids.json"), self.record("both.json")
        self.assertEqual(ids["recall"]["value"], both["recall"]["value"])
        self.assertLess(ids["recall"]["value"], 0.9)
        self.assertFalse(both["ties_count"])
        self.run_cli("build", "base.fbin", "--index", "IVF4,PQ4,RFlat", "-o", "pq.gknn")
        recalls = []
        for refine in (0, 40):
            self.run_cli("search", "pq.gknn", "--queries", "queries.fbin", "-k", 10, "--nprobe", 4, "--refine", refine, "-o", "f.npy", "--json", "f.json")
            self.run_cli("eval", "f.npy", "--truth", "truth.npy", "--json", "e.json")
            recalls.append((self.record("f.json")["recall"]["value"], self.record("e.json")["recall"]["value"]))
        self.assertAlmostEqual(recalls[0][0], recalls[0][1])
        self.assertEqual(recalls[1][0], 1)

    def test_rows_without_a_direction_do_not_hinder_a_recall(self):
        rows = make_rows(600, 8, "f32", 5)
        for i in range(0, 600, 10):
            rows[i] = [0] * 8
        write_bin(self.path("zeros.fbin"), rows)
        self.run_cli("build", "zeros.fbin", "--metric", "cosine", "--recall", 0.9, "-o", "z.gknn")

    def test_changing_an_approximate_graph_misses_no_recall_that_was_not_asked(self):
        n = 600 if TINY_TILES else 3000
        generator = random.Random(3)
        write_bin(self.path("many.u8bin"), [[generator.randint(0, 255) for _ in range(24)] for _ in range(n)], "u8")
        write_npy(self.path("gone.npy"), [[7], [9]], "<i8", "q")
        self.run_cli("graph", "many.u8bin", "-k", 5, "--recall", 0.6, "--method", "ivf", "-o", "a.knng", "--json", "a.json")
        self.assertLess(self.record("a.json")["recall"]["value"], 1)
        reduce = ["graph", "--reduce", "a.knng", "--base", "many.u8bin", "--remove", "gone.npy", "-o", "b.knng"]
        self.run_cli(*reduce)
        self.run_cli(*reduce, "--recall", 0.999999, code=4)

    @unittest.skipIf(SANITIZED, "a sanitizer takes memory of its own")
    def test_duplicates_are_found_within_a_budget(self):
        n = 3000
        for name, row in (("same.u8bin", lambda i: bytes(24)), ("near.u8bin", lambda i: struct.pack("<Q", i % 4096).ljust(24, b"\0"))):
            with open(self.path(name), "wb") as file:
                file.write(struct.pack("<II", n, 24) + b"".join(row(i) for i in range(n)))
            self.run_cli("dedup", name, "--radius", 1000000, "-o", "first.ibin", "--memory", "48MiB", "--json", "d.json")
            self.assertEqual(read_bin(self.path("first.ibin"), "i"), [[0]] * n)
            self.assertLess(self.record("d.json")["memory"]["peak_bytes"], 64 << 20, name)


if __name__ == "__main__":
    unittest.main()
