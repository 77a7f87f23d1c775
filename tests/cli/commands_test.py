"""eval, path, convert, info, check and report on small files whose answers are known."""
import json
import math
import os
import random
import resource
import struct
import subprocess
import unittest

from support import BINARY, TINY_TILES, SANITIZED, CliTest, distance, make_rows, nearest, read_bin, read_npy, write_bin, write_npy


class Answers(CliTest):
    """What is asked of files, and what is not answered as if all were well."""

    def setUp(self):
        super().setUp()
        write_bin(self.path("base.fbin"), make_rows(60, 4, "f32", 1))
        self.run_cli("graph", "base.fbin", "-k", 3, "-o", "x.knng", "--json", "x.json")

    @unittest.skipUnless(os.path.exists("/dev/full"), "there is no full device")
    def test_an_answer_that_could_not_be_written_is_an_error(self):
        for command in (["path", "x.knng", 1, 2], ["eval", "x.knng", "--base", "base.fbin"], ["info", "x.knng"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                run = subprocess.run([BINARY, *map(str, command)], cwd=self.path(""), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual((run.returncode, run.stderr.splitlines()[-1:]),
                             (3, ["gigaknn: not all of the answer could be written to standard output"]), command)

    def test_json_goes_to_standard_output_where_it_is_asked_to(self):
        run = self.run_cli("graph", "base.fbin", "-k", 3, "-o", "y.knng", "--json", "-", "--quiet")
        self.assertEqual(json.loads(run.stdout)["k"], 3)
        for command in (["path", "x.knng", 1, 2], ["eval", "x.knng", "--base", "base.fbin"], ["plan", "base.fbin", "-k", 3, "--memory", "1GiB"]):
            json.loads(self.run_cli(*command, "--json", "-").stdout)
        self.assertFalse(os.path.exists(self.path("-")))

    def test_a_graph_is_not_measured_by_another_metric(self):
        run = self.run_cli("eval", "x.knng", "--base", "base.fbin", "--metric", "cosine", code=2)
        self.assertIn("x.knng is a graph by l2, not by cosine", run.stderr)
        self.run_cli("eval", "x.knng", "--base", "base.fbin", "--metric", "l2")

    def test_a_budget_is_told_with_what_is_held_already(self):
        run = self.run_cli("eval", "x.knng", "--base", "base.fbin", "--memory", "100kB", code=2)
        lists = 60 * 3 * (8 + 4)
        self.assertRegex(run.stderr, r"this search needs at least \d+ bytes; \d+ bytes of --memory 100kB hold what was read before\n$")
        self.assertGreaterEqual(int(run.stderr.split("bytes; ")[1].split()[0]), lists)
        write_npy(self.path("labels.npy"), [[i % 2] for i in range(60)], "<i8", "q")
        run = self.run_cli("graph", "base.fbin", "-k", 3, "--labels", "labels.npy", "--only", "same", "--memory", "1GB", "--device", "emulated",
                           "--device-memory", 1000, "-o", "out.knng", code=2)
        self.assertIn("a device budget of 1000 bytes is too small", run.stderr)
        self.assertNotIn("hold what was read", run.stderr)

    def test_a_page_shows_no_record_of_something_else(self):
        self.run_cli("report", "--graph", "x.knng", "--base", "base.fbin", "--json-in", "x.json", "-o", "x.html")
        write_bin(self.path("other.fbin"), make_rows(61, 4, "f32", 1))
        write_npy(self.path("labels.npy"), [[i % 2] for i in range(60)], "<i8", "q")
        self.run_cli("graph", "base.fbin", "-k", 3, "--labels", "labels.npy", "--only", "same", "-o", "same.knng", "--json", "same.json")
        self.run_cli("report", "--graph", "same.knng", "--base", "base.fbin", "--json-in", "same.json", "-o", "same.html")
        others = [("n", ["graph", "other.fbin", "-k", 3]), ("k", ["graph", "base.fbin", "-k", 4]),
                  ("metric", ["graph", "base.fbin", "-k", 3, "--metric", "l1"])]
        for name, command in others:
            self.run_cli(*command, "-o", "other.knng", "--json", "other.json")
            run = self.run_cli("report", "--graph", "x.knng", "--base", "base.fbin", "--json-in", "other.json", "-o", "out.html", code=2)
            self.assertIn(f"other.json: {name} is ", run.stderr)
            self.assertFalse(os.path.exists(self.path("out.html")))

    def test_what_is_not_there_is_named(self):
        self.assertIn("unknown command 'grpah'; see gigaknn --help", self.run_cli("grpah", "base.fbin", code=2).stderr)
        self.assertIn("nope: no such file", self.run_cli("info", "nope", code=3).stderr)
        self.assertIn("k must be at least 1, got 0; -k says how many neighbours each row has", self.run_cli("graph", "base.fbin", "-o", "y.knng", code=2).stderr)

    def test_what_is_within_a_radius_has_a_name_of_its_own(self):
        for name in ("out.npy", "out.knng", "out.h5", "out.ibin"):
            run = self.run_cli("graph", "base.fbin", "--radius", 1, "-o", name, code=2)
            self.assertIn("a name that fits: out.range", run.stderr)
            self.assertFalse(os.path.exists(self.path(name)))


class Dedup(CliTest):
    def test_groups_are_named_by_their_first_row(self):
        write_bin(self.path("base.fbin"), [[0, 0], [9, 9], [0, 1], [5, 0], [9, 9], [0, 2]])
        self.run_cli("dedup", "base.fbin", "--radius", 1, "-o", "g.npy", "--json", "g.json")
        self.assertEqual(read_npy(self.path("g.npy"), "q"), [[0], [1], [0], [3], [1], [0]])
        with open(self.path("g.json"), encoding="utf-8") as file:
            record = json.load(file)
        self.assertEqual((record["groups"], record["with_duplicates"], record["largest_group"]), (3, 2, 3))
        self.run_cli("dedup", "base.fbin", "--radius", 0, "-o", "g.ibin")
        self.assertEqual(read_bin(self.path("g.ibin"), "i"), [[0], [1], [2], [3], [1], [5]])

    def test_a_radius_that_is_none_is_refused(self):
        write_bin(self.path("base.fbin"), [[0, 0], [9, 9]])
        for radius in ("-1", "nan", "inf"):
            run = self.run_cli("dedup", "base.fbin", "--radius", radius, "-o", "g.npy", code=2)
            self.assertIn("--radius must be a finite number", run.stderr)
        run = self.run_cli("dedup", "base.fbin", "--radius", 1, "--metric", "inner_product", "-o", "g.npy", code=2)
        self.assertIn("inner_product has no duplicates", run.stderr)
        self.assertFalse(os.path.exists(self.path("g.npy")))


class ApproximateGraphs(CliTest):
    def setUp(self):
        super().setUp()
        generator = random.Random(3)
        self.rows = [[generator.randint(0, 255) for _ in range(12)] for _ in range(600)]
        write_bin(self.path("base.u8bin"), self.rows, "u8")

    def test_the_recall_is_said_and_written(self):
        for method in ("ivf", "nn-descent", "gnnd"):
            run = self.run_cli("graph", "base.u8bin", "-k", 5, "--method", method, "--recall", 0.9, "-o", "g.knng", "--json", "g.json")
            with open(self.path("g.json"), encoding="utf-8") as file:
                record = json.load(file)
            self.assertEqual(record["method"], method)
            self.assertFalse(record["exact"])
            self.assertGreaterEqual(record["recall"]["value"], 0.9)
            self.assertRegex(run.stderr, r"recall   [01]\.?\d*, by \d+ rows; 95 % interval")
            self.assertIn("found by " + method, run.stderr)
            self.run_cli("check", "g.knng")

    def test_what_rounds_of_a_merge_do_not_find_cells_do(self):
        """Noise of many dimensions: neighbours of neighbours are no nearer than others."""
        generator = random.Random(8)
        for name in "ab":
            write_bin(self.path(name + ".u8bin"), [list(generator.randbytes(120)) for _ in range(1000)], "u8")
            self.run_cli("graph", name + ".u8bin", "-k", 9, "-o", name + ".knng", "--quiet")
        asked = ["graph", "--merge", "a.knng", "b.knng", "--base", "a.u8bin", "b.u8bin", "--method", "nn-descent", "--recall", 0.9999]
        run = self.run_cli(*asked, "-o", "g.knng", "--json", "g.json", code=4 if TINY_TILES else 0)  # whose cells are too few
        with open(self.path("g.json"), encoding="utf-8") as file:
            recall = json.load(file)["recall"]["value"]
        if TINY_TILES:
            self.assertIn(f"the recall is {recall:.6g}, below the 0.9999 that was asked", run.stderr)
        else:
            self.assertGreaterEqual(recall, 0.9999)
        self.assertIn("still below the recall, so ivf", run.stderr)
        self.run_cli("check", "g.knng")

    def test_data_that_look_wrong_are_named(self):
        rows = [[7] * 12] * 30 + self.rows
        write_bin(self.path("odd.u8bin"), rows, "u8")
        for asked in (["--recall", 0.9, "--method", "ivf"], ["--recall", 1], ["--index", "IVF4,Flat", "--nprobe", 4]):
            run = self.run_cli("graph", "odd.u8bin", "-k", 5, *asked, "-o", "g.knng", "--json", "g.json")
            with open(self.path("g.json"), encoding="utf-8") as file:
                doubts = json.load(file)["doubts"]
            self.assertEqual([doubt.split(":")[0] for doubt in doubts], ["copies", "constant rows"])
            for doubt in doubts:
                self.assertIn("note: " + doubt, run.stderr)
        run = self.run_cli("graph", "base.u8bin", "-k", 5, "-o", "g.knng", "--json", "g.json")
        self.assertNotIn("note:", run.stderr)
        with open(self.path("g.json"), encoding="utf-8") as file:
            self.assertNotIn("doubts", json.load(file))

    def test_methods_that_approximate_need_a_recall(self):
        for method in ("ivf", "nn-descent", "gnnd"):
            run = self.run_cli("graph", "base.u8bin", "-k", 5, "--method", method, "-o", "g.knng", code=2)
            self.assertIn("--method %s is approximate: it needs --recall below 1" % method, run.stderr)


class ChangedGraphs(CliTest):
    def setUp(self):
        super().setUp()
        generator = random.Random(5)
        self.rows = [[generator.randint(0, 30) for _ in range(6)] for _ in range(300)]
        for name, rows in (("all", self.rows), ("a", self.rows[:170]), ("b", self.rows[170:])):
            write_bin(self.path(name + ".u8bin"), rows, "u8")
            self.run_cli("graph", name + ".u8bin", "-k", 7, "-o", name + ".knng", "--quiet")

    def bytes_of(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def test_merged_and_extended_ones_are_those_of_all_rows(self):
        self.run_cli("graph", "--merge", "a.knng", "b.knng", "--base", "a.u8bin", "b.u8bin", "-o", "m.knng", "--json", "m.json")
        self.assertEqual(self.bytes_of("m.knng"), self.bytes_of("all.knng"))
        with open(self.path("m.json"), encoding="utf-8") as file:
            record = json.load(file)
        self.assertTrue(record["exact"])
        self.assertEqual((record["n"], record["k"]), (300, 7))
        self.assertGreater(record["changed_lists"], 100)
        run = self.run_cli("graph", "--extend", "a.knng", "--base", "a.u8bin", "--add", "b.u8bin", "-o", "e.knng")
        self.assertEqual(self.bytes_of("e.knng"), self.bytes_of("all.knng"))
        self.assertRegex(run.stderr, r"changed  \d+ of the 170 lists")

    def test_merged_approximately_they_have_the_recall(self):
        for method in ("ivf", "nn-descent"):
            self.run_cli("graph", "--merge", "a.knng", "b.knng", "--base", "a.u8bin", "b.u8bin", "-o", "m.knng", "--method", method,
                         "--recall", 0.9, "--json", "m.json")
            with open(self.path("m.json"), encoding="utf-8") as file:
                record = json.load(file)
            self.assertFalse(record["exact"])
            self.assertGreaterEqual(record["recall"]["value"], 0.9)

    def test_removed_rows_are_gone_and_the_map_says_where_others_went(self):
        write_bin(self.path("ids.ibin"), [[i] for i in range(170, 300)], "i")
        reduce = ["graph", "--reduce", "all.knng", "--base", "all.u8bin", "--remove", "ids.ibin", "--map", "map.npy", "-o", "r.knng"]
        # No map of a graph that is not there.
        with open(self.path("map.npy"), "wb") as file:
            file.write(b"old")
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        full = subprocess.run([BINARY, *reduce, "--quiet"], cwd=self.folder, preexec_fn=limit, capture_output=True, text=True)
        self.assertEqual((full.returncode, self.read("map.npy"), os.path.exists(self.path("r.knng"))), (3, b"old", False), full.stderr)
        self.run_cli(*reduce)
        self.assertEqual(self.bytes_of("r.knng"), self.bytes_of("a.knng"))
        self.assertEqual(read_npy(self.path("map.npy"), "q"), [[i if i < 170 else -1] for i in range(300)])

    def test_what_does_not_belong_together_is_refused(self):
        cases = (
            (("--merge", "a.knng", "b.knng", "--base", "a.u8bin"), "--base must name the vectors of the two graphs"),
            (("--merge", "a.knng", "b.knng", "--base", "b.u8bin", "a.u8bin"), "a graph of 170 rows is not one of 130 vectors"),
            (("--extend", "a.knng", "--base", "a.u8bin"), "--extend OLD.knng and --add NEW belong together"),
            (("--reduce", "a.knng", "--base", "a.u8bin"), "--reduce OLD.knng and --remove IDS belong together"),
            (("--extend", "a.knng", "--reduce", "a.knng", "--base", "a.u8bin"), "one must be given"),
            (("--extend", "a.knng", "--base", "a.u8bin", "--add", "b.u8bin", "-k", 7), "keeps its k"),
            (("a.u8bin", "-k", 7, "--add", "b.u8bin"), "belong to --merge, --extend or --reduce"),
            (("-k", 7), "BASE is required"),
            (("--reduce", "a.knng", "--base", "a.u8bin", "--remove", "ids.ibin", "--method", "ivf", "--recall", 0.9),
             "--method ivf removes no rows"),
            (("--merge", "a.knng", "b.knng", "--base", "a.u8bin", "b.u8bin", "--method", "ivf"), "needs a recall below 1"),
        )
        for arguments, says in cases:
            run = self.run_cli("graph", *arguments, "-o", "x.knng", code=2)
            self.assertIn(says, run.stderr)
            self.assertFalse(os.path.exists(self.path("x.knng")))


class Eval(CliTest):
    def setUp(self):
        super().setUp()
        write_bin(self.path("truth.ibin"), [[1, 2, 3, 4], [5, 6, 7, 8]], "i")
        write_bin(self.path("found.ibin"), [[1, 2, 9, 3], [6, 5, 0, 10]], "i")

    def evaluate(self, *arguments, code=0):
        self.run_cli("eval", *arguments, "--json", "e.json", code=code)
        with open(self.path("e.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_recall_counts_true_neighbours_among_the_first_k(self):
        self.assertAlmostEqual(self.evaluate("found.ibin", "--truth", "truth.ibin")["recall"]["value"], 5 / 8)
        self.assertAlmostEqual(self.evaluate("found.ibin", "--truth", "truth.ibin", "-k", 2)["recall"]["value"], 1)
        record = self.evaluate("found.ibin", "--truth", "truth.ibin", "-k", 1)
        self.assertAlmostEqual(record["recall"]["value"], 0.5)
        self.assertAlmostEqual(record["nearest_among_first"]["1"], 0.5)

    def test_the_nearest_among_the_first_10_and_100(self):
        ids = [[i * 200 + j for j in range(120)] for i in range(20)]
        write_bin(self.path("truth100.ibin"), ids, "i")
        for query, row in enumerate(ids):  # the true nearest of query i stands at place 6 i
            row.insert(6 * query, row.pop(0))
        write_bin(self.path("found100.ibin"), ids, "i")
        ranks = self.evaluate("found100.ibin", "--truth", "truth100.ibin")["nearest_among_first"]
        self.assertAlmostEqual(ranks["1"], 1 / 20)
        self.assertAlmostEqual(ranks["10"], 2 / 20)
        self.assertAlmostEqual(ranks["100"], 17 / 20)

    def test_a_missed_recall_is_exit_code_4(self):
        run = self.run_cli("eval", "found.ibin", "--truth", "truth.ibin", "--recall", 0.7, "--quiet", code=4)
        self.assertEqual(run.stderr.count("\n"), 1)
        self.assertIn("0.625", run.stderr)
        self.run_cli("eval", "found.ibin", "--truth", "truth.ibin", "--recall", 0.6)

    def test_ties_by_distance_are_hits(self):
        write_bin(self.path("t.fbin"), [[1, 2, 3, 3], [1, 1, 2, 2]])
        write_bin(self.path("f.fbin"), [[1, 2, 3, 3], [1, 1, 2, 2]])
        record = self.evaluate("found.ibin", "--distances", "f.fbin", "--truth", "truth.ibin", "--truth-distances",
                               "t.fbin")
        self.assertEqual(record["recall"]["value"], 1)
        self.assertTrue(record["ties_count"])

    def test_truth_may_hold_similarities_or_roots(self):
        base = make_rows(80, 6, "f32", 4)
        queries = make_rows(10, 6, "f32", 5)
        write_bin(self.path("base.fbin"), base)
        write_bin(self.path("queries.fbin"), queries)
        forms = {"inner_product": (lambda x: -x, lambda x: 1 - x), "cosine": (lambda x: 1 - x,), "l2": (math.sqrt,)}
        for metric, conversions in forms.items():
            self.run_cli("search", "base.fbin", "--queries", "queries.fbin", "-k", 5, "-o", "i.ibin", "--distances",
                         "d.fbin", "--metric", metric)
            for convert in (lambda x: x, *conversions):
                truth = [nearest(metric, query, base, 8) for query in queries]
                # Big-ann's ground truth, among equals the ones with the larger ids.
                with open(self.path("gt.bin"), "wb") as file:
                    file.write(struct.pack("<II", 10, 8))
                    for row in truth:
                        file.write(struct.pack("<8i", *[i for i, _ in row]))
                    for row in truth:
                        file.write(struct.pack("<8f", *[convert(value) for _, value in row]))
                record = self.evaluate("i.ibin", "--distances", "d.fbin", "--truth", "gt.bin", "--metric", metric)
                self.assertEqual(record["recall"]["value"], 1, metric)

    def test_a_graph_is_sampled_and_a_bad_one_found_out(self):
        generator = random.Random(6)
        write_bin(self.path("base.fbin"), [[generator.random() for _ in range(8)] for _ in range(400)])
        self.run_cli("graph", "base.fbin", "-k", 5, "-o", "g.knng")
        recall = self.evaluate("g.knng", "--base", "base.fbin", "--sample", 100)["recall"]
        self.assertEqual((recall["value"], recall["at"], recall["sampled"]), (1, 5, 100))
        self.assertLess(recall["low"], 1)
        write_bin(self.path("other.fbin"), [[generator.random() / 9 for _ in range(8)] for _ in range(400)])
        recall = self.evaluate("g.knng", "--base", "other.fbin", "--recall", 0.9, code=4)["recall"]
        self.assertLess(recall["value"], 0.2)
        self.assertEqual(recall["sampled"], 400)


class Paths(CliTest):
    def largest_steps(self, base, k, start):
        """The smallest possible largest step from `start` to every row, by relaxation."""
        edges = {}
        for row in range(len(base)):
            for other, value in nearest("l2", base[row], base, k, exclude=row):
                edges.setdefault(row, {})[other] = value
                edges.setdefault(other, {})[row] = value
        best = {start: -math.inf}
        changed = True
        while changed:
            changed = False
            for row in list(best):
                for other, value in edges[row].items():
                    step = max(best[row], value)
                    if step < best.get(other, math.inf):
                        best[other] = step
                        changed = True
        return best, edges

    def test_the_largest_step_is_the_smallest_possible(self):
        generator = random.Random(11)
        base = [[float(generator.randint(0, 60)) for _ in range(2)] for _ in range(90)]
        write_bin(self.path("base.fbin"), base)
        self.run_cli("graph", "base.fbin", "-k", 3, "-o", "g.knng")
        best, edges = self.largest_steps(base, 3, 0)
        for target in range(1, 90, 7):
            run = self.run_cli("path", "g.knng", "--from", 0, "--to", target, "--json", "p.json")
            with open(self.path("p.json"), encoding="utf-8") as file:
                path = json.load(file)["path"]
            if target not in best:
                self.assertFalse(path["found"])
                self.assertIn("no path", run.stdout)
                continue
            self.assertEqual(path["largest_step"], best[target])
            self.assertEqual((path["rows"][0], path["rows"][-1]), (0, target))
            for step, (row, other) in zip(path["steps"], zip(path["rows"], path["rows"][1:])):
                self.assertEqual(step, edges[row][other])

    def test_directed_follows_lists_only(self):
        write_bin(self.path("line.fbin"), [[0.0], [1.0], [3.0], [7.0]])
        self.run_cli("graph", "line.fbin", "-k", 1, "-o", "g.knng")
        self.assertIn("3 steps", self.run_cli("path", "g.knng", "--from", 0, "--to", 3).stdout)
        self.assertIn("3 steps", self.run_cli("path", "g.knng", "--from", 3, "--to", 0, "--directed").stdout)
        self.assertIn("no path", self.run_cli("path", "g.knng", "--from", 0, "--to", 3, "--directed").stdout)

    def path_of(self, *arguments):
        run = self.run_cli("path", *arguments, "--json", "p.json")
        with open(self.path("p.json"), encoding="utf-8") as file:
            return run.stdout, json.load(file)

    def two_lines(self, long, short):
        """A graph of two lines far from each other, whose rows know the next on either side."""
        write_bin(self.path("lines.fbin"), [[float(i)] for i in range(long)] + [[1e6 + i] for i in range(short)])
        self.run_cli("graph", "lines.fbin", "-k", 2, "-o", "lines.knng")

    def test_unconnected_rows_are_named_with_the_sizes_of_their_components(self):
        self.two_lines(1204, 17)
        out, record = self.path_of("lines.knng", 3, 1210)
        self.assertEqual(out, "no path from 3 to 1210: 3 is in a component of 1,204 rows, 1210 in one of 17\n")
        self.assertFalse(record["path"]["found"])
        self.assertEqual(record["path"]["component_rows"], {"from": 1204, "to": 17})
        out, record = self.path_of("lines.knng", 3, 1210, "--directed")
        self.assertIn("no path along the lists from 3 to 1210: 1,204 rows can be reached from 3, and 1210 from 17", out)
        self.assertEqual(record["path"]["reachable_rows"], {"from": 1204, "to": 17})

    def test_several_paths_come_best_first(self):
        self.two_lines(5, 3)  # also steps 0 - 2 and 4 - 2, from the ends
        out, record = self.path_of("lines.knng", 0, 4, "--count", 9)
        paths = [record["path"]["rows"]] + [path["rows"] for path in record["path"]["alternatives"]]
        self.assertEqual(paths, [[0, 1, 2, 3, 4], [0, 2, 4], [0, 1, 2, 4], [0, 2, 3, 4]])
        self.assertIn("path 1 of 4: 4 steps, the largest 1\n0\n1\t1\n", out)
        self.assertIn("path 4 of 4: 3 steps, the largest 4\n0\n2\t4\n3\t1\n", out)
        self.assertEqual(self.path_of("lines.knng", 2, 2, "--count", 9)[1]["path"]["alternatives"], [])
        self.assertIn("--count must be at least 1", self.run_cli("path", "lines.knng", 0, 4, "--count", 0, code=2).stderr)

    def test_pairs_come_from_a_file(self):
        self.two_lines(5, 3)
        write_bin(self.path("pairs.ibin"), [[0, 2], [0, 7], [6, 6]], "i")
        out, record = self.path_of("lines.knng", "--pairs", "pairs.ibin")
        self.assertEqual([path["rows"] for path in record["paths"]], [[0, 1, 2], [], [6]])
        self.assertIn("from 0 to 2: 2 steps, the largest 1\n", out)
        self.assertIn("no path from 0 to 7: 0 is in a component of 5 rows, 7 in one of 3\n", out)
        write_bin(self.path("triples.ibin"), [[0, 2, 1]], "i")
        write_bin(self.path("beyond.ibin"), [[0, 8]], "i")
        for arguments, says in ((("--pairs", "triples.ibin"), "has 3 columns, expected 2"), ((0,), "FROM and TO"), ((), "FROM and TO"),
                                ((0, 1, "--pairs", "pairs.ibin"), "FROM and TO"), (("--pairs", "beyond.ibin"), "no row 8; allowed: 0 to 7")):
            self.assertIn(says, self.run_cli("path", "lines.knng", *arguments, code=2).stderr)

    def test_a_damaged_block_is_named(self):
        self.two_lines(5, 3)
        with open(self.path("lines.knng"), "r+b") as file:
            file.seek(128 + 4 * 9)  # an id of row 4, behind a header and the metadata
            file.write(b"\x07")
        self.assertIn("lines.knng: byte 128: the block of section 'ids'", self.run_cli("path", "lines.knng", 0, 1, code=3).stderr)

    @unittest.skipIf(SANITIZED, "a sanitizer takes memory of its own")
    def test_the_graph_is_not_loaded(self):
        n, k = 30000, 128
        with open(self.path("line.fbin"), "wb") as file:
            file.write(struct.pack("<II%df" % n, n, 1, *range(n)))
        self.run_cli("graph", "line.fbin", "-k", k, "-o", "line.knng")
        self.two_lines(5, 3)
        least = self.path_of("lines.knng", 0, 1)[1]["memory"]["peak_bytes"]
        size = os.path.getsize(self.path("line.knng"))
        # Along the lists: some blocks of 1 MiB. Both ways: half of the file's size for the index besides, and blocks of ids in passing.
        for arguments, most in (((), size * 4 // 5), (("--directed",), size // 3)):
            record = self.path_of("line.knng", 1000, 1300, *arguments)[1]
            self.assertEqual(record["path"]["largest_step"], 1)
            self.assertLess(record["memory"]["peak_bytes"] - least, most)

    def test_metrics_where_larger_is_nearer_have_no_path(self):
        write_bin(self.path("base.fbin"), make_rows(30, 4, "f32", 3))
        self.run_cli("graph", "base.fbin", "-k", 2, "-o", "g.knng", "--metric", "inner_product")
        self.assertIn("inner_product", self.run_cli("path", "g.knng", "--from", 0, "--to", 3, code=2).stderr)


class Convert(CliTest):
    def test_vectors_keep_their_values_through_every_format(self):
        rows = [[1.0, 2.0, 100.0], [0.0, 7.0, 5.0], [9.0, 8.0, 127.0]]
        previous = "a.fbin"
        write_bin(self.path(previous), rows)
        for name in ("b.npy", "c.fvecs", "d.hbin", "d.bf16bin", "d2.npy", "e.i8bin", "f.u8bin", "g.bvecs", "h.fbin"):
            self.run_cli("convert", previous, name)
            previous = name
        self.assertEqual(read_bin(self.path("h.fbin"), "f"), rows)

    def test_rows_are_half_open(self):
        write_bin(self.path("a.fbin"), [[float(i)] for i in range(10)])
        for text, expected in (("2:5", [2, 3, 4]), ("8:", [8, 9]), (":2", [0, 1])):
            self.run_cli("convert", "a.fbin", "b.fbin", "--rows", text)
            self.assertEqual(read_bin(self.path("b.fbin"), "f"), [[float(i)] for i in expected])

    def test_rounding_is_asked_for(self):
        write_bin(self.path("a.fbin"), [[0.1, 2.5]])
        run = self.run_cli("convert", "a.fbin", "b.hbin", code=3)
        self.assertIn("0.1", run.stderr)
        self.assertFalse(os.path.exists(self.path("b.hbin")))
        self.run_cli("convert", "a.fbin", "b.hbin", "--allow-rounding")
        self.assertAlmostEqual(read_bin(self.path("b.hbin"), "e")[0][0], 0.1, places=4)
        self.assertIn("0.100000001 would be rounded as bf16", self.run_cli("convert", "a.fbin", "b.bf16bin", code=3).stderr)
        self.run_cli("convert", "a.fbin", "b.bf16bin", "--allow-rounding")
        self.assertEqual(read_bin(self.path("b.bf16bin"), "H"), [[0x3DCD, 0x4020]])
        self.run_cli("convert", "a.fbin", "b.npy", "--dtype", "bf16", "--allow-rounding")
        self.assertEqual(read_npy(self.path("b.npy"), "H"), [[0x3DCD, 0x4020]])
        self.assertIn("type         bf16", self.run_cli("info", "b.npy").stdout)

    def test_a_graph_gives_its_ids_and_distances(self):
        base = make_rows(30, 4, "f32", 8)
        write_bin(self.path("base.fbin"), base)
        self.run_cli("graph", "base.fbin", "-k", 3, "-o", "g.knng")
        self.run_cli("convert", "g.knng", "ids.npy")
        self.run_cli("convert", "g.knng", "some.ibin", "--rows", "10:12")
        self.run_cli("convert", "g.knng", "d.npy", "--distances")
        expected = [nearest("l2", base[row], base, 3, exclude=row) for row in range(30)]
        self.assertEqual(read_npy(self.path("ids.npy"), "q"), [[i for i, _ in row] for row in expected])
        self.assertEqual(read_bin(self.path("some.ibin"), "i"), [[i for i, _ in row] for row in expected[10:12]])
        self.assertEqual(read_npy(self.path("d.npy"), "f"), [[value for _, value in row] for row in expected])

    def test_results_go_through_hdf5(self):
        base = make_rows(30, 4, "f32", 8)
        write_bin(self.path("base.fbin"), base)
        self.run_cli("search", "base.fbin", "--queries", "base.fbin", "-k", 3, "-o", "r.h5")
        self.assertIn("neighbors: 30 x 3", self.run_cli("info", "r.h5").stdout)
        self.run_cli("convert", "r.h5", "r.ibin", "--dataset", "neighbors")
        self.run_cli("convert", "r.h5", "r.fbin", "--dataset", "distances")
        ids, distances = read_bin(self.path("r.ibin"), "i"), read_bin(self.path("r.fbin"), "f")
        for query in range(30):
            self.assert_neighbors("l2", base[query], base, ids[query], distances[query])
        self.run_cli("eval", "r.h5", "--truth", "r.ibin", "--recall", 1)


class InfoAndCheck(CliTest):
    def test_info_says_what_files_hold(self):
        write_bin(self.path("base.u8bin"), make_rows(30, 4, "u8", 8), "u8")
        self.run_cli("graph", "base.u8bin", "-k", 3, "-o", "g.knng", "--metric", "l1")
        vectors = self.run_cli("info", "base.u8bin").stdout
        graph = self.run_cli("info", "g.knng").stdout
        for word in ("30", "4", "u8"):
            self.assertIn(word, vectors)
        for word in ("knng", "30 rows", "3 neighbours", "l1", "exact"):
            self.assertIn(word, graph)
        with open(self.path("gt.bin"), "wb") as file:
            file.write(struct.pack("<II4i4f", 2, 2, 0, 1, 1, 0, 0, 1, 0, 1))
        self.assertIn("big-ann", self.run_cli("info", "gt.bin").stdout)

    def test_check_accepts_what_is_sound_and_names_what_is_not(self):
        write_bin(self.path("base.fbin"), make_rows(30, 4, "f32", 8))
        self.run_cli("graph", "base.fbin", "-k", 3, "-o", "g.knng")
        for name in ("g.knng", "base.fbin"):
            self.assertIn("sound", self.run_cli("check", name).stdout)
        write_bin(self.path("odd.fbin"), [[1.0, math.nan], [2.0, 3.0]])
        self.assertIn("row 0, column 1", self.run_cli("check", "odd.fbin", code=3).stderr)
        with open(self.path("g.knng"), "r+b") as file:
            file.truncate(os.path.getsize(self.path("g.knng")) - 1)
        self.run_cli("check", "g.knng", code=3)


class Report(CliTest):
    def test_a_page_is_called_html(self):
        write_bin(self.path("base.fbin"), make_rows(60, 16, "f32", 1))
        self.run_cli("graph", "base.fbin", "-k", 4, "-o", "g.knng")
        for arguments in (("report", "--graph", "g.knng", "--base", "base.fbin", "-o", "g.pdf"),
                          ("graph", "base.fbin", "-k", 4, "-o", "h.knng", "--report", "g.pdf")):
            self.assertIn("g.pdf: a page is HTML: its name must end in .html", self.run_cli(*arguments, code=2).stderr)
            self.assertFalse(os.path.exists(self.path("g.pdf")) or os.path.exists(self.path("h.knng")))

    def test_a_report_is_put_together_from_finished_results(self):
        write_bin(self.path("base.fbin"), make_rows(60, 16, "f32", 1))
        write_bin(self.path("queries.fbin"), make_rows(12, 16, "f32", 2))
        self.run_cli("graph", "base.fbin", "-k", 4, "-o", "g.knng", "--json", "g.json", "--verify", 10)
        self.run_cli("search", "base.fbin", "--queries", "queries.fbin", "-k", 3, "-o", "r.ibin", "--distances",
                     "d.fbin", "--json", "s.json", "--verify", 5)
        self.run_cli("report", "--graph", "g.knng", "--base", "base.fbin", "--queries", "queries.fbin", "--results",
                     "r.ibin", "--distances", "d.fbin", "--path", "0:59", "--path", "3:4", "--image", "4x4",
                     "--json-in", "g.json", "--json-in", "s.json", "-o", "report.html")
        with open(self.path("report.html"), encoding="utf-8") as file:
            page = file.read()
        for word in ("4-NN graph", "base.fbin", "data:image/png", "12 queries"):
            self.assertIn(word, page)
        # Without distances, without pictures, without records.
        self.run_cli("report", "--base", "base.fbin", "--queries", "queries.fbin", "--results", "r.ibin", "-o",
                     "ids.html")

    def test_results_of_another_base_are_refused(self):
        write_bin(self.path("base.fbin"), make_rows(20, 4, "f32", 1))
        write_bin(self.path("queries.fbin"), make_rows(2, 4, "f32", 2))
        write_bin(self.path("r.ibin"), [[1, 2], [3, 20]], "i")
        run = self.run_cli("report", "--base", "base.fbin", "--queries", "queries.fbin", "--results", "r.ibin", "-o",
                           "r.html", code=3)
        self.assertIn("20", run.stderr)
        self.assertFalse(os.path.exists(self.path("r.html")))

    def test_a_file_that_is_no_record_is_refused(self):
        write_bin(self.path("base.fbin"), make_rows(20, 4, "f32", 1))
        self.run_cli("graph", "base.fbin", "-k", 2, "-o", "g.knng")
        for text in ("", "{}", "[1]", '{"seconds": 3, "memory": 1}', "nonsense"):
            with open(self.path("bad.json"), "w", encoding="utf-8") as file:
                file.write(text)
            run = self.run_cli("report", "--base", "base.fbin", "--graph", "g.knng", "--json-in", "bad.json", "-o",
                               "r.html", code=3)
            self.assertIn("bad.json", run.stderr)


if __name__ == "__main__":
    unittest.main()
