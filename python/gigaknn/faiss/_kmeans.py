"""k-means, as Faiss has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _kmeans
from .._errors import InvalidArgument, Unsupported
from ._indexes import IndexFlatIP, IndexFlatL2
from ._settings import floats, numbers, threads

if TYPE_CHECKING:
    import numpy.typing as npt

    from .._types import Floats, Integers, Whole


class Kmeans:
    """k-means, of d dimensions and k clusters.

    Parameters
    ----------
    niter, nredo, seed : int
    spherical : bool
        Rows count by direction; centroids are of length 1.
    max_points_per_centroid : int
        Of larger sets so many times k rows are drawn.
    verbose : bool
        Prints the objective.
    gpu : bool or int
        The first GPU, or so many.

    Attributes
    ----------
    centroids : array [k, d]
    obj : array [rounds]
        The sum of squared distances (spherical: of cosines) before each round, by weight, of the rows that are drawn.
    index : IndexFlat
        Of the centroids.
    """

    def __init__(
        self,
        d: int,
        k: Whole,
        *,
        niter: int = 25,
        nredo: int = 1,
        verbose: bool = False,
        spherical: bool = False,
        seed: int = 1234,
        max_points_per_centroid: int = 256,
        min_points_per_centroid: int = 39,
        gpu: bool | int = False,
        **refused: Any,
    ) -> None:
        if refused:
            raise Unsupported(f"Kmeans takes no {', '.join(refused)}: gigaknn has nothing in its place")
        self.d, self.k, self.niter, self.nredo, self.verbose, self.spherical, self.seed = d, k, niter, nredo, verbose, spherical, seed
        self.max_points_per_centroid, self.gpu = max_points_per_centroid, gpu
        self.centroids: Any = None
        self.obj: Any = None
        self.index: Any = None

    def train(self, x: npt.ArrayLike, weights: npt.ArrayLike | None = None, init_centroids: None = None) -> float:
        """Finds the centroids of `x` [n, d]; returns the last objective, and, as Faiss does, 0 after no round."""
        if init_centroids is not None:
            raise Unsupported("Kmeans takes no init_centroids: gigaknn has nothing in its place")
        if self.nredo < 1:
            raise InvalidArgument(f"nredo must be at least 1, got {self.nredo}")
        x = floats(x, self.d)
        weights = np.ones(len(x), np.float32) if weights is None else numbers(weights, np.float32, "weights")
        if weights.shape != (len(x),):
            raise InvalidArgument(f"weights must be one for each of the {len(x)} rows, got shape {list(weights.shape)}")
        # Drawn as Faiss does, whatever weights rows have: those of gigaknn.kmeans stand for others.
        most = self.k * self.max_points_per_centroid
        if len(x) > most:
            drawn = np.sort(np.random.default_rng(self.seed).choice(len(x), most, replace=False))
            x, weights = x[drawn], weights[drawn]
        options = {"metric": "cosine" if self.spherical else "l2", "iterations": self.niter, "rows_per_cluster": 0, "weights": weights, "labels": False}
        device = ",".join(f"cuda:{i}" for i in range(max(1, int(self.gpu)))) if self.gpu else "cpu"
        objectives = None
        for seed in range(self.seed, self.seed + self.nredo):
            found = _kmeans.kmeans(x, self.k, seed=seed, device=device, threads=threads(), **options)
            tried = np.array([done.objective for done in found.rounds])
            if objectives is None or (len(tried) and tried[-1] < objectives[-1]):
                objectives, centroids = tried, found.centroids
        index = IndexFlatIP(self.d) if self.spherical else IndexFlatL2(self.d)
        index.add(centroids)
        self.obj = np.sum(weights, dtype=np.float64) - objectives if self.spherical else objectives
        self.centroids, self.index = centroids, index
        last = float(self.obj[-1]) if len(self.obj) else 0.0
        if self.verbose:
            print(f"objective {last:g} after {len(self.obj)} rounds")
        return last

    def assign(self, x: npt.ArrayLike) -> tuple[Floats, Integers]:
        """(D [n], I [n]): the nearest centroid of each row."""
        if self.index is None:
            raise InvalidArgument("should train before assigning")
        distances, ids = self.index.search(x, 1)
        return distances.ravel(), ids.ravel()
