"""Every input format gives the same graph; files larger than the memory budget give the same bytes."""
import array
import gzip
import json
import os
import pathlib
import random
import resource
import struct
import subprocess
import unittest

from support import BINARY, SANITIZED, TINY_TILES, CliTest, make_rows, read_bin, write_bin, write_npy

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
        needed = 50 * len(self.rows[0]) * 4
        self.assert_refused("graph", "shards", "-k", 4, "-o", "out.knng", "--memory", needed - 1, code=2,
                            says=["3 files are gathered in %d;" % needed, "gigaknn convert"])
        self.assertIn("rows         50\n", self.run_cli("info", "shards").stdout)

    @unittest.skipIf(SANITIZED, "what sanitizers take is many times as much")
    def test_what_is_only_looked_at_takes_no_memory(self):
        rows, dims = 400_000, 156  # 64 MB, whose every row says how long it is
        os.mkdir(self.path("many"))
        # In pieces: what this process takes counts as what its child took before it became another program.
        with open(self.path("long.bvecs"), "wb") as file:
            for _ in range(100):
                file.write((struct.pack("<i", dims) + bytes(range(dims))) * (rows // 100))
        for name in ("a", "b"):
            with open(self.path("many/%s.u8bin" % name), "wb") as file:
                file.write(struct.pack("<II", rows // 2, dims))
                for _ in range(100):
                    file.write(bytes(range(dims)) * (rows // 200))
        for code, *command in ((0, "info", "long.bvecs"), (0, "info", "many"),
                               (2, "graph", "many", "-k", 5, "-o", "g.knng", "--memory", "20MiB")):
            process = subprocess.Popen([BINARY, *map(str, command)], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, code, command)
            self.assertLess(usage.ru_maxrss, 44 << 10, command)

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

    @unittest.skipUnless(h5py and "GIGAKNN_NO_HDF5" not in os.environ, "needs h5py, and a program built with HDF5")
    def test_a_hdf5_base_brings_its_own_queries_and_truth(self):
        queries = make_rows(6, 12, "u8", 22)
        write_bin(self.path("queries.fbin"), queries)
        with h5py.File(self.path("set.hdf5"), "w") as file:
            file.create_dataset("train", data=self.rows, dtype="f4")
            file.create_dataset("test", data=queries, dtype="f4")
        self.run_cli("search", "set.hdf5", "-k", 3, "-o", "a.ibin")
        self.run_cli("search", "base.fbin", "--queries", "queries.fbin", "-k", 3, "-o", "b.ibin")
        self.assertEqual(read_bin(self.path("a.ibin"), "i"), read_bin(self.path("b.ibin"), "i"))
        with h5py.File(self.path("set.hdf5"), "a") as file:
            file.attrs["distance"] = "angular"
            file.create_dataset("neighbors", data=read_bin(self.path("a.ibin"), "i"), dtype="i4")
        said = "says that its distance is angular"
        self.assertIn("angular", self.run_cli("info", "set.hdf5").stdout)
        for more in ((), ("--recall", 0.9)):
            self.assertIn(said, self.run_cli("graph", "set.hdf5", "-k", 3, "-o", "g.knng", *more).stderr)
        self.assertNotIn(said, self.run_cli("graph", "set.hdf5", "-k", 3, "-o", "g.knng", "--metric", "cosine").stderr)
        self.assertIn(said, self.run_cli("kmeans", "set.hdf5", "-k", 3, "-o", "c.fbin").stderr)
        self.assertIn(said, self.run_cli("search", "set.hdf5", "-k", 3, "-o", "a.ibin").stderr)
        self.assertNotIn(said, self.run_cli("search", "set.hdf5", "-k", 3, "-o", "a.ibin", "--metric", "cosine").stderr)
        self.assert_refused("convert", "set.hdf5", "out.h5", "--dataset", "test", code=2, says="--dataset test is vectors", outputs=("out.h5",))


SHARE = 4 if SANITIZED else 1  # of the rows, where all takes ten times as long


class LargerThanMemory(CliTest):
    """Rows that would take several times the budget once prepared: they are searched in blocks."""

    def run_twice(self, command, outputs, budget):
        """Runs `command` freely and under `budget`, which the kernel enforces; the bytes must agree."""
        files = []
        for name, options in (("free", []), ("tight", ["--memory", budget])):
            limit = None
            if options and not SANITIZED:  # sanitizers reserve terabytes: there the kernel cannot hold the budget for us
                # Private writable memory: the budget, and what is no search's: stacks, allocator, libraries.
                most = int(budget.removesuffix("MiB")) + 48 << 20
                limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (most, most))
            paths = [name + output for output in outputs]
            run = subprocess.run([BINARY, *map(str, command), "--quiet", "--json", name + ".json", "--threads", "2",
                                  "-o", paths[0], *(["--distances", paths[1]] if paths[1:] else []), *options],
                                 cwd=self.folder, capture_output=True, text=True, preexec_fn=limit)
            self.assertEqual(run.returncode, 0, run.stderr)
            record = json.loads(pathlib.Path(self.path(name + ".json")).read_text(encoding="utf-8"))
            self.assertEqual(record["filter"].startswith("in blocks of"), name == "tight")
            files.append([pathlib.Path(self.path(path)).read_bytes() for path in paths])
        self.assertEqual(files[0], files[1])

    def write_bytes(self, name, n, d, seed):
        with open(self.path(name), "wb") as file:
            file.write(struct.pack("<II", n, d) + random.Random(seed).randbytes(n * d))

    def test_an_approximate_graph_takes_no_more_than_was_planned(self):
        n, d = 10000 if SANITIZED else 50000, 128
        with open(self.path("base.u8bin"), "wb") as file:  # each row five hundred times, or a hundred
            file.write(struct.pack("<II", n, d) + random.Random(9).randbytes(100 * d) * (n // 100))
        recipes = "IVF64,PQ16", "OPQ16_32,IVF64,PQ16,RFlat", "IVF64,SQ8"
        for method in (("--method", "ivf", "--recall", 0.9), ("--method", "nn-descent", "--recall", 0.9), *(("--index", recipe, "--nprobe", 4) for recipe in recipes)):
            self.run_cli("graph", "base.u8bin", "-k", 7, "-o", "g.knng", *method, "--threads", 2, "--json", "g.json")
            memory = json.loads(pathlib.Path(self.path("g.json")).read_text(encoding="utf-8"))["memory"]
            if not SANITIZED:
                # The vectors are mapped; stacks, allocator and libraries are no search's.
                self.assertLessEqual(memory["peak_bytes"], memory["planned_bytes"] + n * d + (16 << 20), method)
                self.assertGreater(memory["peak_bytes"], memory["planned_bytes"] // 8, method)

    @unittest.skipIf(SANITIZED, "what a sanitizer takes is no search's")
    def test_candidates_take_no_more_than_was_planned(self):
        n, d = 50000, 24
        generator = random.Random(4)
        with open(self.path("base.hbin"), "wb") as file:
            file.write(struct.pack("<II", n, d) + struct.pack(f"<{n * d}e", *(generator.gauss(0, 1) for _ in range(n * d))))
        for k in 10, 40:
            self.run_cli("graph", "base.hbin", "-k", k, "-o", "g.knng", "--recall", 0.8, "--threads", 2, "--json", "g.json")
            record = json.loads(pathlib.Path(self.path("g.json")).read_text(encoding="utf-8"))
            self.assertIn(" candidates by ", record["filter"])
            self.assertLessEqual(record["memory"]["peak_bytes"], record["memory"]["planned_bytes"] + 2 * n * d + (16 << 20), k)

    def test_searches_of_u8_rows_agree(self):
        self.write_bytes("base.u8bin", 600000 // SHARE, 128, 7)
        self.write_bytes("queries.u8bin", 30, 128, 8)
        self.run_twice(["search", "base.u8bin", "--queries", "queries.u8bin", "-k", 7], [".ibin", ".fbin"], "64MiB")

    def test_searches_of_f32_rows_agree(self):
        for name, n, seed in (("base.fbin", 200000 // SHARE, 7), ("queries.fbin", 30, 8)):
            with open(self.path(name), "wb") as file:
                file.write(struct.pack("<II", n, 100))
                array.array("f", array.array("b", random.Random(seed).randbytes(n * 100))).tofile(file)
        for metric in ("l2", "cosine", "inner_product"):
            self.run_twice(["search", "base.fbin", "--queries", "queries.fbin", "-k", 7, "--metric", metric],
                           [".ibin", ".fbin"], "24MiB" if TINY_TILES else "40MiB")

    def test_graphs_agree(self):
        self.write_bytes("base.u8bin", 40000 // SHARE, 256, 9)
        self.run_twice(["graph", "base.u8bin", "-k", 5], [".knng"], "36MiB")


if __name__ == "__main__":
    unittest.main()
