#!/usr/bin/env python3
"""From one image to another by small steps: the paths of a k-NN graph whose largest step is smallest."""

import gigaknn
import numpy as np
from common import arguments, images, save
from matplotlib import pyplot

STEPS = 14  # images of a path that are shown


def write(ax, text):
    """Above a line; a title would widen the column."""
    ax.text(0, 1.08, text, fontsize=9, transform=ax.transAxes).set_in_layout(False)


def main():
    options = arguments(__doc__)
    x, labels, shape, names = images(options.small, 10_000)
    graph = gigaknn.knn_graph(x, k=10, metric="euclidean")
    first = [int(np.flatnonzero(labels == label)[0]) for label in range(10)]
    figure = pyplot.figure(figsize=(11, 4.8), layout="constrained")
    figure.get_layout_engine().set(hspace=0.25, rect=(0, 0, 1, 0.97))
    pairs = [(9, 7), (0, 3), (2, 6), (1, 3), (5, 8)]  # of labels
    for (a, b), line in zip(pairs, figure.subplots(len(pairs), STEPS)):
        path = graph.path(first[a], first[b])
        for ax in line:
            ax.axis("off")
        if path is None:
            write(line[0], f"no path from {names[a]} to {names[b]}")
            continue
        assert path.largest_step == path.steps.max() <= np.linalg.norm(x[first[a]].astype(float) - x[first[b]])
        shown = path.rows[np.linspace(0, len(path.rows) - 1, min(len(path.rows), STEPS)).astype(int)]
        for ax, row in zip(line, shown):
            ax.imshow(x[row].reshape(shape), cmap="gray_r")
        write(line[0], f"{names[a]} to {names[b]}: {len(path.steps)} steps, the largest {path.largest_step:.0f}")
    save(figure, options, "image_paths")


if __name__ == "__main__":
    main()
