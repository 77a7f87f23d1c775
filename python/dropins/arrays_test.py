"""Arrays of real libraries, which are taken by DLPack where they are."""

import importlib.util
import unittest
import warnings

import gigaknn
import numpy as np
from gigaknn._arguments import rows


class Arrays(unittest.TestCase):
    def setUp(self):
        self.x = np.random.default_rng(0).integers(-50, 50, size=(300, 16)).astype(np.float32)  # of every type the same numbers

    def assert_taken_as_it_is(self, array, address):
        """Not copied, and found in what NumPy's array of these numbers has."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", gigaknn.CopyWarning)
            found = gigaknn.knn(array[:7], array, 5)
            self.assertEqual(rows(array, "x").numpy().ctypes.data, address)
        expected = gigaknn.knn(self.x[:7], self.x, 5)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.distances, expected.distances)

    def test_jax(self):
        import jax
        import jax.numpy as jnp

        self.assertEqual(jax.default_backend(), "cpu")
        for dtype in (jnp.float32, jnp.float16, jnp.bfloat16, jnp.int8):
            with self.subTest(dtype.__name__):
                array = jnp.asarray(self.x, dtype=dtype)
                self.assert_taken_as_it_is(array, array.unsafe_buffer_pointer())

    def test_torch(self):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("torch is not installed")
        import torch

        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int8):
            with self.subTest(str(dtype)):
                tensor = torch.tensor(self.x.tolist(), dtype=dtype)
                self.assert_taken_as_it_is(tensor, tensor.data_ptr())
                wide = torch.zeros((300, 40), dtype=dtype)
                wide[:, 8:24] = tensor
                self.assert_taken_as_it_is(wide[:, 8:24], wide.data_ptr() + 8 * wide.element_size())
        tensor = torch.tensor(self.x.T.tolist(), dtype=torch.bfloat16).T
        with self.assertWarnsRegex(gigaknn.CopyWarning, "queries: rows that are not dense"):
            np.testing.assert_array_equal(gigaknn.knn(tensor, tensor, 1).ids[:, 0], np.arange(300))


if __name__ == "__main__":
    unittest.main()
