"""Every kind of bad input: one clear line, exit code 2 (usage) or 3 (data), no output file."""
import math
import os
import struct
import subprocess
import unittest

from support import BINARY, CliTest, make_rows, write_bin, write_npy


class BadInput(CliTest):
    def setUp(self):
        super().setUp()
        self.rows = make_rows(40, 6, "f32", seed=1)
        write_bin(self.path("base.fbin"), self.rows)
        write_bin(self.path("queries.fbin"), make_rows(5, 6, "f32", seed=2))

    def refuse_graph(self, *arguments, base="base.fbin", k=3, output="out.knng", code, says):
        self.assert_refused("graph", base, "-k", k, "-o", output, *arguments, code=code, says=says)

    def refuse_search(self, *arguments, base="base.fbin", queries="queries.fbin", k=3, output="out.ibin", code,
                      says):
        self.assert_refused("search", base, "--queries", queries, "-k", k, "-o", output, *arguments, code=code,
                            says=says)

    # --- files

    def test_a_missing_file_is_named(self):
        self.refuse_graph(base="absent.fbin", code=3, says="absent.fbin")
        self.refuse_search(queries="absent.fbin", code=3, says="absent.fbin")

    def test_an_empty_file_is_refused(self):
        open(self.path("empty.fbin"), "wb").close()
        self.refuse_graph(base="empty.fbin", code=3, says="empty.fbin")

    def test_a_file_cut_at_any_byte_is_refused(self):
        write_bin(self.path("small.fbin"), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        with open(self.path("small.fbin"), "rb") as file:
            whole = file.read()
        for length in range(len(whole)):
            with open(self.path("cut.fbin"), "wb") as file:
                file.write(whole[:length])
            run = self.run_cli("graph", "cut.fbin", "-k", 1, "-o", "out.knng", code=3)
            self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
            self.assertIn("cut.fbin", run.stderr)
            self.assertFalse(os.path.exists(self.path("out.knng")))

    def test_a_header_larger_than_the_file_is_refused(self):
        for n, d in ((2 ** 32 - 1, 2 ** 32 - 1), (1000, 6), (41, 6), (2 ** 31, 4)):
            with open(self.path("wide.fbin"), "wb") as file:
                file.write(struct.pack("<II", n, d) + b"\0" * 960)
            self.refuse_graph(base="wide.fbin", code=3, says="wide.fbin")

    def test_an_unknown_format_is_refused_with_the_list(self):
        open(self.path("base.xyz"), "wb").close()
        self.refuse_graph(base="base.xyz", code=2, says=(".fbin", ".npy"))

    def test_fortran_order_and_big_endian_npy_are_refused(self):
        write_npy(self.path("base.npy"), self.rows, "<f4", "f")
        with open(self.path("base.npy"), "rb") as file:
            data = file.read()
        with open(self.path("fortran.npy"), "wb") as file:
            file.write(data.replace(b"'fortran_order': False", b"'fortran_order': True "))
        with open(self.path("big.npy"), "wb") as file:
            file.write(data.replace(b"<f4", b">f4"))
        for name in ("fortran.npy", "big.npy"):
            run = self.run_cli("graph", name, "-k", 1, "-o", "out.knng", code=2 if name == "big.npy" else 2)
            self.assertIn(name, run.stderr)

    def test_ids_are_no_vectors(self):
        write_bin(self.path("ids.ibin"), [[1, 2], [3, 4], [5, 6]], "i")
        self.refuse_graph(base="ids.ibin", k=1, code=2, says="i32")

    # --- base against queries

    def test_another_dimension_is_refused(self):
        write_bin(self.path("narrow.fbin"), make_rows(5, 4, "f32", seed=2))
        self.refuse_search(queries="narrow.fbin", code=2, says=("narrow.fbin", "4", "6"))

    def test_another_type_is_refused(self):
        write_bin(self.path("queries.u8bin"), make_rows(5, 6, "u8", seed=2), "u8")
        self.refuse_search(queries="queries.u8bin", code=2, says=("u8", "f32"))

    # --- k

    def test_k_outside_its_range_is_refused_with_the_range(self):
        for k in (0, -1, 40, 41):
            self.refuse_graph(k=k, code=2, says=("k ", str(k)))
        self.refuse_graph(k=40, code=2, says="39")
        for k in (0, -3, 41):
            self.refuse_search(k=k, code=2, says=str(k))
        self.refuse_search(k=41, code=2, says="40")

    def test_k_that_is_no_number_is_refused(self):
        self.refuse_graph(k="many", code=2, says="many")

    # --- values

    def test_nan_and_infinity_are_refused_with_row_and_column(self):
        for value in (math.nan, math.inf, -math.inf):
            rows = [list(row) for row in self.rows]
            rows[17][4] = value
            write_bin(self.path("odd.fbin"), rows)
            self.refuse_graph(base="odd.fbin", code=3, says=("odd.fbin", "row 17", "column 4"))
            self.refuse_search(base="odd.fbin", code=3, says=("row 17", "column 4"))
            write_bin(self.path("odd_queries.fbin"), rows[15:20])
            self.refuse_search(queries="odd_queries.fbin", code=3, says=("odd_queries.fbin", "row 2", "column 4"))

    def test_an_index_that_was_built_without_takes_no_nan_either_way(self):
        rows = [list(row) for row in self.rows]
        rows[2][4] = math.nan
        write_bin(self.path("odd.fbin"), rows)
        self.run_cli("build", "base.fbin", "--index", "IVF4,Flat", "-o", "finite.gknn")
        self.run_cli("build", "odd.fbin", "--index", "IVF4,Flat", "-o", "any.gknn", "--allow-nonfinite")
        for more in ((), ("--allow-nonfinite",)):
            for command in (("search", "finite.gknn", "--queries", "odd.fbin", "-k", 2, "-o", "out.ibin"),
                            ("add", "finite.gknn", "odd.fbin", "-o", "more.gknn"),
                            ("tune", "finite.gknn", "--queries", "odd.fbin", "-k", 2)):
                self.assert_refused(*command, *more, code=3,
                            says=("odd.fbin", "row 2", "column 4", "finite.gknn was built without --allow-nonfinite"))
        self.assert_refused("search", "any.gknn", "--queries", "odd.fbin", "-k", 2, "-o", "out.ibin", code=3, says=("--allow-nonfinite takes",))
        self.run_cli("search", "any.gknn", "--queries", "odd.fbin", "-k", 2, "-o", "out.ibin", "--allow-nonfinite")

    def test_nan_counts_as_farthest_where_it_is_allowed(self):
        rows = [list(row) for row in self.rows]
        rows[17][4] = math.nan
        rows[20][0] = math.inf
        write_bin(self.path("odd.fbin"), rows)
        run = self.run_cli("search", "odd.fbin", "--queries", "queries.fbin", "-k", 40, "-o", "out.ibin",
                           "--allow-nonfinite")
        self.assertIn("2 rows", run.stderr)
        with open(self.path("out.ibin"), "rb") as file:
            ids = struct.unpack("<200i", file.read()[8:])
        for query in range(5):
            self.assertEqual(set(ids[query * 40 + 38:query * 40 + 40]), {17, 20})

    def test_zero_rows_under_cosine_are_named_and_farthest(self):
        rows = [list(row) for row in self.rows]
        rows[9] = [0.0] * 6
        write_bin(self.path("zero.fbin"), rows)
        run = self.run_cli("search", "zero.fbin", "--queries", "queries.fbin", "-k", 40, "-o", "out.ibin",
                           "--metric", "cosine")
        self.assertIn("row 9", run.stderr)
        with open(self.path("out.ibin"), "rb") as file:
            ids = struct.unpack("<200i", file.read()[8:])
        self.assertEqual([ids[query * 40 + 39] for query in range(5)], [9] * 5)

    def test_negative_values_are_refused_under_chi2_and_hellinger(self):
        rows = make_rows(40, 6, "f32", seed=3, nonnegative=True)
        rows[11][2] = -1.0
        write_bin(self.path("negative.fbin"), rows)
        for metric in ("chi2", "hellinger"):
            self.refuse_graph("--metric", metric, base="negative.fbin", code=3, says=("row 11", "column 2", "-1"))

    # --- options

    def test_an_unknown_metric_is_refused_with_the_list(self):
        self.refuse_graph("--metric", "manhattan", code=2, says=("manhattan", "l1", "jaccard"))

    def test_bits_need_u8(self):
        self.refuse_graph("--metric", "hamming", code=2, says=("hamming", "u8"))

    def test_unknown_method_device_option_and_command_are_refused(self):
        self.refuse_graph("--method", "magic", code=2, says=("magic", "exact"))
        self.refuse_graph("--device", "tpu:9", code=3, says=("tpu:9", "cpu"))
        self.refuse_graph("--fast", code=2, says=("--fast", "gigaknn graph --help"))
        for arguments in ((), ("grpah",), ("graph",), ("graph", "base.fbin")):
            run = self.run_cli(*arguments, code=2)
            self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
            self.assertIn("--help", run.stderr)

    def test_a_recall_that_no_graph_can_have_is_refused(self):
        for recall in ("0", "-1", "1.01", "nan"):
            self.refuse_graph("--recall", recall, code=2, says=("--recall must be above 0 and at most 1",))
        self.refuse_graph("--method", "ivf", code=2, says=("ivf", "--recall below 1"))
        self.refuse_graph("--recall", "0.9", "--verify", "5", code=2, says=("--verify", "exact"))
        self.refuse_search("--method", "ivf", code=2, says=("ivf", "auto exact"))

    def test_sizes_that_are_none_are_refused(self):
        for size in ("much", "-1GiB", "0", "8XB", "1e99", "nan"):
            self.refuse_graph("--memory=" + size, code=2, says=size)

    def test_a_memory_budget_too_small_names_the_smallest_that_would_do(self):
        run = self.run_cli("graph", "base.fbin", "-k", 3, "-o", "out.knng", "--memory", "1kB", "--quiet", code=2)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        self.assertRegex(run.stderr, r"\d+(\.\d+)? ?([KMG]i?B|bytes)")
        self.assertFalse(os.path.exists(self.path("out.knng")))

    def test_a_wrong_image_size_is_refused(self):
        self.refuse_graph("--image", "4x4", "--report", "r.html", code=2, says=("4x4", "16", "6"))
        self.refuse_graph("--image", "four", "--report", "r.html", code=2, says="four")
        self.refuse_graph("--image", "2x3", code=2, says="--image belongs to --report")
        self.refuse_search("--image", "2x3", code=2, says="--image belongs to --report")

    # --- outputs

    def test_a_folder_that_is_missing_or_not_writable_is_refused_before_the_work(self):
        self.refuse_graph(output="absent/out.knng", code=3, says="absent/out.knng")
        self.refuse_graph(output="base.fbin/out.knng", code=3, says="base.fbin/out.knng")
        self.refuse_graph(output="/proc/out.knng", code=3, says="/proc/out.knng")
        self.refuse_graph("--json", "absent/out.json", code=3, says="absent/out.json")
        self.refuse_graph("--report", "absent/out.html", code=3, says="absent/out.html")
        self.refuse_search(output="absent/out.ibin", code=3, says="absent/out.ibin")
        self.refuse_search("--distances", "absent/d.fbin", code=3, says="absent/d.fbin")

    def test_an_unknown_output_format_is_refused(self):
        self.refuse_graph(output="out.txt", code=2, says=("out.txt", ".knng"))
        self.refuse_search(output="out.txt", code=2, says=("out.txt", ".ibin"))

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_a_read_only_folder_is_refused(self):
        os.mkdir(self.path("closed"), 0o500)
        self.refuse_graph(output="closed/out.knng", code=3, says="closed/out.knng")

    def test_a_disk_that_fills_up_leaves_no_file(self):
        def limit_files():
            import resource
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        run = subprocess.run([BINARY, "graph", "base.fbin", "-k", "3", "-o", "out.knng", "--quiet"],
                             cwd=self.folder, capture_output=True, text=True, preexec_fn=limit_files)
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        self.assertIn("out.knng", run.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), ["base.fbin", "queries.fbin"])

    def test_a_real_disk_that_fills_up_leaves_no_file(self):
        os.mkdir(self.path("small"))
        write_bin(self.path("more.fbin"), make_rows(1000, 6, "f32", seed=4))
        script = 'mount -t tmpfs -o size=$1 none small && shift && "$@"; code=$?; ls -A small; exit $code'
        if subprocess.run(["unshare", "-rm", "sh", "-c", script, "sh", "4k", "true"], cwd=self.folder,
                          capture_output=True).returncode != 0:
            self.skipTest("may not mount a tmpfs")
        for size in ("4k", "8k", "12k"):  # the output has 24 KB
            run = subprocess.run(["unshare", "-rm", "sh", "-c", script, "sh", size, BINARY, "convert", "more.fbin",
                                  "small/out.npy", "--quiet"], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(run.returncode, 3, run.stderr)
            self.assertRegex(run.stderr, r"^gigaknn: .*out.npy.*No space left on device\n$")
            self.assertEqual(run.stdout, "", "files were left")

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_a_device_is_no_place_for_a_result(self):
        self.refuse_search(output="/dev/full", code=2, says="/dev/full")

    def test_search_needs_queries_and_one_of_k_and_radius(self):
        self.assert_refused("search", "base.fbin", "-k", 3, "-o", "out.ibin", code=2, says="--queries")
        self.assert_refused("search", "base.fbin", "--queries", "queries.fbin", "-o", "out.ibin", code=2, says="-k")
        self.refuse_search("--radius", "2", code=2, says="--radius")

    def test_options_that_would_do_nothing_are_refused_or_named(self):
        self.run_cli("build", "base.fbin", "--index", "IVF2,Flat", "-o", "base.gknn")
        self.assert_refused("search", "base.gknn", "--queries", "queries.fbin", "--radius", 1, "--sample", 5, "-o", "out.range", code=2,
                            says=("--sample", "--radius"), outputs=("out.range",))
        for first in ("--memory-first", "--qps-first"):
            self.assert_refused("build", "base.fbin", "--index", "IVF2,Flat", "--recall", 0.9, first, "-o", "out.gknn", code=2, says=("--index", first),
                                outputs=("out.gknn",))
        self.assert_refused("plan", "base.fbin", "--dtype", "u8", code=2, says="--dtype")
        self.assert_refused("plan", "base.fbin", "--rows=-5", code=2, says="--rows")
        self.assert_refused("plan", "--rows=-5", "--dim", 4, code=2, says="-5")
        run = self.run_cli("graph", "base.fbin", "-k", 3, "-o", "out.knng", "--device-memory", "1GiB")
        self.assertIn("--device-memory is not used", run.stderr)

    # --- the other commands

    def test_bad_rows_of_convert_are_refused(self):
        for rows in ("5", "9:3", "-1:4", "0:41", "a:b"):
            self.assert_refused("convert", "base.fbin", "out.fbin", "--rows=" + rows, code=2, says=rows.split(":")[-1],
                                outputs=("out.fbin",))

    def test_values_that_do_not_fit_are_refused_by_convert(self):
        write_bin(self.path("odd.fbin"), [[1.0, 2.0], [3.0, 300.0]])
        run = self.run_cli("convert", "odd.fbin", "out.u8bin", code=3)
        self.assertIn("300", run.stderr)
        self.assertFalse(os.path.exists(self.path("out.u8bin")))

    def test_path_refuses_rows_that_are_not_there(self):
        self.run_cli("graph", "base.fbin", "-k", 3, "-o", "base.knng")
        run = self.run_cli("path", "base.knng", "--from", 0, "--to", 40, code=2)
        self.assertIn("39", run.stderr)
        run = self.run_cli("path", "base.knng", "--from=-1", "--to", 4, code=2)
        self.assertIn("-1", run.stderr)

    def test_a_damaged_graph_is_refused(self):
        self.run_cli("graph", "base.fbin", "-k", 3, "-o", "base.knng")
        with open(self.path("base.knng"), "rb") as file:
            whole = file.read()
        for at in range(0, len(whole), 37):
            with open(self.path("damaged.knng"), "wb") as file:
                file.write(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1:])
            run = self.run_cli("check", "damaged.knng", code=None)
            self.assertIn(run.returncode, (2, 3), (at, run.stdout, run.stderr))
            self.assertEqual(run.stderr.count("\n"), 1, run.stderr)

    def test_eval_refuses_what_it_cannot_compare(self):
        write_bin(self.path("a.ibin"), [[1, 2], [3, 4]], "i")
        write_bin(self.path("b.ibin"), [[1, 2], [3, 4], [5, 6]], "i")
        self.assert_refused("eval", "a.ibin", "--truth", "b.ibin", code=2, says=("2", "3"))
        self.assert_refused("eval", "a.ibin", code=2, says="--truth")
        self.assert_refused("eval", "a.ibin", "--base", "base.fbin", code=2, says=".knng")
        self.assert_refused("eval", "a.ibin", "--truth", "a.ibin", "-k", 3, code=2, says="3")
        self.assert_refused("eval", "a.ibin", "--truth", "a.ibin", "--sample", 3, code=2, says=("--sample", "--base"))

    def test_a_folder_of_shards_with_a_broken_link_is_refused(self):
        os.mkdir(self.path("shards"))
        os.symlink(self.path("base.fbin"), self.path("shards/a.fbin"))
        os.symlink("gone.fbin", self.path("shards/b.fbin"))
        os.symlink("gone", self.path("shards/notes"))
        os.mkdir(self.path("shards/c.npy"))
        self.assert_refused("convert", "shards", "out.fbin", code=3, says="shards/b.fbin: a link to what is not there", outputs=("out.fbin",))
        os.remove(self.path("shards/b.fbin"))
        self.run_cli("convert", "shards", "out.fbin")

    def test_ids_alone_go_to_no_file_that_has_distances(self):
        self.run_cli("graph", "base.fbin", "-k", 3, "-o", "base.knng")
        self.run_cli("build", "base.fbin", "--index", "IVF2,Flat", "-o", "base.gknn")
        write_bin(self.path("some.ibin"), [[1], [2]], "i")
        for name in ("out.gtbin", "out.h5"):
            self.assert_refused("dedup", "base.fbin", "--radius", 1, "-o", name, code=2, says=name, outputs=(name,))
            self.assert_refused("graph", "--reduce", "base.knng", "--base", "base.fbin", "--remove", "some.ibin", "--map", name, "-o", "out.knng", code=2, says=name,
                                outputs=(name, "out.knng"))
            self.assert_refused("convert", "base.gknn", "rows.fbin", "--ids-to", name, code=2, says=name, outputs=(name, "rows.fbin"))

    def test_ids_that_are_gone_do_not_count(self):
        self.run_cli("build", "base.fbin", "--index", "IVF2,Flat", "-o", "base.gknn")
        write_npy(self.path("one.npy"), [[2**40]], "<i8", "q")
        self.run_cli("convert", "base.fbin", "row.fbin", "--rows", "0:1")
        self.run_cli("add", "base.gknn", "row.fbin", "--ids", "one.npy")
        self.assert_refused("search", "base.gknn", "--queries", "queries.fbin", "-k", 3, "-o", "out.ibin", code=2, says="1099511627776", outputs=("out.ibin",))
        self.run_cli("remove", "base.gknn", "--ids", "one.npy")
        self.run_cli("search", "base.gknn", "--queries", "queries.fbin", "-k", 3, "-o", "out.ibin")

    def test_a_page_is_no_standard_output(self):
        self.refuse_graph("--report", "-", code=2, says="must end in .html")


if __name__ == "__main__":
    unittest.main()
