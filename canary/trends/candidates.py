"""Where a series may have changed: candidates by `ruptures`, which later tests decide about."""

from __future__ import annotations

import numpy as np

from canary.trends.scatter import Values

LEAST_RUNS = 3
"""Runs on each side of a change point."""
BANDWIDTH = 0.1
"""Of the kernel exp(-b d^2), d in standard deviations: a distance beyond 5 counts as one of 5, so
that a spike costs little."""
PENALTY = 1.8
"""Per change point. The kernel's gain of a small step of z standard errors is 0.12 z^2, so 1.8 is
about z = 3.9: below what any interval here decides."""


def candidates(values: Values, sd: float) -> list[int]:
    """Return the first places of new levels that explain the series best (Killick, Fearnhead and
    Eckley 2012; Arlot, Celisse and Harchaoui 2019).

    Args:
        values: the series on its scale.
        sd: standard deviation of one run; not 0.
    """
    from ruptures import KernelCPD

    if len(values) < 2 * LEAST_RUNS:
        return []
    standard = np.clip((values - np.median(values)) / sd, -1e6, 1e6)
    search = KernelCPD(kernel="rbf", min_size=LEAST_RUNS, params={"gamma": BANDWIDTH})
    return [int(place) for place in search.fit(standard).predict(pen=PENALTY)[:-1]]
