"""What once went wrong without a word: results over one another, options that nothing read, recalls that were none."""
import array
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
                        ["convert", "x.gknn", "rows.npy", "--ids-to", "rows.npy"]):
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

    def test_files_of_a_folder_or_a_list_are_not_overwritten(self):
        os.mkdir(self.path("parts"))
        for i in range(2):
            write_npy(self.path(f"parts/p{i}.npy"), make_rows(30, 4, "f32", i), "<f4", "f")
        with open(self.path("list.txt"), "w", encoding="utf-8") as file:
            file.write("parts/p0.npy\nparts/p1.npy\n")
        before = self.read("parts/p1.npy")
        for command in (["dedup", "parts", "--radius", 0, "-o", "parts/p1.npy"], ["dedup", "list.txt", "--radius", 0, "-o", "parts/p1.npy"],
                        ["convert", "parts", "parts/p1.npy", "--rows", "0:10"]):
            self.refused(*command, saying="is read, and would be overwritten")
        self.refused("dedup", "parts", "--radius", 0, "-o", "parts/groups.npy", saying="would be one of the files of parts")
        self.assertEqual(self.read("parts/p1.npy"), before)
        self.run_cli("dedup", "parts", "--radius", 0, "-o", "groups.npy", "--json", "parts/groups.json")

    def test_an_empty_value_is_not_none(self):
        self.run_cli("build", "base.fbin", "--index", "IVF4,Flat", "-o", "x.gknn")
        before = self.read("x.gknn")
        write_npy(self.path("ids.npy"), [[1]], "<i8", "q")
        search = ["search", "x.gknn", "--queries", "queries.fbin", "-k", 3, "-o", "s.npy"]
        for command in (["remove", "x.gknn", "--ids", "ids.npy", "-o", ""], ["add", "x.gknn", "base.fbin", "--output", ""], [*search, "--only", ""],
                        [*search, "--memory", ""], [*search, "--json="], ["kmeans", "base.fbin", "-k", 3, "--weights", "", "-o", "km.npy"],
                        ["graph", "base.fbin", "-k", "", "-o", "g.knng"]):
            self.refused(*command, saying="an empty value")
        self.assertEqual(self.read("x.gknn"), before)

    def test_numbers_are_decimal(self):
        self.run_cli("graph", "base.fbin", "-k", "010", "-o", "g.knng", "--json", "g.json")
        self.assertEqual(self.record("g.json")["k"], 10)
        self.assertEqual(self.run_cli("path", "g.knng", "009", "00010").stdout, self.run_cli("path", "g.knng", 9, 10).stdout)
        self.refused("graph", "base.fbin", "-k", "-01", "-o", "h.knng", saying="k must be at least 1, got -1")
        self.refused("graph", "base.fbin", "-k", 3, "--seed", "-1", "-o", "h.knng", saying="'-1' is below 0")
        self.refused("graph", "base.fbin", "-k", 3, "--seed", 2**64, "-o", "h.knng", saying="is beyond 18446744073709551615")
        self.refused("graph", "base.fbin", "-k", 2**63, "-o", "h.knng", saying="is beyond 9223372036854775807")
        for command in (["graph", "base.fbin", "-k", 3, "-o", "h.knng", "--recall", 0.9], ["plan", "base.fbin", "-k", 3]):
            self.refused(*command, "--shard-rows", 0, saying="--shard-rows must be at least 1, got 0")
        self.refused("graph", "base.fbin", "--radius", "0x10", "-o", "h.range", saying="'0x10' is no decimal number")

    def test_an_exact_graph_of_a_recall_below_one_says_why(self):
        said = self.run_cli("graph", "base.fbin", "-k", 3, "--method", "auto", "--recall", 0.9, "-o", "g.knng", "--json", "g.json")
        said = said.stdout + said.stderr
        found = self.record("g.json")
        self.assertIn("  found by " + found["filter"], said)
        if not TINY_TILES:
            self.assertTrue(found["exact"])
            self.assertIn("exact, since the rows are few", said)

    def test_files_are_known_by_what_they_hold(self):
        self.run_cli("graph", "base.fbin", "-k", 3, "-o", "g.knng")
        self.run_cli("build", "base.fbin", "--index", "IVF4,Flat", "-o", "x.gknn")
        os.rename(self.path("g.knng"), self.path("G.KNNG"))
        os.rename(self.path("x.gknn"), self.path("index.bin"))
        rows = make_rows(50, 4, "f32", 1)
        rows[7][2] = float("nan")
        write_bin(self.path("NAN.FBIN"), rows)
        write_bin(self.path("nan.fbin"), rows)
        self.assertIn("400 rows, 3 neighbours each", self.run_cli("info", "G.KNNG").stdout)
        self.assertIn("400 x 16 f32", self.run_cli("info", "index.bin").stdout)
        self.assertIn("sound", self.run_cli("check", "index.bin").stdout)
        for command in ("info", "check"):
            self.assertIn("NAN.FBIN: formats are told by small letters, as nan.fbin", self.run_cli(command, "NAN.FBIN", code=2).stderr)
        self.refused("check", "nan.fbin", saying="row 7, column 2 is nan", code=3)
        for name in ("G.KNNG", "index.bin"):
            damaged = bytearray(self.read(name))
            damaged[-70] ^= 1
            with open(self.path(name), "wb") as file:
                file.write(damaged)
            self.refused("check", name, saying=name, code=3)
        with open(self.path("x.csv"), "w", encoding="utf-8") as file:
            file.write("1,2,3\n4,5,6\n")
        self.assertIn("no format that its name tells, and not a results file", self.run_cli("info", "x.csv", code=3).stderr)
        # 2 queries with 1 entry have as many bytes as 2 x 1 ids and distances, or as a matrix.
        write_bin(self.path("two.fbin"), [[0.0], [9.0]])
        self.run_cli("search", "two.fbin", "--queries", "two.fbin", "--radius", 0.5, "-o", "two.range")
        self.assertIn("neighbours within a radius", self.run_cli("info", "two.range").stdout)
        write_bin(self.path("ids.ibin"), [[1], [2]], "i")
        os.rename(self.path("ids.ibin"), self.path("ids.unknown"))
        self.assertIn("ids alone", self.run_cli("info", "ids.unknown").stdout)

    def test_convert_reads_ids_and_writes_them_by_other_names(self):
        self.run_cli("build", "base.fbin", "--index", "IVF4,Flat", "-o", "x.gknn")
        write_npy(self.path("mine.npy"), [[3], [4]], "<i8", "q")
        before = self.read("mine.npy")
        self.refused("convert", "x.gknn", "rows.fbin", "--ids", "mine.npy", saying="--ids-to says where")
        self.refused("convert", "base.fbin", "flat.faiss", "--ids-to", "mine.npy", saying="--ids-to is of")
        self.assertEqual(self.read("mine.npy"), before)
        self.run_cli("search", "base.fbin", "--queries", "queries.fbin", "-k", 3, "-o", "s.gtbin")
        self.run_cli("search", "base.fbin", "--queries", "queries.fbin", "-k", 3, "-o", "s.npy")
        self.run_cli("convert", "s.gtbin", "t.npy")
        self.assertEqual(self.read("t.npy"), self.read("s.npy"))
        self.run_cli("convert", "s.gtbin", "d.fbin", "--distances")
        self.run_cli("graph", "base.fbin", "-k", 3, "-o", "g.knng")
        self.refused("convert", "g.knng", "o.npy", "--dtype", "i32", saying="--dtype is of vectors")
        self.refused("convert", "g.knng", "o.npy", "--dataset", "test", saying="--dataset is of a HDF5 input")

    def test_eval_measures_what_was_asked(self):
        self.run_cli("graph", "base.fbin", "-k", 6, "-o", "g.knng")
        self.run_cli("eval", "g.knng", "--base", "base.fbin", "-k", 2, "--json", "e.json")
        self.assertEqual((self.record("e.json")["k"], self.record("e.json")["recall"]["at"]), (2, 2))
        self.refused("eval", "g.knng", "--base", "base.fbin", "-k", 7, saying="-k must be from 1 to 6")
        self.refused("eval", "g.knng", "--base", "base.fbin", "-k", 0, saying="-k must be at least 1")
        self.refused("eval", "g.knng", "--base", "base.fbin", "--recall", -5, saying="--recall must be from 0 to 1")
        self.refused("eval", "g.knng", "--base", "base.fbin", "--distances", "none.fbin", saying="--distances and --truth-distances go with --truth")
        self.refused("eval", "g.knng", "--truth", "g.knng", "--distances", "none.fbin", saying="g.knng holds distances itself")
        for metric in ("inner_product", "cosine"):
            self.run_cli("graph", "base.fbin", "-k", 3, "--metric", metric, "-o", "m.knng")
            self.run_cli("eval", "m.knng", "--truth", "m.knng", "--recall", 1, "--json", "e.json")
            self.assertEqual(self.record("e.json")["metric"], metric)
        self.refused("eval", "m.knng", "--truth", "g.knng", saying="g.knng is a graph by l2, not by cosine")
        self.refused("eval", "m.knng", "--truth", "m.knng", "--memory", "20KB", saying="--memory 20KB is too small")
        self.run_cli("eval", "m.knng", "--truth", "m.knng", "--memory", "100KB")

    def test_a_page_is_begun_by_the_record_of_what_it_shows(self):
        self.run_cli("graph", "base.fbin", "-k", 3, "-o", "g.knng", "--json", "g.json")
        self.run_cli("search", "base.fbin", "--queries", "queries.fbin", "-k", 3, "-o", "s.npy", "--json", "s.json")
        self.run_cli("kmeans", "base.fbin", "-k", 3, "-o", "km.npy", "--json", "km.json")
        self.run_cli("eval", "g.knng", "--base", "base.fbin", "--json", "e.json")
        of_graph = ["report", "--graph", "g.knng", "--base", "base.fbin", "-o", "page.html", "--json-in"]
        of_results = ["report", "--results", "s.npy", "--queries", "queries.fbin", "--base", "base.fbin", "-o", "page.html", "--json-in"]
        self.refused(*of_graph, "s.json", saying="s.json: the first --json-in is to be of the graph")
        self.refused(*of_graph, "e.json", saying="e.json: the first --json-in is to be of the graph")
        self.refused(*of_results, "g.json", saying="g.json: the first --json-in is to be of the search")
        self.refused(*of_graph, "g.json", "--json-in", "km.json", saying="km.json: a page shows what --json of gigaknn graph")
        self.refused("report", "--graph", "g.knng", "--base", "base.fbin", "--queries", "queries.fbin", "-o", "page.html", saying="--queries belongs")
        self.assertFalse(os.path.exists(self.path("page.html")))
        os.rename(self.path("g.json"), self.path("g.html"))
        self.refused(*of_graph[:-2], "g.html", "--json-in", "g.html", saying="is read, and would be overwritten")
        os.rename(self.path("g.html"), self.path("g.json"))
        self.run_cli(*of_graph, "g.json", "--json-in", "e.json", "--json-in", "s.json")
        self.run_cli(*of_results, "s.json")

    def test_a_budget_too_small_for_cells_is_kept_by_comparing_all_pairs(self):
        graph = ["graph", "base.fbin", "-k", 3, "--recall", 0.9]
        self.run_cli("plan", "base.fbin", "-k", 3, "--recall", 0.9, "--memory", "1GiB", "-o", "g.knng")
        told = self.run_cli(*graph, "--memory", "15MiB", "-o", "g.knng", "--json", "g.json").stderr
        self.assertIn("note: all pairs are compared, since a budget of 15728640 bytes is too small", told)
        self.assertIn("note: g.knng.work has an unfinished build from files", told)
        self.assertTrue(self.record("g.json")["exact"])
        self.refused(*graph, "--method", "ivf", "--memory", "15MiB", "-o", "h.knng", saying="is too small: a graph of 400 rows built from files")

    def test_a_budget_without_room_for_candidates_is_enough_for_cells(self):
        n, d = 500 if TINY_TILES else 20500, 160
        mapped = n * d * 4
        with open(self.path("wide.fbin"), "wb") as file:
            file.write(struct.pack("<II", n, d))
            array.array("f", array.array("b", random.Random(3).randbytes(n * d))).tofile(file)
        graph = ["graph", "wide.fbin", "-k", 3, "--recall", 0.5, "-o", "g.knng", "--json", "g.json", "--threads", 1]
        needed = {}
        for method in ("auto", "ivf"):
            self.run_cli(*graph, "--method", method)
            needed[method] = self.record("g.json")["memory"]["planned_bytes"]
        self.assertLess(needed["ivf"], needed["auto"])
        for budget in (needed["auto"] + mapped, needed["auto"] + mapped - 1, needed["ivf"] + mapped):
            told = self.run_cli(*graph, "--memory", budget).stderr
            self.assertNotIn("note: all pairs are compared, since", told)
            record = self.record("g.json")
            self.assertNotIn("tasks", record)
            # The rows, which are mapped, are within it, too.
            self.assertEqual(record["memory"]["planned_bytes"], min(budget - mapped, needed["auto"]))
        if TINY_TILES:  # so few rows that tasks have no room there
            self.assertNotIn("note: all pairs", self.run_cli(*graph, "--memory", needed["ivf"] + 1).stderr)
            self.assertEqual(self.record("g.json")["memory"]["planned_bytes"], needed["ivf"])

    def test_sizes_beyond_any_memory_are_refused(self):
        for sizes in (["--rows", 10**6, "--dim", 2**62], ["--rows", 2**32 - 2, "--dim", 9 * 10**18], ["--rows", 4 * 10**9, "--dim", 10, "-k", 4 * 10**9 - 1]):
            self.refused("plan", *sizes, "--memory", "1GiB", saying="")
        self.refused("plan", "--rows", 1000, "--dim", 10, "--json", "none/x.json", saying="none/x.json", code=3)
        self.refused("plan", "base.fbin", "-o", "two\nlines.knng", saying="names of one line")
        self.assertFalse(os.path.exists(self.path("two\nlines.knng.work")))

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
        self.run_cli(*reduce, "--recall", 1, code=4)

    @unittest.skipIf(SANITIZED, "a sanitizer takes memory of its own")
    def test_duplicates_are_found_within_a_budget(self):
        n = 3000
        for name, row in (("same.u8bin", lambda i: bytes(24)), ("near.u8bin", lambda i: struct.pack("<Q", i % 4096).ljust(24, b"\0"))):
            with open(self.path(name), "wb") as file:
                file.write(struct.pack("<II", n, 24) + b"".join(row(i) for i in range(n)))
            self.run_cli("dedup", name, "--radius", 1000000, "-o", "first.ibin", "--memory", "48MiB", "--json", "d.json")
            self.assertEqual(read_bin(self.path("first.ibin"), "i"), [[0]] * n)
            self.assertLess(self.record("d.json")["memory"]["peak_bytes"], 64 << 20, name)

    def test_lists_of_neighbours_are_no_ids(self):
        write_bin(self.path("base.fbin"), make_rows(60, 4, "f32", 7))
        self.run_cli("graph", "base.fbin", "-k", 3, "-o", "g.knng")
        write_npy(self.path("pairs.npy"), [[1, 2], [3, 4]], "<i8", "q")
        for name, says in (("g.knng", "holds lists of neighbours"), ("pairs.npy", "holds 2 lists of 2 ids")):
            self.assert_refused("graph", "--reduce", "g.knng", "--base", "base.fbin", "--remove", name, "-o", "r.knng", code=2, says=says)

    def test_an_exact_graph_that_is_none_by_this_base_is_told(self):
        write_bin(self.path("base.fbin"), make_rows(200, 4, "f32", 7))
        write_bin(self.path("other.fbin"), make_rows(200, 4, "f32", 8))
        write_npy(self.path("labels.npy"), [[i % 5] for i in range(200)], "<i8", "q")
        self.run_cli("graph", "base.fbin", "-k", 3, "-o", "g.knng")
        self.assertNotIn("note", self.run_cli("eval", "g.knng", "--base", "base.fbin").stderr)
        self.assertIn("built exactly, but not of this base", self.run_cli("eval", "g.knng", "--base", "other.fbin").stderr)
        self.run_cli("graph", "base.fbin", "-k", 3, "--labels", "labels.npy", "--only", "same", "-o", "l.knng")
        self.assertIn("is a graph by labels", self.run_cli("eval", "l.knng", "--base", "base.fbin").stderr)

    @unittest.skipIf(SANITIZED, "a sanitizer takes memory of its own")
    def test_a_budget_holds_where_rows_alternate(self):
        n = 8192
        generator = random.Random(5)
        for period in (2, 3, 64):  # all but every period-th far apart, the others near each other
            with open(self.path("turns.u8bin"), "wb") as file:
                file.write(struct.pack("<II", n, 24))
                for i in range(n):
                    file.write(struct.pack("<BB", i % 251, i // 251).ljust(24, b"\0") if i % period == 1 else generator.randbytes(24))
            self.run_cli("dedup", "turns.u8bin", "--radius", 70000, "-o", "first.ibin", "--memory", "16MiB", "--json", "d.json")
            self.assertLess(self.record("d.json")["memory"]["peak_bytes"], 32 << 20, period)
            self.run_cli("search", "turns.u8bin", "--queries", "turns.u8bin", "--radius", 70000, "-o", "x.range", "--memory", "16MiB", "--json", "d.json",
                         code=2 if period < 64 else 0)
            if period == 64:
                self.assertLess(self.record("d.json")["memory"]["peak_bytes"], 32 << 20, period)


if __name__ == "__main__":
    unittest.main()
