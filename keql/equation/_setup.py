"""What is known of an equation before it is learned, and what was learned."""

from dataclasses import dataclass

import numpy as np

from keql._observations.data import Observations


@dataclass(frozen=True)
class EquationSetup:
    """One equation (P + Pbar)(x, L_1 u, ..., L_Q' u) = f before P is learned.

    Attributes
    ----------
    operators : list of DifferentialOperator
        L_1, ..., L_Q': those of P, then those that only the known part uses.
    n_operators : int
        Q, the number of operators that P depends on.
    known_part : LinearKnownPart or FunctionKnownPart
        Pbar, bound to the columns of the features.
    collocation_points : list of ndarray of shape (K_m, d)
        Where the equation is imposed on each function.
    forcing : list of ndarray of shape (K_m,)
        f there; zeros if there is none.
    has_forcing : bool
        Whether a forcing was given.
    """

    operators: list
    n_operators: int
    known_part: object
    collocation_points: list
    forcing: list
    has_forcing: bool

    def features(self, imposed):
        """Features (sum K_m, d + Q') at the collocation points of all functions.

        `imposed` has, for each function, an array of shape (Q' K_m,): the values of
        the operators, one operator after the other.
        """
        pairs = zip(self.collocation_points, imposed, strict=True)
        return np.concatenate(
            [np.column_stack([x, z.reshape(-1, len(x)).T]) for x, z in pairs]
        )

    def features_of(self, states):
        """Features (sum K_m, d + Q') of states, one for each function."""
        imposed = [
            np.concatenate([state.evaluate(x, L) for L in self.operators])
            for state, x in zip(states, self.collocation_points, strict=True)
        ]
        return self.features(imposed)


@dataclass(frozen=True)
class LearnedModel:
    """States and equation, with what they were learned from.

    `setup`, `equation` and `equation_noise` are None where no equation is learned. The
    noise levels are standard deviations, in units of the values and of the forcing.
    """

    observations: Observations
    variables: tuple
    setup: EquationSetup | None
    state_kernel: object
    observation_noise: float
    states: list
    equation: object
    equation_noise: float | None

    @property
    def target(self):
        """Values (sum K_m,) that P has to explain, f - Pbar, in units of the forcing.

        They are taken at the features that the equation was learned from.
        """
        known = self.setup.known_part(self.equation.training_features)
        return np.concatenate(self.setup.forcing) - known
