"""A recall instead of parameters: build --recall, tune, search --recall; what is refused, and what a kill leaves."""
import os
import random
import re
import signal
import subprocess
import time
import unittest

from support import BINARY, CliTest, nearest, read_bin, read_npy, write_bin, write_npy


def make_clouds(n, seed):
    """Rows of 8 bytes about some of 40 places, which are the same whatever the seed."""
    places = [[random.Random(place * 8 + j).randint(30, 220) for j in range(8)] for place in range(40)]
    generator = random.Random(seed)
    return [[min(255, max(0, x + round(generator.gauss(0, 12)))) for x in generator.choice(places)] for _ in range(n)]


class Tune(CliTest):
    def setUp(self):
        super().setUp()
        self.rows = make_clouds(1500, 1)
        self.queries = make_clouds(60, 2)
        write_bin(self.path("base.u8bin"), self.rows, "u8")
        write_bin(self.path("q.u8bin"), self.queries, "u8")

    def recall(self, ids, k=10):
        hits = 0
        for query, got in zip(self.queries, ids):
            last = nearest("l2", query, self.rows, k)[-1][1]
            hits += sum(sum((a - b) ** 2 for a, b in zip(query, self.rows[i])) <= last for i in got[:k] if i >= 0)
        return hits / (k * len(self.queries))

    def build(self, *more, index="IVF40,Flat"):
        recipe = ["--index", index] if index else []
        return self.run_cli("build", "base.u8bin", *recipe, "-o", "x.gknn", "--json", "r.json", *more)

    def search(self, *more, k=10):
        self.run_cli("search", "x.gknn", "--queries", "q.u8bin", "-k", k, "-o", "ids.npy", "--json", "r.json", *more)
        return read_npy(self.path("ids.npy"), "q")

    def test_a_recall_is_found_that_was_asked_for(self):
        self.build("--recall", 0.95, index=None)
        record = self.record()
        tried = record["tried"]
        self.assertIn(record["method"], [trial["recipe"] for trial in tried])
        self.assertTrue(all(trial["search_bytes"] > 0 and trial["build_bytes"] > 0 for trial in tried))
        self.assertGreaterEqual(record["recall"]["value"], 0.95)
        curve = record["curve"]
        self.assertTrue(curve["held_out"])
        self.assertEqual((curve["queries"], curve["rows"], curve["k"]), (150, 1500, 10))
        recalls = [point["recall"] for point in curve["points"]]
        self.assertEqual(recalls, sorted(recalls))
        for asked in (0.6, 0.9, 0.95):
            found = self.search("--recall", asked)
            self.assertEqual(self.record()["recall_asked"], asked)
            self.assertGreater(self.recall(found), asked - 0.05)  # 60 queries tell no more
        shown = self.run_cli("info", "x.gknn").stdout
        self.assertIn("recall@10 of 150 held-out rows among 1,500 rows", shown)
        self.assertIn("queries a second", shown)
        self.run_cli("check", "x.gknn")

    def test_a_recall_that_queries_of_another_kind_miss_is_said(self):
        self.build("--recall", 0.9)
        generator = random.Random(5)
        write_bin(self.path("q.u8bin"), [[generator.randint(0, 255) for _ in range(8)] for _ in range(200)], "u8")
        point = next(point for point in self.record()["curve"]["points"] if point["recall"] >= 0.9)
        run = self.run_cli("search", "x.gknn", "--queries", "q.u8bin", "-k", 10, "-o", "ids.npy", "--json", "r.json", "--quiet",
                           "--recall", 0.9, code=None)
        record = self.record()
        self.assertLessEqual(record["nprobe"], point["nprobe"])
        self.assertEqual(run.returncode, 4 if record["recall"]["high"] < 0.9 else 0)
        self.assertEqual("is below the 0.9 asked for" in run.stderr, run.returncode == 4)
        self.assertEqual(len(read_npy(self.path("ids.npy"), "q")), 200)  # what was found is there all the same
        self.assertLess(record["recall"]["high"], 0.9)

    def test_queries_of_ones_own_replace_those_held_out(self):
        self.build("--recall", 0.9)
        self.run_cli("tune", "x.gknn", "--queries", "q.u8bin", "-k", 5, "--json", "r.json")
        curve = self.record()["curve"]
        self.assertEqual((curve["held_out"], curve["queries"], curve["k"]), (False, 60, 5))
        for point in curve["points"]:
            found = self.search("--nprobe", point["nprobe"], k=5)
            self.assertAlmostEqual(self.recall(found, 5), point["recall"], places=9)
        self.assertIn("60 queries among 1,500 rows", self.run_cli("info", "x.gknn").stdout)
        self.run_cli("tune", "x.gknn")  # and back
        self.assertIn("150 held-out rows", self.run_cli("info", "x.gknn").stdout)

    def test_codes_without_vectors_take_a_truth(self):
        self.build(index="IVF10,PQ8")
        self.run_cli("search", "base.u8bin", "--queries", "q.u8bin", "-k", 10, "-o", "truth.npy")
        self.assert_refused("tune", "x.gknn", "--queries", "q.u8bin", code=2, says="--truth")
        self.run_cli("tune", "x.gknn", "--queries", "q.u8bin", "--truth", "truth.npy", "--recall", 0.3)
        self.assertGreater(self.recall(self.search("--recall", 0.3)), 0.29)
        self.assert_refused("build", "base.u8bin", "--index", "IVF10,PQ8", "--recall", 0.3, "-o", "y.gknn", code=2, says="full vectors")

    def test_beyond_the_curve_it_names_the_best_and_writes_nothing(self):
        self.build(index="IVF10,PQ1")  # codes of one byte, alone: they never find all
        self.run_cli("search", "base.u8bin", "--queries", "q.u8bin", "-k", 10, "-o", "truth.npy")
        done = self.run_cli("tune", "x.gknn", "--queries", "q.u8bin", "--truth", "truth.npy", "--recall", 0.99, "--json", "r.json", code=4)
        self.assertIn("is not reached", done.stderr)
        best = self.record()["curve"]["points"][-1]["recall"]
        self.assertLess(best, 0.99)
        for quiet in ([], ["--quiet"]):
            done = self.run_cli("search", "x.gknn", "--queries", "q.u8bin", "-k", 10, "-o", "ids.npy", "--recall", 0.99, *quiet, code=4)
            self.assertIn("the best is %.6g [" % best, done.stderr)
            self.assertFalse(os.path.exists(self.path("ids.npy")))

    def test_all_of_them_are_found_where_that_is_asked(self):
        self.build("--recall", 1)
        self.assertEqual(self.record()["recall"]["value"], 1)
        self.assertEqual(self.recall(self.search("--recall", 1)), 1)

    def test_a_budget_is_refused_with_one_that_suffices(self):
        refused = self.run_cli("build", "base.u8bin", "-o", "x.gknn", "--recall", 0.9, "--memory", "100KiB", code=2)
        needs = re.search(r"the smallest needs (\d+)(?:, and (\d+) that BASE takes)?", refused.stderr)
        least = sum(map(int, filter(None, needs.groups())))
        self.assertLess(least, 60 << 20)  # of 120 KB of vectors; by ten thousand queries at a time it was more
        self.build("--recall", 0.9, "--memory", least, index=None)
        self.assertGreaterEqual(self.recall(self.search("--recall", 0.9)), 0.85)

    def test_what_is_wrong_is_refused(self):
        self.build()
        search = ("search", "x.gknn", "--queries", "q.u8bin", "-k", 10, "-o", "ids.npy")
        self.assert_refused(*search, "--recall", 0.9, code=2, says="gigaknn tune x.gknn")
        self.assert_refused("tune", "x.gknn", code=2, says="--queries")
        self.assert_refused("tune", "x.gknn", "--truth", "t.npy", code=2, says="--truth")
        self.run_cli("tune", "x.gknn", "--queries", "q.u8bin")
        self.assert_refused(*search, "--recall", 1.5, code=2, says="--recall")
        self.assert_refused(*search, "--recall", 0.9, "--nprobe", 3, code=2, says="--nprobe")
        self.assert_refused(*search[:4], "-k", 11, "-o", "ids.npy", "--recall", 0.9, code=2, says="gigaknn tune x.gknn -k 11")
        self.assert_refused("search", "base.u8bin", *search[2:], "--recall", 0.9, code=2, says="--recall")
        self.assert_refused("build", "base.u8bin", "-o", "y.gknn", "--memory-first", code=2, says="--recall")
        self.assert_refused("build", "base.u8bin", "-o", "y.gknn", "--index", "IVF9,Flat", "--recall", 0.9, "-k", 0, code=2, says="-k")
        self.assert_refused("build", "base.u8bin", "-o", "y.gknn", "--index", "IVF9,Flat", "--recall", 0.9, "-k", 1400, code=2, says="-k")
        write_bin(self.path("other.u8bin"), [[1, 2, 3]], "u8")
        self.assert_refused("tune", "x.gknn", "--queries", "other.u8bin", code=2, says="other.u8bin")
        self.assert_refused("build", "base.u8bin", "-o", "y.gknn", "--recall", 0.9, "--queries", "other.u8bin", code=2, says="other.u8bin")
        self.assertFalse(os.path.exists(self.path("y.gknn")))
        done = self.run_cli(*search[:4], "-k", 3, "-o", "ids.npy", "--recall", 0.9)
        self.assertIn("that of 10 neighbours", done.stderr)

    def test_a_curve_of_another_size_says_so(self):
        self.build("--recall", 0.9)
        write_bin(self.path("more.u8bin"), make_clouds(30, 3), "u8")
        self.run_cli("add", "x.gknn", "more.u8bin")
        done = self.run_cli("search", "x.gknn", "--queries", "q.u8bin", "-k", 10, "-o", "ids.npy", "--recall", 0.9)
        self.assertIn("among 1,500 rows, there are 1,530 now", done.stderr)

    def test_the_same_index_but_for_times(self):
        """Rows and lists depend on no clock: once the curve is another's, the same bytes but for its section and checksums."""
        self.build("--recall", 0.9)
        first = self.run_cli("info", "x.gknn").stdout
        sections = [line.split(" at ") for line in first.splitlines() if line.startswith("section")]
        end = next(int(at) for name, at in sections if "curve_of" in name)
        before = self.read("x.gknn")[64:end]
        self.build("--recall", 0.9)
        self.assertEqual(self.read("x.gknn")[64:end], before)

    def test_killed_while_it_measures_the_index_is_whole(self):
        self.build()
        before = self.read("x.gknn")
        for delay in (0.02, 0.05, 0.1, 0.2):
            process = subprocess.Popen([BINARY, "tune", "x.gknn", "--queries", "q.u8bin"], cwd=self.folder, stderr=subprocess.DEVNULL)
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.run_cli("check", "x.gknn")
            if self.read("x.gknn") != before:  # it was done
                self.assertIn("recall@10", self.run_cli("info", "x.gknn").stdout)
                break


if __name__ == "__main__":
    unittest.main()
