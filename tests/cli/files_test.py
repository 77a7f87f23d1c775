"""Every input format gives the same graph; files larger than the memory budget give the same bytes."""
import array
import gzip
import os
import random
import struct
import unittest

from support import CliTest, make_rows, read_bin, write_bin, write_npy

try:
    import h5py
except ImportError:
    h5py = None


class InputFormats(CliTest):
    def setUp(self):
        super().setUp()
        self.rows = make_rows(50, 12, "u8", 21)
        write_bin(self.path("base.fbin"), self.rows)
        write_bin(self.path("base.u8bin"), self.rows, "u8")

    def graph_of(self, base, *options):
        self.run_cli("graph", base, "-k", 4, "-o", "g.knng", "--quiet", *options)
        with open(self.path("g.knng"), "rb") as file:
            return file.read()

    def test_vecs_npy_and_idx_give_the_same_graph(self):
        with open(self.path("base.fvecs"), "wb") as file:
            for row in self.rows:
                file.write(struct.pack("<i12f", 12, *row))
        with open(self.path("base.bvecs"), "wb") as file:
            for row in self.rows:
                file.write(struct.pack("<i12B", 12, *row))
        write_npy(self.path("f4.npy"), self.rows, "<f4", "f")
        write_npy(self.path("f2.npy"), self.rows, "<f2", "e")
        write_npy(self.path("u1.npy"), self.rows, "|u1", "B")
        write_npy(self.path("i1.npy"), self.rows, "|i1", "b")
        idx = struct.pack(">BBBBIII", 0, 0, 8, 3, 50, 3, 4) + b"".join(bytes(row) for row in self.rows)
        with open(self.path("images-idx3-ubyte"), "wb") as file:
            file.write(idx)
        with gzip.open(self.path("images-idx3-ubyte.gz"), "wb") as file:
            file.write(idx)
        expected = self.graph_of("base.fbin")
        for name in ("base.u8bin", "base.fvecs", "base.bvecs", "f4.npy", "f2.npy", "u1.npy", "i1.npy",
                     "images-idx3-ubyte", "images-idx3-ubyte.gz"):
            self.assertEqual(self.graph_of(name), expected, name)

    def test_a_folder_of_shards_is_one_set(self):
        os.mkdir(self.path("shards"))
        for number, begin in enumerate((0, 20, 37)):
            end = (20, 37, 50)[number]
            write_bin(self.path("shards/part%d.fbin" % number), self.rows[begin:end])
        self.assertEqual(self.graph_of("shards"), self.graph_of("base.fbin"))

    def test_images_of_idx_are_seen_without_an_option(self):
        with open(self.path("images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">BBBBIII", 0, 0, 8, 3, 50, 3, 4) + b"".join(bytes(row) for row in self.rows))
        self.assertIn("3x4", self.run_cli("info", "images-idx3-ubyte").stdout)
        self.graph_of("images-idx3-ubyte", "--report", "r.html")
        with open(self.path("r.html"), encoding="utf-8") as file:
            self.assertIn("data:image/png", file.read())

    def test_ids_go_out_as_ivecs_too(self):
        self.run_cli("search", "base.fbin", "--queries", "base.fbin", "-k", 2, "-o", "ids.ivecs")
        self.run_cli("search", "base.fbin", "--queries", "base.fbin", "-k", 2, "-o", "ids.ibin")
        with open(self.path("ids.ivecs"), "rb") as file:
            rows = [list(struct.unpack("<iii", file.read(12)))[1:] for _ in range(50)]
        self.assertEqual(rows, read_bin(self.path("ids.ibin"), "i"))

    @unittest.skipUnless(h5py, "needs h5py")
    def test_a_hdf5_base_brings_its_own_queries_and_truth(self):
        queries = make_rows(6, 12, "u8", 22)
        write_bin(self.path("queries.fbin"), queries)
        with h5py.File(self.path("set.hdf5"), "w") as file:
            file.create_dataset("train", data=self.rows, dtype="f4")
            file.create_dataset("test", data=queries, dtype="f4")
        self.run_cli("search", "set.hdf5", "-k", 3, "-o", "a.ibin")
        self.run_cli("search", "base.fbin", "--queries", "queries.fbin", "-k", 3, "-o", "b.ibin")
        self.assertEqual(read_bin(self.path("a.ibin"), "i"), read_bin(self.path("b.ibin"), "i"))


class LargerThanMemory(CliTest):
    """12 MB of rows under a budget of 8 MiB."""

    def assert_same_answers(self, base, queries, metric):
        files = []
        for name, options in (("free", []), ("tight", ["--memory", "8MiB"])):
            self.run_cli("search", base, "--queries", queries, "-k", 7, "-o", name + ".ibin", "--distances",
                         name + ".fbin", "--metric", metric, "--quiet", *options)
            with open(self.path(name + ".ibin"), "rb") as ids, open(self.path(name + ".fbin"), "rb") as distances:
                files.append(ids.read() + distances.read())
        self.assertEqual(files[0], files[1])

    def test_searches_of_u8_rows_agree(self):
        n, d = 96000, 128
        with open(self.path("base.u8bin"), "wb") as file:
            file.write(struct.pack("<II", n, d) + random.Random(7).randbytes(n * d))
        with open(self.path("queries.u8bin"), "wb") as file:
            file.write(struct.pack("<II", 30, d) + random.Random(8).randbytes(30 * d))
        self.assert_same_answers("base.u8bin", "queries.u8bin", "l2")

    def test_searches_of_f32_rows_agree(self):
        n, d = 30000, 100
        for name, rows, seed in (("base.fbin", n, 7), ("queries.fbin", 30, 8)):
            with open(self.path(name), "wb") as file:
                file.write(struct.pack("<II", rows, d))
                array.array("f", array.array("b", random.Random(seed).randbytes(rows * d))).tofile(file)
        for metric in ("l2", "cosine", "inner_product"):
            self.assert_same_answers("base.fbin", "queries.fbin", metric)

    def test_graphs_agree(self):
        n, d = 12000, 1000
        with open(self.path("base.u8bin"), "wb") as file:
            file.write(struct.pack("<II", n, d) + random.Random(9).randbytes(n * d))
        files = []
        for name, options in (("free", []), ("tight", ["--memory", "8MiB"])):
            self.run_cli("graph", "base.u8bin", "-k", 5, "-o", name + ".knng", "--quiet", *options)
            with open(self.path(name + ".knng"), "rb") as file:
                files.append(file.read())
        self.assertEqual(files[0], files[1])


if __name__ == "__main__":
    unittest.main()
