"""knn, radius_search, duplicates, recall, and k-means."""

import unittest

import gigaknn
import numpy as np
from support import clustered_rows, random_rows, true_neighbors


class Searches(unittest.TestCase):
    def setUp(self):
        self.x = random_rows(500, 16)

    def test_knn_is_exact(self):
        distances, ids = gigaknn.knn(self.x[:20], self.x, 10)
        true_distances, true_ids = true_neighbors(self.x[:20], self.x, 10)
        np.testing.assert_array_equal(ids, true_ids)
        np.testing.assert_array_equal(distances, true_distances.astype(np.float32))

    def test_the_same_bits_on_every_device_and_for_any_number_of_threads(self):
        expected = gigaknn.knn(self.x[:20], self.x, 10)
        devices = [{"device": device} for device in gigaknn.devices()]
        for options in ({"threads": 1}, {"threads": 3}, {"memory": "64MiB"}, *devices):
            found = gigaknn.knn(self.x[:20], self.x, 10, **options)
            np.testing.assert_array_equal(found.ids, expected.ids)
            np.testing.assert_array_equal(found.distances, expected.distances)

    def test_ids_are_missing_where_there_are_fewer_rows(self):
        distances, ids = gigaknn.knn(self.x[:2], self.x[:3], 5)
        self.assertTrue((ids[:, 3:] == -1).all() and np.isinf(distances[:, 3:]).all())
        self.assertTrue((gigaknn.knn(self.x[:2], self.x[:3], 5, metric="inner_product").distances[:, 3:] == -np.inf).all())

    def test_all_metrics(self):
        a, b = self.x[:4].astype(np.float64), self.x.astype(np.float64)
        difference = a[:, None] - b[None]
        expected = {
            "l2": (difference**2).sum(2),
            "euclidean": np.sqrt((difference**2).sum(2)),
            "l1": np.abs(difference).sum(2),
            "linf": np.abs(difference).max(2),
            "cosine": 1 - (a @ b.T) / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1),
            "inner_product": a @ b.T,
        }
        for metric, values in expected.items():
            order = -values if metric == "inner_product" else values
            nearest = np.take_along_axis(values, np.argsort(order, axis=1)[:, :5], axis=1)
            np.testing.assert_allclose(gigaknn.knn(self.x[:4], self.x, 5, metric=metric).distances, nearest, rtol=1e-5, atol=1e-6)
        self.assertLessEqual(set(expected), set(gigaknn.metrics()))

    def test_radius_search(self):
        offsets, distances, ids = gigaknn.radius_search(self.x[:5], self.x, 1.5)
        values = ((self.x[:5, None].astype(np.float64) - self.x[None]) ** 2).sum(2)
        for i in range(5):
            self.assertEqual(set(ids[offsets[i] : offsets[i + 1]]), set(np.flatnonzero(values[i] <= 1.5)))
        self.assertTrue((distances <= 1.5).all())

    def test_duplicates(self):
        x = np.concatenate((self.x[:10], self.x[3:5]))
        np.testing.assert_array_equal(gigaknn.duplicates(x, 0), [*range(10), 3, 4])

    def test_recall(self):
        truth = gigaknn.knn(self.x[:20], self.x, 10)
        spoiled = truth.ids.copy()
        spoiled[:, 9] = -1
        found = gigaknn.recall(spoiled, truth.ids)
        self.assertAlmostEqual(found, 0.9)
        self.assertEqual((found.low, found.high), (found, found))  # all queries were looked at
        self.assertEqual((found.at, found.sampled), (10, 20))
        self.assertEqual(gigaknn.recall(spoiled, truth.ids, 5), 1)

    def test_of_equals_any_is_a_hit_where_distances_are_given(self):
        arguments = [[0, 2]], [[0, 1]]
        self.assertEqual(gigaknn.recall(*arguments), 0.5)
        self.assertEqual(gigaknn.recall(*arguments, distances=[[0.0, 1.0]], truth_distances=[[0.0, 1.0]]), 1)

    def test_wrong_recalls_are_refused(self):
        for call, error, text in (
            (lambda: gigaknn.recall([[0]], [[0], [1]]), ValueError, "of the same queries"),
            (lambda: gigaknn.recall([0], [[0]]), ValueError, "ids must have 2 dimensions"),
            (lambda: gigaknn.recall([[0.5]], [[0]]), TypeError, "ids must be whole numbers"),
            (lambda: gigaknn.recall([[0]], [[0]], 2), ValueError, r"must be in \[1, 1\]"),
            (lambda: gigaknn.recall([[0]], [[0]], distances=[[0.0]]), ValueError, "come together"),
        ):
            with self.assertRaisesRegex(error, text):
                call()

    def test_wrong_arguments_are_told_in_one_line(self):
        for options, error, text in (
            ({"k": 0}, gigaknn.InvalidArgument, "k must be >= 1, got 0"),
            ({"k": 2.5}, TypeError, "k must be a whole number, got 2.5"),
            ({"metric": "l3"}, ValueError, "unknown metric 'l3'"),
            ({"metric": 3}, TypeError, "metric must be a string, got 3"),
            ({"device": "abacus"}, RuntimeError, "no device 'abacus'"),
            ({"threads": 0}, ValueError, "threads must be at least 1, got 0"),
            ({"memory": "many"}, ValueError, "memory must be a number of bytes"),
            ({"memory": "1KB"}, MemoryError, "a budget of 1000 bytes is too small"),
            ({"progress": 3}, TypeError, "progress must be True, False or callable"),
        ):
            with self.assertRaisesRegex(error, text) as caught:
                gigaknn.knn(self.x[:2], self.x, **options)
            self.assertNotIn("\n", str(caught.exception))
            self.assertIsInstance(caught.exception, TypeError if error is TypeError else gigaknn.Error)

    def test_values_that_cannot_be_used_are_refused(self):
        self.x[3, 2] = np.nan
        with self.assertRaisesRegex(gigaknn.InvalidData, "row 3, column 2"):
            gigaknn.knn(self.x[:2], self.x)
        self.assertNotIn(3, gigaknn.knn(self.x[:2], self.x, allow_nonfinite=True).ids)

    def test_sizes(self):
        from gigaknn._arguments import bytes_of

        self.assertEqual([bytes_of(size) for size in (None, 5, "5", "2k", "2KiB", "2kb", "1.5 GiB", "1e9")], [0, 5, 5, 2048, 2048, 2000, 3 << 29, 10**9])


class KMeans(unittest.TestCase):
    def setUp(self):
        self.x = clustered_rows(2000, 8)

    def test_labels_are_the_nearest_centroids(self):
        found = gigaknn.kmeans(self.x, 20, seed=3)
        distances, labels = true_neighbors(self.x, found.centroids, 1)
        np.testing.assert_array_equal(found.labels, labels[:, 0])
        np.testing.assert_array_equal(found.distances, distances[:, 0].astype(np.float32))
        self.assertEqual((found.centroids.shape, found.centroids.dtype, found.trained_rows), ((20, 8), np.float32, 2000))
        objectives = [r.objective for r in found.rounds]
        self.assertEqual(objectives, sorted(objectives, reverse=True))

    def test_the_seed_decides(self):
        a, b, c = (gigaknn.kmeans(self.x, 20, seed=seed, threads=threads).centroids for seed, threads in ((1, 1), (1, 2), (2, 2)))
        np.testing.assert_array_equal(a, b)
        self.assertFalse((a == c).all())

    def test_options(self):
        self.assertIsNone(gigaknn.kmeans(self.x, 5, labels=False).labels)
        lengths = np.linalg.norm(gigaknn.kmeans(self.x, 5, metric="cosine", start="plus-plus").centroids, axis=1)
        np.testing.assert_allclose(lengths, 1, rtol=1e-5)
        weights = np.zeros(2000)
        weights[:10] = 1
        centroid = gigaknn.kmeans(self.x, 1, weights=weights).centroids[0]
        np.testing.assert_allclose(centroid, self.x[:10].mean(axis=0), rtol=1e-5)
        distances, ids = gigaknn.kmeans(self.x, 5).predict(self.x[:3])
        self.assertEqual((distances.shape, ids.shape), ((3,), (3,)))

    def test_wrong_arguments(self):
        for options, error, text in (
            ({"clusters": 3000}, ValueError, "3000"),
            ({"start": "middle"}, ValueError, "start must be random or plus-plus"),
            ({"levels": 3}, ValueError, "levels must be 1, 2 or None"),
            ({"weights": [1.0]}, ValueError, "weights must be one for each of the 2000 rows"),
            ({"metric": "l1"}, NotImplementedError, "l1"),
            ({"seed": -1}, ValueError, "seed must be from 0"),
            ({"iterations": -1}, ValueError, "iterations must be at least 0"),
        ):
            with self.assertRaisesRegex(error, text):
                gigaknn.kmeans(self.x, **{"clusters": 4, **options})


if __name__ == "__main__":
    unittest.main()
