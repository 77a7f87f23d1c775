"""Graphs of other kinds: of a radius, to another set, by labels."""
import math
import random
import struct
import unittest

from support import EXACT_METRICS, CliTest, distance, make_bits, make_rows, nearest, read_bin, read_npy, write_bin, write_npy


def read_range(path):
    """big-ann's range results: [[(id, distance), ...], ...]."""
    with open(path, "rb") as file:
        data = file.read()
    q, total = struct.unpack_from("<ii", data)
    counts = struct.unpack_from("<%di" % q, data, 8)
    ids = struct.unpack_from("<%di" % total, data, 8 + 4 * q)
    distances = struct.unpack_from("<%df" % total, data, 8 + 4 * q + 4 * total)
    assert len(data) == 8 + 4 * q + 8 * total
    lists, at = [], 0
    for count in counts:
        lists.append(list(zip(ids[at:at + count], distances[at:at + count])))
        at += count
    return lists


def within(metric, base, row, radius):
    keep = (lambda value: value >= radius) if metric == "inner_product" else (lambda value: value <= radius)
    return [(i, value) for i, value in nearest(metric, base[row], base, len(base), exclude=row) if keep(value)]


class OtherGraphs(CliTest):
    def make(self, metric, n=150, name="base"):
        if metric == "hamming":
            rows = make_bits(n, 2, 4)
            return rows, write_bin(self.path(name + ".u8bin"), rows, "u8")
        rows = make_rows(n, 3, "f32", 4)
        return rows, write_bin(self.path(name + ".fbin"), rows)

    def record(self, name="g.json"):
        return super().record(name)


class Radius(OtherGraphs):
    def test_lists_hold_all_rows_within_the_radius_but_their_own(self):
        for metric, radius in (("l2", 30), ("inner_product", 40), ("l1", 0), ("linf", 2), ("hamming", 3)):
            rows, path = self.make(metric)
            self.run_cli("graph", path, "--radius", radius, "--metric", metric, "-o", "pairs.range", "--json", "g.json")
            lists = read_range(self.path("pairs.range"))
            self.assertEqual(lists, [within(metric, rows, row, radius) for row in range(len(rows))], metric)
            record = self.record()
            self.assertEqual((record["n"], record["found"], record["radius"]), (150, sum(map(len, lists)), radius))
            self.assertEqual(record["alone"], sum(not found for found in lists))
            self.assertTrue(record["exact"])
            self.assertIn("sound", self.run_cli("check", "pairs.range").stdout)

    def test_a_result_beyond_the_budget_is_refused_with_the_number_of_pairs(self):
        write_bin(self.path("base.fbin"), [[1.0]] * 3000)
        self.run_cli("graph", "base.fbin", "--radius", 0, "-o", "pairs.range")
        self.assertEqual(sum(map(len, read_range(self.path("pairs.range")))), 3000 * 2999)
        self.assert_refused("graph", "base.fbin", "--radius", 0, "--memory", "30MB", "-o", "out.range", code=2,
                            says=("bytes is too small", "about 4498500 pairs of rows are within 0"))

    def test_a_radius_and_k_exclude_each_other(self):
        self.make("l2")
        self.assert_refused("graph", "base.fbin", "-k", 3, "--radius", 3, "-o", "out.range", code=2, says=("-k", "--radius"))
        self.assert_refused("graph", "base.fbin", "--radius", "nan", "-o", "out.range", code=2, says="--radius must be a finite number")
        self.assert_refused("graph", "base.fbin", "--radius", 1, "--recall", 0.9, "-o", "out.range", code=2, says="--radius, --to and --labels are exact")
        self.assert_refused("graph", "base.fbin", "--radius", 1, "--verify", 3, "-o", "out.range", code=2, says="no --distances, --verify")
        self.assert_refused("graph", "--radius", 1, "-o", "out.range", code=2, says="BASE is required")
        self.assert_refused("graph", "base.fbin", "--radius", 1, "--workers", 2, "-o", "out.range", code=2,
                            says="--workers and --shard-rows")
        self.assert_refused("graph", "base.fbin", "--radius", 1, "--add", "base.fbin", "-o", "out.range", code=2, says="--add")


class To(OtherGraphs):
    def test_is_a_search_of_the_rows_in_the_other_vectors(self):
        rows, path = self.make("l2")
        others = make_rows(60, 3, "f32", 9)
        write_bin(self.path("others.fbin"), others)
        self.run_cli("graph", path, "--to", "others.fbin", "-k", 5, "-o", "ids.npy", "--distances", "d.npy", "--json", "g.json",
                     "--verify", 10)
        self.run_cli("search", "others.fbin", "--queries", path, "-k", 5, "-o", "same.npy")
        ids, distances = read_npy(self.path("ids.npy"), "q"), read_npy(self.path("d.npy"), "f")
        self.assertEqual(ids, read_npy(self.path("same.npy"), "q"))
        for row in range(len(rows)):
            self.assert_neighbors("l2", rows[row], others, ids[row], distances[row])
        self.assertEqual((self.record()["n"], self.record()["queries"], self.record()["k"]), (60, 150, 5))
        self.run_cli("graph", path, "--to", "others.fbin", "--radius", 20, "-o", "pairs.range")
        for row, found in enumerate(read_range(self.path("pairs.range"))):
            self.assertEqual(found, [pair for pair in nearest("l2", rows[row], others, 60) if pair[1] <= 20])

    def test_what_cannot_be_is_refused(self):
        self.make("l2")
        write_bin(self.path("wide.fbin"), make_rows(9, 4, "f32", 9))
        refuse = lambda *arguments, says: self.assert_refused("graph", "base.fbin", *arguments, code=2, says=says)
        refuse("--to", "wide.fbin", "-k", 3, "-o", "out.ibin", says="wide.fbin")
        refuse("--to", "base.fbin", "-k", 3, "-o", "out.knng", says="no format for ids")
        refuse("--to", "base.fbin", "-k", 151, "-o", "out.ibin", says="k must be from 1 to n = 150")
        refuse("--to", "base.fbin", "-o", "out.ibin", says="k must be at least 1")
        refuse("-k", 3, "--distances", "d.npy", "-o", "out.knng", says="--distances belongs to --to")


class ByLabels(OtherGraphs):
    def lists_of(self, name):
        self.run_cli("convert", name, "ids.npy")
        self.run_cli("convert", name, "d.npy", "--distances")
        ids, distances = read_npy(self.path("ids.npy"), "q"), read_npy(self.path("d.npy"), "f")
        return [list(zip(*both)) for both in zip(ids, distances)]

    def expected(self, metric, rows, labels, only, k):
        farthest = -math.inf if metric == "inner_product" else math.inf
        lists = []
        for row in range(len(rows)):
            allowed = [pair for pair in nearest(metric, rows[row], rows, len(rows), exclude=row)
                       if (labels[pair[0]] == labels[row]) == (only == "same")]
            lists.append((allowed + [(-1, farthest)] * k)[:k])
        return lists

    def test_neighbours_are_of_the_same_label_or_of_others(self):
        generator = random.Random(8)
        for metric in ("l2", "inner_product", "hamming"):
            self.assertIn(metric, EXACT_METRICS)
            rows, path = self.make(metric)
            for labels in ([generator.randrange(3) for _ in rows], [7] * len(rows), list(range(len(rows))), [i // 2 for i in range(len(rows))]):
                write_npy(self.path("labels.npy"), [[label] for label in labels], "<i8", "q")
                for only in ("same", "other"):
                    run = self.run_cli("graph", path, "-k", 6, "--metric", metric, "--labels", "labels.npy", "--only", only, "-o", "g.knng",
                                       "--json", "g.json")
                    wanted = self.expected(metric, rows, labels, only, 6)
                    self.assertEqual(self.lists_of("g.knng"), wanted, (metric, only))
                    record = self.record()
                    missing = sum(pair[0] == -1 for found in wanted for pair in found)
                    self.assertEqual((record["only"], record["missing"], record["exact"], record["recall"]["value"]), (only, missing, True, 1))
                    self.assertEqual("entries are empty" in run.stderr, missing > 0)
                    self.assertIn("sound", self.run_cli("check", "g.knng").stdout)

    def test_the_graph_is_marked_exact_only_where_every_pair_was_allowed(self):
        rows, path = self.make("l2")
        self.run_cli("graph", path, "-k", 4, "-o", "all.knng")
        for name, labels, only, marked in (("one", [3] * 150, "same", "yes"), ("different", range(150), "other", "yes"),
                                           ("two", [i % 2 for i in range(150)], "same", "among rows of the same label"),
                                           ("also two", [i % 2 for i in range(150)], "other", "among rows of other labels")):
            write_bin(self.path("labels.ibin"), [[label] for label in labels], "i")
            self.run_cli("graph", path, "-k", 4, "--labels", "labels.ibin", "--only", only, "-o", name + ".knng")
            self.assertRegex(self.run_cli("info", name + ".knng").stdout, r"exact +" + marked)
            with open(self.path(name + ".knng"), "rb") as a, open(self.path("all.knng"), "rb") as b:
                self.assertEqual(a.read() == b.read(), marked == "yes")

    def test_what_cannot_be_is_refused(self):
        self.make("l2")
        write_npy(self.path("labels.npy"), [[0]] * 150, "<i8", "q")
        write_npy(self.path("short.npy"), [[0]] * 149, "<i8", "q")
        write_npy(self.path("wide.npy"), [[0, 1]] * 150, "<i8", "q")
        write_npy(self.path("real.npy"), [[0.5]] * 150, "<f4", "f")

        def refuse(*arguments, says, code=2):
            self.assert_refused("graph", "base.fbin", "-k", 3, *arguments, "-o", "out.knng", code=code, says=says)

        refuse("--labels", "short.npy", "--only", "same", code=3, says=("short.npy", "149 x 1 labels", "150 rows of base.fbin"))
        refuse("--labels", "wide.npy", "--only", "same", code=3, says="150 x 2 labels")
        refuse("--labels", "real.npy", "--only", "same", says=("real.npy: holds f32", "allowed: integers"))
        refuse("--labels", "absent.npy", "--only", "same", code=3, says="absent.npy")
        refuse("--labels", "labels.npy", "--only", "some", says="--only must be same or other, got 'some'")
        refuse("--labels", "labels.npy", says="belong together")
        refuse("--only", "same", says="belong together")
        refuse("--labels", "labels.npy", "--only", "same", "--recall", 0.9, says="--radius, --to and --labels are exact")
        refuse("--labels", "labels.npy", "--only", "same", "--verify", 5, says="without --labels")
        refuse("--labels", "labels.npy", "--only", "same", "--to", "base.fbin", says="not for --radius or --to")
        refuse("--labels", "labels.npy", "--only", "same", "--memory", "2000", says="too small")
        self.assert_refused("graph", "--extend", "g.knng", "--base", "base.fbin", "--add", "base.fbin", "--labels", "labels.npy", "-o", "out.knng",
                            code=2, says="keeps its k and its kind")


if __name__ == "__main__":
    unittest.main()
