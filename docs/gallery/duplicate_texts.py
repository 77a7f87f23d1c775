#!/usr/bin/env python3
"""Texts that say nearly the same: the documents of Python's standard library, by the four-letter pieces they share."""

import textwrap
import zlib

import gigaknn
import numpy as np
from common import arguments, docstrings, save
from matplotlib import pyplot

RADIUS = 0.1  # cosine: nine tenths of the pieces, roughly


def vector_of(text, d=1024):
    """How often each piece of four letters is in a text, by its hash."""
    pieces = text.lower().encode()
    return np.bincount([zlib.crc32(pieces[i : i + 4]) % d for i in range(len(pieces) - 3)], minlength=d)


def main():
    options = arguments(__doc__)
    texts, names = docstrings(options.small)
    x = np.array([vector_of(text) for text in texts], dtype=np.float32)
    first = gigaknn.duplicates(x, RADIUS, metric="cosine")
    nearest = gigaknn.knn_graph(x, 1, metric="cosine").distances[:, 0]
    assert ((nearest <= RADIUS) == (np.bincount(first, minlength=len(x))[first] > 1)).all()  # two ways to the same answer

    # Pairs that are near, but not the same.
    groups = {}
    for i, group in enumerate(first):
        groups.setdefault(group, {}).setdefault(texts[i], []).append(names[i])
    shown = sorted((group for group in groups.values() if len(group) > 1), key=lambda group: -sum(map(len, group.values())))[:4]
    lines = []
    for group in shown:
        for text, where in list(group.items())[:2]:
            more = f" and {len(where) - 1} more" if len(where) > 1 else ""
            lines.append(f"{where[0]}{more}\n" + textwrap.indent("\n".join(textwrap.wrap(textwrap.shorten(text, 170), 62)), "   "))
        lines.append("")

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 5.2), layout="constrained", width_ratios=(5, 6))
    left.hist(nearest, bins=np.linspace(0, 1, 51), color="tab:blue")
    left.axvline(RADIUS, color="tab:red", label=f"radius {RADIUS}")
    left.set_xlabel("cosine distance to the nearest other text")
    left.set_ylabel("texts")
    left.set_title(f"{len(texts):,} texts, {len(np.unique(first)):,} of them without their duplicates", fontsize=10)
    left.legend()
    right.axis("off")
    right.set_title("groups that differ in a few words", fontsize=10, loc="left")
    right.text(0, 0.98, "\n".join(lines), family="monospace", fontsize=8, verticalalignment="top", transform=right.transAxes, parse_math=False).set_in_layout(False)
    save(figure, options, "duplicate_texts")


if __name__ == "__main__":
    main()
