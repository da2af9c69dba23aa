"""When one fit is better than another, good enough, or not worth refining."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Criteria:
    """What hypotheses are compared by: errors of predicting each observation.

    Each observation is predicted from all others and the equation (leave one out);
    the error of a fit is the root mean square of these errors. The values were found
    on Burgers' equation, Duffing's and Darcy's, with and without noise (see the
    developer notes); none depends on units.

    clearly_better : float. Factor of the error from which on another hypothesis is
        taken although it says more: a higher degree, less noise, coefficients that
        vary.
    predicts_well : float. Error, in units of the root mean square of the observations,
        up to which a fit counts as one that predicts.
    explains : float. Error, in units of the standard deviation of the observations,
        above which a fit explains little: the noise level that two steps find may be
        that of a signal they did not see.
    unexplained : float. Residual of an equation at collocation points, in units of the
        size of its known part and forcing, above which a part of it is not explained.
        Right equations were met to 0.75 % at most, wrong ones missed by 2.4 % at least.
    rival : float. Log odds up to which equations with other terms are told beside the
        one of the highest evidence: one to twenty, from which on
        evidence is called strong: Kass and Raftery, "Bayes factors", JASA 90, 1995.
    wider : float. Prior log odds that an ordinary differential equation has no products
        of four operators and does not depend on time: odds that call for decisive
        evidence (Kass and Raftery).
    noise_limited : float. Error, in units of the observation noise, up to which noise
        hides whether another fit predicts better.
    exact_size, exact_noise : float. Error of exact states, in units of the size of the
        observations and of the noise that two steps find, up to which nothing else is
        tried.
    nothing_missed : float. The same of trajectories if two steps find no noise, in
        units of the size of the observations.
    agreement : float. Trajectories with equal terms whose errors differ by less than
        this part are the same minimum.
    inactive_misfit : float. Mean square of the residuals, in units of the noise levels,
        below which the noise of the equation does not matter.
    less_noise : float. Factor of the noise of the equation that is tried along with it.
    ties : float. Kernels predict as well as the best one if their mean squared error is
        higher by at most this part of the standard error of the difference.
    n_finalists : int. State kernels that are fitted to the last term while predictions
        are poor.
    n_functions : int. Functions in space and time whose exact states are compared for
        all sets of few terms on a fine grid; of more, terms are taken out one by one on
        a coarse grid, as those of several fields are.
    """

    clearly_better: float = 0.75
    predicts_well: float = 0.1
    explains: float = 0.6
    unexplained: float = 0.02
    rival: float = 3.0
    wider: float = 5.0
    noise_limited: float = 2.0
    exact_size: float = 5e-3
    exact_noise: float = 1.5
    nothing_missed: float = 1e-7
    agreement: float = 0.01
    inactive_misfit: float = 0.1
    less_noise: float = 0.1
    ties: float = 0.25
    n_finalists: int = 8
    n_functions: int = 12
