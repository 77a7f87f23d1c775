"""k-means: centroids and labels against plain Python, and what is refused."""
import math
import random
import struct
import unittest

from support import SANITIZED, CliTest, make_rows, read_bin, read_npy, write_bin


def squared(x, y):
    return sum((a - b) ** 2 for a, b in zip(x, y))


class KMeans(CliTest):
    def make(self, dtype="u8", n=300):
        rows = make_rows(n, 4, dtype, 3)
        suffix = {"u8": ".u8bin", "f32": ".fbin", "i8": ".i8bin", "f16": ".hbin", "bf16": ".bf16bin"}[dtype]
        return rows, write_bin(self.path("base" + suffix), rows, dtype)

    def test_centroids_are_means_of_the_rows_nearest_to_them(self):
        for dtype in ("u8", "i8", "f32", "f16", "bf16"):
            rows, base = self.make(dtype)
            self.run_cli("kmeans", base, "-k", 12, "-o", "c.fbin", "--labels", "labels.npy", "--distances", "d.fbin", "--iterations", 100,
                         "--json", "r.json")
            centroids = read_bin(self.path("c.fbin"), "f")
            labels = [label for label, in read_npy(self.path("labels.npy"), "q")]
            distances = [distance for distance, in read_bin(self.path("d.fbin"), "f")]
            record = self.record()
            self.assertEqual((record["n"], record["k"], record["method"], record["trained_rows"]), (300, 12, "k-means", 300))
            self.assertEqual(record["rounds"][-1]["moved"], 0)
            for i, row in enumerate(rows):
                wanted = [squared(row, centroid) for centroid in centroids]
                self.assertEqual(labels[i], wanted.index(min(wanted)))
                self.assertAlmostEqual(distances[i], min(wanted), delta=1e-5 * (1 + min(wanted)))
            for cluster, centroid in enumerate(centroids):
                members = [row for row, label in zip(rows, labels) if label == cluster]
                for j, value in enumerate(centroid):
                    self.assertAlmostEqual(value, sum(row[j] for row in members) / len(members), places=5)
            self.assertAlmostEqual(record["all_rows"]["objective"], sum(distances), delta=1e-3 * sum(distances))
            objectives = [round["objective"] for round in record["rounds"]]
            self.assertEqual(objectives, sorted(objectives, reverse=True))

    def test_the_same_arguments_give_the_same_bytes(self):
        _, base = self.make("f32")
        outputs = set()
        for threads in (1, 2, 5):
            self.run_cli("kmeans", base, "-k", 20, "-o", "c.npy", "--threads", threads, "--start", "plus-plus")
            with open(self.path("c.npy"), "rb") as file:
                outputs.add(file.read())
        self.assertEqual(len(outputs), 1)
        self.run_cli("kmeans", base, "-k", 20, "-o", "c.npy", "--seed", 9, "--start", "plus-plus")
        with open(self.path("c.npy"), "rb") as file:
            self.assertNotIn(file.read(), outputs)

    def test_several_devices_write_the_same_bytes(self):
        _, base = self.make("f32")
        outputs = set()
        for device in (["cpu"], ["emulated:4"], ["emulated:4", "--shards", 2], ["emulated:3", "--shards", 3]):
            self.run_cli("kmeans", base, "-k", 9, "-o", "c.npy", "--labels", "l.npy", "--distances", "d.npy", "--iterations", 5, "--device", *device)
            outputs.add(tuple(open(self.path(name), "rb").read() for name in ("c.npy", "l.npy", "d.npy")))
        self.assertEqual(len(outputs), 1)
        self.assert_refused("kmeans", base, "-k", 9, "-o", "c.npy", "--shards", 2, code=2, says="shards are for several GPUs, got 2 on cpu")

    def test_options_reach_the_library(self):
        rows, base = self.make("f32")
        self.run_cli("kmeans", base, "-k", 10, "-o", "c.fbin", "--metric", "cosine", "--levels", 2, "--rows-per-cluster", 20, "--balanced",
                     "--iterations", 4, "--json", "r.json")
        for centroid in read_bin(self.path("c.fbin"), "f"):
            self.assertAlmostEqual(math.sqrt(sum(value**2 for value in centroid)), 1, places=5)
        record = self.record()
        self.assertEqual((record["trained_rows"], record["metric"], len(record["rounds"])), (200, "cosine", 4))
        weights = [[1.0 if i < 3 else 0.0] for i in range(len(rows))]
        write_bin(self.path("w.fbin"), weights)
        self.run_cli("kmeans", base, "-k", 1, "-o", "c.fbin", "--weights", "w.fbin")
        (centroid,) = read_bin(self.path("c.fbin"), "f")
        for j, value in enumerate(centroid):
            self.assertAlmostEqual(value, sum(rows[i][j] for i in range(3)) / 3, places=5)

    def test_says_how_it_went_and_with_quiet_nothing(self):
        _, base = self.make()
        said = self.run_cli("kmeans", base, "-k", 5, "-o", "c.fbin", "--rows-per-cluster", 10, "--iterations", 2).stderr
        for words in ("5 clusters of", "round 1: objective", "imbalance", "rows moved", "fitted to 50 rows", "wrote"):
            self.assertIn(words, said)
        self.assertEqual(self.run_cli("kmeans", base, "-k", 5, "-o", "c.fbin", "--quiet").stderr, "")

    def test_takes_no_more_than_was_planned(self):
        n, d = 10000 if SANITIZED else 100000, 64
        with open(self.path("base.u8bin"), "wb") as file:
            file.write(struct.pack("<II", n, d) + random.Random(9).randbytes(n * d))
        for options in (["-k", 600], ["-k", 600, "--labels", "l.npy"], ["-k", 40, "--rows-per-cluster", 0], ["-k", 900, "--levels", 2],
                        ["-k", 100, "--start", "plus-plus", "--metric", "cosine"]):
            self.run_cli("kmeans", "base.u8bin", *options, "-o", "c.fbin", "--iterations", 3, "--threads", 2, "--json", "r.json")
            memory = self.record()["memory"]
            if not SANITIZED:
                # The vectors are mapped; stacks, allocator and libraries are no search's.
                self.assertLessEqual(memory["peak_bytes"], memory["planned_bytes"] + n * d + (16 << 20), options)
            # What was planned will do.
            self.run_cli("kmeans", "base.u8bin", *options, "-o", "tight.fbin", "--iterations", 3, "--threads", 2, "--memory",
                         memory["planned_bytes"])
            with open(self.path("c.fbin"), "rb") as one, open(self.path("tight.fbin"), "rb") as other:
                self.assertEqual(one.read(), other.read())

    def test_what_cannot_be_is_refused(self):
        _, base = self.make()
        refuse = lambda *arguments, says, code=2: self.assert_refused("kmeans", base, *arguments, code=code, says=says)
        refuse("-k", 0, "-o", "c.fbin", says="-k must be from 1 to n = 300, got 0")
        refuse("-k", 301, "-o", "c.fbin", says="-k must be from 1 to n = 300, got 301")
        refuse("-k", 3, "-o", "c.u8bin", says="c.u8bin", code=2)
        refuse("-k", 3, "-o", "c.fbin", "--metric", "l1", says="--metric must be l2 or cosine")
        refuse("-k", 3, "-o", "c.fbin", "--start", "best", says="--start must be random or plus-plus")
        refuse("-k", 3, "-o", "c.fbin", "--levels", 3, says="--levels must be auto, 1 or 2")
        refuse("-k", 3, "-o", "c.fbin", "--iterations", -1, says="--iterations must be >= 0")
        refuse("-k", 3, "-o", "c.fbin", "--distances", "d.fbin", says="--distances belongs to --labels")
        refuse("-k", 3, "-o", "c.fbin", "--labels", "labels.txt", says="labels.txt")
        refuse("-k", 3, "-o", "c.fbin", "--weights", base, says="expected one f32", code=3)
        refuse("-k", 3, "-o", "c.fbin", "--memory", "1KB", says="--memory 1KB is too small: k-means needs")
        refuse("-k", 3, "-o", self.path("nowhere/c.fbin"), says="nowhere", code=3)
        write_bin(self.path("nan.fbin"), [[1.0, 2.0], [float("nan"), 1.0], [2.0, 2.0]])
        self.assert_refused("kmeans", "nan.fbin", "-k", 2, "-o", "c.fbin", code=3, says="row 1")
        self.run_cli("kmeans", "nan.fbin", "-k", 2, "-o", "c.fbin", "--labels", "l.npy", "--allow-nonfinite")
        self.assertEqual(read_npy(self.path("l.npy"), "q")[1], [-1])
        write_bin(self.path("far.fbin"), [[1.0, 2.0], [1e30, 1.0], [2.0, 2.0]])
        run = self.run_cli("kmeans", "far.fbin", "-k", 2, "-o", "c.fbin", "--labels", "l.npy", "--json", "j.json")
        without = sum(label == [-1] for label in read_npy(self.path("l.npy"), "q"))
        self.assertGreater(without, 0)
        self.assertEqual(self.record("j.json")["rows_without_cluster"], without)
        self.assertIn("%d rows have no cluster, label -1" % without, run.stderr)


if __name__ == "__main__":
    unittest.main()
