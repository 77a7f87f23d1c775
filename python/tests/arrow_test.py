"""Rows in arrays of lists of Arrow's: pyarrow, polars, and what else has its C interface."""

import gc
import unittest
import warnings

import gigaknn
import numpy as np
from gigaknn._arguments import rows
from support import random_rows, run_python

try:
    import pandas
except ImportError:
    pandas = None
try:
    import pyarrow
except ImportError:
    pyarrow = None
try:
    import polars
except ImportError:
    polars = None


def fixed(x):
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(x.ravel()), x.shape[1])


class ArrowCase(unittest.TestCase):
    def setUp(self):
        self.x = random_rows(300, 12)

    def assert_lent(self, lent, x):
        with warnings.catch_warnings():
            warnings.simplefilter("error", gigaknn.CopyWarning)
            np.testing.assert_array_equal(rows(lent, "x").numpy(), x, strict=True)

    def assert_copied(self, text, lent, x):
        with self.assertWarnsRegex(gigaknn.CopyWarning, text):
            np.testing.assert_array_equal(rows(lent, "x").numpy(), x, strict=True)

    def assert_refused(self, error, text, lent):
        with self.assertRaisesRegex(error, text) as caught:
            rows(lent, "x")
        self.assertNotIn("\n", str(caught.exception))


@unittest.skipUnless(pyarrow, "no pyarrow")
class OfPyarrow(ArrowCase):
    def test_all_types_are_taken_where_they_are(self):
        for dtype in (np.float32, np.float16, np.uint8, np.int8):
            x = random_rows(300, 12, dtype)
            values = pyarrow.array(x.ravel())
            lent = pyarrow.FixedSizeListArray.from_arrays(values, 12)
            self.assert_lent(lent, x)
            self.assertEqual(rows(lent, "x").numpy().ctypes.data, values.buffers()[1].address)

    def test_what_is_found_is_what_numpy_finds(self):
        expected = gigaknn.knn(self.x[:7], self.x, 5).ids
        lent = fixed(self.x)
        np.testing.assert_array_equal(gigaknn.knn(lent[:7], lent, 5).ids, expected)
        np.testing.assert_array_equal(gigaknn.build(lent, index="IVF4,Flat").search(lent[:7], 5, nprobe=4).ids, expected)
        np.testing.assert_array_equal(gigaknn.knn_graph(lent, 5).ids, gigaknn.knn_graph(self.x, 5).ids)

    def test_slices_begin_where_they_begin(self):
        values = pyarrow.array(np.concatenate((np.zeros(5, np.float32), self.x.ravel())))[5:]  # the values have an offset of their own
        whole = pyarrow.FixedSizeListArray.from_arrays(values, 12)
        for begin, end in ((0, 300), (1, 300), (17, 40), (299, 300), (5, 5)):
            self.assert_lent(whole[begin:end], self.x[begin:end])

    def test_lists_that_all_have_one_length(self):
        for kind, array in ((np.int32, pyarrow.ListArray), (np.int64, pyarrow.LargeListArray)):
            whole = array.from_arrays(pyarrow.array(np.arange(0, 3601, 12, dtype=kind)), pyarrow.array(self.x.ravel()))
            self.assert_lent(whole, self.x)
            self.assert_lent(whole[17:40], self.x[17:40])

    def test_lists_of_several_lengths_are_refused_with_the_row(self):
        lists = self.x.tolist()
        lists[20].pop()
        ragged = pyarrow.array(lists, pyarrow.list_(pyarrow.float32()))
        self.assert_refused(gigaknn.InvalidArgument, "x: row 20 has 11 values, row 0 has 12", ragged)
        self.assert_refused(gigaknn.InvalidArgument, "x: row 17 has 11 values, row 0 has 12", ragged[3:])
        self.assert_refused(gigaknn.InvalidArgument, "x: row 320 has 11 values", pyarrow.chunked_array([pyarrow.array(self.x.tolist(), ragged.type), ragged]))

    def test_one_chunk_is_lent_and_more_are_copied(self):
        lent = fixed(self.x)
        self.assert_lent(pyarrow.chunked_array([lent]), self.x)
        self.assert_lent(pyarrow.chunked_array([lent[:0], lent, lent[:0]]), self.x)
        self.assert_copied("x: 2 chunks are copied into one array", pyarrow.chunked_array([lent[:100], lent[100:]]), self.x)
        self.assert_lent(pyarrow.chunked_array([], lent.type), self.x[:0])

    def test_float64_is_copied(self):
        wide = self.x.astype(np.float64)
        self.assert_copied("x: float64 is copied, rounded to float32", fixed(wide), self.x)
        self.assert_copied("into one array, rounded to float32", pyarrow.chunked_array([fixed(wide[:9]), fixed(wide[9:])]), self.x)

    def test_lists_of_nothing_are_refused(self):
        empty = [[]] * 300
        for lent in (pyarrow.array(empty, pyarrow.list_(pyarrow.float32(), 0)), pyarrow.array(empty, pyarrow.list_(pyarrow.float32())), pyarrow.array([], pyarrow.list_(pyarrow.float32()))):
            self.assert_refused(gigaknn.InvalidArgument, "rows have 0 columns, expected at least 1", lent)

    def test_nulls_are_refused_with_the_row(self):
        for size in (12, -1):
            kind = pyarrow.list_(pyarrow.float32(), size)
            lists = self.x.tolist()
            lists[200] = None
            nulls = pyarrow.array(lists, kind)
            self.assert_refused(gigaknn.InvalidData, "x: row 200 is null", nulls)
            self.assert_refused(gigaknn.InvalidData, "x: row 183 is null", nulls[17:])
            self.assert_lent(nulls[17:200], self.x[17:200])
            lists = self.x.tolist()
            lists[200][11] = None
            nulls = pyarrow.array(lists, kind)
            self.assert_refused(gigaknn.InvalidData, "x: row 200 has a null", nulls)
            self.assert_refused(gigaknn.InvalidData, "x: row 183 has a null", nulls[17:])
            self.assert_lent(nulls[201:], self.x[201:])
            self.assert_refused(gigaknn.InvalidData, "x: row 500 has a null", pyarrow.chunked_array([pyarrow.array(self.x.tolist(), kind), nulls]))

    def test_a_null_behind_many_rows(self):
        # More values than one step of the search for nulls has bits.
        values = np.zeros(9_000_000, np.int8)
        valid = np.full(len(values) // 8, 255, np.uint8)
        valid[8_800_000 // 8] = 254
        child = pyarrow.Array.from_buffers(pyarrow.int8(), len(values), [pyarrow.py_buffer(valid), pyarrow.py_buffer(values)])
        lists = pyarrow.FixedSizeListArray.from_arrays(child, 10)
        self.assert_refused(gigaknn.InvalidData, "x: row 880000 has a null", lists)
        self.assert_refused(gigaknn.InvalidData, "x: row 879993 has a null", lists[7:])

    def test_other_values_are_refused(self):
        self.assert_refused(TypeError, "x is of type int32; allowed: float32", fixed(self.x.astype(np.int32)))
        self.assert_refused(TypeError, "x has lists of Arrow's type 'u'", pyarrow.array([["a"], ["b"]]))
        self.assert_refused(gigaknn.InvalidArgument, r"x must be rows, of shape \[n, d\]; got shape \[3600\]", pyarrow.array(self.x.ravel()))

    def test_the_memory_is_kept_and_let_go(self):
        for lend in (lambda lists: lists, lambda lists: pyarrow.chunked_array([lists])):
            gc.collect()
            before = pyarrow.total_allocated_bytes()
            values = pyarrow.array(self.x.ravel().tolist(), pyarrow.float32())  # in memory of pyarrow's own
            index = gigaknn.build(lend(pyarrow.FixedSizeListArray.from_arrays(values, 12)), index="Flat")
            del values
            gc.collect()
            self.assertGreater(pyarrow.total_allocated_bytes(), before)
            np.testing.assert_array_equal(index.search(self.x[:7], 1).ids[:, 0], np.arange(7))
            del index
            gc.collect()
            self.assertEqual(pyarrow.total_allocated_bytes(), before)


@unittest.skipUnless(pandas, "no pandas")
class OfPandas(ArrowCase):
    def test_what_arrow_has_no_type_for_is_told_as_of_numpy(self):
        self.assert_refused(gigaknn.InvalidArgument, r"x must be rows, of shape \[n, d\]; got shape \[3\]", pandas.Series([1, "a", (2, 3)]))

    def test_pyarrow_is_not_needed(self):
        result = run_python(
            """
            import sys
            sys.modules["pyarrow"] = None
            import gigaknn, numpy as np, pandas
            x = np.eye(4, dtype=np.float32)
            frame = pandas.DataFrame(x, copy=False)
            print(gigaknn.knn(frame, frame, 1).ids.ravel())
            try:
                gigaknn.knn(pandas.Series(list(x)), x, 1)
            except gigaknn.InvalidArgument as error:
                print(error)
            """
        )
        self.assertEqual(result.stdout, "[0 1 2 3]\nqueries must be rows, of shape [n, d]; got shape [4]\n", result.stderr)


@unittest.skipUnless(polars, "no polars")
class OfPolars(ArrowCase):
    def test_series_of_arrays(self):
        for dtype in (np.float32, np.uint8, np.int8):
            x = random_rows(300, 12, dtype)
            self.assert_lent(polars.Series(x), x)
            self.assert_lent(polars.Series(x)[17:40], x[17:40])
            self.assert_lent(polars.DataFrame({"key": range(300), "vector": x})["vector"], x)

    def test_series_of_lists(self):
        self.assert_lent(polars.Series(self.x.tolist(), dtype=polars.List(polars.Float32)), self.x)

    def test_chunks_are_copied(self):
        self.assert_copied("x: 2 chunks are copied", polars.concat([polars.Series(self.x[:9]), polars.Series(self.x[9:])], rechunk=False), self.x)

    def test_nulls_are_refused_with_the_row(self):
        lists = self.x.tolist()
        lists[200] = None
        self.assert_refused(gigaknn.InvalidData, "x: row 200 is null", polars.Series(lists, dtype=polars.Array(polars.Float32, 12)))
        lists[200] = [None] * 12
        self.assert_refused(gigaknn.InvalidData, "x: row 200 has a null", polars.Series(lists, dtype=polars.Array(polars.Float32, 12)))

    def test_frames_are_rows_by_their_columns(self):
        self.assert_copied("not dense", polars.from_numpy(self.x), self.x)

    def test_pyarrow_is_not_needed(self):
        result = run_python(
            """
            import sys
            sys.modules["pyarrow"] = None
            import gigaknn, numpy as np, polars
            x = np.eye(4, dtype=np.float32)
            print(gigaknn.knn(polars.Series(x), polars.Series(x), 1).ids.ravel())
            """
        )
        self.assertEqual(result.stdout, "[0 1 2 3]\n", result.stderr)


class OfAnything(ArrowCase):
    def test_a_stream_that_fails_is_told(self):
        import ctypes

        from gigaknn import _arrow

        def fails(stream, out):
            return 5

        reason = ctypes.create_string_buffer(b"it is gone\nreally")

        class Stream:
            def __arrow_c_stream__(self, requested_schema=None):
                kinds = dict(_arrow._Stream._fields_)
                self.kept = _arrow._Stream(
                    kinds["get_schema"](fails), kinds["get_next"](fails), kinds["get_last_error"](lambda stream: ctypes.addressof(reason)), kinds["release"](), None
                )
                new = ctypes.pythonapi.PyCapsule_New
                new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
                return new(ctypes.addressof(self.kept), b"arrow_array_stream", None)

        self.assert_refused(gigaknn.InvalidData, "x: Arrow's stream failed: it is gone really$", Stream())


if __name__ == "__main__":
    unittest.main()
