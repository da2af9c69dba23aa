"""Problems with a known solution, ready to fit.

Each function returns the observations, the description of the equation and the truth.
Burgers' equation, the Darcy flow and the Duffing oscillator are those of the published
experiments, with the settings of the authors' runs; where the paper prints others, the
published figures belong to these. The others are systems of equations, in which a row
of `y` has a column for each state, and NaN where a state was not measured. The entries
of all data sets:

- `X`, `y`: the observations;
- `operators`, `known_part`, `forcing`, `collocation_points`, `variables`,
  `function_column`, and the names `states` of a system: the description of the
  equation, as constructor arguments of a learner, and `problem`: all of these as a
  dict;
- `kernels`: dict of constructor arguments, the published kernels and noise levels
  (those of exact data, whatever `noise` is); empty where none are published;
- `X_test`, `y_test`: the clean state on a uniform grid;
- `truth(X, operator="u", function=None)`: the clean state or a derivative; of a system
  without an operator, all states as columns;
- `feature_names`: the order of the features;
- `unknown_part(features)`, `equation(features)`: the true unknown part P, and P with
  the known part; of a system a column for each equation;
- `noise_std`: the standard deviation of the noise, of a system that of each state;
- `terms`: of systems only, the terms of the true right-hand side of each equation,
  solved for its known part: ``{name: {term: coefficient}}``;
- `DESCR`: a description.

The paper is Jalalian, Osorio, Hsu, Hosseini, Owhadi, arXiv:2503.01036, section 4.
"""

from keql.datasets._burgers import make_burgers
from keql.datasets._darcy import make_darcy
from keql.datasets._duffing import make_duffing
from keql.datasets._fitzhugh_nagumo import make_fitzhugh_nagumo
from keql.datasets._heat import make_heat_with_boundary_law
from keql.datasets._lorenz import make_lorenz
from keql.datasets._lotka_volterra import make_lotka_volterra

__all__ = [
    "make_burgers",
    "make_darcy",
    "make_duffing",
    "make_fitzhugh_nagumo",
    "make_heat_with_boundary_law",
    "make_lorenz",
    "make_lotka_volterra",
]
