"""What the tests of the command line share: files in, runs, files out, and a float64 reference.

The reference is plain Python on lists: slow, short, and with no line in common with the engine.
"""
import json
import math
import os
import random
import shutil
import struct
import subprocess
import tempfile
import unittest

BINARY = os.environ.get("GIGAKNN_BIN", "build/release/gigaknn")

def is_sanitized():
    """Whether the program has a sanitizer in it, which takes memory of its own."""
    with open(BINARY, "rb") as file:
        program = file.read()
    return any(name in program for name in (b"__asan_init", b"__tsan_init"))


SANITIZED = is_sanitized()
TINY_TILES = "GIGAKNN_TINY_TILES" in os.environ  # a build whose cells have 8 rows, too
# dtype -> struct code, which of bf16 is that of its bits, file suffix
DTYPES = {"f32": ("f", ".fbin"), "f16": ("e", ".hbin"), "bf16": ("H", ".bf16bin"), "u8": ("B", ".u8bin"), "i8": ("b", ".i8bin")}


def bf16_bits(value):
    """Of a number that bfloat16 holds: the upper half of a float32."""
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def write_bin(path, rows, dtype="f32"):
    """u32 n, u32 d, then the rows."""
    code = DTYPES[dtype][0] if dtype in DTYPES else dtype
    cols = len(rows[0]) if rows else 0
    with open(path, "wb") as file:
        file.write(struct.pack("<II", len(rows), cols))
        for row in rows:
            file.write(struct.pack("<%d%s" % (cols, code), *(map(bf16_bits, row) if dtype == "bf16" else row)))
    return path


def read_bin(path, code):
    with open(path, "rb") as file:
        data = file.read()
    n, d = struct.unpack_from("<II", data)
    size = struct.calcsize("<" + code)
    assert len(data) == 8 + n * d * size, (path, n, d, len(data))
    values = struct.unpack_from("<%d%s" % (n * d, code), data, 8)
    return [list(values[i * d:(i + 1) * d]) for i in range(n)]


def read_npy(path, code):
    with open(path, "rb") as file:
        data = file.read()
    assert data[:6] == b"\x93NUMPY", data[:6]
    length = struct.unpack_from("<H", data, 8)[0]
    header = eval(data[10:10 + length])  # a literal dict, by the format
    n, d = header["shape"]
    values = struct.unpack_from("<%d%s" % (n * d, code), data, 10 + length)
    return [list(values[i * d:(i + 1) * d]) for i in range(n)]


def write_npy(path, rows, descr, code):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }" % (descr, len(rows), len(rows[0]))
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for row in rows:
            file.write(struct.pack("<%d%s" % (len(row), code), *row))
    return path


def make_rows(n, d, dtype, seed, nonnegative=False):
    """Small integers, so that sums are exact and ties happen."""
    generator = random.Random(seed)
    low = 0 if nonnegative or dtype == "u8" else -9
    return [[generator.randint(low, 9) for _ in range(d)] for _ in range(n)]


def make_bits(n, d, seed):
    generator = random.Random(seed)
    return [[generator.randint(0, 255) for _ in range(d)] for _ in range(n)]


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def popcount(x):
    return bin(x).count("1")


def distance(metric, x, y):
    pairs = list(zip(x, y))
    if metric == "l2":
        return float32(math.fsum((a - b) ** 2 for a, b in pairs))
    if metric == "euclidean":
        return float32(math.sqrt(math.fsum((a - b) ** 2 for a, b in pairs)))
    if metric == "inner_product":
        return float32(math.fsum(a * b for a, b in pairs))
    if metric == "cosine":
        norms = math.sqrt(math.fsum(a * a for a in x)) * math.sqrt(math.fsum(b * b for b in y))
        return float32(1 - math.fsum(a * b for a, b in pairs) / norms) if norms else math.inf
    if metric == "l1":
        return float32(math.fsum(abs(a - b) for a, b in pairs))
    if metric == "linf":
        return float32(max(abs(a - b) for a, b in pairs))
    if metric == "chi2":
        return float32(math.fsum((a - b) ** 2 / (a + b) for a, b in pairs if a + b))
    if metric == "hellinger":
        return float32(math.sqrt(math.fsum((math.sqrt(a) - math.sqrt(b)) ** 2 for a, b in pairs) / 2))
    if metric == "hamming":
        return float(sum(popcount(a ^ b) for a, b in pairs))
    if metric == "jaccard":
        union = sum(popcount(a | b) for a, b in pairs)
        return float32(1 - sum(popcount(a & b) for a, b in pairs) / union) if union else 0.0
    raise ValueError(metric)


# Metrics whose value on small integers is exact in any order of additions.
EXACT_METRICS = ("l2", "inner_product", "l1", "linf", "hamming")
METRICS = ("l2", "euclidean", "inner_product", "cosine", "l1", "linf", "chi2", "hellinger")
BIT_METRICS = ("hamming", "jaccard")


def nearest(metric, query, base, k, exclude=None):
    """[(id, distance)], nearest first, ties by id."""
    sign = -1 if metric == "inner_product" else 1
    found = [(sign * distance(metric, query, row), i) for i, row in enumerate(base) if i != exclude]
    found.sort()
    return [(i, sign * value) for value, i in found[:k]]


class CliTest(unittest.TestCase):
    """A folder of its own for each test, and runs of the program in it."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gigaknn-cli-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def record(self, name="r.json"):
        return json.loads(self.read(name))

    def run_cli(self, *arguments, code=0, **options):
        run = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                             cwd=self.folder, **options)
        if code is not None:
            self.assertEqual(run.returncode, code, "%s\nstdout: %s\nstderr: %s" % (run.args, run.stdout, run.stderr))
        return run

    def assert_refused(self, *arguments, code, says, outputs=("out.ibin", "out.knng")):
        """One clear line on stderr, the exit code, and no output file (nor a temporary one)."""
        before = sorted(os.listdir(self.folder))
        for quiet in ([], ["--quiet"]):
            run = self.run_cli(*arguments, *quiet, code=code)
            lines = [line for line in run.stderr.splitlines() if not self.is_plan(line)]
            self.assertEqual(len(lines), 1, run.stderr)
            self.assertTrue(lines[0].startswith("gigaknn: "), lines[0])
            for part in [says] if isinstance(says, str) else says:
                self.assertIn(part, lines[0])
            if quiet:
                self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
                self.assertEqual(run.stdout, "")
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        for output in outputs:
            self.assertFalse(os.path.exists(self.path(output)))

    @staticmethod
    def is_plan(line):
        return line.startswith(("  ", "exact ", "index ")) or ": note: " in line

    def assert_neighbors(self, metric, query, base, ids, distances, exclude=None):
        """The answer equals the reference: bit for bit where sums are exact, else to a rounding."""
        expected = nearest(metric, query, base, len(ids), exclude)
        if metric in EXACT_METRICS:
            self.assertEqual(list(zip(ids, distances)), expected)
            return
        self.assertEqual(len(set(ids)), len(ids))
        self.assertNotIn(exclude, ids)
        for i, value, (_, wanted) in zip(ids, distances, expected):
            own = distance(metric, query, base[i])
            if math.isinf(wanted):
                self.assertEqual(value, wanted)
                continue
            self.assertLessEqual(abs(value - wanted), 2e-7 * max(1, abs(wanted)))
            self.assertLessEqual(abs(value - own), 2e-7 * max(1, abs(own)))
