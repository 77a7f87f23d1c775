"""Indexes: build, search, add, remove and merge against plain Python; what is refused, what a kill, a full disk or a cut file leaves."""
import fcntl
import filecmp
import json
import math
import os
import random
import re
import resource
import signal
import struct
import subprocess
import time
import unittest

from support import BINARY, TINY_TILES, CliTest, is_sanitized, make_rows, nearest, read_bin, read_npy, write_bin, write_npy


# Each way in which a file holds rows.
KINDS = ("IVF20,Flat", "Flat", "IVF20,PQ5,RFlat", "PCA3,IVF20,SQ8,RFlat", "IVF20,PQ2x4", "IVF20,PQ4x6", "RR,IVF20,Flat", "IVF20,RaBitQ4,RFlat")


class Index(CliTest):
    def setUp(self):
        super().setUp()
        self.rows = make_rows(400, 5, "u8", 3)
        self.queries = make_rows(25, 5, "u8", 4)
        self.base = write_bin(self.path("base.u8bin"), self.rows, "u8")
        write_bin(self.path("q.u8bin"), self.queries, "u8")

    def write_ids(self, name, ids):
        return write_npy(self.path(name), [[i] for i in ids], "<i8", "q")

    def build(self, *more, name="x.gknn", base="base.u8bin", recipe="IVF20,Flat"):
        self.run_cli("build", base, "--index", recipe, "-o", name, *more)

    def search(self, name="x.gknn", k=7, **options):
        """[(id, distance)] a query."""
        arguments = [part for key, value in options.items() for part in ("--" + key, value)]
        self.run_cli("search", name, "--queries", "q.u8bin", "-k", k, "-o", "ids.npy", "--distances", "d.fbin", "--json", "r.json", *arguments)
        return [list(zip(*pair)) for pair in zip(read_npy(self.path("ids.npy"), "q"), read_bin(self.path("d.fbin"), "f"))]

    def expect_exact(self, found, row_of, k=7):
        """`row_of`: id -> row."""
        ids = sorted(row_of)
        rows = [row_of[i] for i in ids]
        for query, got in zip(self.queries, found):
            want = [(ids[i], value) for i, value in nearest("l2", query, rows, k)]
            self.assertEqual(got[:len(want)], want)
            self.assertTrue(all(i == -1 for i, _ in got[len(want):]))

    def test_all_lists_find_the_nearest_and_fewer_say_what_they_miss(self):
        self.build()
        everything = dict(enumerate(self.rows))
        self.expect_exact(self.search(nprobe=20), everything)
        record = self.record()
        self.assertEqual((record["exact"], record["lists"], record["nprobe"], record["n"], record["recall"]["value"]), (True, 20, 20, 400, 1))
        for nprobe in (1, 3):
            found = self.search(nprobe=nprobe, sample=25)
            record = self.record()
            hits = wanted = 0
            for query, got in zip(self.queries, found):
                want = nearest("l2", query, self.rows, 7)
                hits += sum(value <= want[-1][1] for i, value in got if i >= 0)
                wanted += 7
            self.assertFalse(record["exact"])
            self.assertAlmostEqual(record["recall"]["value"], hits / wanted, places=6)
            self.assertEqual((record["recall"]["low"], record["recall"]["high"]), (record["recall"]["value"],) * 2)  # all were looked at
        found = self.search(nprobe=3, sample=5)
        recall = self.record()["recall"]
        self.assertEqual(recall["sampled"], 5)
        self.assertLess(recall["low"], recall["high"])
        self.search(nprobe=3, sample=0)
        self.assertIsNone(self.record()["recall"])

    def test_all_rows_in_one_list_are_searched_exactly(self):
        self.build(recipe="Flat")
        self.assertIn("400 x 5 u8, all rows", self.run_cli("info", "x.gknn").stdout)
        self.run_cli("check", "x.gknn")
        self.expect_exact(self.search(), dict(enumerate(self.rows)))
        record = self.record()
        self.assertEqual((record["method"], record["exact"], record["lists"], record["recall"]["value"]), ("flat", True, 0, 1))
        self.run_cli("search", "x.gknn", "--queries", "q.u8bin", "--radius", 30, "-o", "a.range")
        self.run_cli("search", "base.u8bin", "--queries", "q.u8bin", "--radius", 30, "-o", "b.range")
        self.assertEqual(self.read("a.range"), self.read("b.range"))
        self.run_cli("add", "x.gknn", "q.u8bin")
        self.expect_exact(self.search(), dict(enumerate(self.rows + self.queries)))
        self.run_cli("tune", "x.gknn", "--queries", "q.u8bin")
        self.assertEqual(self.run_cli("info", "x.gknn").stdout.count("with nprobe"), 1)

    def test_a_graph_by_its_own_index(self):
        self.run_cli("graph", "base.u8bin", "-k", 4, "-o", "exact.knng")
        self.run_cli("graph", "base.u8bin", "-k", 4, "--index", "IVF20,Flat", "--nprobe", 20, "-o", "g.knng", "--json", "r.json")
        record = self.record()
        self.assertEqual((record["recall"]["value"], record["index"], record["nprobe"]), (1, "IVF20,Flat", 20))
        self.run_cli("check", "g.knng")
        for part in ("exact", "g"):
            self.run_cli("convert", part + ".knng", part + ".npy")
        self.assertEqual(self.read("g.npy"), self.read("exact.npy"))
        self.run_cli("graph", "base.u8bin", "-k", 4, "--method", "ivf", "--index", "IVF20,Flat", "--nprobe", 20, "-o", "named.knng")
        self.run_cli("convert", "named.knng", "named.npy")
        self.assertEqual(self.read("named.npy"), self.read("exact.npy"))
        asked = ("--index", "IVF20,PQ2", "--nprobe", 1, "--recall", 0.999)
        run = self.run_cli("graph", "base.u8bin", "-k", 4, *asked, "-o", "g.knng", "--json", "g.json", code=4)
        with open(self.path("g.json"), encoding="utf-8") as file:
            recall = json.load(file)["recall"]["value"]
        self.assertIn(f"the recall is {recall:.6g}, below the 0.999 that was asked", run.stderr)
        self.run_cli("check", "g.knng")
        self.run_cli("graph", "base.u8bin", "-k", 4, *asked[:4], "--recall", 1, "-o", "g.knng", code=4)
        unused = self.run_cli("graph", "base.u8bin", "-k", 4, "--index", "IVF20,PQ2", "--nprobe", 50, "--refine", 7, "-o", "g.knng", "--json", "g.json").stderr
        self.assertIn("--refine is not used", unused)
        with open(self.path("g.json"), encoding="utf-8") as file:
            record = json.load(file)
        self.assertEqual((record["nprobe"], "refine" in record), (20, False))
        self.assertIn("--nprobe is not used", self.run_cli("graph", "base.u8bin", "-k", 4, "--index", "Flat", "--nprobe", 5, "-o", "g.knng").stderr)
        for arguments, says in ((("--nprobe", 3), "--index"), (("--index", "IVF20,Flat", "--method", "exact"), "--index"),
                                (("--index", "IVF20,Flat", "--workers", 2), "--index"), (("--index", "IVF500,Flat"), "more lists"),
                                (("--index", "IVF20,Flat", "--nprobe", 0), "--nprobe"), (("--index", "IVF20,Flat", "--sample", 0), "--sample"),
                                (("--index", "IVF20,Flat", "--to", "q.u8bin"), "--index"), (("--index", "IVF20,Flat", "--verify", 3), "--verify")):
            self.assert_refused("graph", "base.u8bin", "-k", 4, "-o", "other.knng", *arguments, code=2, says=says)

    def test_ids_filters_and_changes(self):
        self.check_ids_filters_and_changes("IVF20,Flat", nprobe=20)

    def test_ids_filters_and_changes_of_product_codes(self):
        self.check_ids_filters_and_changes("IVF20,PQ2,RFlat", nprobe=20, refine=70)

    def test_ids_filters_and_changes_of_quantized_rows(self):
        self.check_ids_filters_and_changes("PCA3,IVF20,SQ8,RFlat", nprobe=20, refine=70)

    def check_ids_filters_and_changes(self, recipe, **exactly):
        generator = random.Random(5)
        ids = generator.sample(range(10**12), 400)
        self.write_ids("ids.npy", ids)
        self.build("--ids", "ids.npy", recipe=recipe)
        row_of = dict(zip(ids, self.rows))
        self.expect_exact(self.search(**exactly), row_of)
        some = ids[:3] + ids[100:350:3]
        for only in (some, some[:4]):
            self.write_ids("only.npy", only + [17])  # and one that is not there
            self.expect_exact(self.search(**exactly, only="only.npy"), {i: row_of[i] for i in only})
            self.expect_exact(self.search(**exactly, **{"except": "only.npy"}), {i: row for i, row in row_of.items() if i not in only})
        self.assertLess(len(only) * 20, 400)
        self.expect_exact(self.search(**{**exactly, "nprobe": 1}, only="only.npy"), {i: row_of[i] for i in only})  # so few are all looked at

        gone = ids[::3]
        self.write_ids("gone.npy", gone)
        self.run_cli("remove", "x.gknn", "--ids", "gone.npy")
        for i in gone:
            del row_of[i]
        self.expect_exact(self.search(**exactly), row_of)
        new = make_rows(60, 5, "u8", 6)
        write_bin(self.path("new.u8bin"), new, "u8")
        self.run_cli("add", "x.gknn", "new.u8bin", "-o", "y.gknn")
        self.expect_exact(self.search(**exactly), row_of)
        row_of.update({max(ids) + 1 + i: row for i, row in enumerate(new)})
        self.expect_exact(self.search("y.gknn", **exactly), row_of)
        replaced = ids[1:31] + list(range(30))
        self.write_ids("replaced.npy", replaced)
        self.run_cli("add", "y.gknn", "new.u8bin", "--ids", "replaced.npy", "--replace", "--json", "r.json")
        row_of.update(zip(replaced, new))
        self.assertEqual(self.record()["n"], len(row_of))
        self.expect_exact(self.search("y.gknn", **exactly), row_of)
        self.run_cli("check", "y.gknn")
        info = self.run_cli("info", "y.gknn").stdout
        self.assertIn("%d x 5 u8, " % len(row_of), info)
        self.assertIn("20 inverted lists", info)
        self.assertIn("next id      %d" % (max(ids) + 61), info)

    def test_halves_merge_to_the_bytes_of_the_whole(self):
        self.write_ids("even.npy", range(0, 400, 2))
        self.write_ids("odd.npy", range(1, 400, 2))
        for recipe in ("Flat", "IVF20,Flat", "IVF20,PQ5", "IVF20,PQ5,RFlat", "PCA3,IVF20,SQ8,RFlat"):
            self.build(recipe=recipe)
            self.run_cli("remove", "x.gknn", "--ids", "even.npy", "-o", "odd.gknn")
            self.run_cli("remove", "x.gknn", "--ids", "odd.npy", "-o", "even.gknn")
            self.run_cli("merge", "even.gknn", "odd.gknn", "-o", "whole.gknn")
            self.assertEqual(self.read("whole.gknn"), self.read("x.gknn"))
            for threads in (1, 3):
                self.build("--threads", threads, "--memory", "40MB", name="other.gknn", recipe=recipe)
                self.assertEqual(self.read("other.gknn"), self.read("x.gknn"))

    def test_rows_and_ids_come_out_again(self):
        names = [1000 + 7 * i for i in random.Random(5).sample(range(400), 400)]
        self.write_ids("names.npy", names)
        order = sorted(range(400), key=lambda i: names[i])
        for recipe in KINDS:
            with self.subTest(recipe=recipe):
                self.build("--ids", "names.npy", recipe=recipe)
                if recipe in ("IVF20,PQ2x4", "IVF20,PQ4x6", "RR,IVF20,Flat"):
                    self.assert_refused("convert", "x.gknn", "none.u8bin", code=2, says="x.gknn: keeps no full vectors that could be written", outputs=["none.u8bin"])
                    continue
                self.run_cli("convert", "x.gknn", "out.u8bin", "--ids-to", "out.npy")
                self.assertEqual(read_bin(self.path("out.u8bin"), "B"), [self.rows[i] for i in order])
                self.assertEqual([i for i, in read_npy(self.path("out.npy"), "q")], sorted(names))
        # After changes, in part, of another type.
        self.build()
        self.write_ids("gone.npy", [0, 7, 399])
        self.run_cli("remove", "x.gknn", "--ids", "gone.npy")
        self.run_cli("add", "x.gknn", "q.u8bin")
        said = self.run_cli("convert", "x.gknn", "out.npy", "--dtype", "f32", "--rows", "5:410").stderr
        self.assertIn("note: rows stand in the order of their ids, which are not 0, 1, ...; --ids-to FILE writes them", said)
        want = [row for i, row in enumerate(self.rows + self.queries) if i not in (0, 7, 399)]
        self.assertEqual(read_npy(self.path("out.npy"), "f"), [[float(x) for x in row] for row in want[5:410]])
        self.assert_refused("convert", "x.gknn", "more.u8bin", "--rows", "0:500", code=2, says="422", outputs=["more.u8bin"])
        self.assert_refused("convert", "x.gknn", "more.u8bin", "--ids-to", "ids.txt", code=2, says="ids.txt", outputs=["more.u8bin"])

    def test_a_filter_of_bits(self):
        allowed = [i for i in range(400) if i % 3 == 0]
        self.write_ids("some.npy", allowed)
        bits = [[sum(1 << j for j in range(8) if (8 * i + j) % 3 == 0)] for i in range(50)]
        write_bin(self.path("bits.u8bin"), bits, "u8")
        write_npy(self.path("bits.npy"), bits, "|u1", "B")
        self.build()
        want = self.search(nprobe=3, only="some.npy")
        self.assertEqual(self.search(nprobe=3, **{"only-bits": "bits.u8bin"}), want)
        self.assertEqual(self.search(nprobe=3, **{"only-bits": "bits.npy"}), want)
        self.assertTrue(all(i % 3 == 0 for found in want for i, _ in found))
        search = ("search", "x.gknn", "--queries", "q.u8bin", "-k", 3, "-o", "out.npy", "--only-bits")
        write_bin(self.path("short.u8bin"), bits[:49], "u8")
        write_bin(self.path("floats.fbin"), [[1.0]], "f32")
        self.assert_refused(*search, "short.u8bin", code=2, says="400", outputs=["out.npy"])
        self.assert_refused(*search, "floats.fbin", code=2, says="floats.fbin: bits are u8, 8 in each, got f32", outputs=["out.npy"])
        self.assert_refused(*search, "bits.npy", "--only", "some.npy", code=2, says="--only", outputs=["out.npy"])

    def test_a_graph_by_its_index_says_first_that_memory_is_short(self):
        run = self.run_cli("graph", "base.u8bin", "-k", 5, "--index", "IVF20,PQ5", "--memory", "2MB", "-o", "g.knng", code=2)
        self.assertRegex(run.stderr, r"^gigaknn: --memory 2MB is too small: a graph by its index needs [\d.]+ [KM]iB\n$")

    @unittest.skipIf(TINY_TILES or is_sanitized(), "measures memory of a million rows")
    def test_the_budget_holds_however_uneven_lists_are(self):
        n, d = 1_000_000, 8
        values = random.Random(1).randbytes(n * d)
        for name, contents in (("even", values), ("half", bytes(n * d // 2) + values[n * d // 2:])):
            with open(self.path(f"{name}.u8bin"), "wb") as file:
                file.write(struct.pack("<II", n, d) + contents)
        with open(self.path("few.u8bin"), "wb") as file:
            file.write(struct.pack("<II", 4, d) + random.Random(2).randbytes(4 * d))
        for name, recipe in (("half", "IVF256,Flat"), ("even", "IVF1,Flat"), ("half", "IVF256,PQ4"), ("half", "IVF64,SQ4")):
            with self.subTest(name=name, recipe=recipe):
                self.build(base=f"{name}.u8bin", recipe=recipe)
                search = ["search", "x.gknn", "--queries", "few.u8bin", "-k", 10, "--nprobe", 1, "--threads", 1, "-o", "o.ibin", "--json", "r.json"]
                self.run_cli(*search)
                self.run_cli(*search, "--memory", self.record()["memory"]["planned_bytes"])
                memory = self.record()["memory"]
                mapped, program = os.path.getsize(self.path("x.gknn")), 8 << 20
                self.assertLessEqual(memory["peak_bytes"], memory["planned_bytes"] + mapped + program)

    def test_two_changes_at_once_lose_nothing(self):
        write_bin(self.path("more.u8bin"), make_rows(50, 5, "u8", 5), "u8")
        write_bin(self.path("others.u8bin"), make_rows(70, 5, "u8", 6), "u8")
        for _ in range(5):
            self.build()
            changes = [subprocess.Popen([BINARY, "add", "x.gknn", rows, "--quiet"], cwd=self.folder) for rows in ("more.u8bin", "others.u8bin")]
            changes.append(subprocess.Popen([BINARY, "tune", "x.gknn", "--queries", "q.u8bin", "--quiet"], cwd=self.folder))
            self.assertEqual([change.wait() for change in changes], [0, 0, 0])
            self.assertIn("520 x 5 u8", self.run_cli("info", "x.gknn").stdout)
            self.assertFalse(os.path.exists(self.path(".x.gknn.lock")))
            self.run_cli("check", "x.gknn")

    def test_a_change_waits_for_another(self):
        write_bin(self.path("more.u8bin"), make_rows(50, 5, "u8", 5), "u8")
        longest = "n" * 250 + ".gknn"
        for name, lock_name in (("x.gknn", ".x.gknn.lock"), (longest, "." + longest[:249] + ".lock")):
            self.build()
            os.rename(self.path("x.gknn"), self.path(name))
            os.chmod(self.path(name), 0o600)
            with open(self.path(lock_name), "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                change = subprocess.Popen([BINARY, "add", name, "more.u8bin", "--quiet"], cwd=self.folder)
                time.sleep(1)
                self.assertIsNone(change.poll())
                self.assertIn("400 x 5 u8", self.run_cli("info", name).stdout)
            self.assertEqual(change.wait(), 0)
            self.assertIn("450 x 5 u8", self.run_cli("info", name).stdout)
            self.assertFalse(os.path.exists(self.path(lock_name)))
            self.assertEqual(os.stat(self.path(name)).st_mode & 0o777, 0o600)

    def test_a_radius_of_an_index(self):
        self.build()
        self.run_cli("search", "x.gknn", "--queries", "q.u8bin", "--radius", 30, "--nprobe", 20, "-o", "a.range")
        self.run_cli("search", "base.u8bin", "--queries", "q.u8bin", "--radius", 30, "-o", "b.range")
        self.assertEqual(self.read("a.range"), self.read("b.range"))

    def test_product_codes_with_full_vectors_and_without(self):
        self.run_cli("build", "base.u8bin", "--index", "IVF8,PQ5,RFlat", "-o", "x.gknn")
        self.expect_exact(self.search(nprobe=8, refine=60), dict(enumerate(self.rows)))  # all rows are compared again
        self.search(nprobe=4, refine=2, sample=25)
        record = self.record()
        self.assertEqual((record["method"], record["exact"], record["refine"], record["recall"]["sampled"]), ("ivf_pq", False, 2, 25))
        self.assertGreater(record["recall"]["value"], 0.7)
        self.run_cli("check", "x.gknn")
        self.assertIn("8 inverted lists of 5-byte product codes, full vectors behind them", self.run_cli("info", "x.gknn").stdout)
        self.run_cli("build", "base.u8bin", "--index", "IVF8,PQ5", "-o", "y.gknn")
        self.assertLess(os.path.getsize(self.path("y.gknn")), os.path.getsize(self.path("x.gknn")))
        run = self.run_cli("search", "y.gknn", "--queries", "q.u8bin", "-k", 7, "-o", "ids.npy", "--json", "r.json")
        self.assertIn("note: the recall is not known", run.stderr)
        self.assertIsNone(self.record()["recall"])
        self.assert_refused("build", "base.u8bin", "--index", "IVF8,PQ6", "-o", "z.gknn", code=2, says="5 dimensions have 1 to 5 parts", outputs=["z.gknn"])
        self.assert_refused("merge", "x.gknn", "y.gknn", "-o", "z.gknn", code=2, says="do not both keep full vectors", outputs=["z.gknn"])

    def test_quantized_rows_of_few_dimensions_or_all(self):
        ids = random.Random(5).sample(range(10**12), 400)
        self.write_ids("names.npy", ids)
        row_of = dict(zip(ids, self.rows))
        for recipe, dims in (("PCA3,IVF8,SQ8", "5 dimensions transformed into 3, 8"), ("IVF8,SQ8", "all 5 dimensions, 8"), ("PCA5,IVF,SQ8", "5 dimensions transformed into 5, 8"),
                             ("RR,IVF8,SQfp16", "5 dimensions transformed into 5, 16"), ("PCA3,IVF8,SQbf16", "5 dimensions transformed into 3, 16")):
            for threads in (1, 3):
                self.run_cli("build", "base.u8bin", "--index", recipe + ",RFlat", "--ids", "names.npy", "--threads", threads, "--memory", "40MB", "-o", "x%d.gknn" % threads)
            self.assertEqual(self.read("x1.gknn"), self.read("x3.gknn"))
            self.run_cli("check", "x1.gknn")
            info = self.run_cli("info", "x1.gknn").stdout
            self.assertIn("400 x 5 u8, %s bits%s each, in %d inverted lists, full vectors behind them" % (dims, " of bfloat16" if "bf16" in recipe else "", 8 if "IVF8" in recipe else 80), info)
            self.assertIn("next id      %d" % (max(ids) + 1), info)
            self.expect_exact(self.search("x1.gknn", nprobe=400, refine=60), row_of)  # all rows are compared again
            self.search("x1.gknn", nprobe=8, refine=3, sample=25)
            record = self.record()
            self.assertEqual((record["method"], record["exact"], record["refine"], record["recall"]["sampled"]), ("ivf_sq", False, 3, 25))
            self.assertGreater(record["recall"]["value"], 0.7 if "IVF8" in recipe else 0.3)
            # Without full vectors, and without them being looked at, the same is found.
            self.run_cli("build", "base.u8bin", "--index", recipe, "--ids", "names.npy", "-o", "y.gknn")
            self.assertLess(os.path.getsize(self.path("y.gknn")), os.path.getsize(self.path("x1.gknn")))
            self.assertEqual(self.search("y.gknn", nprobe=8), self.search("x1.gknn", nprobe=8, refine=0))
        some = ids[5:300:4]
        self.write_ids("only.npy", some + [17])
        self.expect_exact(self.search("x1.gknn", nprobe=400, refine=60, only="only.npy"), {i: row_of[i] for i in some})
        refuse = lambda says, *arguments: self.assert_refused(*arguments, code=2, says=says, outputs=("out.gknn", "out.npy", "out.range"))
        build = lambda recipe, *more: ("build", "base.u8bin", "-o", "out.gknn", "--index", recipe, *more)
        refuse("a transform of 5 dimensions keeps 1 to 5, got 6", *build("PCA6,IVF8,SQ8,RFlat"))
        refuse(["'PCA3,IVF8,SQ5,RFlat' is not built", "allowed: Flat, or IVF<lists>", "SQ8, SQfp16, SQbf16"], *build("PCA3,IVF8,SQ5,RFlat"))
        refuse("more lists than the base has rows: 400", *build("IVF401,SQ8,RFlat"))
        refuse("l2, euclidean, inner_product or cosine, not l1", *build("IVF8,SQ8,RFlat", "--metric", "l1"))
        refuse("--memory 1000 is too small: the index needs", *build("IVF8,SQ8,RFlat", "--memory", 1000))
        refuse("do not fit the format of what is within a radius, whose ids have 31 bits", "search", "x1.gknn", "--queries", "q.u8bin", "--radius", 3, "-o", "out.range")
        refuse("id 17 is not in the index", "remove", "x1.gknn", "--ids", "only.npy", "-o", "out.gknn")
        refuse("is in two of the indexes", "merge", "x1.gknn", "x3.gknn", "-o", "out.gknn")
        self.build(name="flat.gknn")
        refuse("index 1 is an ivf_sq, the first an ivf_flat", "merge", "flat.gknn", "x1.gknn", "-o", "out.gknn")

    def test_codes_by_cosine(self):
        for recipe in ("IVF8,PQ5", "IVF8,SQ8", "PCA3,IVF8,Flat", "IVF8,RaBitQ4", "PCA4,IVF8,SQ4", "IVF8,SQ6", "PCA4,IVF8,RaBitQ3"):
            self.run_cli("build", "base.u8bin", "--index", recipe + ",RFlat", "--metric", "cosine", "-o", "x.gknn")
            self.run_cli("check", "x.gknn")
            self.assertIn("metric       cosine", self.run_cli("info", "x.gknn").stdout)
            found = self.search("x.gknn", nprobe=8, refine=60)  # all rows are compared again
            for query, got in zip(self.queries, found):
                self.assertEqual(got, [(i, value) for i, value in nearest("cosine", query, self.rows, 7)])
            self.run_cli("build", "base.u8bin", "--index", recipe, "--metric", "cosine", "-o", "y.gknn")
            if not recipe.startswith("PCA"):
                for alone, exact in zip(self.search("y.gknn", nprobe=8), found):
                    self.assertTrue(all(abs(a[1] - b[1]) < 0.03 for a, b in zip(alone, exact)))
        write_bin(self.path("zeros.u8bin"), self.rows[:9] + [[0] * 5], "u8")
        self.assert_refused("add", "x.gknn", "zeros.u8bin", code=3, says="row 9 is all zeros and has no direction")
        self.assert_refused("build", "zeros.u8bin", "--index", "IVF2,SQ8", "--metric", "cosine", "-o", "z.gknn", code=3, says="the base: row 9 is all zeros and has no direction", outputs=["z.gknn"])

    def test_transformed_rows_with_full_vectors_and_without(self):
        ids = random.Random(6).sample(range(10**12), 400)
        self.write_ids("names.npy", ids)
        row_of = dict(zip(ids, self.rows))
        for before, into, lists in (("OPQ5", 5, "PQ5"), ("OPQ2_4", 4, "PQ2"), ("PCA3", 3, "Flat"), ("PCAW3", 3, "PQ3"), ("RR4", 4, "PQ4"), ("RR", 5, "Flat")):
            recipe = "%s,IVF8,%s" % (before, lists)
            for threads in (1, 3):
                self.run_cli("build", "base.u8bin", "--index", recipe + ",RFlat", "--ids", "names.npy", "--threads", threads, "--memory", "60MB", "-o", "x%d.gknn" % threads)
            self.assertEqual(self.read("x1.gknn"), self.read("x3.gknn"))
            self.run_cli("check", "x1.gknn")
            info = self.run_cli("info", "x1.gknn").stdout
            self.assertIn("400 x 5 u8, 5 dimensions transformed into %d, in 8 inverted lists" % into, info)
            self.assertIn("next id      %d" % (max(ids) + 1), info)
            self.expect_exact(self.search("x1.gknn", nprobe=8, refine=60), row_of)  # all rows are compared again
            self.search("x1.gknn", nprobe=8, refine=4, sample=25)
            record = self.record()
            self.assertEqual((record["method"], record["exact"], record["refine"], record["recall"]["sampled"]), ("ivf_transformed", False, 4, 25))
            self.assertGreater(record["recall"]["value"], 0.7)
            self.run_cli("build", "base.u8bin", "--index", recipe, "-o", "y.gknn")
            run = self.run_cli("search", "y.gknn", "--queries", "q.u8bin", "-k", 7, "-o", "ids.npy", "--json", "r.json")
            self.assertIn("note: the recall is not known", run.stderr)
        self.run_cli("build", "base.u8bin", "--index", "OPQ5,IVF8,PQ5,RFlat", "--recall", 0.9, "-k", 5, "-o", "z.gknn")
        self.assertIn("curve", self.run_cli("info", "z.gknn").stdout)
        self.run_cli("search", "z.gknn", "--queries", "q.u8bin", "-k", 5, "--recall", 0.9, "-o", "ids.npy")
        some = ids[5:300:4]
        self.write_ids("only.npy", some + [17])
        self.expect_exact(self.search("x1.gknn", nprobe=8, refine=60, only="only.npy"), {i: row_of[i] for i in some})
        refuse = lambda says, *arguments: self.assert_refused(*arguments, code=2, says=says, outputs=("out.gknn", "out.npy", "out.range"))
        build = lambda recipe, *more: ("build", "base.u8bin", "-o", "out.gknn", "--index", recipe, *more)
        refuse("a transform of 5 dimensions keeps 1 to 5, got 6", *build("PCA6,IVF8,Flat"))
        refuse("got 2 parts of 5 dimensions: OPQ2_<dims>", *build("OPQ2,IVF8,PQ2"))
        refuse("product codes of 3 dimensions have 1 to 3 parts", *build("PCA3,IVF8,PQ4"))
        refuse(["'RR,IVF8,SQ5,RFlat' is not built", "PCA<dims>, PCAR<dims>, PCAW<dims>, RR, RR<dims>, OPQ<parts>, OPQ<parts>_<dims> or nothing"], *build("RR,IVF8,SQ5,RFlat"))
        refuse("transformed rows are searched by l2, euclidean, inner_product or cosine, not l1", *build("RR,IVF8,Flat", "--metric", "l1"))
        refuse("--recall needs full vectors to measure with: RR,IVF8,Flat,RFlat", *build("RR,IVF8,Flat", "--recall", 0.9))
        refuse("--memory 1000 is too small: the index needs", *build("OPQ5,IVF8,Flat", "--memory", 1000))
        refuse("do not fit the format of what is within a radius, whose ids have 31 bits", "search", "x1.gknn", "--queries", "q.u8bin", "--radius", 3, "-o", "out.range")
        refuse("id 17 is not in the index", "remove", "x1.gknn", "--ids", "only.npy")
        refuse("is in two of the indexes", "merge", "x1.gknn", "x3.gknn", "-o", "out.gknn")
        self.run_cli("build", "base.u8bin", "--index", "RR,IVF8,Flat,RFlat", "--seed", 5, "-o", "other.gknn")
        refuse("has another transform than the first", "merge", "x1.gknn", "other.gknn", "-o", "out.gknn")

    def test_an_index_of_transformed_rows_changes(self):
        for recipe in ("RR,IVF8,Flat,RFlat", "OPQ2_4,IVF8,PQ2,RFlat", "PCAW3,IVF8,Flat,RFlat"):
            self.build(recipe=recipe)
            self.build(name="whole.gknn", recipe=recipe)
            row_of = dict(enumerate(self.rows))
            self.run_cli("add", "x.gknn", "q.u8bin", "--memory", "20MB")
            row_of.update(zip(range(400, 425), self.queries))
            gone = list(range(0, 425, 7))
            self.write_ids("gone.npy", gone)
            self.run_cli("remove", "x.gknn", "--ids", "gone.npy")
            for i in gone:
                del row_of[i]
            self.run_cli("check", "x.gknn")
            self.expect_exact(self.search(nprobe=8, refine=200), row_of)
            self.write_ids("kept.npy", [i for i in range(400) if i not in gone])
            self.run_cli("remove", "whole.gknn", "--ids", "kept.npy", "-o", "others.gknn")
            self.run_cli("merge", "x.gknn", "others.gknn", "-o", "merged.gknn")
            row_of.update((i, self.rows[i]) for i in gone if i < 400)
            self.expect_exact(self.search("merged.gknn", nprobe=8, refine=200), row_of)
            self.write_ids("all.npy", list(row_of))
            self.run_cli("remove", "merged.gknn", "--ids", "all.npy")
            self.assertIn("0 x 5 u8", self.run_cli("info", "merged.gknn").stdout)

    @unittest.skipIf(is_sanitized(), "sanitizers take memory of their own")
    def test_an_index_of_all_rows_is_written_without_holding_them(self):
        rows, dims = 160_000, 1024
        with open(self.path("large.u8bin"), "wb") as file:
            file.write(struct.pack("<II", rows, dims))
            file.truncate(8 + rows * dims)
        def limited():
            resource.setrlimit(resource.RLIMIT_DATA, (100 << 20, 100 << 20))
        run = lambda *arguments: self.run_cli(*arguments, "--threads", 2, preexec_fn=limited)
        run("build", "large.u8bin", "--index", "Flat", "-o", "large.gknn")
        write_npy(self.path("gone.npy"), [[7]], "<i8", "q")
        run("remove", "large.gknn", "--ids", "gone.npy", "-o", "fewer.gknn")
        self.assertGreater(os.path.getsize(self.path("fewer.gknn")), (rows - 1) * dims)

    @unittest.skipIf(is_sanitized(), "sanitizers take memory of their own")
    def test_rows_in_another_form_are_written_without_holding_them(self):
        """As float32 they would take 133 MB, as half of the dimensions or halves 67."""
        rows, dims = 260_000, 128
        some = random.Random(5).randbytes(20_000 * dims)
        with open(self.path("large.u8bin"), "wb") as file:
            file.write(struct.pack("<II", rows, dims))
            for i in range(rows // 20_000):
                file.write(some[i * dims:] + some[:i * dims])
        write_npy(self.path("ids.npy"), [[7 * i + 3] for i in range(rows)], "<i8", "q")
        for recipe, ids in (("OPQ16,IVF64,PQ16", []), ("PCA64,IVF64,Flat", []), ("IVF64,SQfp16,RFlat", ["--ids", "ids.npy"])):
            build = ("build", "large.u8bin", "--index", recipe, "--threads", 2, *ids)
            self.run_cli(*build, "-o", "free.gknn")
            # As little as it says that it needs, which the kernel holds it to, but for what is no build's: stacks, allocator, libraries.
            needed = int(re.search(r"needs ([0-9]+) MiB", self.run_cli(*build, "-o", "tight.gknn", "--memory", "1MiB", code=2).stderr)[1])
            self.assertLess(needed, 110 if "PQ" in recipe else 60, recipe)
            limited = lambda: resource.setrlimit(resource.RLIMIT_DATA, (needed + 32 << 20, needed + 32 << 20))
            self.run_cli(*build, "-o", "tight.gknn", "--memory", "%dMiB" % needed, preexec_fn=limited)
            self.assertTrue(filecmp.cmp(self.path("free.gknn"), self.path("tight.gknn"), shallow=False), recipe)
            add = ("add", "tight.gknn", "large.u8bin", "--threads", 2)
            self.run_cli(*add, "-o", "more.gknn")
            needed = math.ceil(int(re.search(r"needs ([0-9]+)", self.run_cli(*add, "--memory", "1MiB", code=2).stderr)[1]) / 2**20)
            self.assertLess(needed, 110 if "PQ" in recipe else 60, recipe)
            limited = lambda: resource.setrlimit(resource.RLIMIT_DATA, (needed + 32 << 20, needed + 32 << 20))
            self.run_cli(*add, "--memory", "%dMiB" % needed, preexec_fn=limited)
            self.assertTrue(filecmp.cmp(self.path("more.gknn"), self.path("tight.gknn"), shallow=False))

    def test_bad_input_is_one_line_and_changes_nothing(self):
        self.build()
        whole = self.read("x.gknn")
        write_bin(self.path("floats.fbin"), make_rows(3, 5, "f32", 3))
        write_bin(self.path("narrow.u8bin"), make_rows(3, 4, "u8", 3), "u8")
        self.write_ids("two.npy", [5, 5])
        self.write_ids("far.npy", [400])
        self.write_ids("negative.npy", [-1] + list(range(399)))
        write_bin(self.path("two.u8bin"), self.rows[:2], "u8")
        self.write_ids("known.npy", [500, 399])
        with open(self.path("cut.gknn"), "wb") as file:
            file.write(whole[:-1])
        refuse = lambda code, says, *arguments: self.assert_refused(*arguments, code=code, says=says, outputs=("out.gknn", "out.npy"))
        refuse(2, "written to a .gknn file", "build", "base.u8bin", "-o", "out.bin")
        refuse(2, "says nothing", "build", "base.u8bin", "-o", "out.gknn", "--index", "tree")
        refuse(2, ["'OPQ16,IVF65536_HNSW32,PQ16' is not built", "allowed: Flat, or IVF<lists>, or IVF alone"], "build", "base.u8bin", "-o", "out.gknn", "--index", "OPQ16,IVF65536_HNSW32,PQ16")
        refuse(2, "more lists than the base has rows: 400", "build", "base.u8bin", "-o", "out.gknn", "--index", "IVF401,Flat")
        refuse(2, "packed bits", "build", "base.u8bin", "-o", "out.gknn", "--metric", "hamming")
        refuse(2, "--memory 1000 is too small: the index needs", "build", "base.u8bin", "-o", "out.gknn", "--memory", "1000")
        refuse(3, "two.npy: holds 2 ids, expected one for each of the 400 rows", "build", "base.u8bin", "-o", "out.gknn", "--ids", "two.npy")
        refuse(3, "id -1 is negative", "build", "base.u8bin", "-o", "out.gknn", "--ids", "negative.npy")
        search = lambda *more: ("search", "x.gknn", "--queries", "q.u8bin", "-o", "out.npy", *more)
        refuse(2, "k must be from 1 to n = 400", *search("-k", 401))
        refuse(2, "--nprobe must be at least 1, got 0", *search("-k", 3, "--nprobe", 0))
        refuse(2, "--metric is that of the index: l2", *search("-k", 3, "--metric", "cosine"))
        refuse(2, "--verify, --report and --image need vectors", *search("-k", 3, "--verify", 3))
        refuse(2, "ids must be >= 0, got -1", *search("-k", 3, "--only", "negative.npy"))
        refuse(2, "--memory 2000 is too small: the search needs", *search("-k", 3, "--memory", 2000))
        refuse(2, "narrow.u8bin is 4 x u8, x.gknn 5 x u8", "search", "x.gknn", "--queries", "narrow.u8bin", "-k", 3, "-o", "out.npy")
        refuse(2, "--only and --except belong to an index", "search", "base.u8bin", "--queries", "q.u8bin", "-k", 3, "-o", "out.npy", "--only", "two.npy")
        refuse(3, "cut.gknn: byte ", "search", "cut.gknn", "--queries", "q.u8bin", "-k", 3, "-o", "out.npy")
        refuse(2, "floats.fbin is 5 x f32, x.gknn 5 x u8", "add", "x.gknn", "floats.fbin")
        refuse(2, "narrow.u8bin is 4 x u8", "add", "x.gknn", "narrow.u8bin")
        refuse(3, "id 5 is there twice", "add", "x.gknn", "two.u8bin", "--ids", "two.npy")
        refuse(3, "id 399 is in the index already", "add", "x.gknn", "two.u8bin", "--ids", "known.npy")
        refuse(2, "--replace needs --ids", "add", "x.gknn", "two.u8bin", "--replace")
        refuse(2, "id 400 is not in the index", "remove", "x.gknn", "--ids", "far.npy")
        refuse(2, "id 0 is in two of the indexes", "merge", "x.gknn", "x.gknn", "-o", "out.gknn")
        self.build("--seed", 7, name="others.gknn")
        refuse(2, "index 1 has other lists", "merge", "x.gknn", "others.gknn", "-o", "out.gknn")
        self.assertEqual(self.read("x.gknn"), whole)
        noted = self.run_cli("search", "base.u8bin", "--queries", "q.u8bin", "-k", 3, "--nprobe", 4, "-o", "flat.npy").stderr
        self.assertIn("note: --nprobe is not used", noted)
        self.build(recipe="Flat", name="all.gknn")
        searched = self.run_cli("search", "all.gknn", "--queries", "q.u8bin", "-k", 3, "--nprobe", 4, "--refine", 2, "-o", "flat.npy").stderr
        self.assertIn("note: --nprobe is not used", searched)
        self.assertIn("note: --refine is not used", searched)
        self.write_ids("all.npy", list(range(400)))
        self.run_cli("remove", "all.gknn", "--ids", "all.npy")
        refuse(2, "all.gknn has no rows", "search", "all.gknn", "--queries", "q.u8bin", "-k", 3, "-o", "out.npy")
        self.run_cli("check", "cut.gknn", code=3)

    def test_a_full_disk_leaves_the_old_file(self):
        for recipe in KINDS:
            self.build(recipe=recipe)
            whole = self.read("x.gknn")
            limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) // 2, len(whole) // 2))
            for arguments in (["build", "base.u8bin", "--index", recipe, "-o", "x.gknn"], ["add", "x.gknn", "q.u8bin"]):
                run = subprocess.run([BINARY, *arguments, "--quiet"], cwd=self.folder, preexec_fn=limit, capture_output=True, text=True)
                self.assertEqual((run.returncode, run.stderr.count("\n")), (3, 1), run.stderr)
                self.assertIn("cannot write", run.stderr)
                self.assertEqual(self.read("x.gknn"), whole)
                self.assertEqual(sorted(os.listdir(self.folder)), ["base.u8bin", "q.u8bin", "x.gknn"])

    def test_killed_at_any_time_it_leaves_the_old_file_or_the_new_one(self):
        write_bin(self.path("large.u8bin"), make_rows(20000, 5, "u8", 9), "u8")
        for recipe in KINDS:
            with self.subTest(recipe=recipe):
                self.build(recipe=recipe)
                self.check_kills(15 if recipe == "IVF20,Flat" else 6)

    def check_kills(self, kills):
        generator = random.Random(1)
        old = self.read("x.gknn")
        self.run_cli("add", "x.gknn", "large.u8bin", "-o", "new.gknn")
        new = self.read("new.gknn")
        started = time.monotonic()
        self.run_cli("add", "x.gknn", "large.u8bin", "-o", "timed.gknn")
        seconds = time.monotonic() - started
        killed = 0
        for _ in range(kills):
            run = subprocess.Popen([BINARY, "add", "x.gknn", "large.u8bin", "--quiet"], cwd=self.folder)
            time.sleep(generator.uniform(0, 1.2 * seconds))
            run.send_signal(signal.SIGKILL)
            killed += run.wait() == -signal.SIGKILL
            left = self.read("x.gknn")
            self.assertIn(left, (old, new))
            if left == new:
                with open(self.path("x.gknn"), "wb") as file:
                    file.write(old)
            names = set(os.listdir(self.folder))
            self.assertEqual({name for name in names if not name.startswith(".")}, {"base.u8bin", "q.u8bin", "large.u8bin", "x.gknn", "new.gknn", "timed.gknn"})
        self.assertGreater(killed, 0)

    def test_a_file_that_becomes_shorter_under_a_search_is_reported(self):
        write_bin(self.path("queries.fbin"), make_rows(3000, 32, "f32", 3))
        self.check_shrinking("queries.fbin")

    def test_an_index_that_becomes_shorter_under_a_search_is_reported(self):
        write_bin(self.path("queries.fbin"), make_rows(3000, 32, "f32", 3))
        for recipe in ("IVF20,Flat", "Flat", "IVF20,PQ8x4,RFlat", "PCA16,IVF20,SQ8,RFlat", "IVF20,RaBitQ,RFlat"):
            with self.subTest(recipe=recipe):
                self.build(base="queries.fbin", recipe=recipe, name="whole.gknn")
                self.check_shrinking("whole.gknn", "--nprobe", "20", "--sample", "0")

    def check_shrinking(self, name, *options):
        """Searches are cut short at later and later times, until one has mapped the file and reads it."""
        whole, cut = self.read(name), "cut" + os.path.splitext(name)[1]
        for attempt in range(60):
            with open(self.path(cut), "wb") as file:
                file.write(whole)
            run = subprocess.Popen([BINARY, "search", cut, "--queries", "queries.fbin", "-k", "200", "-o", "out.npy", "--quiet", *options],
                                   cwd=self.folder, stderr=subprocess.PIPE, text=True)
            while run.poll() is None:
                try:
                    with open("/proc/%d/maps" % run.pid, encoding="utf-8") as maps:
                        if cut in maps.read():
                            break
                except OSError:
                    break
            time.sleep(0.002 * attempt)
            os.truncate(self.path(cut), 4096)
            _, errors = run.communicate(timeout=300)
            self.assertIn(run.returncode, (0, 3), errors)
            if run.returncode == 3 and "became shorter" in errors:
                self.assertEqual(errors.count("\n"), 1)
                self.assertFalse(os.path.exists(self.path("out.npy")))
                return
            if os.path.exists(self.path("out.npy")):
                os.remove(self.path("out.npy"))
        self.fail("no run was caught while it read")


if __name__ == "__main__":
    unittest.main()
