#!/usr/bin/env python3
"""A map of Fashion-MNIST: UMAP, which is given gigaknn's graph and searches nothing itself."""

import warnings

import gigaknn
from common import arguments, images, save
from matplotlib import pyplot


def main():
    options = arguments(__doc__)
    x, labels, shape, names = images(options.small, 10_000)
    graph = gigaknn.knn_graph(x, k=14)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of UMAP: that it cannot place new rows, and that a seed means one thread
        import umap

        places = umap.UMAP(n_neighbors=15, precomputed_knn=graph.to_umap(), random_state=0).fit_transform(x)

    figure, ax = pyplot.subplots(figsize=(8, 6.4), layout="constrained")
    for label, name in enumerate(names):
        ax.scatter(*places[labels == label].T, s=2, color=f"C{label}", label=name, linewidths=0)
    ax.set_title(f"{len(x):,} images by UMAP on gigaknn's exact graph", fontsize=11)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.legend(markerscale=6, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    save(figure, options, "image_map")


if __name__ == "__main__":
    main()
