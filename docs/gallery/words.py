#!/usr/bin/env python3
"""Words and their neighbours: of GloVe's vectors where they are (bench/vectors.py), else of vectors made of the words that stand near them."""

import lzma
import re
import sys
from collections import Counter
from pathlib import Path

import gigaknn
import numpy as np
from common import arguments, docstrings, save
from matplotlib import pyplot
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import svds

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
import vectors


def glove():
    """(words, vectors [n, 100] float16, words to look at), or None."""
    words = vectors.COMPRESSED / "glove-100-200k" / "base_words.txt.xz"
    try:
        base = vectors.load("glove", "/data").base
        return lzma.open(words, "rt", encoding="utf-8").read().splitlines(), base, ["neighbour", "graph", "violin", "paris", "blue", "swim", "cheese", "monday"]
    except (vectors.Missing, OSError):
        return None


def of_documents(small, d=48, window=4):
    """The same of the documents of Python's standard library: singular vectors of how much more often than by chance two words are near."""
    texts = [re.findall("[a-z]+", text.lower()) for text in docstrings(small)[0]]
    counts = Counter(word for text in texts for word in text)
    words = [word for word, count in counts.most_common(2000) if count >= 8]
    number = {word: i for i, word in enumerate(words)}
    pairs = Counter()
    for text in texts:
        ids = [number[word] for word in text if word in number]
        for step in range(1, window + 1):
            pairs.update(zip(ids, ids[step:]))
            pairs.update(zip(ids[step:], ids))
    rows, cols = np.array(list(pairs)).T
    near = csr_matrix((np.array(list(pairs.values()), np.float64), (rows, cols)), shape=(len(words), len(words))).tocoo()
    totals = np.bincount(near.row, near.data, minlength=len(words))
    excess = np.maximum(np.log(near.data * totals.sum() / totals[near.row] / totals[near.col]), 0)
    left, size, _ = svds(csr_matrix((excess, (near.row, near.col)), shape=near.shape), k=d, v0=np.ones(len(words)))
    return words, (left * np.sqrt(size)).astype(np.float32, order="C"), ["file", "integer", "thread", "raise", "list", "time", "directory", "message"]


def main():
    options = arguments(__doc__)
    words, x, asked = (None if options.small else glove()) or of_documents(options.small)
    queries = np.ascontiguousarray(x[[words.index(word) for word in asked]])
    found = gigaknn.knn(queries, x, k=9, metric="cosine", keys=words)
    assert found.keys[:, 0].tolist() == asked  # nothing is nearer to a word than itself

    figure, ax = pyplot.subplots(figsize=(12, 0.42 * len(asked) + 0.9), layout="constrained")
    shown = ax.imshow(found.distances[:, 1:], cmap="YlGnBu_r", aspect="auto", vmin=0, vmax=1)
    for (i, j), word in np.ndenumerate(found.keys[:, 1:]):
        ax.text(j, i, word, ha="center", va="center", fontsize=9, color="white" if found.distances[i, j + 1] < 0.35 else "black", parse_math=False)
    ax.set_yticks(range(len(asked)), asked, fontweight="bold")
    ax.set_xticks(range(8), range(1, 9))
    ax.tick_params(length=0)
    ax.set_title(f"the nearest of {len(words):,} words", fontsize=11)
    figure.colorbar(shown, label="cosine distance", pad=0.01)
    save(figure, options, "words")


if __name__ == "__main__":
    main()
