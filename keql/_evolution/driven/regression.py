"""Weights and initial values of states with jumps, from their observations.

What each observation adds to those before it is affine in the weights and the initial
values, and independent of the others, so that it takes the place of the observation.
"""

from dataclasses import replace
from functools import cached_property

import numpy as np

from keql._evolution.driven.smoother import Smoother
from keql._evolution.initial_values import InitialValueRegression, Rows


class NoisyRegression(InitialValueRegression):
    """Weights and initial values of M functions whose nodes have jumps.

    noisy : list of NoisyRows. Of each function.
    center, prior : ndarray, InitialPrior. As of an InitialValueRegression.
    known : NoisyRegression, default=None. With the same rows and another prior.
    """

    def __init__(self, noisy, center, prior, known=None):
        self.noisy = noisy
        if known is not None and _are_equally_noisy(known.prior, prior):
            self.smoothers = known.smoothers
        else:
            driven = noisy
            if prior.drive is not None:
                driven = [own.driven(prior.drive) for own in noisy]
            self.smoothers = [
                Smoother(own, prior.noise[own.index] / np.sqrt(own.weights))
                for own in driven
            ]
        p, rows = len(center), []
        for own, smoother in zip(noisy, self.smoothers, strict=True):
            parts = np.split(smoother.innovations, [1, 1 + p], axis=1)
            right, on_weights, on_initial = parts[0][:, 0], -parts[1], -parts[2]
            given = own.initial, own.index, own.weights
            rows.append(Rows(right, on_weights, on_initial, *given))
        super().__init__(rows, center, prior)
        self._precisions = [1 / smoother.deviations for smoother in self.smoothers]

    def _with(self, prior):
        return NoisyRegression(self.noisy, self.center, prior, self)

    def _misfit(self, total, n_free):
        # Jumps explain nearly all if the noise is low, down to rounding errors.
        return np.clip(total / n_free, 1e-4, 1e4) if n_free > 0 else 1.0

    def with_best_prior(self, max_iter=50, tol=1e-3):
        """The regression with noise levels and the scale of maximum likelihood.

        Where jumps alone explain the observations, the likelihood hardly depends on
        the noise: from there a search does not come to a maximum, so that it begins at
        the most likely of some levels.
        """
        best, prior = self, self.prior
        drives = [prior.drive * factor for factor in prior.first_drive]
        prior, levels = replace(prior, first_drive=()), [prior.noise]
        if np.any(prior.free_noise & (prior.noise < prior.first_noise[0])):
            levels += [*np.where(prior.free_noise, prior.first_noise, prior.noise)]
        if drives or len(levels) > 1:
            others = [
                self._with(replace(prior, noise=noise, drive=drive))
                for noise in levels
                for drive in drives or [prior.drive]
            ]
            best = max(others, key=lambda each: each.log_evidence())
        return super(NoisyRegression, best).with_best_prior(max_iter, tol)

    def _better_prior(self, most=10.0, least_known=0.1):
        """The same with the noise of the equations that suits its jumps better.

        Within a factor; of which next to nothing is known keeps its level.
        """
        prior = super()._better_prior()
        if prior.drive is None:
            return prior
        change, initial = self.changes
        squares, known = np.sum(
            [
                smoother.sizes_of_jumps(np.concatenate([[1.0], change, own]), root)
                for smoother, root, own in zip(
                    self.smoothers, self._roots(), initial, strict=True
                )
            ],
            axis=0,
        )
        ratio = np.sqrt(squares / np.maximum(known, least_known))
        ratio = np.where(known > least_known, np.clip(ratio, 1 / most, most), 1.0)
        return replace(prior, drive=prior.drive * ratio)

    @property
    def innovations(self):
        """What each observation of a function adds to those before it, a list of (n,).

        In units of its standard deviation: independent if the noise is white.
        """
        change, initial = self.changes
        return [
            smoother.innovations
            @ np.concatenate([[1.0], change, own])
            / smoother.deviations
            for smoother, own in zip(self.smoothers, initial, strict=True)
        ]

    @cached_property
    def _in_units_of_noise(self):
        """Residuals of the observations of each function, and their leverages.

        Of the inverse covariance of all observations, that which weights and initial
        values have in common is taken out.
        """
        residuals, leverages = [], []
        change, initial = self.changes
        for smoother, root, own in zip(
            self.smoothers, self._roots(), initial, strict=True
        ):
            _, _, smoothed, precisions = smoother.backward
            missed = smoothed @ np.concatenate([[1.0], change, own])
            common = np.sum((smoothed[:, 1:] @ root) ** 2, axis=1)
            residuals.append(missed * smoother.noise)
            left = (precisions - common) * smoother.noise**2
            leverages.append(1 - left)
        return residuals, leverages

    @property
    def _residuals(self):
        return self._in_units_of_noise[0]

    @property
    def _leverages(self):
        return self._in_units_of_noise[1]


def _are_equally_noisy(prior, other):
    """Whether observations and equations have the same noise."""
    return np.array_equal(prior.noise, other.noise) and (
        prior.drive is None or np.array_equal(prior.drive, other.drive)
    )
