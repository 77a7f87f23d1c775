"""Estimators, with the real scikit-learn."""

import doctest
import pickle
import unittest
import warnings
from unittest import mock

import numpy as np
from support import clustered_rows, random_rows

try:
    import sklearn  # noqa: F401
except ImportError:
    raise unittest.SkipTest("no scikit-learn") from None
try:
    import pandas
except ImportError:
    pandas = None

import gigaknn.sklearn
from gigaknn import _searcher
from gigaknn.sklearn import KMeans, KNNTransformer, NearestNeighbors
from sklearn import cluster, manifold, neighbors
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator


class Estimators(unittest.TestCase):
    def setUp(self):
        self.x = clustered_rows(600, 8)

    def test_check_estimator(self):
        # As of scikit-learn's own k-means: what is drawn depends on how many rows there are.
        failing = {"check_sample_weight_equivalence_on_dense_data": "a row twice is another set to draw from than a row of weight 2"}
        for estimator in (NearestNeighbors(), KNNTransformer(), KMeans()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for check in check_estimator(estimator, expected_failed_checks=failing if isinstance(estimator, KMeans) else {}, on_fail=None, on_skip=None):
                    self.assertNotEqual(check["status"], "failed", f"{estimator}: {check['check_name']}: {check['exception']}")

    def test_neighbors_as_those_of_sklearn(self):
        for options in ({}, {"metric": "manhattan"}, {"p": 1}, {"metric": "chebyshev"}, {"metric": "cosine"}, {"metric": "sqeuclidean"}):
            ours = NearestNeighbors(n_neighbors=7, radius=0.7, **options).fit(self.x)
            theirs = neighbors.NearestNeighbors(n_neighbors=7, radius=0.7, algorithm="brute", **options).fit(self.x.astype(np.float64))
            for rows, their_rows in ((None, None), (self.x[:20] + 0.01, self.x[:20].astype(np.float64) + 0.01)):
                distances, ids = ours.kneighbors(rows)
                their_distances, their_ids = theirs.kneighbors(their_rows)
                np.testing.assert_allclose(distances, their_distances, rtol=1e-4, atol=1e-4)
                self.assertGreater((ids == their_ids).mean(), 0.99)
                within, their_within = ours.radius_neighbors(rows)[1], theirs.radius_neighbors(their_rows)[1]
                self.assertGreater(np.mean([set(a) == set(b) for a, b in zip(within, their_within)]), 0.97)

    def test_rows_of_zeros_by_cosine_as_those_of_sklearn(self):
        x = np.random.default_rng(0).integers(-2, 3, (60, 2)).astype(np.float32)
        for rows in (x, x[:2] * 0, np.concatenate((x[:1] * 0, [[1, 2]])).astype(np.float32), x[(x != 0).any(axis=1)]):
            zeros = ~rows.any(axis=1)
            queries = np.concatenate((rows[:9] + 0.5, np.zeros((2, 2), np.float32)))
            for radius in (0.5, 1.0, 1.5):
                ours = NearestNeighbors(n_neighbors=len(rows) - 1, radius=radius, metric="cosine").fit(rows)
                theirs = neighbors.NearestNeighbors(n_neighbors=len(rows) - 1, radius=radius, metric="cosine").fit(rows.astype(np.float64))
                for asked, their_asked in ((None, None), (queries, queries.astype(np.float64)), (rows.copy(), rows.astype(np.float64))):
                    distances, ids = ours.kneighbors(asked)
                    np.testing.assert_allclose(distances, theirs.kneighbors(their_asked)[0], atol=1e-6)
                    for row, (d, i) in enumerate(zip(distances, ids)):
                        self.assertEqual(sorted(zip(d, i)), list(zip(d, i)))
                        self.assertEqual(len(set(i)), len(i))
                        self.assertTrue(asked is not None or row not in i)
                        np.testing.assert_array_equal(d[zeros[i]], 1)
                    if radius != 1:  # 1 by rounding, and not by it
                        for d, i, their in zip(*ours.radius_neighbors(asked), theirs.radius_neighbors(their_asked)[1]):
                            self.assertEqual(sorted(zip(d, i)), list(zip(d, i)))
                            self.assertEqual(set(i), set(their))
            k = min(len(rows) - 1, 5)
            ours, theirs = (kind(n_neighbors=k, metric="cosine").fit_transform(rows.astype(np.float64)) for kind in (KNNTransformer, neighbors.KNeighborsTransformer))
            np.testing.assert_allclose(np.sort(ours.data.reshape(len(rows), -1)), np.sort(theirs.data.reshape(len(rows), -1)), atol=1e-6)
            np.testing.assert_array_equal(ours.indices.reshape(len(rows), -1)[:, 0], np.arange(len(rows)))

    def test_all_rows_within_1_of_rows_of_zeros(self):
        rows = np.array([[0, 0], [1, 0], [0, 0]], np.float32)
        distances, ids = NearestNeighbors(radius=1, metric="cosine").fit(rows).radius_neighbors()
        self.assertEqual([list(i) for i in ids], [[1, 2], [0, 2], [0, 1]])
        self.assertEqual([list(d) for d in distances], [[1, 1]] * 3)

    def test_graphs_as_those_of_sklearn(self):
        ours, theirs = NearestNeighbors(n_neighbors=4, radius=0.5).fit(self.x), neighbors.NearestNeighbors(n_neighbors=4, radius=0.5, algorithm="brute").fit(self.x)
        for mode in ("connectivity", "distance"):
            a, b = ours.kneighbors_graph(mode=mode), theirs.kneighbors_graph(mode=mode)
            self.assertLess(abs(a - b).max(), 1e-3)
            a, b = ours.radius_neighbors_graph(mode=mode), theirs.radius_neighbors_graph(mode=mode)
            self.assertLess(abs(a - b).max(), 1e-3)

    def test_what_is_found_may_be_changed(self):
        for metric in ("euclidean", "cosine"):
            for kind in (NearestNeighbors, KNNTransformer):
                estimator = kind(n_neighbors=4, metric=metric).fit(self.x)
                for rows in (None, self.x[:9]):
                    distances, ids = estimator.kneighbors(rows)
                    expected = distances**2
                    distances **= 2
                    ids += 1
                    np.testing.assert_array_equal(distances, expected)
                    for mode in ("connectivity", "distance"):
                        matrix = estimator.kneighbors_graph(rows, mode=mode)
                        same = matrix.toarray()
                        matrix.sort_indices()
                        np.testing.assert_array_equal(matrix.toarray(), same)

    def test_masked_values_are_refused(self):
        masked = np.ma.masked_less(self.x, self.x.mean())
        weights = np.ma.masked_less(np.arange(600.0), 9)
        fitted, transformer, kmeans = NearestNeighbors().fit(self.x), KNNTransformer().fit(self.x), KMeans(3).fit(self.x)
        for call in (
            lambda: NearestNeighbors().fit(masked),
            lambda: KNNTransformer().fit_transform(masked),
            lambda: KMeans(3).fit(masked),
            lambda: fitted.kneighbors(masked),
            lambda: fitted.radius_neighbors(list(masked)),
            lambda: transformer.transform(masked),
            lambda: kmeans.predict(masked),
            lambda: kmeans.transform(masked),
            lambda: kmeans.score(masked),
        ):
            with self.assertRaisesRegex(gigaknn.InvalidArgument, "^X has masked values"):
                call()
        for call in (lambda: KMeans(3).fit(self.x, sample_weight=weights), lambda: kmeans.score(self.x, sample_weight=weights)):
            with self.assertRaisesRegex(gigaknn.InvalidArgument, "^sample_weight has masked values"):
                call()
        NearestNeighbors().fit(np.ma.masked_array(self.x))  # of which nothing is masked

    def test_transformers_as_those_of_sklearn(self):
        for mode in ("connectivity", "distance"):
            for n_neighbors in (1, 6):
                ours = KNNTransformer(n_neighbors=n_neighbors, mode=mode)
                theirs = neighbors.KNeighborsTransformer(n_neighbors=n_neighbors, mode=mode)
                a, b = ours.fit_transform(self.x), theirs.fit_transform(self.x)
                self.assertEqual((a.shape, a.nnz), (b.shape, b.nnz))
                self.assertLess(abs(a - b).max(), 2e-3)
                self.assertLess(abs(ours.transform(self.x[:9]) - theirs.transform(self.x[:9])).max(), 2e-3)

    def test_rows_begin_with_themselves_also_where_there_are_equals(self):
        x = np.repeat(random_rows(20, 4), 5, axis=0)
        matrix = KNNTransformer(n_neighbors=3).fit_transform(x)
        np.testing.assert_array_equal(matrix.indices.reshape(100, 4)[:, 0], np.arange(100))
        np.testing.assert_array_equal(np.diff(matrix.indptr), 4)

    def test_pipelines(self):
        isomap = manifold.Isomap(n_neighbors=12, metric="precomputed")
        ours = make_pipeline(KNNTransformer(n_neighbors=12), isomap).fit_transform(random_rows(200, 3))
        theirs = make_pipeline(neighbors.KNeighborsTransformer(n_neighbors=12), isomap).fit_transform(random_rows(200, 3))
        np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-3)
        tsne = manifold.TSNE(metric="precomputed", init="random", perplexity=5, max_iter=250, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(make_pipeline(KNNTransformer(n_neighbors=20), tsne).fit_transform(random_rows(100, 3)).shape, (100, 2))

    def test_dbscan_of_a_graph(self):
        graph = NearestNeighbors(radius=0.8).fit(self.x).radius_neighbors_graph(mode="distance")
        ours = cluster.DBSCAN(eps=0.8, min_samples=4, metric="precomputed").fit(graph)
        theirs = cluster.DBSCAN(eps=0.8, min_samples=4).fit(self.x)
        np.testing.assert_array_equal(ours.labels_, theirs.labels_)

    def test_kmeans_as_that_of_sklearn(self):
        # scikit-learn's k-means++ tries several rows for each centroid; from random rows both do the same.
        ours, theirs = ([kind(50, init="random", n_init=1, random_state=seed).fit(self.x).inertia_ for seed in range(10)] for kind in (KMeans, cluster.KMeans))
        self.assertLess(np.mean(ours), 1.1 * np.mean(theirs))
        ours, theirs = (kind(50, n_init=20, random_state=0).fit(self.x) for kind in (KMeans, cluster.KMeans))
        self.assertLess(ours.inertia_, 1.2 * theirs.inertia_)
        self.assertGreater(adjusted_rand_score(ours.labels_, theirs.labels_), 0.8)
        np.testing.assert_array_equal(ours.predict(self.x), ours.labels_)
        np.testing.assert_array_equal(ours.transform(self.x).argmin(axis=1), ours.labels_)
        self.assertAlmostEqual(ours.score(self.x), -ours.inertia_)

    def test_kmeans_of_rows_of_zeros_by_cosine(self):
        for x in (self.x.copy(), random_rows(600, 8, np.uint8)):
            x[[0, 300]] = 0
            for weights in (None, np.arange(600)):
                ours = KMeans(5, metric="cosine", random_state=0).fit(x, sample_weight=weights)
                distances = ours.transform(x)
                np.testing.assert_array_equal(distances[[0, 300]], 1)
                np.testing.assert_array_equal(ours.labels_[[0, 300]], 0)
                np.testing.assert_array_equal(ours.labels_, distances.argmin(axis=1))
                np.testing.assert_array_equal(ours.predict(x), ours.labels_)
                self.assertAlmostEqual(ours.inertia_, np.average(distances.min(axis=1), weights=weights) * (600 if weights is None else weights.sum()), delta=1e-5 * ours.inertia_)
                self.assertAlmostEqual(ours.score(x, sample_weight=weights), -ours.inertia_)

    def test_centroids_of_zeros_by_cosine(self):
        for x, inertia in (([[0, 0], [1, 0], [0, 0]], 2), ([[0, 0]] * 3, 3)):
            ours = KMeans(2, metric="cosine").fit(np.array(x, np.float32))
            self.assertFalse(ours.cluster_centers_.any(axis=1).all())  # fewer directions than clusters
            self.assertEqual((ours.labels_.tolist(), ours.inertia_), ([0, 0, 0], inertia))
            queries = np.array([[-1, 0], [1, 0], [0, 1], [0, 0]], np.float32)
            distances = ours.transform(queries)
            np.testing.assert_array_equal(distances[:, ~ours.cluster_centers_.any(axis=1)], 1)
            np.testing.assert_array_equal(ours.predict(queries), distances.argmin(axis=1))
            self.assertEqual(ours.score(queries), -distances.min(axis=1).sum())

    def test_queries_are_of_the_type_that_was_fitted(self):
        for dtype in (np.float32, np.float16, np.uint8, np.int8):
            x = random_rows(200, 4, dtype)
            given = [x, x.tolist(), x.astype(np.float64)]
            if dtype in (np.uint8, np.int8):
                given.append(x.astype(np.int64))
            fitted = [x]
            if pandas:
                given.append(pandas.DataFrame(x))
                fitted.append(pandas.DataFrame(x))
            expected = neighbors.NearestNeighbors(algorithm="brute").fit(x.astype(np.float64)).kneighbors(x[:9].astype(np.float64))[0]
            for rows in fitted:
                ours, transformer = NearestNeighbors().fit(rows), KNNTransformer().fit(rows)
                for queries in given:
                    distances, ids = ours.kneighbors(queries[:9])
                    np.testing.assert_allclose(distances, expected, rtol=1e-3, atol=1e-3)
                    np.testing.assert_array_equal(ours.radius_neighbors(queries[:9], 0)[1][3], np.flatnonzero((x == x[3]).all(axis=1)))
                    self.assertEqual(transformer.transform(queries[:9]).shape, (9, 200))

    def test_queries_that_the_type_does_not_hold_are_refused(self):
        for dtype, value, shown in ((np.uint8, 0.5, "0.5"), (np.uint8, -1, "-1.0"), (np.int8, 300, "300.0"), (np.float16, 1e5, "100000.0"), (np.float16, 2049, "2049.0")):
            ours = NearestNeighbors().fit(np.ones((9, 4), dtype))
            queries = np.ones((3, 4))
            queries[1, 2] = value
            with self.assertRaisesRegex(gigaknn.InvalidArgument, f"^X: row 1, column 2 is {shown}, which {np.dtype(dtype)} does not hold, the type of the rows that were fitted$"):
                ours.kneighbors(queries)
            with self.assertRaisesRegex(gigaknn.InvalidArgument, "X: row 1, column 2 is"):
                ours.kneighbors(queries.tolist())

    def test_pickles(self):
        for estimator in (NearestNeighbors(), KNNTransformer(), KMeans()):
            estimator.fit(self.x)
            if isinstance(estimator, NearestNeighbors):
                estimator.kneighbors(self.x[:3])
            copy = pickle.loads(pickle.dumps(estimator))
            if isinstance(estimator, NearestNeighbors):
                np.testing.assert_array_equal(copy.kneighbors(self.x[:3])[1], estimator.kneighbors(self.x[:3])[1])
            else:
                self.assertEqual(abs(copy.transform(self.x[:3]) - estimator.transform(self.x[:3])).max(), 0)

    def test_a_recall(self):
        x = clustered_rows(12000, 8)
        exact, found = NearestNeighbors().fit(x), NearestNeighbors(recall=0.9, random_state=1).fit(x)
        for rows in (None, x[:500]):
            same = np.mean([len(np.intersect1d(a, b)) for a, b in zip(exact.kneighbors(rows, return_distance=False), found.kneighbors(rows, 5, return_distance=False))]) / 5
            self.assertGreater(same, 0.8)

    def test_no_list_is_short_where_a_recall_would_leave_some_so(self):
        """Of a graph whose lists are cut, and an index that finds too few rows."""
        x, k = clustered_rows(10000, 8), 300
        queries = x[:9] + 0.01
        for metric in ("euclidean", "cosine"):
            exact = NearestNeighbors(n_neighbors=k, metric=metric).fit(x)
            expected = [exact.kneighbors(rows) for rows in (None, queries)]
            cut = expected[0][1].copy()
            cut[::7, 3:] = -1
            graph = gigaknn.KnnGraph.from_arrays(expected[0][0], cut, metric=metric)
            few = gigaknn.build(x, index="IVF2000,Flat", metric=metric, iterations=1)
            self.assertTrue((few.search(queries, k).ids[:, -1] == -1).all())
            with mock.patch.object(_searcher, "knn_graph", lambda *_, **__: graph), mock.patch.object(_searcher.Searcher, "index_for", lambda *_: few):
                ours = KNNTransformer(n_neighbors=k, metric=metric, recall=0.9).fit(x)
                for rows, (distances, ids) in zip((None, queries), expected):
                    np.testing.assert_array_equal(ours.kneighbors(rows)[1], ids)
                    matrix = ours.kneighbors_graph(rows, mode="distance")
                    np.testing.assert_array_equal(np.diff(matrix.indptr), k)
                    np.testing.assert_array_equal(matrix.indices.reshape(-1, k), ids)
                    np.testing.assert_array_equal(matrix.data.reshape(-1, k), distances)
                np.testing.assert_array_equal(ours.transform(queries).indices.reshape(-1, k + 1)[:, :k], expected[1][1])
                np.testing.assert_array_equal(ours.fit_transform(x).indices.reshape(-1, k + 1)[:, 1:], expected[0][1])

    def test_wrong_arguments(self):
        for estimator, text in (
            (NearestNeighbors(metric="haversine"), "metric must be one of"),
            (NearestNeighbors(p=3), "p must be 1, 2 or inf"),
            (NearestNeighbors(recall=0), "recall must be above 0"),
            (NearestNeighbors(n_jobs=0), "n_jobs must be"),
            (KNNTransformer(mode="speed"), "mode must be distance or connectivity"),
            (KMeans(init="middle"), "init must be"),
            (KMeans(2, init=self.x[:2]), "init must be k-means\\+\\+ or random: gigaknn begins with no centroids"),
            (KMeans(max_iter=0), "max_iter must be at least 1, got 0"),
            (KMeans(n_init=0), "n_init must be at least 1, or auto, got 0"),
            (KMeans(tol=-1), "tol must be at least 0"),
            (NearestNeighbors(n_neighbors=-1), "n_neighbors must be at least 1, got -1"),
            (KNNTransformer(algorithm="tree"), "algorithm must be one of auto, brute"),
            (KMeans(metric="l1"), "metric must be euclidean or cosine"),
            (KMeans(1000), "n_samples=600 should be >= n_clusters=1000"),
        ):
            with self.assertRaisesRegex(gigaknn.InvalidArgument, text) as caught:
                estimator.fit(self.x)
            self.assertNotIn("\n", str(caught.exception))
        with self.assertRaisesRegex(ValueError, "Expected n_neighbors < n_samples_fit"):
            NearestNeighbors(n_neighbors=600).fit(self.x).kneighbors()

    def test_arguments_of_sklearn_that_change_nothing(self):
        expected = NearestNeighbors().fit(self.x).kneighbors()
        for algorithm in ("auto", "brute", "kd_tree", "ball_tree"):
            np.testing.assert_array_equal(NearestNeighbors(algorithm=algorithm).fit(self.x).kneighbors(), expected)
            KNNTransformer(algorithm=algorithm).fit(self.x)
        np.testing.assert_array_equal(KMeans(5, tol=0.1).fit(self.x).labels_, KMeans(5).fit(self.x).labels_)

    def test_runs_of_kmeans(self):
        for init, runs in (("k-means++", 1), ("random", 10)):
            np.testing.assert_array_equal(KMeans(20, init=init, n_init="auto").fit(self.x).labels_, KMeans(20, init=init, n_init=runs).fit(self.x).labels_)

    def test_neighbors_of_a_transformer(self):
        ours, theirs = (kind(n_neighbors=4).fit(self.x) for kind in (KNNTransformer, neighbors.KNeighborsTransformer))
        for rows in (None, self.x[:5] + 0.01):
            np.testing.assert_allclose(ours.kneighbors(rows, 3)[0], theirs.kneighbors(rows, 3)[0], atol=1e-4)
            self.assertLess(abs(ours.kneighbors_graph(rows, mode="distance") - theirs.kneighbors_graph(rows, mode="distance")).max(), 1e-3)

    def test_jobs_as_joblib_counts_them(self):
        with mock.patch.object(gigaknn.sklearn, "available_threads", lambda: 8):
            self.assertEqual([gigaknn.sklearn._threads_of(jobs) for jobs in (None, -1, -2, -8, -20, 3)], [None, None, 7, 1, 1, 3])
        NearestNeighbors(n_jobs=-2).fit(self.x).kneighbors()

    def test_examples(self):
        self.assertEqual(doctest.testmod(gigaknn.sklearn, verbose=False).failed, 0)

    def test_arguments_of_scikit_learn_are_taken(self):
        for estimator in (NearestNeighbors(leaf_size=5, metric_params={}), KNNTransformer(leaf_size=5, metric_params=None)):
            estimator.fit(self.x)
        KMeans(2, verbose=1, copy_x=False, algorithm="elkan").fit(self.x)
        NearestNeighbors(n_neighbors=None, radius=1.0).fit(self.x).radius_neighbors(self.x[:1])
        with self.assertRaisesRegex(gigaknn.Unsupported, "metric_params"):
            NearestNeighbors(metric_params={"w": [1]}).fit(self.x)
        with self.assertRaisesRegex(gigaknn.InvalidArgument, "lloyd or elkan"):
            KMeans(2, algorithm="full").fit(self.x)


if __name__ == "__main__":
    unittest.main()
