"""Types, as mypy sees them in scripts of users."""

import importlib.util
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

_good = '''
    import gigaknn
    import gigaknn.faiss as faiss
    import numpy as np
    from gigaknn.sklearn import KMeans, KNNTransformer, NearestNeighbors

    x = np.random.default_rng(0).random((500, 8), dtype=np.float32)
    distances, ids = gigaknn.knn(x[:5], x, k=3, metric="cosine", memory="1GiB", progress=lambda stage, done, total: None)
    nearest: int = int(ids[0, 0]) + int(distances.argmin())
    named = gigaknn.knn(x[:5], "rows.npy", keys=[str(i) for i in range(500)], threads=2)
    print(named.keys[:, 0], named.ids.shape)
    offsets, within, found = gigaknn.radius_search(x, x, 0.5)
    graph = gigaknn.knn_graph(x, k=np.int64(5), recall=0.95)
    if graph.recall is not None:
        print(float(graph.recall), graph.recall.low, graph.report()["rows"], graph.method)
    path = graph.path(1, 2)
    if path is not None:
        print(path.rows, path.largest_step)
    more: gigaknn.KnnGraph = graph.extend(x[:3])
    embedding_ids, embedding_distances = more.to_umap()
    index = gigaknn.build(x, recall=0.9, k=5)
    index.add(x[:2], keys=None)
    print(index.search(x, 3, nprobe=4).ids.sum(), index.shape[0], index.measure(x[:9])[0].recall)
    index.save("x.gknn")
    with_ids: gigaknn.Index = gigaknn.open("x.gknn", map=True)
    clusters = gigaknn.kmeans(x, 20, seed=1)
    print(clusters.centroids.mean(), clusters.predict(x)[1], gigaknn.nearest_centroids(x, clusters.centroids)[0])
    print(float(gigaknn.recall(ids, ids)), gigaknn.duplicates(x, 0.1), gigaknn.read_vectors(["a.npy", "b.npy"]).shape)
    print(gigaknn.radius_graph(x, 1).offsets, gigaknn.devices(), gigaknn.to_device(x, "emulated").shape)
    print(gigaknn.NNDescent(x, n_neighbors=5).query(x[:2], k=2)[0])
    print(KNNTransformer(n_neighbors=5).fit(x).transform(x), NearestNeighbors(metric="cosine").fit(x).kneighbors(x))
    print(KMeans(5, n_init=2).fit(x).predict(x), gigaknn.faiss.METRIC_L2, gigaknn.sklearn.KMeans)
    print(gigaknn.plot.graph_statistics(graph), gigaknn.plot.gallery(x, graph, rows=[0], shape=(2, 4)))
    flat = faiss.IndexFlatL2(8)
    flat.add(x)
    D, I = flat.search(x, 3, params=faiss.SearchParameters(sel=faiss.IDSelectorRange(0, 9)))
    means = faiss.Kmeans(8, 4, niter=5)
    print(D.max(), I.min(), faiss.index_factory(8, "IVF4,Flat").nprobe, means.train(x), means.centroids.shape)
'''
_bad = (
    ('gigaknn.knn(x, x, k="x")', 'Argument "k" to "knn"'),
    ("gigaknn.knn(x, x, metric=3)", 'Argument "metric" to "knn"'),
    ("gigaknn.knn_graph(x, 2.5)", 'Argument 2 to "knn_graph"'),
    ('gigaknn.build(x, recall="high")', 'Argument "recall" to "build"'),
    ("gigaknn.kmeans(x)", 'Missing positional argument "clusters"'),
    ("gigaknn.knnn(x, x)", 'Module has no attribute "knnn"'),
    ("gigaknn.open(3)", 'Argument 1 to "open"'),
    ("gigaknn.radius_search(x, x, None)", 'Argument 3 to "radius_search"'),
    ("gigaknn.knn(x, x, progress=3)", 'Argument "progress" to "knn"'),
    ("gigaknn.build(x).serach(x)", '"Index" has no attribute "serach"'),
    ('gigaknn.NNDescent(x, n_neighbors="5")', 'Argument "n_neighbors" to "NNDescent"'),
    ('gigaknn.faiss.IndexFlatL2("5")', 'Argument 1 to "IndexFlatL2"'),
    ('gigaknn.sklearn.KMeans("5")', 'Argument 1 to "KMeans"'),
)


@unittest.skipUnless(importlib.util.find_spec("mypy") and importlib.util.find_spec("sklearn"), "no mypy, or no scikit-learn")
class Types(unittest.TestCase):
    def told(self, script):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "script.py").write_text(script)
            command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", f"{folder}/cache", "--no-error-summary", "script.py"]
            return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout

    def test_a_script_without_faults(self):
        self.assertEqual(self.told(textwrap.dedent(_good)), "")

    def test_faults_are_told(self):
        head = ["import gigaknn, numpy as np", "x = np.zeros((9, 2), np.float32)"]
        told = self.told("\n".join(head + [line for line, _ in _bad]) + "\n")
        for number, (line, text) in enumerate(_bad, len(head) + 1):
            with self.subTest(line):
                self.assertRegex(told, rf"script.py:{number}: error: {re.escape(text)}")


if __name__ == "__main__":
    unittest.main()
