#!/usr/bin/env python3
"""From one image to another by small steps: the paths of a k-NN graph whose largest step is smallest."""

import gigaknn
import numpy as np
from common import arguments, images, save
from matplotlib import pyplot

STEPS = 14  # images of a path that are shown


def main():
    options = arguments(__doc__)
    x, labels, shape, names = images(options.small, 10_000)
    graph = gigaknn.knn_graph(x, k=10, metric="euclidean")
    first = [int(np.flatnonzero(labels == label)[0]) for label in range(10)]
    figure = pyplot.figure(figsize=(12, 5.4), layout="constrained")
    pairs = [(9, 7), (0, 3), (2, 6), (1, 3), (5, 8)]  # of labels
    for (a, b), line in zip(pairs, figure.subplots(len(pairs), STEPS)):
        path = graph.path(first[a], first[b])
        for ax in line:
            ax.axis("off")
        if path is None:
            line[0].set_title(f"no path from {names[a]} to {names[b]}", fontsize=8, loc="left")
            continue
        assert path.largest_step == path.steps.max() <= np.linalg.norm(x[first[a]].astype(float) - x[first[b]])
        shown = path.rows[np.linspace(0, len(path.rows) - 1, min(len(path.rows), STEPS)).astype(int)]
        for ax, row in zip(line, shown):
            ax.imshow(x[row].reshape(shape), cmap="gray_r")
        line[0].set_title(f"{names[a]} to {names[b]}: {len(path.steps)} steps, the largest {path.largest_step:.0f}", fontsize=9, loc="left").set_in_layout(False)  # or it widens the column
    save(figure, options, "image_paths")


if __name__ == "__main__":
    main()
