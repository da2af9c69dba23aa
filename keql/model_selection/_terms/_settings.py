"""How far a search for the terms of exact states goes."""

from dataclasses import dataclass

from keql._regression.term_scores import TermPrior


@dataclass(frozen=True)
class TrajectorySearchSettings:
    """How far the search for terms goes.

    n_rounds : int. Linearisations in which sets of terms are searched.
    n_tried, margin : int, float. In each, so many sets are solved for at most, as long
        as their log evidence is lower than that of the best one by at most the margin,
        linearised: a difference of five is decisive, and it may be as far off.
    beaten : float. Steps are given up where their log evidence is lower by more than
        this than that of the best set, and will not rise to it: very strong evidence
        (Kass and Raftery).
    n_small : int. Of each equation, all sets of few terms are compared, up to a size of
        which there are not more than this with the smaller ones.
    n_compared : int. Of all neighbours of a set, the best ones by a formula for all of
        them are compared by their own evidence: rounding errors are smaller.
    few, share : int, float. Of more terms than `few`, this part is taken out at once,
        those that cost least.
    many, dense : int, float. A set with more terms than `many`, and with more than the
        part `dense` of all, stands for a term that is not on offer. If such a set is
        the best where the last one was solved for, too, no other is tried near it:
        errors of Hill functions were 9.5e-4 with 44 of 60 terms, 9.3e-4 at best.
    max_steps : int. Steps for one set of terms: they are many where noise is high.
    tol : float. Change of the states at which steps end, relative to their size, in
        units of the loop's tolerance.
    part : float. The same in units of the noise, if that is more: with terms that the
        data hardly tell apart the last steps are long in coming, and say nothing.
    settled : float. Steps that do not end have converged if the log evidence of the
        last ones differs by less than this: very strong evidence is more.
    n_resolutions : int. How often steps in time are divided where they are too long.
    hopeless, lost : float. Error of predictions, in standard deviations of the
        observations, from which on the search is given up: of any best terms so far,
        and of such whose steps go round, which say less of what is near (`explains`).
    stays : bool. Whether a solution stays as it is if steps do not end on a finer grid,
        which changes it by about what noise does.
    n_simpler : int. Of sets with fewer terms than the best one that are within the
        margin of it, linearised, so many are solved for if no others are better, as
        many with other terms in the place of some, and as many with two for two.
    n_without : int. Of sets without any one or two terms of the best one, so many are
        solved for if no others are better.
    equal, differs : float. With fewer terms in other coordinates of a hidden state, a
        law may be less probable by this log evidence, and its rates differ by this part
        of their size: they are `rival` and `differs` of the Criteria.
    repeated : float. Predictions with equal terms whose errors differ by less than this
        part are of one solution: it is the `agreement` of the Criteria.
    unresolved : float. Change on a finer grid in units of the noise, that of the
        Criteria, up to which fields are kept if steps do not end there.
    n_refreshed : int. How often fields are searched again with a better prior.
    first_grid : tuple. Steps in time and points in space of the search among fields.
    diffusions : tuple of float. Speeds of the diffusion that noisy fields begin with.
    prior : TermPrior. What is expected of terms.
    """

    n_rounds: int = 20
    n_tried: int = 6
    margin: float = 10.0
    beaten: float = 5.0
    n_small: int = 10_000
    n_compared: int = 40
    few: int = 60
    share: float = 0.1
    many: int = 20
    dense: float = 0.4
    max_steps: int = 150
    tol: float = 0.1
    part: float = 3e-3
    settled: float = 0.0
    n_resolutions: int = 3
    hopeless: float = 0.9
    lost: float = 0.6
    stays: bool = False
    n_simpler: int = 0
    n_without: int = 0
    equal: float = 3.0
    differs: float = 0.05
    repeated: float = 0.01
    unresolved: float = 2.0
    n_refreshed: int = 2
    first_grid: tuple = (20, 40)
    diffusions: tuple = (1.0, 3.0, 10.0)
    prior: TermPrior = TermPrior()

    @classmethod
    def of_hidden_states(cls):
        """For trajectories of which one state was never observed.

        They are found in coordinates in which equations may have more terms than in
        others, far off: a linearisation does not tell which terms can go.
        """
        return cls(n_simpler=3, n_without=12)

    @classmethod
    def of_fields(cls, are_noisy=True):
        """For states in time and space, each of whose steps takes a second.

        Kernels and noise, found anew in each, are known to some digits only. Noisy
        fields begin with half of the steps in time, which are short enough for most.
        Their steps have to converge: states of two noisy species that had settled were
        not resolved.
        """
        more = {"stays": True, "n_simpler": 3}
        grid, settled = ((10, 40), 0.0) if are_noisy else ((20, 40), 5.0)
        given = {"max_steps": 15, "tol": 30.0, "part": 3e-2, "settled": settled}
        return cls(**given, first_grid=grid, **more)
