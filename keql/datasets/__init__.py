"""The three problems of the published experiments, ready to fit.

Each function returns the observations, the description of the equation, the published
settings and the truth. The settings are those of the authors' runs; where the paper
prints others, the published figures belong to these. The entries of all data sets:

- `X`, `y`: the observations;
- `operators`, `known_part`, `forcing`, `collocation_points`, `variables`,
  `function_column`: the description of the equation, as constructor arguments of a
  learner, and `problem`: all of these as a dict;
- `kernels`: dict of constructor arguments, the published kernels and noise levels
  (those of exact data, whatever `noise` is);
- `X_test`, `y_test`: the clean state on a uniform grid;
- `truth(X, operator="u", function=None)`: the clean state or a derivative;
- `feature_names`: the order of the features;
- `unknown_part(features)`, `equation(features)`: the true unknown part P, and P with
  the known part;
- `noise_std`: the standard deviation of the noise; `DESCR`: a description.

The paper is Jalalian, Osorio, Hsu, Hosseini, Owhadi, arXiv:2503.01036, section 4.
"""

from keql.datasets._burgers import make_burgers
from keql.datasets._darcy import make_darcy
from keql.datasets._duffing import make_duffing

__all__ = ["make_burgers", "make_darcy", "make_duffing"]
