"""An order of classes in which those that go together are neighbours."""

from collections.abc import Sequence

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform


def order(C: Sequence[Sequence[float]] | np.ndarray) -> list[int]:
    """Leaves of hierarchical clusters, in which classes with a large log C_ij are near."""
    C = np.asarray(C, float)
    if len(C) < 3 or not np.isfinite(C).all():
        return list(range(len(C)))
    apart = -np.log(np.maximum(C, np.finfo(float).tiny))
    apart -= apart.min()
    apart = (apart + apart.T) / 2
    np.fill_diagonal(apart, 0.0)
    tree = linkage(squareform(apart, checks=False), "average", optimal_ordering=True)
    return leaves_list(tree).tolist()
