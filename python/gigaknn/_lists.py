"""Lists of neighbours from elsewhere, made into what the library's are."""

import numpy as np

from ._errors import InvalidData

# Below 0 others round: 1 less a product, in float32 or float16; squares that were multiplied out, by a share of the largest.
_least_distances = {"inner_product": -np.inf, "cosine": -1e-3, "jaccard": -1e-3}
_rounded_share = 1e-4


def sound_distances(distances, metric):
    """[n, k] float32, refused where they are none; what rounding took below 0 is 0."""
    bad = np.isnan(distances).any(axis=1)
    if bad.any():
        raise InvalidData(f"distances: row {np.argmax(bad)} has NaN")
    largest = np.max(distances, initial=0, where=np.isfinite(distances))
    least = _least_distances.get(metric, -_rounded_share * largest)
    low = np.argwhere(distances < least)
    if len(low):
        row, column = low[0]
        value = distances[row, column]
        raise InvalidData(f"distances: row {row}, column {column} is {value}, and no distance by {metric} is negative")
    if metric != "inner_product":
        distances = np.maximum(distances, 0, dtype=np.float32)
    return distances


def with_ties_by_id(distances, ids, larger_is_nearer):
    """The ids of lists that are nearest first, those of equal distances ascending, which others do not promise. A list that is out of order stays as it is."""
    before, after = distances[:, :-1], distances[:, 1:]
    in_order = before >= after if larger_is_nearer else before <= after
    unsigned = ids.view(np.uint64)  # -1 comes behind all rows
    tied = np.flatnonzero(in_order.all(axis=1) & ((before == after) & (unsigned[:, :-1] > unsigned[:, 1:])).any(axis=1))
    if len(tied) == 0:
        return ids
    nearest_first = -distances[tied] if larger_is_nearer else distances[tied]
    order = np.lexsort((unsigned[tied], nearest_first), axis=1)
    ids = ids.copy()  # they may be the caller's
    ids[tied] = np.take_along_axis(ids[tied], order, axis=1)
    return ids


def with_self(ids, distances):
    """Lists that begin with the row itself."""
    n = len(ids)
    own = np.arange(n, dtype=np.int64)[:, None]
    return np.concatenate((own, ids), axis=1), np.concatenate((np.zeros((n, 1), np.float32), distances), axis=1)
