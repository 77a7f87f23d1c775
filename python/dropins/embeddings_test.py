"""Graphs of gigaknn in UMAP, scanpy and openTSNE, beside these with their own neighbours."""

import unittest
import warnings

import gigaknn
import numpy as np
from sklearn.manifold import trustworthiness

warnings.simplefilter("ignore")  # of the other libraries among themselves


def images(most):
    """As many of Fashion-MNIST's, drawn: of Debian's package dataset-fashion-mnist (tools/install_packages)."""
    all_of_them = gigaknn.read_vectors("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
    return np.array(all_of_them[np.sort(np.random.default_rng(0).choice(len(all_of_them), most, replace=False))], np.float32)


class Embeddings(unittest.TestCase):
    def test_umap(self):
        import umap
        from pynndescent import NNDescent

        x = images(10_000)
        graphs = {"gigaknn": gigaknn.knn_graph(x, 14).to_umap(), "pynndescent": NNDescent(x, n_neighbors=15, random_state=0).neighbor_graph}
        trust = {}
        for name, graph in graphs.items():
            embedding = umap.UMAP(n_neighbors=15, precomputed_knn=graph, random_state=0, n_epochs=200).fit_transform(x)
            trust[name] = trustworthiness(x, embedding, n_neighbors=15)
        print(f"trustworthiness of UMAP: {trust}")
        self.assertLess(abs(trust["gigaknn"] / trust["pynndescent"] - 1), 0.01)

    def test_umap_places_new_rows(self):
        import umap
        from pynndescent import NNDescent

        x = images(1500)
        x, new = x[:1200], x[1200:]
        trust = {}
        for kind in (gigaknn.NNDescent, NNDescent):
            index = kind(x, n_neighbors=15, random_state=0)
            reducer = umap.UMAP(n_neighbors=15, precomputed_knn=(*index.neighbor_graph, index), random_state=0, n_epochs=200).fit(x)
            placed = reducer.transform(new)
            trust[kind.__module__] = trustworthiness(np.concatenate((x, new)), np.concatenate((reducer.embedding_, placed)), n_neighbors=15)
        print(f"trustworthiness with rows that UMAP placed: {trust}")
        ours, theirs = trust.values()
        self.assertLess(abs(ours / theirs - 1), 0.01)
        # The graph alone answers no queries.
        reducer = umap.UMAP(n_neighbors=15, precomputed_knn=gigaknn.knn_graph(x, 14).to_umap(), random_state=0, n_epochs=10).fit(x)
        with self.assertRaisesRegex(NotImplementedError, "No search index"):
            reducer.transform(new)

    def test_scanpy(self):
        import anndata
        import scanpy
        from gigaknn.sklearn import KNNTransformer

        x = images(1500)
        ours, theirs = anndata.AnnData(x.copy()), anndata.AnnData(x.copy())
        scanpy.pp.neighbors(ours, n_neighbors=15, use_rep="X", transformer=KNNTransformer(n_neighbors=15))
        scanpy.pp.neighbors(theirs, n_neighbors=15, use_rep="X", transformer="sklearn")
        a, b = ours.obsp["connectivities"].tocsr(), theirs.obsp["connectivities"].tocsr()
        self.assertEqual((a != 0).nnz, (b != 0).nnz)
        self.assertEqual(((a != 0) != (b != 0)).nnz, 0)
        self.assertLess(abs(a - b).max(), 1e-3)

    def test_opentsne(self):
        from openTSNE import TSNE
        from openTSNE.affinity import PerplexityBasedNN
        from openTSNE.nearest_neighbors import PrecomputedNeighbors

        x = images(1500)
        ids, distances = gigaknn.knn_graph(x, 90).to_umap()
        affinities = {
            "gigaknn": PerplexityBasedNN(perplexity=30, knn_index=PrecomputedNeighbors(ids[:, 1:], distances[:, 1:])),
            "openTSNE": PerplexityBasedNN(x, perplexity=30, method="exact", random_state=0),
        }
        divergence = {}
        for name, affinity in affinities.items():
            start = np.random.default_rng(0).normal(scale=1e-4, size=(len(x), 2))
            divergence[name] = TSNE(random_state=0, n_jobs=1).fit(affinities=affinity, initialization=start).kl_divergence
        print(f"KL divergence of t-SNE: {divergence}")
        self.assertLess(abs(divergence["gigaknn"] / divergence["openTSNE"] - 1), 0.01)


if __name__ == "__main__":
    unittest.main()
