"""Pictures of recall, graphs and neighbours, by matplotlib (``pip install 'gigaknn[plot]'``), which is imported by the first picture.

Each function draws and returns axes or a figure; none shows or saves anything.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from ._arguments import whole
from ._errors import InvalidArgument
from ._graph import KnnGraph
from ._index import Index
from ._search import Neighbors

__all__ = ["gallery", "graph_statistics", "recall_curve"]


def _pyplot():
    try:
        import matplotlib.pyplot
    except ImportError:
        raise ImportError("gigaknn.plot needs matplotlib (pip install matplotlib)") from None
    return matplotlib.pyplot


def recall_curve(curves: Any, *, ax: Any = None) -> Any:
    """Recall against queries a second, a line for each index.

    Parameters
    ----------
    curves : Index, list of OperatingPoint, or dict of either by name
        An index whose recall was measured (`Index.measure`), or what `Index.curve` is. Several stand in a dict, whose names the legend has.
    ax : Axes
        To draw into; a new one by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np, gigaknn
    >>> x = np.random.default_rng(0).random((2000, 8), dtype=np.float32)
    >>> index = gigaknn.build(x, index="IVF32,Flat")
    >>> points = index.measure(x[:100], k=5, seconds=1)
    >>> gigaknn.plot.recall_curve(index).get_xlabel()
    'recall@5'
    """
    named = curves if isinstance(curves, dict) else {None: curves}
    points = {name: curve.curve if isinstance(curve, Index) else list(curve) for name, curve in named.items()}
    for name, curve in points.items():
        if not curve:
            raise InvalidArgument(f"{'the index' if name is None else repr(name)} has no curve of recall: Index.measure makes one")
    if ax is None:
        ax = _pyplot().figure(layout="constrained").add_subplot()
    for name, curve in points.items():
        ax.plot([point.recall for point in curve], [1 / point.seconds for point in curve], marker="o", markersize=4, label=name)
    k = {point.recall.at for curve in points.values() for point in curve}
    ax.set_xlabel(f"recall@{k.pop()}" if len(k) == 1 else "recall")
    ax.set_ylabel("queries a second")
    ax.set_yscale("log")
    ax.grid(True, which="major", alpha=0.3)
    if None not in points:
        ax.legend()
    return ax


def graph_statistics(graph: KnnGraph, *, figure: Any = None) -> Any:
    """How often rows are named, how far neighbours of each rank are, and what `KnnGraph.report` counts.

    Parameters
    ----------
    graph : KnnGraph
    figure : Figure
        To draw into; a new one by default.

    Returns
    -------
    Figure
        Of three axes: the histogram of in-degrees; the median of the distances by rank, with the bands of half and of nine tenths of the rows;
        the report's text.

    Examples
    --------
    >>> import numpy as np, gigaknn
    >>> graph = gigaknn.knn_graph(np.random.default_rng(0).random((100, 4), dtype=np.float32), 5)
    >>> len(gigaknn.plot.graph_statistics(graph).axes)
    3
    """
    if not isinstance(graph, KnnGraph):
        raise TypeError(f"graph must be a KnnGraph, got {type(graph).__name__}")
    if figure is None:
        figure = _pyplot().figure(figsize=(11, 3.4), layout="constrained")
    degrees, ranks, text = figure.subplots(1, 3, width_ratios=(4, 4, 3))

    in_degree = np.bincount(graph.ids[graph.ids >= 0], minlength=len(graph))
    top = max(int(in_degree.max(initial=0)), 1)
    step = max(top // 60, 1)
    degrees.hist(in_degree, bins=np.arange(0, top + step + 1, step) - 0.5, color="tab:blue")
    degrees.axvline(graph.k, color="black", linewidth=1, linestyle="--", label=f"k = {graph.k}")
    degrees.set_yscale("log")
    degrees.set_xlabel("lists that name a row")
    degrees.set_ylabel("rows")
    degrees.legend(fontsize=8)

    rank = np.arange(1, graph.k + 1)
    distances = np.where(graph.ids >= 0, graph.distances, np.nan)
    distances = np.where(np.isinf(distances), np.nan, distances)  # of what is infinitely far there is nothing to draw
    there = ~np.isnan(distances).all(axis=0)  # ranks that some row has
    if not there.any():
        there[:], distances = True, np.zeros((1, graph.k))
    low, lower, median, upper, high = np.nanpercentile(distances[:, there], (5, 25, 50, 75, 95), axis=0)
    ranks.fill_between(rank[there], low, high, color="tab:blue", alpha=0.15, linewidth=0, label="nine tenths of the rows")
    ranks.fill_between(rank[there], lower, upper, color="tab:blue", alpha=0.3, linewidth=0, label="half of the rows")
    ranks.plot(rank[there], median, color="tab:blue", label="median")
    ranks.set_xlabel("rank")
    ranks.set_ylabel(f"distance ({graph.metric})")
    ranks.legend(fontsize=8)

    report = graph.report()
    least, middle, most = report["in_degree"]
    lines = {
        "rows": f"{report['rows']:,}",
        "k": report["k"],
        "recall": "unknown" if report["recall"] is None else f"{float(report['recall']):.4f}",
        "missing entries": f"{report['missing']:,}",
        "components": f"{report['components']:,}",
        "largest component": f"{report['largest_component']:,}",
        "in-degree": f"{least} to {most}, median {middle:g}",
        "never named": f"{report['never_named']:,}",
    }
    text.axis("off")
    text.text(0, 1, "\n".join(f"{name:18}{value}" for name, value in lines.items()), family="monospace", fontsize=9, verticalalignment="top", transform=text.transAxes)
    return figure


def gallery(
    images: Any, neighbors: KnnGraph | Neighbors, rows: Sequence[int] = (0, 1, 2, 3, 4), *, shape: tuple[int, ...] | None = None, queries: Any = None, count: int | None = None, cmap: str = "gray", figure: Any = None
) -> Any:
    """Images beside their neighbours: a line for each of `rows`, the image itself first.

    Parameters
    ----------
    images : array [n, d], or [n, height, width] or [n, height, width, colours]
    neighbors : KnnGraph, or Neighbors
        Of images; ids are rows of `images`.
    rows : sequence of int
        Lists to show: rows of a graph, queries of a result.
    shape : tuple
        Of one image where `images` is [n, d]: (height, width) or (height, width, colours).
    queries : array
        What a result was asked with, as `images`; by default query i is image i.
    count : int
        Neighbours to show, at most; all by default.
    cmap : str
        For images without colours.
    figure : Figure
        To draw into; a new one by default.

    Returns
    -------
    Figure
        Of len(rows) times (1 + count) axes; above each neighbour its distance, or its key where there are keys.

    Examples
    --------
    >>> import numpy as np, gigaknn
    >>> images = np.random.default_rng(0).random((50, 64), dtype=np.float32)
    >>> figure = gigaknn.plot.gallery(images, gigaknn.knn_graph(images, 4), rows=[0, 7], shape=(8, 8))
    >>> len(figure.axes)
    10
    """
    images = _images_of(images, shape, "images")
    own = images if queries is None else _images_of(queries, shape, "queries")
    rows = [whole(row, "rows") for row in rows]
    ids, distances, keys = neighbors.ids, neighbors.distances, neighbors.keys
    if not rows or min(rows) < 0 or max(rows) >= min(len(ids), len(own)):
        raise InvalidArgument(f"rows must be some from 0 to {min(len(ids), len(own)) - 1}, got {rows}")
    if ids[rows].max() >= len(images):
        raise InvalidArgument(f"there are {len(images)} images, and a neighbour is row {ids[rows].max()}")
    count = ids.shape[1] if count is None else min(whole(count, "count"), ids.shape[1])
    if count < 1:
        raise InvalidArgument(f"count must be at least 1, got {count}")
    if figure is None:
        figure = _pyplot().figure(figsize=(1 + count, 1.15 * len(rows)), layout="constrained")
    for row, line in zip(rows, figure.subplots(len(rows), 1 + count, squeeze=False)):
        for ax in line:
            ax.axis("off")
        line[0].imshow(own[row], cmap=cmap)
        line[0].set_title(f"row {row}" if queries is None else f"query {row}", fontsize=7, fontweight="bold")
        for i, ax in enumerate(line[1:]):
            if ids[row, i] >= 0:
                ax.imshow(images[ids[row, i]], cmap=cmap)
                ax.set_title(f"{distances[row, i]:.4g}" if keys is None else str(keys[row, i]), fontsize=7)
    return figure


def _images_of(images, shape, name):
    images = np.asarray(images)
    if shape is not None:
        try:
            images = images.reshape(len(images), *shape)
        except (TypeError, ValueError):
            raise InvalidArgument(f"{name} of shape {list(images.shape)} are not images of shape {shape!r}") from None
    if images.ndim not in (3, 4):
        raise InvalidArgument(f"{name} must be [n, height, width] or [n, height, width, colours], or shape= must say so; got shape {list(images.shape)}")
    return images
