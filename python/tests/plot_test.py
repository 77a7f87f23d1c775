"""Pictures: what is drawn, read from the artists."""

import unittest

import gigaknn
import numpy as np
from support import clustered_rows, run_python

try:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
except ImportError:
    matplotlib = None

from gigaknn import plot


@unittest.skipUnless(matplotlib, "no matplotlib")
class Pictures(unittest.TestCase):
    def setUp(self):
        self.x = clustered_rows(600, 12)
        self.addCleanup(pyplot.close, "all")

    def test_a_curve_of_recall(self):
        index = gigaknn.build(self.x, index="IVF16,Flat")
        with self.assertRaisesRegex(gigaknn.InvalidArgument, "the index has no curve of recall"):
            plot.recall_curve(index)
        curve = index.measure(self.x[:50], k=5, seconds=1)
        ax = plot.recall_curve(index)
        (line,) = ax.lines
        np.testing.assert_allclose(line.get_xydata(), [(point.recall, 1 / point.seconds) for point in curve])
        self.assertEqual((ax.get_xlabel(), ax.get_ylabel(), ax.get_yscale(), ax.get_legend()), ("recall@5", "queries a second", "log", None))

    def test_curves_of_several_indexes(self):
        indexes = {name: gigaknn.build(self.x, index=name) for name in ("IVF16,Flat", "IVF8,PQ4,RFlat")}
        for index in indexes.values():
            index.measure(self.x[:50], k=5, seconds=1)
        figure, ax = pyplot.subplots()
        self.assertIs(plot.recall_curve({**indexes, "again": indexes["IVF16,Flat"].curve}, ax=ax), ax)
        self.assertEqual([text.get_text() for text in ax.get_legend().get_texts()], ["IVF16,Flat", "IVF8,PQ4,RFlat", "again"])
        np.testing.assert_array_equal(ax.lines[0].get_xydata(), ax.lines[2].get_xydata())
        self.assertEqual(len(pyplot.get_fignums()), 1)

    def test_statistics_of_a_graph(self):
        graph = gigaknn.knn_graph(self.x, 6)
        degrees, ranks, text = plot.graph_statistics(graph).axes
        in_degree = np.bincount(graph.ids.ravel(), minlength=600)
        bars = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in degrees.patches}
        self.assertEqual({degree: rows for degree, rows in bars.items() if rows}, dict(zip(*np.unique(in_degree, return_counts=True))))
        np.testing.assert_allclose(ranks.lines[0].get_ydata(), np.median(graph.distances, axis=0), rtol=1e-6)
        np.testing.assert_array_equal(ranks.lines[0].get_xdata(), np.arange(1, 7))
        upper = max(ranks.collections[0].get_paths()[0].vertices[:, 1])
        self.assertAlmostEqual(upper, np.percentile(graph.distances, 95, axis=0).max(), places=4)
        (shown,) = text.texts
        self.assertRegex(shown.get_text(), rf"rows +600\nk +6\nrecall +1.0000\nmissing entries +0\ncomponents +{graph.report()['components']}\n")

    def test_the_largest_hub_is_drawn(self):
        for n in (100, 123, 182, 200, 301):  # rows around one that all others name
            directions = np.random.default_rng(0).normal(size=(n - 1, 256)).astype(np.float32)
            hub = np.zeros((1, 256), np.float32)
            x = np.concatenate((hub, directions / np.linalg.norm(directions, axis=1, keepdims=True)))
            graph = gigaknn.knn_graph(x, 1)
            in_degree = np.bincount(graph.ids.ravel(), minlength=n)
            self.assertEqual(in_degree[0], n - 1)
            degrees = plot.graph_statistics(graph, figure=pyplot.figure()).axes[0]
            self.assertEqual(sum(bar.get_height() for bar in degrees.patches), n)
            last = degrees.patches[-1]
            self.assertEqual(last.get_height(), 1)
            self.assertTrue(last.get_x() < n - 1 < last.get_x() + last.get_width())

    def test_statistics_of_a_graph_with_missing_entries(self):
        graph = gigaknn.knn_graph(self.x, 6, labels=np.arange(600) // 4)  # three others of a label
        figure = plot.graph_statistics(graph, figure=pyplot.figure())
        np.testing.assert_array_equal(figure.axes[1].lines[0].get_xdata(), [1, 2, 3])
        self.assertIn("missing entries   1,800", figure.axes[2].texts[0].get_text())

    def test_statistics_of_distances_that_are_infinite(self):
        x = self.x.copy()
        x[:200] = 0  # far from every row, by cosine
        ranks = plot.graph_statistics(gigaknn.knn_graph(x, 5, metric="cosine"), figure=pyplot.figure()).axes[1]
        for band in ranks.collections:
            self.assertTrue(np.isfinite(band.get_paths()[0].vertices).all())
        nothing = gigaknn.knn_graph(self.x[:40], 5, labels=np.arange(40))
        self.assertIn("missing entries   200", plot.graph_statistics(nothing, figure=pyplot.figure()).axes[2].texts[0].get_text())

    def test_a_gallery_of_a_graph(self):
        graph = gigaknn.knn_graph(self.x, 4)
        axes = np.reshape(plot.gallery(self.x, graph, [5, 9], shape=(3, 4)).axes, (2, 5))
        for line, row in zip(axes, (5, 9)):
            for ax, image in zip(line, (row, *graph.ids[row])):
                np.testing.assert_array_equal(ax.images[0].get_array(), self.x[image].reshape(3, 4))
            self.assertEqual([ax.get_title() for ax in line], [f"row {row}", *(f"{d:.4g}" for d in graph.distances[row])])

    def test_a_gallery_of_a_search(self):
        images = (self.x * 10).astype(np.uint8).reshape(-1, 2, 2, 3)
        found = gigaknn.knn(self.x[:3], self.x[:4], 6, keys=list("abcd"))
        axes = np.reshape(plot.gallery(images[:4], found, [2], queries=images[100:103], count=5).axes, (1, 6))[0]
        np.testing.assert_array_equal(axes[0].images[0].get_array(), images[102])
        self.assertEqual(axes[0].get_title(), "query 2")
        self.assertEqual([ax.get_title() for ax in axes[1:]], [*found.keys[2, :4], ""])
        self.assertEqual([len(ax.images) for ax in axes], [1, 1, 1, 1, 1, 0])

    def test_wrong_arguments(self):
        graph = gigaknn.knn_graph(self.x, 4)
        for call, error, text in (
            (lambda: plot.gallery(self.x, graph), ValueError, r"images must be \[n, height, width\].*got shape \[600, 12\]"),
            (lambda: plot.gallery(self.x, graph, shape=(5, 5)), ValueError, r"images of shape \[600, 12\] are not images of shape \(5, 5\)"),
            (lambda: plot.gallery(self.x, graph, [600], shape=(3, 4)), ValueError, "rows must be some from 0 to 599, got"),
            (lambda: plot.gallery(self.x[:20], graph, [0], shape=(3, 4)), ValueError, "there are 20 images, and a neighbour is row"),
            (lambda: plot.gallery(self.x, graph, [0], shape=(3, 4), count=0), ValueError, "count must be at least 1"),
            (lambda: plot.graph_statistics([]), TypeError, "graph must be a KnnGraph, got list"),
            (lambda: plot.recall_curve({"a": []}), ValueError, "'a' has no curve"),
        ):
            with self.assertRaisesRegex(error, text):
                call()


class WithoutMatplotlib(unittest.TestCase):
    def test_it_is_imported_by_the_first_picture(self):
        result = run_python(
            """
            import sys
            sys.modules["matplotlib"] = None
            import gigaknn.plot, numpy as np
            try:
                gigaknn.plot.graph_statistics(gigaknn.knn_graph(np.eye(5, dtype="f4"), 2))
            except ImportError as error:
                print(error)
            """
        )
        self.assertEqual(result.stdout, "gigaknn.plot needs matplotlib (pip install matplotlib)\n", result.stderr)


if __name__ == "__main__":
    unittest.main()
