"""What is known of equations before they are learned, and what was learned."""

from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np

from keql._observations.data import Observations
from keql._observations.inputs import Inputs
from keql.equation._basis import InducingBasis, PolynomialBasis
from keql.equation._known import SystemKnownPart


@dataclass(frozen=True)
class EquationTerms:
    """One equation of a setup: what its two sides depend on.

    It has a `name`, the `known_part` Pbar bound to the columns of the features, the
    positions `depends_on` of the operators that P may depend on (None: P is zero), and
    whether a forcing was given for it.
    """

    name: str
    known_part: object
    depends_on: tuple | None
    has_forcing: bool


@dataclass(frozen=True)
class EquationSetup:
    """Equations (P + Pbar)(x, inputs, L_1 u, ..., L_Q' u) = f before P is learned.

    The `equations` (EquationTerms) share the `operators`: the Q = `n_operators` that a
    P depends on, then those that only known parts use; and the `inputs` (Inputs).
    For each function, `collocation_points` (K_m, d) are the points where equations are
    imposed, `rows` (an Imposed) says which equation is at which, R_m rows, and
    `forcing` (R_m,) is f in these. For each function, `forcing_functions` has f of each
    equation as a function of points (n, d), None where it is zero or known at
    points of several coordinates only. `given_points` (K_m', d) are all that were given
    or placed, of which some may have been left out.
    """

    equations: tuple
    operators: list
    n_operators: int
    collocation_points: list
    rows: list
    forcing: list
    forcing_functions: list
    inputs: Inputs = field(default_factory=lambda: Inputs(None, (), {}))
    given_points: list | None = None

    def select(self, masks):
        """The setup with some of the points: `masks` (K_m,) of each function.

        Functions that share their points, and which of them are kept, still do.
        """
        points, rows, forcing, shared = [], [], [], {}
        for x, own, f, mask in zip(
            self.collocation_points, self.rows, self.forcing, masks, strict=True
        ):
            key, kept = (id(x), mask.tobytes()), np.flatnonzero(mask)
            here = own.at(kept, len(x))
            points.append(shared.setdefault(key, x[mask]))
            rows.append(own.select(here, kept, len(x)))
            forcing.append(f[here])
        return replace(self, collocation_points=points, rows=rows, forcing=forcing)

    @property
    def is_system(self):
        """Whether there are several equations."""
        return len(self.equations) > 1

    @property
    def known_part(self):
        """Pbar as a function of the features of all rows."""
        parts = [equation.known_part for equation in self.equations]
        return SystemKnownPart(parts) if self.is_system else parts[0]

    @property
    def has_forcing(self):
        """Whether the right-hand side of an equation was given."""
        return any(equation.has_forcing for equation in self.equations)

    @property
    def n_columns(self):
        """Number of columns of the features that an unknown part sees."""
        return self.rows[0].coordinates.shape[1] + self.n_operators

    def unknown_names(self, variables):
        """Names of the features that P depends on: coordinates, inputs, operators."""
        operators = self.operators[: self.n_operators]
        names = [operator.name for operator in operators]
        return [*variables, *self.inputs.names, *names]

    def features(self, imposed):
        """Features (sum R_m, c + Q') in the rows of all functions.

        `imposed` has, for each function, an array of shape (Q' K_m,): the values of
        the operators, one operator after the other.
        """
        features = []
        for rows, z in zip(self.rows, imposed, strict=True):
            operators = rows.gather(z.reshape(len(self.operators), rows.n_points))
            features.append(np.column_stack([rows.coordinates, operators.T]))
        return np.concatenate(features)

    def features_of(self, states):
        """Features (sum R_m, c + Q') of states, one for each function."""
        imposed = [
            np.concatenate([state.evaluate(x, L) for L in self.operators])
            for state, x in zip(states, self.collocation_points, strict=True)
        ]
        return self.features(imposed)

    def some_rows(self, e, n_rows, n_functions):
        """Rows of the equation at position `e`, of some functions, evenly spaced.

        About `n_rows` rows in all, of `n_functions` functions at most. A list of the
        number of the function, positions among the rows of the equation, and points.
        """
        placed = [
            x[rows.slices()[e][1]]
            for x, rows in zip(self.collocation_points, self.rows, strict=True)
        ]
        starts = np.cumsum([0, *map(len, placed)])
        chosen = range(0, len(placed), -(-len(placed) // n_functions))
        stride = -(-sum(len(placed[m]) for m in chosen) // n_rows)
        return [
            (m, np.arange(starts[m], starts[m + 1], stride), placed[m][::stride])
            for m in chosen
        ]

    def split(self, values):
        """Values in all rows (sum R_m, ...) as a list, one array for each equation.

        Of features the number of the equation, their first column, is left out.
        """
        if not self.is_system:
            return [values]
        equation = np.concatenate([rows.equation for rows in self.rows])
        first = int(values.ndim == 2)
        n_equations = len(self.equations)
        return [values[equation == e][..., first:] for e in range(n_equations)]


@dataclass(frozen=True)
class LearnedModel:
    """States and equations, with what they were learned from.

    `setup` and `equations` are None or empty where no equation is learned. The noise
    levels are standard deviations: of the values of each observed operator (J,), in
    their units, and of each equation (E,), in units of its forcing. The search for
    hyperparameters may have been interrupted from the keyboard: it `is_stopped`.
    """

    observations: Observations
    variables: tuple
    setup: EquationSetup | None
    state_kernel: object
    observation_noise: np.ndarray
    states: list | None = None
    equations: tuple = ()
    equation_noise: np.ndarray = field(default_factory=lambda: np.empty(0))
    is_stopped: bool = False

    @property
    def equation(self):
        """The first equation; the only one unless there is a system."""
        return self.equations[0] if self.equations else None

    @property
    def targets(self):
        """What each P has to explain: f - Pbar at its training features, a list."""
        forcing = self.setup.split(np.concatenate(self.setup.forcing))
        return [
            right - equation.known_part(equation.training_features)
            for right, equation in zip(forcing, self.equations, strict=True)
        ]


def with_few_weights(learned):
    """A learned model whose equations have as many weights as their kernels ask for."""
    equations = []
    for equation in learned.equations:
        if isinstance(equation.basis, InducingBasis):
            equation = copy(equation)
            basis, weights = equation.basis.thinned(equation.weights)
            equation.basis, equation.weights = basis, weights
        equations.append(equation)
    return replace(learned, equations=tuple(equations))


def make_basis(kernel, S, n_inducing, rng):
    """Exact features if the kernel has them, otherwise features of inducing points.

    The kernel is resolved to columns and scales; at most `n_inducing` points are drawn
    from the features `S` of shape (n, d) by a RandomState, and those are taken that are
    independent.
    """
    if kernel.n_features(S.shape[1]) is not None:
        return PolynomialBasis(kernel)
    points = draw_rows(np.unique(S, axis=0), n_inducing, rng)
    return InducingBasis.among(kernel, points)


def draw_rows(S, n, rng):
    """At most `n` rows of `S`, in order; all of them if there are no more."""
    if len(S) <= n:
        return S
    return S[np.sort(rng.choice(len(S), n, replace=False))]
