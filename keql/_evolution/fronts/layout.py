"""Where the points of a grid go, and when its steps end, so that it follows a state."""

from dataclasses import dataclass

import numpy as np
from scipy import fft

from keql._evolution.fronts.grid import MovingGrid
from keql._evolution.fronts.stencils import stencil_weights
from keql._numerics.linalg import rms


@dataclass(frozen=True)
class LayoutSettings:
    """How points are distributed.

    n_steps, n_points : int. Of the first grid that follows a state.
    beyond_order : int. Points that a derivative is found from, beyond the highest order
        of derivatives in space.
    share : float. Part of the points that go where the state curves, the others being
        equidistant. Beckett and Mackenzie, Applied Numerical Mathematics 35, 2000, take
        a half; more are needed the thinner fronts are.
    growth : float. By how much the distance of points changes at most from one to the
        next, relatively.
    even : float. Part of the steps that are of equal length; in the others the state,
        seen from the moving points, changes by as much.
    samples : int. Places between points of a known grid, and times between its steps,
        at which a state is looked at.
    """

    n_steps: int = 120
    n_points: int = 200
    beyond_order: int = 5
    share: float = 0.8
    growth: float = 0.15
    even: float = 0.25
    samples: int = 4


def finest_part(grid, values):
    """The part of functions that varies as fast as the points of a grid allow.

    In the last third of the Chebyshev polynomials that they are sums of, on an interval
    with points that do not move: root mean square beside that of the functions
    (n_steps, 4, n_points, m), constants left out.
    """
    waves = fft.dct(values, type=1, axis=2)[:, :, 1:]
    total = rms(waves)
    return rms(waves[:, :, 2 * waves.shape[2] // 3 :]) / (3**0.5 * total or 1.0)


def follow(grid, values, settings=None, sizes=None):
    """A grid whose points follow functions on another grid.

    grid : EvolutionGrid. On which they are known, with one coordinate of space.
    values : ndarray of shape (n_steps, 4, n_points, m). Functions there.
    settings : LayoutSettings, default=None. None: the default ones.
    sizes : (int, int), default=None. Steps and points; None: those of the settings.

    Returns grid : MovingGrid. The sum over functions says where points are dense.
    """
    settings = settings or LayoutSettings()
    n_steps, n_points = sizes or (settings.n_steps, settings.n_points)
    parts = np.arange(settings.samples // 2) / (settings.samples // 2)
    times = grid.edges[:-1, None] + grid.steps[:, None] * parts
    times = np.r_[times.ravel(), grid.edges[-1]]
    paths = _paths(grid, values, times, n_points, settings)
    seen = _values_at(grid, values, times, paths)
    moved = np.array([rms(each) for each in np.diff(seen, axis=0)])
    even = np.diff(times) / (times[-1] - times[0])
    total = np.sum(moved) or 1.0
    density = settings.even * even + (1 - settings.even) * moved / total
    gone = np.r_[0.0, np.cumsum(density)]
    edges = np.interp(np.linspace(0, gone[-1], n_steps + 1), gone, times)
    edges[[0, -1]] = grid.edges[[0, -1]]
    paths = _paths(grid, values, edges, n_points, settings)
    highest = 2 * int(np.max(grid.n_ends))
    return MovingGrid(grid, edges, paths, highest + settings.beyond_order)


def _paths(grid, values, times, n_points, settings):
    """Places (T, n_points) at some times: quantiles of a density.

    It is the root of the curvature, as the distance of points that changes a parabola
    by as much everywhere; the distance of points does not grow faster than the settings
    allow.
    """
    coarse, k = grid.places_of(times), settings.samples
    places = np.arange(k * (coarse.shape[1] - 1) + 1) / k
    counts = np.arange(coarse.shape[1])
    x = np.array([np.interp(places, counts, row) for row in coarse])
    density = _root_of_curvature(x, _values_at(grid, values, times, x))
    gaps = np.diff(x, axis=1)
    mean = np.sum(0.5 * (density[:, 1:] + density[:, :-1]) * gaps, axis=1)
    mean = np.where(mean > 0, mean, 1.0)[:, None]
    even, share = 1 / grid.extents[0], settings.share
    distance = 1 / (n_points * ((1 - share) * even + share * density / mean))
    for i in range(1, x.shape[1]):
        farthest = distance[:, i - 1] + settings.growth * gaps[:, i - 1]
        distance[:, i] = np.minimum(distance[:, i], farthest)
    for i in range(x.shape[1] - 2, -1, -1):
        farthest = distance[:, i + 1] + settings.growth * gaps[:, i]
        distance[:, i] = np.minimum(distance[:, i], farthest)
    number = 0.5 * (1 / distance[:, 1:] + 1 / distance[:, :-1]) * gaps
    number = np.pad(np.cumsum(number, axis=1), ((0, 0), (1, 0)))
    paths = np.array(
        [
            np.interp(np.linspace(0, counted[-1], n_points), counted, row)
            for counted, row in zip(number, x, strict=True)
        ]
    )
    paths[:, 0], paths[:, -1] = x[:, 0], x[:, -1]
    return paths


def _values_at(grid, values, times, places):
    """Functions (T, n, m) at places (T, n) in space at some times."""
    points = np.empty((*places.shape, grid.d))
    points[..., grid.axis] = times[:, None]
    points[..., grid.space[0]] = places
    found = grid.apply(values, points.reshape(-1, grid.d), grid.identity)
    return found.reshape(*places.shape, -1)


def _root_of_curvature(x, values):
    """Roots (T, n) of the curvature of functions (T, n, m), the largest nearby.

    Where it changes its sign it is as large beside.
    """
    n = x.shape[1]
    near = np.clip(np.arange(n) - 2, 0, n - 5)[:, None] + np.arange(5)
    weights = stencil_weights(x[:, near], x, 2)[2]
    curvature = np.einsum("tnw,tnwm->tnm", weights, values[:, near])
    root = np.sqrt(np.sum(np.abs(curvature), axis=2))
    beside = np.pad(root, ((0, 0), (1, 1)), mode="edge")
    return np.maximum(root, np.maximum(beside[:, 2:], beside[:, :-2]))
