"""Displays of fits, in the convention of scikit-learn's.

Each display is made by its class methods `from_estimator` and `from_predictions`, draws
with `plot` and keeps the axes and the figure as `ax_` and `figure_`. Colours can be
told apart in grey and by colour-blind readers; maps of values of both signs have zero
in the middle of their colours.
"""

from keql.plotting._curves import EquationParityDisplay, LossCurveDisplay
from keql.plotting._fields import CoefficientDisplay, ErrorDisplay
from keql.plotting._phase import PhasePortraitDisplay
from keql.plotting._state import StateDisplay

__all__ = [
    "CoefficientDisplay",
    "EquationParityDisplay",
    "ErrorDisplay",
    "LossCurveDisplay",
    "PhasePortraitDisplay",
    "StateDisplay",
]
