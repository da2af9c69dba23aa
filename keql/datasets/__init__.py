"""The three problems of the published experiments, ready to fit.

Each function returns the observations, the description of the equation, the published
settings and the truth. The settings are those of the authors' runs; where the paper
prints others, the published figures belong to these.
"""

from keql.datasets._burgers import make_burgers
from keql.datasets._darcy import make_darcy
from keql.datasets._duffing import make_duffing

__all__ = ["make_burgers", "make_darcy", "make_duffing"]
