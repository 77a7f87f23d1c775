"""Arrays in the memory of a GPU: the emulated one's here, and CUDA's where there is one."""

import ctypes
import sys
import types
import unittest
import warnings
from unittest import mock

import numpy as np

import gigaknn
from gigaknn import _core, _plugin
from support import random_rows, run_python

emulated = "emulated" in gigaknn.devices()


class Foreign:
    """An array of some other library, which lends what it has by DLPack and notes for whose stream."""

    def __init__(self, array):
        self._array = array
        self.streams = []

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        return self._array.__dlpack__()


@unittest.skipUnless(emulated, "this core has GPUs of CUDA's")
class DeviceTest(unittest.TestCase):
    def setUp(self):
        self.x = random_rows(300, 16)
        self.there = gigaknn.to_device(self.x, "emulated")

    def test_arrays_go_there_and_come_back(self):
        for array in (self.x, self.x[:, :3], self.x[::2], np.arange(5), np.arange(6, dtype=np.int32).reshape(2, 3), random_rows(4, 5, np.uint8), np.zeros((3, 2), np.float16), np.zeros((0, 4), np.float32)):
            there = gigaknn.to_device(array, "emulated")
            self.assertEqual(there.shape, array.shape)
            self.assertEqual(there.device, "emulated")
            self.assertEqual(len(there), len(array))
            self.assertEqual(there.__dlpack_device__(), (12, 0))
            np.testing.assert_array_equal(there.numpy(), array)
            self.assertEqual(there.numpy().dtype, array.dtype)
            np.testing.assert_array_equal(np.asarray(there), array)
        self.assertEqual(repr(self.there), "<DeviceArray [300, 16] f32 on emulated>")

    def test_what_cannot_go_there_is_told(self):
        for array in (np.zeros((2, 2)), np.zeros((2, 2, 2), np.float32), np.array("a"), np.float32(3)):
            with self.assertRaisesRegex(gigaknn.InvalidArgument, "cannot be sent"):
                gigaknn.to_device(array, "emulated")
        with self.assertRaisesRegex(gigaknn.DeviceError, r"this build has no CUDA device for 'cuda:0' \(gigaknn.devices\(\): cpu"):
            gigaknn.to_device(self.x, "cuda:0")
        for device in ("cpu", "emulated:2", ""):
            with self.assertRaisesRegex(gigaknn.DeviceError, "is not one GPU"):
                gigaknn.to_device(self.x, device)
        with self.assertRaises(TypeError):
            gigaknn.to_device(self.x, 0)

    def test_searches_read_it_there_and_leave_what_they_find_there(self):
        for metric in ("l2", "cosine", "l1"):
            want = gigaknn.knn(self.x[:7], self.x, 5, metric=metric)
            queries = gigaknn.to_device(self.x[:7], "emulated")
            found = gigaknn.knn(queries, self.there, 5, metric=metric, keys=[f"row {i}" for i in range(300)])
            self.assertIsInstance(found.ids, gigaknn.DeviceArray)
            np.testing.assert_array_equal(found.ids.numpy(), want.ids)
            np.testing.assert_array_equal(found.distances.numpy(), want.distances)
            self.assertEqual(found.ids.dtype, "i64")
            self.assertEqual(found.keys[0, 0], "row 0")
            # Where the queries are.
            found = gigaknn.knn(self.x[:7], self.there, 5, metric=metric)
            self.assertIsInstance(found.ids, np.ndarray)
            np.testing.assert_array_equal(found.ids, want.ids)
            found = gigaknn.knn(queries, self.x, 5, metric=metric, device="emulated:2")
            np.testing.assert_array_equal(found.ids.numpy(), want.ids)
        want = gigaknn.radius_search(self.x[:7], self.x, 1.5)
        found = gigaknn.radius_search(queries, self.there, 1.5)
        for there, here in zip(found, want):
            np.testing.assert_array_equal(there.numpy(), here)
        self.assertEqual(found.offsets.shape, (8,))

    def test_exact_graphs_read_it_there(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            graph = gigaknn.knn_graph(self.there, 4)
        np.testing.assert_array_equal(graph.ids, gigaknn.knn_graph(self.x, 4).ids)
        with self.assertRaisesRegex(gigaknn.InvalidArgument, "does not have its rows"):
            graph.measure()
        graph.measure(self.x)

    def test_everything_else_copies_it_and_says_so(self):
        for call, same in (
            (lambda x: gigaknn.knn_graph(x, 4, recall=0.9, method="ivf", device="cpu").ids, True),
            (lambda x: gigaknn.knn_graph(x, 4, labels=np.arange(300) % 2, device="cpu").ids, True),
            (lambda x: gigaknn.kmeans(x, 5).labels, True),
            (lambda x: gigaknn.build(x, index="IVF4,Flat").search(self.x[:3], 2).ids, True),
            (lambda x: gigaknn.duplicates(x, 0.1), True),
        ):
            with self.assertWarnsRegex(gigaknn.CopyWarning, "rows in the memory of a GPU are copied to the host"):
                found = call(self.there)
            np.testing.assert_array_equal(found, call(self.x))

    def test_it_is_read_in_place(self):
        """What the array becomes, its rows are, which are lent. (What searches copy beside them src/ops/device_matrix_test.cpp counts.)"""
        capsule = self.there.__dlpack__()
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        address = ctypes.c_void_p.from_address(pointer_of(capsule, b"dltensor")).value
        view = _core.view(capsule)
        self.assertEqual(view.device, "emulated")
        self.assertEqual(view.shape, (300, 16))
        np.testing.assert_array_equal(_core.copy_to_host(view), self.x)
        ctypes.c_float.from_address(address).value = 7  # the emulated GPU's memory is the host's
        self.assertEqual(_core.copy_to_host(view)[0, 0], 7)
        self.assertEqual(gigaknn.knn(view, view, 1, metric="linf").distances.numpy()[0, 0], 0)

    def test_the_wrong_device_is_told(self):
        with self.assertRaisesRegex(gigaknn.Unsupported, "in the memory of a GPU are searched on it, not on cpu"):
            gigaknn.knn(self.there, self.there, 3, device="cpu")
        cuda = Foreign(self.there)
        cuda.__class__ = type("Tensor", (Foreign,), {"__dlpack_device__": lambda self: (2, 1)})
        with self.assertRaisesRegex(gigaknn.DeviceError, "queries is on cuda:1, which this build cannot reach .*gigaknn-cu13"):
            gigaknn.knn(cuda, self.x, 3)
        with self.assertRaisesRegex(gigaknn.DeviceError, "x is on cuda:1"):
            gigaknn.kmeans(cuda, 3)
        self.assertEqual(cuda.streams, [])

    def test_shapes_types_and_values_are_checked_there(self):
        for array in (np.arange(5, dtype=np.int32), np.zeros((3, 2), np.int64), np.zeros(4, np.float32)):
            with self.assertRaisesRegex(gigaknn.InvalidArgument, r"base: rows in the memory of a GPU must be \[n, d\]"):
                gigaknn.knn(self.x, gigaknn.to_device(array, "emulated"), 1)
        bad = self.x.copy()
        bad[123, 4] = np.nan
        messages = []
        for base in (bad, gigaknn.to_device(bad, "emulated")):
            with self.assertRaises(gigaknn.InvalidData) as caught:
                gigaknn.knn(self.x, base, 1)
            messages.append(str(caught.exception))
        self.assertIn("row 123, column 4", messages[0])
        self.assertEqual(messages[0], messages[1])

    def test_the_callers_stream_is_asked_for(self):
        for stream, want in ((None, 1), (2, 2), (0, 1), (types.SimpleNamespace(cuda_stream=2), 2), (types.SimpleNamespace(ptr=0), 1)):
            queries, base = Foreign(gigaknn.to_device(self.x[:2], "emulated")), Foreign(self.there)
            gigaknn.knn(queries, base, 3, stream=stream)
            self.assertEqual((queries.streams, base.streams), ([want], [want]))

        class Protocol:
            def __cuda_stream__(self):
                return (0, 2)

        base = Foreign(self.there)
        gigaknn.knn_graph(base, 3, stream=Protocol())
        self.assertEqual(base.streams, [2])
        with self.assertRaises(TypeError):
            gigaknn.knn(self.there, self.there, 3, stream="fast")
        with self.assertRaises(gigaknn.InvalidArgument):
            gigaknn.knn(self.there, self.there, 3, stream=-5)
        with self.assertRaisesRegex(gigaknn.InvalidArgument, "no stream 77"):
            gigaknn.knn(self.there, self.there, 3, stream=77)

    def test_graphs_ask_for_the_callers_stream_however_they_are_built(self):
        for options in ({}, {"method": "exact"}, {"recall": 0.9, "method": "ivf", "device": "cpu"}, {"labels": np.arange(300) % 2, "device": "cpu"}, {"index": "IVF4,Flat", "device": "cpu"}):
            with self.subTest(options), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                base = Foreign(self.there)
                gigaknn.knn_graph(base, 3, stream=2, **options)
                with self.assertRaisesRegex(TypeError, "stream must be a number"):
                    gigaknn.knn_graph(base, 3, stream="fast", **options)
                self.assertEqual(base.streams, [2])

    def test_memory_that_cuda_manages_is_read_once_the_callers_stream_is_done(self):
        class Managed(Foreign):
            def __dlpack_device__(self):
                return 13, 0

        class Stream:
            ptr = 7
            waits = 0

            def synchronize(self):
                self.waits += 1

        stream = Stream()
        found = gigaknn.knn(Managed(self.x), self.x, 3, stream=stream)
        np.testing.assert_array_equal(found.ids, gigaknn.knn(self.x, self.x, 3).ids)
        self.assertEqual(stream.waits, 1)

    def test_results_are_of_the_library_of_the_queries(self):
        """A library that stands for torch: its current stream is asked for, and its from_dlpack makes the results."""
        torch = types.ModuleType("torch")
        torch.from_dlpack = lambda array: ("tensor", array)
        torch.cuda = types.SimpleNamespace(current_stream=lambda device: types.SimpleNamespace(cuda_stream=2))
        tensor = type("Tensor", (Foreign,), {"__module__": "torch", "device": "a device"})(self.there)
        with mock.patch.dict(sys.modules, {"torch": torch}):
            found = gigaknn.knn(tensor, self.there, 3)
        self.assertEqual(tensor.streams, [2])
        self.assertEqual(found.ids[0], "tensor")
        np.testing.assert_array_equal(found.ids[1].numpy(), gigaknn.knn(self.x, self.x, 3).ids)


class PluginTest(unittest.TestCase):
    """The rule by which a plugin's core is taken, with packages that stand for it."""

    def load(self, package, core=None, commit="0123456789ab", own="0123456789ab"):
        modules = {"stand_in": package}
        if commit is not None:
            modules["stand_in._commit"] = types.ModuleType("stand_in._commit")
            modules["stand_in._commit"].commit = commit
        if core is not None:
            modules["stand_in._core"] = core
        with mock.patch.dict(sys.modules, {**modules, "gigaknn._core": _core}), mock.patch.object(gigaknn, "_core", _core), mock.patch.object(_plugin, "commit", own):
            return _plugin.load("stand_in"), sys.modules["gigaknn._core"], gigaknn._core

    def package(self, version):
        package = types.ModuleType("stand_in")
        package.__version__ = version
        package.__path__ = []
        return package

    def test_one_of_the_same_version_is_taken(self):
        core = types.ModuleType("stand_in._core")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(self.load(self.package(gigaknn.__version__), core), (core, core, core))

    def test_one_of_another_version_is_not_and_that_is_told(self):
        with self.assertWarnsRegex(RuntimeWarning, rf"stand-in 9.9 \(commit 0123456789ab\) is not for gigaknn {gigaknn.__version__} \(commit 0123456789ab\)"):
            self.assertEqual(self.load(self.package("9.9"), types.ModuleType("stand_in._core")), (None, _core, _core))

    def test_one_of_another_commit_or_of_none_is_not_and_that_is_told(self):
        of_no_version = types.ModuleType("stand_in")
        of_no_version.__path__ = []
        whole, core = self.package(gigaknn.__version__), types.ModuleType("stand_in._core")
        for package, commit, own, text in (
            (whole, "fedcba987654", "0123456789ab", r"\(commit fedcba987654\) is not for gigaknn .* \(commit 0123456789ab\)"),
            (whole, "0123456789ab-dirty", "0123456789ab", r"\(commit 0123456789ab-dirty\) is not for"),
            (whole, None, "0123456789ab", r"\(commit not known\) is not for"),
            (whole, "0123456789ab", None, r"is not for gigaknn .* \(commit not known\)"),
            (whole, None, None, "is not for gigaknn"),
            (of_no_version, "0123456789ab", "0123456789ab", "stand-in of no version .* is not for gigaknn"),
        ):
            with self.subTest(text), self.assertWarnsRegex(RuntimeWarning, text):
                self.assertEqual(self.load(package, core, commit, own), (None, _core, _core))
        for commit in ("0123456789ab-dirty", "unknown"):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertEqual(self.load(whole, core, commit, commit), (core, core, core))

    def test_one_whose_import_fails_somehow_is_not_and_that_is_told(self):
        def fail(name):
            raise OSError("libcudart.so.13: no such file")

        with mock.patch.object(_plugin.importlib, "import_module", fail), self.assertWarnsRegex(RuntimeWarning, "stand-in cannot be used by gigaknn .*: OSError: libcudart"):
            self.assertIsNone(_plugin.load("stand_in"))

    def test_one_that_cannot_be_loaded_is_not_and_that_is_told(self):
        with self.assertWarnsRegex(RuntimeWarning, "stand-in cannot be used by gigaknn .*: ModuleNotFoundError"):
            self.assertEqual(self.load(self.package(gigaknn.__version__)), (None, _core, _core))

    def test_none_is_no_matter(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertIsNone(_plugin.load("gigaknn_of_nobody"))

    def test_the_environment_leaves_it_out(self):
        done = run_python("import gigaknn; print(gigaknn._plugin.core)", GIGAKNN_PLUGIN="0")
        self.assertEqual((done.stdout.strip(), done.stderr), ("None", ""))

    def test_the_version_is_one(self):
        self.assertEqual(_plugin.version, gigaknn.__version__)


@unittest.skipIf(emulated, "no GPU of CUDA's")
class CudaTest(unittest.TestCase):
    """Where a GPU is, with gigaknn-cu13 installed."""

    def test_a_tensor_is_searched_where_it_is(self):
        if len(gigaknn.devices()) < 2:
            self.skipTest("no GPU")
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")
        x = random_rows(5000, 32)
        want = gigaknn.knn(x[:50], x, 8, device="cpu")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            base = torch.from_numpy(x).to("cuda:0", non_blocking=True)
            found = gigaknn.knn(base[:50], base, 8)
        self.assertEqual(found.ids.device.type, "cuda")
        np.testing.assert_array_equal(found.ids.cpu().numpy(), want.ids)
        np.testing.assert_array_equal(found.distances.cpu().numpy(), want.distances)


if __name__ == "__main__":
    unittest.main()
