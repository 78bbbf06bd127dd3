"""Waits in front of c equal servers with a fixed time of service, when requests arrive as a Poisson process.

    W   = (T / 2 c) rho^( sqrt(2 (c + 1)) - 1 ) / (1 - rho)        the mean; for c = 1 the M/D/1 wait, exact
    P0  = rho^( sqrt(2 (c + 1)) - 1 )                              that a request waits at all
    W_p = (W / P0) ln( P0 / (1 - p) ),  0 for P0 <= 1 - p          its percentile, waits of those who wait exponential

T: time of service [s], rho: load of a server. Of M/M/c the wait is twice as long; that a fixed time halves it is exact
for one server and in heavy traffic. Sources: Sakasegawa, Annals of the Institute of Statistical Mathematics 29 (1977),
for the mean of M/M/c; Kingman's heavy traffic for the exponential.
"""

from __future__ import annotations

import numpy as np

from mlaplan.costs.roofline import Numeric


def chance(load: Numeric, servers: Numeric) -> Numeric:
    """P0: the share of requests that find all servers busy."""
    rho = np.minimum(np.asarray(load, dtype=float), 1.0)
    return rho ** (np.sqrt(2.0 * (np.asarray(servers, dtype=float) + 1.0)) - 1.0)


def mean_s(load: Numeric, servers: Numeric, service_s: Numeric) -> Numeric:
    """W: the mean wait; infinite from a load of 1 on. [s]"""
    rho = np.asarray(load, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = service_s / (2.0 * np.asarray(servers)) * chance(rho, servers) / (1.0 - rho)
    return np.where(rho < 1.0, found, np.inf)


def percentile_s(load: Numeric, servers: Numeric, service_s: Numeric, percentile: float) -> Numeric:
    """W_p: the wait that so many per cent of the requests stay below. [s]"""
    mean, some = mean_s(load, servers, service_s), chance(load, servers)
    rest = 1.0 - percentile / 100.0
    with np.errstate(divide="ignore", invalid="ignore"):
        waited = mean / some * np.log(some / rest)
    return np.where(np.isfinite(mean), np.where(some > rest, waited, 0.0), mean)
