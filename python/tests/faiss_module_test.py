"""gigaknn.faiss by itself; python/dropins compare it with the real one."""

import unittest

import gigaknn.faiss as faiss
import numpy as np
from support import random_rows


class Faiss(unittest.TestCase):
    def setUp(self):
        self.x = random_rows(400, 8)
        self.flat = faiss.IndexFlatL2(8)
        self.flat.add(self.x)

    def test_assign_has_a_column_for_each_neighbour(self):
        """As faiss-cpu 1.15.1; that of Kmeans is flat there, too."""
        inverted = faiss.index_factory(8, "IVF4,Flat")
        inverted.train(self.x)
        inverted.add(self.x)
        for index in (self.flat, inverted):
            for k in (1, 3):
                labels = index.assign(self.x[:5], k)
                self.assertEqual((labels.shape, labels.dtype), ((5, k), np.int64))
                given = np.zeros((5, k), np.int64)
                self.assertIs(index.assign(self.x[:5], k, given), given)
                np.testing.assert_array_equal(given, labels)
        kmeans = faiss.Kmeans(8, 4)
        kmeans.train(self.x)
        self.assertEqual([found.shape for found in kmeans.assign(self.x[:5])], [(5,), (5,)])


if __name__ == "__main__":
    unittest.main()
