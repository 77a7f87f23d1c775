"""Recall."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _core
from ._arguments import floats, whole, whole_array, word
from ._errors import InvalidArgument

if TYPE_CHECKING:
    import numpy.typing as npt

    from ._types import Ids, Whole


class Recall(float):
    """A share of the true neighbours, with its 95 % interval.

    Attributes
    ----------
    low, high : float
        The interval; both the value itself where every row was looked at.
    at : int
        The k of k-recall@k.
    sampled : int
        Rows that were looked at.
    """

    low: float
    high: float
    at: int
    sampled: int
    __slots__ = ("low", "high", "at", "sampled")

    def __new__(cls, value: float = 0.0) -> Recall:
        self = super().__new__(cls, value)
        self.low = self.high = float(self)
        self.at = self.sampled = 0
        return self

    @classmethod
    def _of(cls, recall):
        self = cls(recall.value)
        self.low, self.high, self.at, self.sampled = recall.low, recall.high, recall.at, recall.sampled
        return self

    def __repr__(self) -> str:
        return f"{float(self):.6g}" if self.low == self.high else f"{float(self):.4f} [{self.low:.4f}, {self.high:.4f}]"


def recall(
    ids: Ids,
    truth: Ids,
    k: Whole | None = None,
    *,
    distances: npt.ArrayLike | None = None,
    truth_distances: npt.ArrayLike | None = None,
    metric: str = "l2",
) -> Recall:
    """The share of the k true neighbours that stand among the first k of a result.

    Parameters
    ----------
    ids : array [q, k] int
    truth : array [q, k or more] int
    k : int
        As many as both have, by default.
    distances, truth_distances : array float32, of the shapes of `ids` and `truth`
        With both, an entry as near as the k-th true neighbour is a hit whatever its id: ties.
    metric : str
        Of the distances.

    Returns
    -------
    Recall
        A float from 0 to 1, with ``.low`` and ``.high``, an interval of 95 %, where rows were sampled.

    Examples
    --------
    >>> import gigaknn
    >>> gigaknn.recall([[0, 1, 2, 3]], [[0, 1, 7, 2]])
    0.75
    """
    ids, truth = whole_array(ids, 2, "ids"), whole_array(truth, 2, "truth")
    if (distances is None) != (truth_distances is None):
        raise InvalidArgument("distances and truth_distances come together, or not at all")
    if distances is not None:
        distances, truth_distances = floats(distances, "distances", 2), floats(truth_distances, "truth_distances", 2)
    at = min(ids.shape[1], truth.shape[1]) if k is None else whole(k, "k")
    return Recall._of(_core.recall_at(ids, distances, truth, truth_distances, at, word(metric, "metric")))
