"""What is known of an equation before it is learned, and what was learned."""

from dataclasses import dataclass

import numpy as np

from keql._observations.data import Observations


@dataclass(frozen=True)
class EquationSetup:
    """What is known about the equation before anything is learned."""

    operators: list
    n_operators: int
    known_part: object
    collocation_points: list
    forcing: list
    has_forcing: bool

    def features(self, imposed):
        """Features of shape (n, d + Q') at the collocation points of all functions.

        Parameters
        ----------
        imposed : list of ndarray of shape (Q' K_m,)
            Values of the operators, one after the other, at the points of a function.

        Returns
        -------
        S : ndarray of shape (sum K_m, d + Q')
            Coordinates, and a column for each operator.
        """
        pairs = zip(self.collocation_points, imposed, strict=True)
        return np.concatenate(
            [np.column_stack([x, z.reshape(-1, len(x)).T]) for x, z in pairs]
        )

    def features_of(self, states):
        """The same of states, given by one object with `evaluate` for each function."""
        imposed = [
            np.concatenate([state.evaluate(x, L) for L in self.operators])
            for state, x in zip(states, self.collocation_points, strict=True)
        ]
        return self.features(imposed)


@dataclass(frozen=True)
class LearnedModel:
    """States and equation, with what they were learned from."""

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
        """What P has to explain, f - Pbar, at the features it was learned from.

        Of shape (sum K_m,), in units of the forcing.
        """
        known = self.setup.known_part(self.equation.training_features)
        return np.concatenate(self.setup.forcing) - known
