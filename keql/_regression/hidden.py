"""The scale of states of which nothing was ever measured.

Nothing tells their units: with y also 2 y is a solution, of other equations. What
depends on their scale takes that of their prior. Taken from fitted values it would
shrink: of smaller states the norm is smaller, and equations scaled to these, or to
their derivatives, are as likely as before.
"""

import numpy as np
from sklearn.base import clone

from keql._observations.data import size_of
from keql.kernels import RBF, Constant
from keql.operators import gram_diagonal


def hidden_operators(learned):
    """Positions of the operators of states that were not followed."""
    hidden = learned.observations.hidden_states
    operators = enumerate(learned.setup.operators)
    return [q for q, operator in operators if operator.state in hidden]


def involves(terms, S, first, hidden):
    """Whether an equation depends on hidden operators, with features S (n, d + Q').

    Operators start at the column `first`.
    """
    if set(hidden) & set(terms.depends_on or ()):
        return True
    slopes = terms.known_part.gradient(S)[[first + q for q in hidden]]
    return bool(np.any(slopes))


def with_prior_values(learned, S, first, hidden):
    """Features whose hidden operators have values of the size of their prior."""
    S, points = S.copy(), S[:, : len(learned.variables)]
    for q in hidden:
        operator = learned.setup.operators[q]
        size = np.sqrt(np.mean(gram_diagonal(learned.state_kernel, points, operator)))
        values = np.random.RandomState(q).standard_normal(len(S))
        values -= np.mean(values)
        S[:, first + q] = size * values / np.std(values)
    return S


def hidden_state_kernel(samples, lengths, observations):
    """A kernel for a state that was not followed, of which there may be a few samples.

    Of their size, or of unit size if there are none, as the unit is free then.

    samples : list of Sample. Values of the state, in its unit; there may be none.
    lengths : ndarray of shape (d,). Length scales, in the units of the coordinates.
    observations : Observations. With the periods of the coordinates.
    """
    size = size_of(samples) if samples else 1.0
    shape = RBF(lengths, "fixed", period=observations.periods)
    return Constant(size**2, "fixed") * shape


def with_prior_variance(kernel, size):
    """The kernel of an equation with hidden states, with the variance of its prior.

    Fixed is what else would be found by likelihood. A free variance is the square of
    `size`, the root mean square of what P has to explain with states of their prior's
    size, as nearly as its bounds allow: a kernel that was made for other states of the
    prior has theirs, and weights in other units have another unit of the state.
    """
    given = kernel.get_params()
    free = {
        name: np.clip(size**2, *given[f"{name}_bounds"])
        for name in given
        if name.endswith("constant_value") and given[f"{name}_bounds"] != "fixed"
    }
    return with_fixed_bounds(clone(kernel).set_params(**free))


def with_fixed_bounds(kernel):
    """The kernel with all hyperparameters fixed."""
    names = [name for name in kernel.get_params() if name.endswith("_bounds")]
    return clone(kernel).set_params(**dict.fromkeys(names, "fixed"))
