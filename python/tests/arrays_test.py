"""What is taken as rows, what is copied, and how long it lives."""

import array
import ctypes
import gc
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

import gigaknn
import numpy as np
from gigaknn._arguments import rows
from support import available_memory, random_rows, run_python, true_neighbors


class Lent:
    """An array that is known by DLPack alone, as tensors are."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class OnGpu:
    """What a tensor of CUDA lends by DLPack."""

    class Managed(ctypes.Structure):
        _fields_ = [
            ("data", ctypes.c_void_p),
            ("device_type", ctypes.c_int32),
            ("device_id", ctypes.c_int32),
            ("ndim", ctypes.c_int32),
            ("code", ctypes.c_uint8),
            ("bits", ctypes.c_uint8),
            ("lanes", ctypes.c_uint16),
            ("shape", ctypes.POINTER(ctypes.c_int64)),
            ("strides", ctypes.POINTER(ctypes.c_int64)),
            ("byte_offset", ctypes.c_uint64),
            ("manager", ctypes.c_void_p),
            ("deleter", ctypes.c_void_p),
        ]

    def __init__(self, values):
        self.values = values
        self.shape = (ctypes.c_int64 * 2)(*values.shape)
        self.managed = self.Managed(values.ctypes.data, 2, 0, 2, 2, 32, 1, self.shape, None, 0, None, None)

    def __dlpack__(self, **options):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self):
        return 2, 0


class Bfloats(OnGpu):
    """A tensor of bfloat16 in the memory of the host, as PyTorch's lend themselves: of words of 16 bits."""

    dtype = "torch.bfloat16"

    def __init__(self, words):
        self.words, self.shape = words, words.shape
        numbers = [(ctypes.c_int64 * words.ndim)(*values) for values in (words.shape, (stride // 2 for stride in words.strides))]
        self.managed = self.Managed(words.ctypes.data, 1, 0, words.ndim, 4, 16, 1, *numbers, 0, None, None)

    def __dlpack_device__(self):
        return 1, 0

    def detach(self):
        return self

    def contiguous(self):
        return Bfloats(np.ascontiguousarray(self.words))


def ml_dtypes_or_skip(test):
    try:
        import ml_dtypes
    except ImportError:
        test.skipTest("no ml_dtypes")
    return ml_dtypes


class Arrays(unittest.TestCase):
    def setUp(self):
        self.x = random_rows(300, 12)
        self.ids = true_neighbors(self.x[:7], self.x, 5)[1]

    def assert_found(self, queries, base, ids=None):
        np.testing.assert_array_equal(gigaknn.knn(queries, base, 5).ids, self.ids if ids is None else ids)

    def assert_not_copied(self, queries, base, ids=None):
        with warnings.catch_warnings():
            warnings.simplefilter("error", gigaknn.CopyWarning)
            self.assert_found(queries, base, ids)

    def assert_copied(self, text, queries, base):
        with self.assertWarnsRegex(gigaknn.CopyWarning, text) as caught:
            self.assert_found(queries, base)
        self.assertEqual(Path(caught.filename).name, "arrays_test.py")

    def test_all_types_are_taken_as_they_are(self):
        for dtype in (np.float32, np.float16, np.uint8, np.int8):
            x = random_rows(300, 12, dtype)
            self.assert_not_copied(x[:7], x, true_neighbors(x[:7], x, 5)[1])

    def test_rows_apart_are_taken_as_they_are(self):
        wide = np.zeros((300, 20), np.float32)
        wide[:, 3:15] = self.x
        self.assert_not_copied(self.x[:7], wide[:, 3:15])
        self.assert_not_copied(self.x[:7], np.repeat(self.x, 2, axis=0)[::2])

    def test_other_libraries_lend_by_dlpack(self):
        self.assert_not_copied(Lent(self.x[:7]), Lent(self.x))

    def test_other_libraries_lend_by_the_buffer_protocol(self):
        flat = array.array("f", self.x.ravel().tolist())
        base = memoryview(flat).cast("B").cast("f", (300, 12))
        self.assert_not_copied(self.x[:7], base)
        base.release()
        with self.assertRaisesRegex(TypeError, "base must be rows: .* got memoryview"):
            gigaknn.knn(self.x[:7], base, 3)

    def test_read_only_arrays_and_memory_maps_are_taken(self):
        self.x.setflags(write=False)
        with tempfile.TemporaryDirectory() as folder:
            np.save(f"{folder}/x.npy", self.x)
            self.assert_not_copied(self.x[:7], np.load(f"{folder}/x.npy", mmap_mode="r"))

    def test_files_and_lists_of_files_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            np.save(f"{folder}/a.npy", self.x[:100])
            np.save(f"{folder}/b.npy", self.x[100:])
            np.save(f"{folder}/q.npy", self.x[:7])
            parts = [f"{folder}/a.npy", Path(folder) / "b.npy"]
            self.assert_not_copied(Path(folder) / "q.npy", parts)
            np.testing.assert_array_equal(gigaknn.read_vectors(parts), self.x)
            self.assertFalse(gigaknn.read_vectors(f"{folder}/a.npy").flags.writeable)

    def test_what_is_not_dense_is_copied(self):
        self.assert_copied("base: rows that are not dense", self.x[:7], np.asfortranarray(self.x))
        self.assert_copied("queries: rows that are not dense", self.x[:7, ::-1], np.ascontiguousarray(self.x[:, ::-1]))
        unaligned = np.frombuffer(b"\0" + self.x.tobytes(), np.uint8)[1:].view(np.float32).reshape(300, 12)
        self.assert_copied("not aligned", self.x[:7], unaligned)

    def test_other_floats_are_copied(self):
        self.assert_copied("queries: float64 is copied, rounded to float32", self.x[:7].astype(np.float64), self.x)
        self.assert_copied("queries: rows", self.x[:7].astype(">f4"), self.x)
        self.assert_copied("queries: float64 is copied, rounded to float32", self.x[:7].astype(">f8"), self.x)  # as FITS has them

    def bfloats(self):
        """Words of bfloat16, the same as float32, and what is found among these."""
        words = (self.x.view(np.uint32) >> 16).astype(np.uint16)
        floats = (words.astype(np.uint32) << 16).view(np.float32)
        return words, floats, gigaknn.knn(floats[:7], floats, 5).ids

    def test_tensors_of_bfloat16_are_taken_where_they_are(self):
        words, floats, ids = self.bfloats()
        self.assert_not_copied(Bfloats(words[:7]), Bfloats(words), ids)
        wide = np.full((300, 20), 0x7FC0, np.uint16)
        wide[:, :12] = words
        self.assert_not_copied(Bfloats(words[:7]), Bfloats(wide[:, :12]), ids)
        self.assertEqual(rows(Bfloats(words), "x").numpy().ctypes.data, words.ctypes.data)
        with self.assertWarnsRegex(gigaknn.CopyWarning, "base: rows that are not dense"):
            self.assert_found(Bfloats(words[:7]), Bfloats(np.asfortranarray(words)), ids)
        with self.assertRaisesRegex(ValueError, r"base must be rows, of shape \[n, d\]; got shape \[12\]"):
            gigaknn.knn(Bfloats(words), Bfloats(words[0]), 5)
        with self.assertRaisesRegex(ValueError, "queries are 12 x f32, the base 12 x bf16"):
            gigaknn.knn(floats, Bfloats(words), 5)

    def test_bfloat16_of_ml_dtypes_is_taken_where_it_is(self):
        words, _, ids = self.bfloats()
        x = words.view(ml_dtypes_or_skip(self).bfloat16)
        self.assert_not_copied(x[:7], x, ids)
        self.assert_not_copied(x[:7], np.concatenate((x, x), axis=1)[:, :12], ids)
        self.assertEqual(rows(x, "x").numpy().ctypes.data, words.ctypes.data)
        with self.assertWarnsRegex(gigaknn.CopyWarning, "base: rows that are not dense"):
            self.assert_found(x[:7], np.asfortranarray(x), ids)
        with self.assertRaisesRegex(ValueError, r"base must be rows, of shape \[n, d\]; got shape \[12\]"):
            gigaknn.knn(x, x[0], 5)

    def test_bfloat16_comes_back_as_ml_dtypes_has_it_or_as_float32(self):
        words, floats, ids = self.bfloats()
        with tempfile.TemporaryDirectory() as folder:
            Path(f"{folder}/x.bf16bin").write_bytes(np.array(words.shape, "<u4").tobytes() + words.tobytes())
            self.assert_not_copied(Bfloats(words[:7]), f"{folder}/x.bf16bin", ids)
            index = gigaknn.build(f"{folder}/x.bf16bin", index="IVF4,Flat")
            np.testing.assert_array_equal(index.search(Bfloats(words[:7]), 5, nprobe=4).ids, ids)
            self.assertIn("300 x 12 bfloat16", repr(index))
            with mock.patch.dict("sys.modules", ml_dtypes=None):
                for found in (gigaknn.read_vectors(f"{folder}/x.bf16bin"), index.reconstruct(np.arange(300))):
                    self.assertEqual(found.dtype, np.float32)
                    np.testing.assert_array_equal(found, floats)
                with self.assertRaisesRegex(gigaknn.Unsupported, "ml_dtypes has, which is not installed"):
                    index.dtype
            bfloat16 = ml_dtypes_or_skip(self).bfloat16
            self.assertEqual(index.dtype, bfloat16)
            np.save(f"{folder}/x.npy", words.view(bfloat16))
            for found in (*map(gigaknn.read_vectors, (f"{folder}/x.bf16bin", f"{folder}/x.npy")), index.reconstruct(np.arange(300))):
                self.assertEqual(found.dtype, bfloat16)
                np.testing.assert_array_equal(found.view(np.uint16), words)

    def test_lists_of_numbers_are_rows(self):
        self.assert_not_copied(self.x[:7].tolist(), self.x)

    def test_a_copy_is_warned_of_once(self):
        result = run_python(
            """
            import gigaknn, numpy as np
            x = np.random.default_rng(0).random((100, 4))
            for _ in range(3): gigaknn.knn(x, x.astype("f4"), 2)
            """
        )
        self.assertEqual(result.stderr.count("CopyWarning"), 1, result.stderr)

    def test_what_is_no_rows_is_refused(self):
        for wrong, error, text in (
            (self.x[0], ValueError, r"base must be rows, of shape \[n, d\]; got shape \[12\]"),
            (None, (TypeError, ValueError), "base"),
            (self.x.astype(np.int64), TypeError, "base is of type int64; allowed: float32, float16, bfloat16, uint8 and int8"),
            (self.x > 0.5, TypeError, "base is of type bool"),
            ("/none/x.npy", OSError, "/none/x.npy: cannot open: No such file"),
            ([], ValueError, "base must be rows"),
            (self.x[:, :5], ValueError, "queries are 12 x f32, the base 5 x f32"),
        ):
            with self.assertRaisesRegex(error, text) as caught:
                gigaknn.knn(self.x[:7], wrong, 5)
            self.assertNotIn("\n", str(caught.exception))

    def test_rows_without_columns_are_refused(self):
        none = np.empty((300, 0), np.float32)
        for dtype in (np.float32, np.float16, np.uint8, np.int8):
            with self.assertRaisesRegex(gigaknn.InvalidArgument, "^rows have 0 columns, expected at least 1$"):
                rows(none.astype(dtype), "x")
        index, graph = gigaknn.build(self.x, index="Flat"), gigaknn.knn_graph(self.x, 3)
        for call in (
            lambda: gigaknn.knn(self.x, none, 1),
            lambda: gigaknn.knn(none, none, 1),
            lambda: gigaknn.radius_search(none, none, 1),
            lambda: gigaknn.knn_graph(none, 3),
            lambda: gigaknn.knn_graph(none, 3, recall=0.9),
            lambda: gigaknn.radius_graph(none, 1),
            lambda: gigaknn.build(none, index="Flat"),
            lambda: gigaknn.build(none, index="IVF4,Flat"),
            lambda: gigaknn.build(none, recall=0.9),
            lambda: index.search(none, 1),
            lambda: index.add(none),
            lambda: graph.extend(none),
            lambda: gigaknn.kmeans(none, 2),
            lambda: gigaknn.NNDescent(none, n_neighbors=3),
        ):
            with self.assertRaisesRegex(gigaknn.InvalidArgument, "rows have 0 columns"):
                call()

    def test_memory_of_another_device_is_refused(self):
        for kind, told in ((10, "a device of DLPack's type 10"), (2, "cuda:0")):
            if told in gigaknn.devices():
                continue
            with mock.patch.object(OnGpu, "__dlpack_device__", lambda array: (kind, 0)):
                for call in (lambda x: gigaknn.knn(self.x[:7], x, 5), lambda x: gigaknn.kmeans(x, 5), lambda x: gigaknn.build(x, index="Flat")):
                    with self.assertRaisesRegex(gigaknn.DeviceError, f"is on {told}, which this build cannot reach"):
                        call(OnGpu(self.x))

    def test_packed_bits(self):
        bits = np.random.default_rng(1).integers(2, size=(200, 64)).astype(np.uint8)
        found = gigaknn.knn(np.packbits(bits[:5], axis=1), np.packbits(bits, axis=1), 3, metric="hamming")
        np.testing.assert_array_equal(found.distances, np.sort((bits[:5, None] != bits[None]).sum(axis=2), axis=1)[:, :3])
        with self.assertRaisesRegex(NotImplementedError, "hamming"):
            gigaknn.knn(self.x[:7], self.x, 3, metric="hamming")

    def test_no_rows_are_no_results(self):
        found = gigaknn.knn(self.x[:0], self.x, 5)
        self.assertEqual((found.ids.shape, found.distances.shape), ((0, 5), (0, 5)))

    def test_results_own_their_memory(self):
        found = gigaknn.knn(self.x[:7], self.x, 5)
        self.assertEqual((found.distances.dtype, found.ids.dtype), (np.float32, np.int64))
        self.assertTrue(found.ids.flags.writeable and found.ids.flags.c_contiguous)
        ids = found.ids
        del found
        gc.collect()
        np.testing.assert_array_equal(ids, self.ids)

    def test_an_index_keeps_its_rows(self):
        index = gigaknn.build(self.x.copy(), index="IVF4,Flat")
        graph = gigaknn.knn_graph(self.x.copy(), 5)
        gc.collect()
        spoiled = [np.full((300, 12), np.nan, np.float32) for _ in range(20)]  # takes the place of rows that were freed
        np.testing.assert_array_equal(index.search(self.x[:7], 5, nprobe=4).ids, self.ids)
        np.testing.assert_array_equal(graph.extend(self.x[:1]).ids[1:7, 0], graph.ids[1:7, 0])
        del spoiled

    def test_a_graph_of_which_only_the_ids_are_left(self):
        ids = gigaknn.knn_graph(self.x, 5).ids
        gc.collect()
        np.testing.assert_array_equal(ids[:7, :4], self.ids[:, 1:])

    def test_no_copy_is_made(self):
        # The rows are 1 GiB; what is allocated beside them is a small part of that, or what a budget allows.
        if available_memory() < 4 << 30:
            self.skipTest("less than 4 GiB of memory are free")
        rows_of_a_gib = """
            import gigaknn, numpy as np
            def peak():
                return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
            x = np.empty((262144, 1024), np.float32)
            random = np.random.default_rng(0)
            for i in range(0, len(x), 1024): random.random(out=x[i:i + 1024], dtype=np.float32)
            gigaknn.knn(x[:10], x[:1000], 3)
            before = peak()
            """
        calls = """
            gigaknn.kmeans(x, 4, iterations=1, rows_per_cluster=1000, labels=False)
            print("kmeans", peak() - before)
            gigaknn.knn(x[:100], x, 10, memory="128MiB")
            print("knn", peak() - before)
            # Each row is compared with 63 others, which takes seconds; with all it would take minutes.
            gigaknn.knn_graph(x, 5, labels=np.arange(len(x)) // 64, memory="128MiB")
            print("knn_graph", peak() - before)
            """
        # Indexes hold a prepared form of the rows, which a budget that is too small tells of; the rows themselves stay where they are.
        index = """
            try:
                gigaknn.build(x, index={0!r}, memory="1MiB")
            except gigaknn.OutOfMemory as error:
                planned = int(str(error).rpartition(" ")[2])
            index = gigaknn.build(x, index={0!r}, memory=planned, iterations=2)
            assert index.search(x[:3], 1, nprobe=1).ids.ravel().tolist() == [0, 1, 2]
            print({0!r}, peak() - before, planned / 2**20)
            """
        used = {}
        for code in (calls, index.format("IVF16,Flat"), index.format("Flat")):
            result = run_python(rows_of_a_gib + code, timeout=300)
            self.assertEqual(result.returncode, 0, result.stderr)
            used.update((line.split()[0], list(map(float, line.split()[1:]))) for line in result.stdout.splitlines())
        self.assertLess(used["kmeans"][0], 64, used)
        for name in ("knn", "knn_graph"):
            self.assertLess(used[name][0], 150, used)
        for name in ("IVF16,Flat", "Flat"):
            self.assertLess(used[name][0], used[name][1] + 64, used)

    def test_rows_of_ctypes(self):
        import multiprocessing

        for lent in ((ctypes.c_float * 8 * 300)(), multiprocessing.RawArray(ctypes.c_float * 8, 300)):
            np.frombuffer(lent, np.float32)[:] = random_rows(300, 8).ravel()
            np.testing.assert_array_equal(gigaknn.knn(lent, lent, 3).ids, gigaknn.knn(np.array(lent), np.array(lent), 3).ids)
        with self.assertRaises(gigaknn.InvalidArgument):
            gigaknn.knn((ctypes.c_float * 8)(), (ctypes.c_float * 8)(), 1)

    def test_numbers_that_are_no_floats_are_refused(self):
        for values in ([np.array([1 + 5j, 2])], [[1 + 5j, 2]], [np.array(["2020-01-01"], "M8[D]")]):
            with self.assertRaisesRegex(gigaknn.InvalidArgument, "must be numbers"):
                gigaknn.knn(values, values, 1)
            with self.assertRaisesRegex(gigaknn.InvalidArgument, "must be rows of numbers"):
                gigaknn.NNDescent(np.array(values), n_neighbors=1)


if __name__ == "__main__":
    unittest.main()
