"""The emulated GPU gives the same files as the CPU, byte for byte; so do several of them, shards, and blocks under a budget."""
import json
import random
import unittest

from support import TINY_TILES, CliTest, make_bits, write_bin


def real_rows(n, d, seed):
    generator = random.Random(seed)
    return [[generator.gauss(0, 1) for _ in range(d)] for _ in range(n)]


class Devices(CliTest):
    def files_of(self, *options):
        self.run_cli("search", "base.fbin", "--queries", "queries.fbin", "-k", 7, "-o", "ids.ibin", "--distances",
                     "d.fbin", "--json", "run.json", "--quiet", *options)
        self.run_cli("graph", "few.fbin", "-k", 5, "-o", "g.knng", "--quiet", *options)
        self.run_cli("graph", "few.fbin", "-k", 5, "-o", "ivf.knng", "--quiet", "--method", "ivf", "--recall", "0.8", *options)
        self.run_cli("search", "bytes.u8bin", "--queries", "few.u8bin", "-k", 7, "-o", "bytes.ibin", "--quiet", *options)
        contents = []
        for name in ("ids.ibin", "d.fbin", "g.knng", "ivf.knng", "bytes.ibin"):
            with open(self.path(name), "rb") as file:
                contents.append(file.read())
        return contents

    def test_every_device_writes_the_same_bytes(self):
        write_bin(self.path("base.fbin"), real_rows(1200, 10, 1))  # more than is computed before the first scan
        write_bin(self.path("queries.fbin"), real_rows(20, 10, 2))
        write_bin(self.path("few.fbin"), real_rows(90, 10, 3))
        write_bin(self.path("bytes.u8bin"), make_bits(1200, 10, 4), "u8")
        write_bin(self.path("few.u8bin"), make_bits(20, 10, 5), "u8")
        want = self.files_of("--device", "cpu")
        with open(self.path("run.json"), encoding="utf-8") as file:
            self.assertNotIn("kernels", json.load(file))
        for options in (["emulated"], ["emulated:2"], ["emulated:4", "--shards", "2"],
                        ["emulated", "--device-memory", "1200KB"]):
            with self.subTest(options=options):
                self.assertEqual(self.files_of("--device", *options), want)
                with open(self.path("run.json"), encoding="utf-8") as file:
                    record = json.load(file)
                self.assertEqual(record["device"], options[0])
                self.assertGreater(record["kernels"]["finish_lists"], 0)
        self.files_of("--device", "emulated")
        with open(self.path("run.json"), encoding="utf-8") as file:
            self.assertGreater(json.load(file)["kernels"]["scan_products"], 0)

    def test_graphs_of_integers_are_the_same_bytes(self):
        write_bin(self.path("all.u8bin"), make_bits(270, 10, 6), "u8")  # more than 128 a neighbour: each pair is looked at once, for both
        write_bin(self.path("few.u8bin"), make_bits(150, 10, 7), "u8")
        for name, base, k, options in (("exact", "all.u8bin", 2, ()), ("ivf", "few.u8bin", 5, ("--recall", "0.8")),
                                       ("nn-descent", "few.u8bin", 5, ("--recall", "0.8"))):
            def graph_of(*device):
                self.run_cli("graph", base, "-k", k, "-o", "g.knng", "--method", name, "--json", "g.json", "--quiet", *options,
                             "--device", *device)
                with open(self.path("g.knng"), "rb") as file:
                    return file.read()

            want = graph_of("cpu")
            for device in (["emulated:2"], ["emulated:4", "--shards", "2"], ["emulated", "--device-memory", "1200KB"], ["emulated"]):
                with self.subTest(method=name, device=device):
                    self.assertEqual(graph_of(*device), want)
            if name == "exact" and not TINY_TILES:  # lists of two have too little room there for both sides of a pair
                with open(self.path("g.json"), encoding="utf-8") as file:
                    self.assertGreater(json.load(file)["kernels"]["scan_products_both"], 0)

    def test_indexes_are_searched_in_shards(self):
        write_bin(self.path("base.fbin"), real_rows(600, 10, 1))
        write_bin(self.path("queries.fbin"), real_rows(20, 10, 2))
        for recipe in ("IVF8,Flat", "IVF8,PQ5", "IVF8,RaBitQ2,RFlat"):
            self.run_cli("build", "base.fbin", "--index", recipe, "-o", "x.gknn", "--quiet")
            found = []
            for options in ((), ("--device", "emulated:4", "--shards", 2), ("--device", "emulated:2", "--shards", 2)):
                self.run_cli("search", "x.gknn", "--queries", "queries.fbin", "-k", 5, "--nprobe", 3, "-o", "ids.ibin", "--quiet", *options)
                with open(self.path("ids.ibin"), "rb") as file:
                    found.append(file.read())
            self.assertEqual(found, found[:1] * 3)
            self.run_cli("search", "x.gknn", "--queries", "queries.fbin", "--radius", 2, "--nprobe", 3, "-o", "within.range", "--quiet")
        run = self.run_cli("search", "x.gknn", "--queries", "queries.fbin", "-k", 5, "-o", "ids.ibin", "--shards", 2, code=2)
        self.assertIn("shards are for several GPUs, got 2 on cpu", run.stderr)

    def test_a_budget_too_small_names_the_least(self):
        write_bin(self.path("few.fbin"), real_rows(90, 10, 3))
        run = self.run_cli("graph", "few.fbin", "-k", 5, "-o", "g.knng", "--quiet", "--device", "emulated", "--device-memory",
                           "1KB", code=2)
        self.assertRegex(run.stderr, r"^gigaknn: a device budget of 1000 bytes is too small: this search needs at least \d+ bytes\n$")

    def test_unknown_devices_are_named(self):
        write_bin(self.path("few.fbin"), real_rows(9, 3, 3))
        for name in ("emulated:99", "cuda:0", "emulated:", "gpu"):
            run = self.run_cli("graph", "few.fbin", "-k", 2, "-o", "g.knng", "--device", name, code=3)
            self.assertIn("no device '" + name + "'", run.stderr)
        run = self.run_cli("graph", "few.fbin", "-k", 2, "-o", "g.knng", "--device", "emulated:4", "--shards", "3", code=2)
        self.assertIn("shards must divide the 4 devices, got 3", run.stderr)


if __name__ == "__main__":
    unittest.main()
