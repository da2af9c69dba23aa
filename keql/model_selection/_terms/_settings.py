"""How far searches for the terms of exact states go, in time and in time and space."""

from dataclasses import dataclass

from keql._regression.term_scores import TermPrior


@dataclass(frozen=True)
class TrajectorySearchSettings:
    """How far the search for terms of trajectories and of systems of fields goes.

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
    in_each : bool. Whether that counts for the terms of each equation, too: where more
        terms are offered if so many stand for others.
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
    in_each: bool = False
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


@dataclass(frozen=True)
class TermSearchSettings:
    """How far the search for terms of a single field, exact in time and space, goes.

    max_size, max_sets : int. All sets of up to `max_size` terms are compared, in a
        plane of one more, as what spreads has a term for each coordinate, if at most
        `max_sets` have a size; larger ones near the best one.
    n_grown : int. Sets of each size from which larger ones grow by a term.
    grows : bool. Whether they do if the number of terms is open. From states that miss
        the data far too many terms grow.
    n_rounds : int. How often sets are compared; rounds to fewer terms do not count.
    n_wanted, n_tried : int. Sets that are solved exactly in the first round (one in the
        others), and those that are tried for that at most.
    n_again : int. Those that are tried at most on a fine grid, after a coarse one.
    most_failed : int. Sets of the first round on a coarse grid whose steps may fail
        before the search is given up, as the first states are too poor. Of noisy fields
        whose terms were found from those of two steps at most five failed, but for
        eight in one case; in 16 cases where they were not, eight to 23 did.
    max_steps : int. Gauss-Newton steps of one set, and at the end.
    tol : float. Change of the states that ends the steps at the end, in units of the
        `tol` of the fit; sets are compared at ten times that change.
    settled : float. Multiple of that change up to which steps that do not end are those
        of rounding errors, on which states of exact data depend between observations.
    better : float. By which the log evidence of a better set is higher at least.
    hopeless : float. At states that other terms reach, the log likelihood for each term
        on offer by which that of all terms may be lower, linearised there; below it no
        set of them is solved for. A superfluous term costs three to seven; at 480 exact
        values of an advection of varying speed, the quadratic polynomial is 560 below.
    rival, n_rivals : float, int. Within noise, sets of a log evidence that is lower by
        less than this, linearised at the best one, and without one of its terms, are
        solved for at the end, so many at most: odds of one to twenty, up to which
        rivals are told (Kass and Raftery, "Bayes factors", JASA 90, 1995).
    margin, n_simpler : float, int. Where data are exact, sets without some terms of the
        best one are solved for at the end, so many at most, if their log evidence is
        lower by less than the margin, linearised at the best one. Terms that make up
        for one another go together: without two of seven, Swift and Hohenberg's
        equation was 9 below so, and 19 above once it was solved for.
    main : float. So is the set of those that contribute more than this part of the
        equation, where states are: others may make up for a grid, and do so in steep
        states by more than can be linearised. Four of Burgers' equation with fronts,
        17 below once the two true ones were solved for, contributed 0.001 to 0.01.
    shifted : float. As many that have all of its terms, where some of these contribute
        differently beside more: by more than this where states are, in units of the
        size of the equation. Beside the right terms of noisy fields superfluous ones
        did so by 0.06 at most, but for a constant in Allen's and Cahn's; ``u_xy`` by
        0.09 where data hardly told it from the others.
    dense : int. Values of a function from which on states of two steps are not too poor
        for all sets of terms, and joint fits, which take the cube of their number, come
        later: of 480 to 760 values of two solitons in half of the time.
    """

    max_size: int = 3
    max_sets: int = 40_000
    n_grown: int = 20
    grows: bool = False
    n_rounds: int = 6
    n_wanted: int = 3
    n_tried: int = 24
    n_again: int = 12
    most_failed: int = 24
    max_steps: int = 15
    tol: float = 10.0
    settled: float = 10.0
    better: float = 0.1
    hopeless: float = 10.0
    rival: float = 3.0
    n_rivals: int = 3
    margin: float = 10.0
    n_simpler: int = 3
    main: float = 0.02
    shifted: float = 0.07
    dense: int = 300

    @classmethod
    def of_poor_states(cls):
        """From states that may be too poor, if there are others to start from."""
        return cls(most_failed=5)

    @classmethod
    def of_failed_states(cls):
        """From states near which no terms that meet the data were found before."""
        return cls(n_tried=3)
