"""Which elementary functions are tried, and how far the search for them goes."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ElementarySettings:
    """Which functions are tried, and how far the search for them goes.

    degree : int. Highest of products of operators beside the functions.
    most_products : int. Lower degrees are taken where there are more products.
    of_derivatives : bool. Whether there are functions of derivatives and of time, too.
    of_single_states : bool. Whether there are functions of one quantity at all, beside
        waves of phases: these have natural parameters only then.
    beside_states : bool. Without these, whether there are those of time and waves on
        rings: along known states they cost little.
    drags : bool. Whether drag, u_t |u_t|^k, and what saturates, tanh(k u), are tried.
    of_precise_data : bool. Whether saturation of third and fourth powers is tried, and
        Arrhenius's law.
    n_expected : float. How many products an equation has before data are seen, and how
        many functions; all of either are as probable.
    against : float. Prior log odds that an equation has products only, which sets with
        functions have to outweigh, and products found beside them have not. The same
        that it has no fourth and fifth powers.
    n_parameters : int. Values of the parameter of a function of a state on the grid.
    most_waves, per_wave : float, int. Faster sines and cosines of a state, up to so
        many radians from its least to its largest value, and as long as there are so
        many observations for each of their periods.
    n_frequencies : int. Of cosines and sines of time: those that equal distances
        between the observations resolve, so many at most.
    n_waves : int. Cosines and sines of each coordinate of space that is no ring, of a
        half to so many half periods over its extent, alone and times an operator.
    n_small : int. All sets of few products are compared, of sizes up to which there are
        not more than this.
    n_ranked : int. Sets whose prior scale is found, which the linearisation has of its
        own terms.
    n_tried : int. Sets of each size that are solved for in each linearisation.
    n_replaced, n_grown : int. Of sets with two or three terms in place of all of one
        equation, so many of each size are solved for in each linearisation; and so many
        of two terms are tried with a third one.
    n_rounds : int. Linearisations. Without any, systems have the functions that explain
        given trajectories best, in one round along these.
    n_rounds_along : int. Those of a system near the sets that explain exact data along
        the states best: right ones are met in the first, and others cost 3 s each.
    n_rounds_again : int. Those of a noisy system without any where functions that
        explain given trajectories are more probable than what the search starts from.
    better : float. By which the log evidence has to rise for another linearisation.
    max_steps : int. Steps to solve for one set.
    n_resolutions : int. How often steps in time are divided where they are too long:
        the error of one that has a kink in it falls by eight if it is halved.
    largest_change : float. Of the logarithm of a parameter in a step.
    tol : float. Change of the states at which steps end, relative to their size.
    part : float. The same in units of the noise, if that is more.
    patience, margin : int, float. After so many steps a set is given up whose log
        evidence is lower than that of the best by this; and if the least change of the
        states in as many steps is about that of as many before.
    first_look : int. After so many it is given up if it will not come near to that by
        then, its log evidence rising twice as fast in each step.
    dispensable : float. By which the log evidence without a term, linearised, is lower
        at most for it to be solved for without: five times that of `margin`, as steps
        may change it. And that of all phases, before pairs are left out.
    much_noise : float. Noise, in units of the size of the observations, from which on
        the evidence of the linearised problem tells, beside terms to start from, which
        sets are worth being solved for.
    missed : float. Errors of predictions, in units of that noise, from which on the
        functions of a single equation are looked for along its states as well.
    near : float. These are the sets whose log evidence is lower by at most this: odds
        of one to twenty, up to which they are told beside the terms.
    grid : tuple. Steps in time and points in space on which functions of fields are
        compared.
    far : float. Time farther from zero than so many of its spans is counted from a
        round number. Else waves were missed two spans from zero, and trends 170 spans.
    of_far_time : int. Its highest power; others' polynomials are other hypotheses.
    flat : float. Change of a function over the data, relative to its size, below which
        it stands for 1, and is left: the states of two steps do not tell the two. The
        same of its ratio to what it is a function of. cos(0.016 t) stood for 1 and
        sin(0.038 x) for x, and exp(-0.026 t) changed by 0.075 where it stood for 1.
    at_first : bool. Whether sets of products were not all looked for yet: functions
        have to be far more probable along states in time and space then.
    """

    degree: int = 3
    most_products: int = 25
    of_derivatives: bool = True
    of_single_states: bool = True
    beside_states: bool = False
    drags: bool = True
    of_precise_data: bool = True
    n_expected: float = 3.0
    against: float = 0.0
    n_parameters: int = 7
    most_waves: float = 40.0
    per_wave: int = 8
    n_frequencies: int = 60
    n_waves: int = 4
    n_small: int = 400
    n_ranked: int = 1000
    n_tried: int = 3
    n_replaced: int = 6
    n_grown: int = 40
    n_rounds: int = 12
    n_rounds_along: int = 1
    n_rounds_again: int = 12
    better: float = 0.1
    max_steps: int = 30
    n_resolutions: int = 6
    largest_change: float = 0.5
    tol: float = 1e-8
    part: float = 3e-3
    patience: int = 5
    first_look: int = 2
    margin: float = 10.0
    dispensable: float = 50.0
    much_noise: float = 2e-3
    missed: float = 2.0
    near: float = 3.0
    grid: tuple = (20, 40)
    far: float = 1.0
    of_far_time: int = 2
    flat: float = 0.0
    at_first: bool = False

    @classmethod
    def of_fields(cls):
        """For states in time and space, whose functions are of the state itself.

        Each step takes a tenth of a second, kernels and noise being found anew.
        """
        few = {"n_parameters": 5, "most_waves": 0.0, "n_tried": 2, "n_rounds": 2}
        steps = {"max_steps": 15, "tol": 1e-5, "part": 3e-2}
        how = {"of_derivatives": False, "of_precise_data": False, "drags": False}
        return cls(**how, **few, **steps)

    @classmethod
    def of_trajectories(cls, n_states, is_noisy, is_hidden, few=2, several=4):
        """For ordinary differential equations, of exact data or noisy ones.

        Linearised again with noise, which leaves more sets to be compared, three states
        take 20 s. So systems of more states than a few have the functions that explain
        given trajectories best, and those near them if these are more probable than
        products; and phases only where a state was never observed, or where there are
        more than several.
        """
        are_many = is_noisy and n_states > few
        if n_states > several or (are_many and is_hidden):
            return cls(of_single_states=False)
        return cls(n_rounds=0) if are_many else cls()

    @classmethod
    def along_fields(cls):
        """The same where functions are compared along known states first."""
        return replace(
            cls.of_fields(),
            beside_states=True,
            drags=True,
            n_frequencies=12,
            flat=0.1,
        )

    @classmethod
    def of_static_fields(cls):
        """The same of fields that are static, whose states are smooth.

        Each set takes a few joint fits, until its parameters move no more.
        """
        return replace(cls.of_fields(), drags=True, n_tried=3, tol=1e-6, flat=0.02)
