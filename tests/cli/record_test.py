"""The JSON has every field that issue 2 names; --quiet prints nothing; the report stands alone."""
import json
import os
import unittest

from support import TINY_TILES, CliTest, make_rows, write_bin

FIELDS = ("version", "commit", "command", "n", "d", "k", "dtype", "metric", "method", "device", "isa", "threads",
          "seed", "seconds", "recall", "memory", "exact")


class Record(CliTest):
    def setUp(self):
        super().setUp()
        write_bin(self.path("base.fbin"), make_rows(60, 16, "f32", seed=1))
        write_bin(self.path("queries.fbin"), make_rows(8, 16, "f32", seed=2))

    def read_record(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def assert_complete(self, record):
        for field in FIELDS:
            self.assertIn(field, record)
        for part in ("load", "prepare", "compute", "evaluate", "total"):
            self.assertGreaterEqual(record["seconds"][part], 0)
        self.assertEqual(sorted(record["recall"]), ["at", "high", "low", "sampled", "value"])
        self.assertGreater(record["memory"]["peak_bytes"], 0)
        self.assertIn("planned_bytes", record["memory"])

    def test_graph_writes_all_fields(self):
        self.run_cli("graph", "base.fbin", "-k", 4, "-o", "g.knng", "--json", "g.json", "--seed", 7, "--threads", 2,
                     "--verify", 30)
        record = self.read_record("g.json")
        self.assert_complete(record)
        self.assertEqual((record["n"], record["d"], record["k"], record["dtype"]), (60, 16, 4, "f32"))
        self.assertEqual((record["metric"], record["method"], record["device"]), ("l2", "exact", "cpu"))
        self.assertEqual((record["seed"], record["threads"], record["exact"]), (7, 2, True))
        self.assertEqual(record["recall"]["value"], 1)
        self.assertEqual(record["verification"], {"rows": 30, "entries": 120, "different": 0})
        self.assertTrue(record["command"].startswith("gigaknn graph base.fbin -k 4"))

    def test_an_approximate_graph_tells_its_recall(self):
        write_bin(self.path("many.fbin"), make_rows(1500, 8, "f32", seed=3))
        self.run_cli("graph", "many.fbin", "-k", 4, "-o", "g.knng", "--json", "g.json", "--method", "ivf", "--recall", 0.8)
        record = self.read_record("g.json")
        self.assert_complete(record)
        self.assertEqual((record["method"], record["exact"]), ("ivf", False))
        recall = record["recall"]
        self.assertGreaterEqual(recall["value"], 0.8)
        self.assertTrue(0.5 < recall["low"] < recall["value"] < recall["high"] <= 1)
        self.run_cli("check", "g.knng")
        # Few rows: exact costs no more.
        self.run_cli("graph", "base.fbin", "-k", 4, "-o", "g.knng", "--json", "g.json", "--recall", 0.8)
        record = self.read_record("g.json")
        self.assertGreaterEqual(record["recall"]["value"], 0.8)
        if not TINY_TILES:  # there a cell costs less than the same rows do
            self.assertEqual((record["method"], record["exact"], record["recall"]["value"]), ("exact", True, 1))

    def test_search_writes_all_fields(self):
        self.run_cli("search", "base.fbin", "--queries", "queries.fbin", "-k", 4, "-o", "ids.ibin", "--json", "s.json",
                     "--verify", 8)
        record = self.read_record("s.json")
        self.assert_complete(record)
        self.assertEqual(record["queries"], 8)
        self.assertEqual(record["verification"]["different"], 0)
        self.assertGreater(record["memory"]["planned_bytes"], 0)

    def test_eval_writes_all_fields(self):
        self.run_cli("graph", "base.fbin", "-k", 4, "-o", "g.knng")
        self.run_cli("eval", "g.knng", "--base", "base.fbin", "--sample", 20, "--json", "e.json")
        record = self.read_record("e.json")
        self.assert_complete(record)
        self.assertEqual(record["recall"]["value"], 1)
        self.assertEqual(record["recall"]["sampled"], 20)

    def test_quiet_prints_nothing(self):
        for arguments in (("graph", "base.fbin", "-k", 4, "-o", "g.knng", "--verify", 5, "--report", "g.html"),
                          ("search", "base.fbin", "--queries", "queries.fbin", "-k", 4, "-o", "ids.ibin"),
                          ("search", "base.fbin", "--queries", "queries.fbin", "--radius", 99, "-o", "r.bin"),
                          ("eval", "g.knng", "--base", "base.fbin"),
                          ("eval", "ids.ibin", "--truth", "ids.ibin"),
                          ("convert", "base.fbin", "base.npy"),
                          ("check", "g.knng")):
            run = self.run_cli(*arguments, "--quiet")
            self.assertEqual((run.stdout, run.stderr), ("", ""), arguments)

    def test_a_plan_is_printed_first(self):
        run = self.run_cli("graph", "base.fbin", "-k", 4, "-o", "g.knng")
        for word in ("60 x 16", "f32", "method", "exact", "memory", "disk", "time", "g.knng"):
            self.assertIn(word, run.stderr)

    def test_the_report_is_one_file_without_network(self):
        self.run_cli("graph", "base.fbin", "-k", 4, "-o", "g.knng", "--report", "g.html", "--image", "4x4")
        with open(self.path("g.html"), encoding="utf-8") as file:
            page = file.read()
        self.assertIn("</html>", page)
        for outside in ('src="http', "src='http", '<link rel="stylesheet"', "@import", 'src="//'):
            self.assertNotIn(outside, page)

    def test_help_of_each_command_has_examples(self):
        for command in ("graph", "search", "eval", "path", "convert", "info", "check", "report"):
            run = self.run_cli(command, "--help")
            self.assertIn("Examples", run.stdout)
            self.assertIn("gigaknn " + command, run.stdout)
        self.assertIn("gigaknn", self.run_cli("--version").stdout)

    def test_a_file_name_with_spaces_and_quotes_works(self):
        name = "my 'base' file.fbin"
        os.rename(self.path("base.fbin"), self.path(name))
        self.run_cli("graph", name, "-k", 4, "-o", "my graph.knng", "--json", "g.json")
        self.assertTrue(os.path.exists(self.path("my graph.knng")))
        self.assertIn("'my '\\''base'\\'' file.fbin'", self.read_record("g.json")["command"])


if __name__ == "__main__":
    unittest.main()
