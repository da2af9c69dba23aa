"""The learned equation: a function of features that one can read, call and apply."""

from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from keql._numerics.arguments import as_rows, in_short
from keql._numerics.extrapolation import coverage_ratio
from keql._numerics.linalg import rms
from keql._numerics.memory import in_chunks
from keql._observations.inputs import input_columns
from keql.equation._basis import PolynomialBasis, WeightPosterior
from keql.equation._ode import simulate
from keql.equation._plain import equation_from_plain, equation_to_plain
from keql.equation._reading._readout import ReadableEquation
from keql.operators import apply_operator


@dataclass(eq=False, repr=False)
class LearnedEquation(ReadableEquation):
    """A differential equation (P + Pbar)(x, L_1 u, ..., L_Q' u) = f.

    Returned by the estimators as `equation_`; P is learned, Pbar was given as the
    known part. What is called most:

    - ``print(equation)``, :meth:`to_text`, :meth:`to_latex`, :meth:`to_sympy`: the
      equation, solved for the known part, the second with standard errors;
    - :meth:`terms`, :meth:`to_frame`: its coefficients with standard errors;
    - :meth:`sparse`, :meth:`path`: fewer terms, and what that costs;
    - :meth:`simulate`: an ordinary differential equation from other initial values;
    - :meth:`to_dict`, :meth:`from_dict`: to a file and back;
    - ``equation(S)``, :meth:`unknown_part`, :meth:`features`, :meth:`apply`: values.

    Estimators make it; nobody else has to pass its parameters. The *features* S of a
    function u at points have one row for each point and the columns named by
    `feature_names`: the coordinates, the known quantities that P may depend on, the
    operators in the order given, and the operators that only the known part uses, or
    known parts of other equations of the same system.

    Parameters
    ----------
    variables : tuple of str
        Names of the d coordinates.
    operators, n_operators : list of DifferentialOperator, int
        L_1, ..., L_Q', and Q: how many of them P depends on.
    known_part : LinearKnownPart or FunctionKnownPart
        Pbar.
    basis, weights : PolynomialBasis or InducingBasis, ndarray of shape (p,)
        P = psi . weights with orthonormal features psi of the equation's RKHS.
    state_kernel : Kernel
        Kernel of the states that the equation was learned with.
    training_features : ndarray of shape (n, d + Q')
        Features of the learned states at the collocation points; d counts the inputs.
    has_forcing : bool, default=False
        Whether the right-hand side f is other than zero.
    posterior : WeightPosterior, default=None
        What the data say about the weights: standard errors and sparse equations.
    states : tuple of str, default=("u",)
        Names of the states of the system that the equation belongs to.
    inputs : tuple of str, default=()
        Names of the known quantities that P may depend on.

    Attributes
    ----------
    feature_names : list of str
        Names of the columns of S.
    n_unknown_features : int
        How many of them, the first ones, P sees: d + Q.
    equation_kernel : Kernel or None
        Kernel of the RKHS of P; None if the equation is known and P = 0.
    units, unit : Units, Unit
        Those that were given to the estimator, and that of both sides; None without.
    original : LearnedEquation or None
        What `sparse` or `project` made this equation from.
    unexplained, loss_ratio : float
        Relative L2 distance between the two on the data, and loss of the fit with the
        terms of this one over that of the original.

    Examples
    --------
    >>> from keql import TwoStepKEqL
    >>> from keql.datasets import make_burgers
    >>> data = make_burgers(400, initial_condition="published", random_state=0)
    >>> model = TwoStepKEqL(**data.problem).fit(data.X, data.y)
    >>> equation = model.equation_
    >>> equation.feature_names
    ['t', 'x', 'u', 'u_x', 'u_xx', 'u_t']
    >>> S = equation.features(model, data.X_test)
    >>> equation(S).shape == data.y_test.shape
    True
    >>> len(equation.sparse(n_terms=2).terms())
    2
    """

    variables: tuple
    operators: list
    n_operators: int
    known_part: Any
    basis: Any
    weights: np.ndarray
    state_kernel: object
    training_features: np.ndarray
    has_forcing: bool = False
    posterior: WeightPosterior | None = None
    states: tuple = ("u",)
    inputs: tuple = ()
    original = None

    def __post_init__(self):
        self.variables, self.operators = tuple(self.variables), list(self.operators)
        self.states, self.inputs = tuple(self.states), tuple(self.inputs)

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of the features."""
        names = [operator.name for operator in self.operators]
        return [*self.variables, *self.inputs, *names]

    def __call__(self, S: Any) -> np.ndarray:
        """Left-hand side (P + Pbar)(S).

        Parameters
        ----------
        S : array-like of shape (n, d + Q')
            Features.

        Returns
        -------
        values : ndarray of shape (n,)
            In units of the forcing.
        """
        S = self._check_features(S)
        return self.unknown_part(S) + self.known_part(S)

    def unknown_part(self, S: Any) -> np.ndarray:
        """Learned part P(S).

        Parameters
        ----------
        S : array-like of shape (n, d + Q) or (n, d + Q')
            Features; columns after the first d + Q are not looked at. Of the columns
            here and below, d counts coordinates and inputs.

        Returns
        -------
        values : ndarray of shape (n,)
            In units of the forcing.
        """
        return self.basis.values(self._unknown_columns(S), self.weights)

    def gradient(self, S: Any) -> np.ndarray:
        """Partial derivatives of P + Pbar with respect to the features.

        Parameters
        ----------
        S : array-like of shape (n, d + Q')
            Features.

        Returns
        -------
        gradient : ndarray of shape (n, d + Q')
            One column for each feature.
        """
        S = self._check_features(S)
        gradient = self.known_part.gradient(S)
        unknown = self.basis.gradient(self._unknown_columns(S), self.weights)
        gradient[: len(unknown)] += unknown
        return gradient.T

    def features(self, w: Any, X: Any, inputs: dict | None = None) -> np.ndarray:
        """Features of a function at points.

        Parameters
        ----------
        w : fitted estimator or callable
            A fitted estimator of keql, or a function written in `autograd.numpy` that
            takes points (n, d) and returns values (n,), or (n, S) of S states in the
            order of `states`.
        X : array-like of shape (n, n_columns)
            Points, as the estimator's `predict` takes them; (n, d) for a callable.
        inputs : dict, default=None
            For a callable, each input's name with a number or a function of points
            (n, d); an estimator knows its own.

        Returns
        -------
        S : ndarray of shape (n, d + Q')
            One column for each of `feature_names`.
        """
        if hasattr(w, "predict_derivative"):
            if inputs is not None:
                raise ValueError(
                    "inputs must be None for a fitted estimator, which knows them."
                )
            columns = [w.predict_derivative(X, operator) for operator in self.operators]
            given = [w.coordinates(X)] + ([w.input_values(X)] if self.inputs else [])
            return np.column_stack([*given, *columns])
        if not callable(w) or isinstance(w, type):
            raise TypeError(
                f"w is {in_short(w)}: it must be a fitted estimator, or a function of "
                "points (n, d) in autograd.numpy."
            )
        X = self._check_points(X, "X")
        columns = [apply_operator(w, X, o, self.states) for o in self.operators]
        given = input_columns(self.inputs, inputs, X)
        return np.column_stack([X, given, *columns])

    def apply(self, w: Any, X: Any, inputs: dict | None = None) -> np.ndarray:
        """Left-hand side of the equation for a function, (P + Pbar)(Phi(w, X)).

        Parameters
        ----------
        w : fitted estimator or callable
            As in :meth:`features`.
        X : array-like of shape (n, n_columns)
            Points.
        inputs : dict, default=None
            As in :meth:`features`.

        Returns
        -------
        values : ndarray of shape (n,)
            Equal to the forcing where `w` solves the equation.
        """
        return self(self.features(w, X, inputs))

    def extrapolation(self, S: Any) -> np.ndarray:
        """How far features lie from those that the equation was learned from.

        Parameters
        ----------
        S : array-like of shape (n, d + Q) or (n, d + Q')
            Features.

        Returns
        -------
        ratio : ndarray of shape (n,)
            Distances from the centre in units of the region around the training
            features: the smallest box, and the smallest ellipsoid of their
            covariance, that hold them all. At most 1 inside. Only features that P
            depends on count.
        """
        S, training = self._unknown_columns(S), self.training_features
        if self.equation_kernel is None:  # nothing was learned
            return np.zeros(len(S))
        active = self.equation_kernel.depends_on(S.shape[1])
        return coverage_ratio(self._unknown_columns(training)[:, active], S[:, active])

    def simulate(
        self,
        t_eval: Any,
        initial: Any,
        forcing: Any = None,
        inputs: dict | None = None,
        return_std: bool = False,
        **options: Any,
    ) -> Any:
        """Integrate an ordinary differential equation from initial values.

        Parameters
        ----------
        t_eval : array-like of shape (n,)
            Times in rising order; the initial values belong to the first.
        initial : array-like of shape (order,), or dict
            Values of u, u_t, ... at the first time, or these by the name of the state.
        forcing, inputs : callable, dict, default=None
            Right-hand side if there is one, and inputs by name: of points (n, 1).
        return_std : bool, default=False
            Whether standard deviations are returned too.
        **options : dict
            `method` of scipy's `solve_ivp` ("DOP853"; "Radau" if stiff), `rtol` (1e-9),
            `max_evaluations` (200,000), `max_seconds` (60).

        Returns
        -------
        states : ndarray of shape (n, order)
            Values of u, u_t, ... at the times, in columns.
        std : ndarray of shape (n, order)
            Only if `return_std`: linearised, from the posterior of P alone, not noise.

        Raises
        ------
        SimulationError
            If the solution ends or the budget is spent; its `time` is how far it came.

        Warns
        -----
        ExtrapolationWarning
            If features leave those of the training.

        Examples
        --------
        >>> from keql import TwoStepKEqL
        >>> X, y = [[0.0], [0.7], [1.4], [2.1]], [1.0, 0.5, 0.25, 0.12]
        >>> model = TwoStepKEqL("u", "u_t", variables="t").fit(X, y)
        >>> u, std = model.equation_.simulate([0.0, 1.0], [0.8], return_std=True)
        """
        return simulate(self, t_eval, initial, forcing, inputs, return_std, **options)

    def to_dict(self) -> dict[str, Any]:
        """The equation as numbers, texts, lists and dicts, for JSON.

        Returns
        -------
        plain : dict
            What :meth:`from_dict` makes the same equation of, in later versions too;
            nothing in it is code.

        Raises
        ------
        ValueError
            If the known part, or a kernel, is a function: save the model with pickle.

        Examples
        --------
        >>> import json
        >>> import numpy as np
        >>> from keql import LearnedEquation, TwoStepKEqL
        >>> t = np.linspace(0, 2, 30)[:, None]
        >>> model = TwoStepKEqL("u", "u_t", variables="t").fit(t, np.exp(-t[:, 0]))
        >>> text = json.dumps(model.equation_.sparse(n_terms=1).to_dict())
        >>> print(LearnedEquation.from_dict(json.loads(text)))
        u_t = -1.00 u
        """
        return equation_to_plain(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """The equation of which :meth:`to_dict` gave the values.

        Parameters
        ----------
        plain : dict
            The values.

        Returns
        -------
        equation : LearnedEquation
            That gives the same numbers.
        """
        return equation_from_plain(cls, plain)

    def _simplified(self, kernel, posterior, weights=None):
        """The equation with another P, which remembers this one."""
        equation = copy(self)
        equation.basis = PolynomialBasis(kernel)
        equation.weights = posterior.weights if weights is None else weights
        equation.posterior = posterior
        equation.original = self if self.original is None else self.original
        return equation

    def _unknown_columns(self, S):
        S = as_rows(S, "S")
        n_columns = self.n_unknown_features
        if S.shape[1] < n_columns:
            raise ValueError(
                f"S has {S.shape[1]} column(s), the unknown part depends on "
                f"{n_columns}: {', '.join(self.feature_names[:n_columns])}."
            )
        return S[:, :n_columns]

    def _check_features(self, S):
        S, names = as_rows(S, "S"), self.feature_names
        if S.shape[1] != len(names):
            raise ValueError(
                f"S has {S.shape[1]} column(s), the equation has {len(names)} "
                f"features: {', '.join(names)}."
            )
        return S


def rms_std(equation, S):
    """Root mean square of the standard deviations of P at the rows of S (n, d + Q).

    Features of 700,000 points would take gigabytes at once.
    """
    parts = in_chunks(S, len(equation.posterior.weights), copies=8)
    return rms(
        np.concatenate([equation.posterior.std(equation.basis(s)) for s in parts])
    )
