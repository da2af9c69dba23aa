"""Elementary functions with inner parameters: families, values, grids, tables."""

from keql._numerics.elementary.families import ANGLES, EXPONENTS, FAMILIES, RADII
from keql._numerics.elementary.function import Elementary
from keql._numerics.elementary.grids import (
    ODD,
    PRECISE,
    at_natural_values,
    diffusivities,
    fast_waves,
    origin_of,
    own_factors,
    powers_of_coordinates,
    products,
    state_grid,
    time_grid,
)
from keql._numerics.elementary.table import ElementaryTable

__all__ = [
    "ANGLES",
    "EXPONENTS",
    "Elementary",
    "ElementaryTable",
    "FAMILIES",
    "ODD",
    "PRECISE",
    "RADII",
    "at_natural_values",
    "diffusivities",
    "fast_waves",
    "own_factors",
    "origin_of",
    "powers_of_coordinates",
    "products",
    "state_grid",
    "time_grid",
]
