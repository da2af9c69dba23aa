"""Several learned equations of the same states, as one object."""

from collections.abc import Mapping
from copy import copy
from typing import Any, Self

import numpy as np

from keql._numerics.arguments import check_flag
from keql._numerics.extrapolation import coverage_ratio
from keql.equation._formulas import import_optional
from keql.equation._known import EquationMapping
from keql.equation._learned import LearnedEquation
from keql.equation._ode import simulate
from keql.equation._plain import SYSTEM, equations_of


class LearnedSystem(EquationMapping):
    """A system of learned equations that share states and features.

    Returned by the estimators as `equation_` if several equations are learned. It maps
    the names of the equations to each :class:`LearnedEquation`, and has the methods of
    an equation. The *features* S of all states at points have the columns named by
    `feature_names`: the coordinates, the inputs, the operators that an unknown part
    depends on, and the operators that only known parts use.

    Parameters
    ----------
    equations : dict of str to LearnedEquation
        Each by its name. They have the same features.

    See Also
    --------
    LearnedEquation : A single equation.

    Examples
    --------
    >>> import numpy as np
    >>> from keql import LearnedSystem, TwoStepKEqL
    >>> t = np.linspace(0, 2, 30)[:, None]
    >>> model = TwoStepKEqL(("u",), "u_t", variables=("t",)).fit(t, np.exp(-t[:, 0]))
    >>> system = LearnedSystem({"decay": model.equation_.sparse(n_terms=1)})
    >>> print(system)
    u_t = -1.00 u
    >>> system.simulate([0.0, 1.0], {"u": 0.9}).round(2)
    array([[0.9 ],
           [0.33]])
    """

    def __init__(self, equations: Any) -> None:
        self._equations = dict(equations)
        if not self._equations:
            raise ValueError("equations is empty: give at least one LearnedEquation.")
        first = next(iter(self._equations.values()))
        for name, equation in self._equations.items():
            shared = equation.states, equation.inputs, equation.feature_names
            if shared != (first.states, first.inputs, first.feature_names):
                raise ValueError(
                    f"equations has {name!r} with the features "
                    f"{', '.join(equation.feature_names)} of {', '.join(shared[0])}: "
                    "the equations of a system share states, inputs and features, here "
                    f"{', '.join(first.feature_names)} of {', '.join(first.states)}."
                )

    @property
    def _first(self):
        return next(iter(self._equations.values()))

    # --- what the equations share ---------------------------------------------------

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the d coordinates."""
        return self._first.variables

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the S states."""
        return self._first.states

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the known quantities that unknown parts may depend on."""
        return self._first.inputs

    @property
    def operators(self) -> list:
        """The Q' operators among the features."""
        return self._first.operators

    @property
    def n_operators(self) -> int:
        """How many of them, Q, unknown parts may depend on."""
        return self._first.n_operators

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of the features."""
        return self._first.feature_names

    @property
    def n_unknown_features(self) -> int:
        """How many of the first columns of the features unknown parts see."""
        return self._first.n_unknown_features

    @property
    def state_kernel(self) -> Any:
        """Kernel of the states that the equations were learned with."""
        return self._first.state_kernel

    @property
    def has_forcing(self) -> bool:
        """Whether the right-hand side of an equation is other than zero."""
        return any(equation.has_forcing for equation in self.values())

    @property
    def training_features(self) -> np.ndarray:
        """Features (n, d + Q') of the learned states where equations were imposed."""
        distinct: list[np.ndarray] = []
        for equation in self.values():
            S = equation.training_features
            if not any(S is T or np.array_equal(S, T) for T in distinct):
                distinct.append(S)
        return distinct[0] if len(distinct) == 1 else np.concatenate(distinct)

    # --- values ---------------------------------------------------------------------

    def __call__(self, S: Any) -> np.ndarray:
        """Left-hand sides of all equations.

        Parameters
        ----------
        S : array-like of shape (n, d + Q')
            Features.

        Returns
        -------
        values : ndarray of shape (n, E)
            One column for each equation, in units of its forcing.
        """
        return np.stack([equation(S) for equation in self.values()], axis=1)

    def unknown_part(self, S: Any) -> np.ndarray:
        """Learned parts of all equations.

        Parameters
        ----------
        S : array-like of shape (n, d + Q) or (n, d + Q')
            Features; columns after the first d + Q are not looked at.

        Returns
        -------
        values : ndarray of shape (n, E)
            One column for each equation; zero where there is no unknown part.
        """
        parts = [equation.unknown_part(S) for equation in self.values()]
        return np.stack(parts, axis=1)

    def gradient(self, S: Any) -> np.ndarray:
        """Partial derivatives of the left-hand sides with respect to the features.

        Parameters
        ----------
        S : array-like of shape (n, d + Q')
            Features.

        Returns
        -------
        gradient : ndarray of shape (n, E, d + Q')
            One row for each equation, and one column for each feature.
        """
        return np.stack([equation.gradient(S) for equation in self.values()], axis=1)

    def features(self, w: Any, X: Any, inputs: dict | None = None) -> np.ndarray:
        """Features of the states at points.

        Parameters
        ----------
        w : fitted estimator or callable
            A fitted estimator of keql, or a function written in `autograd.numpy` that
            takes points (n, d) and returns values (n, S) in the order of `states`.
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
        return self._first.features(w, X, inputs)

    def apply(self, w: Any, X: Any, inputs: dict | None = None) -> np.ndarray:
        """Left-hand sides of the equations for given states.

        Parameters
        ----------
        w, X, inputs : fitted estimator or callable, array-like, dict
            As in :meth:`features`.

        Returns
        -------
        values : ndarray of shape (n, E)
            Equal to the forcings where `w` solves the equations.
        """
        return self(self.features(w, X, inputs))

    def extrapolation(self, S: Any) -> np.ndarray:
        """How far features lie from those that the equations were learned from.

        Parameters
        ----------
        S : array-like of shape (n, d + Q) or (n, d + Q')
            Features.

        Returns
        -------
        ratio : ndarray of shape (n,)
            The largest of all equations, at most 1 inside. The training features are
            those of all equations, of which only those count that an equation's
            unknown part depends on: see :meth:`LearnedEquation.extrapolation`.
        """
        S = self._first._unknown_columns(S)
        training = self.training_features[:, : self.n_unknown_features]
        ratios, seen = [np.zeros(len(S))], set()
        for equation in self.values():
            if equation.equation_kernel is None:
                continue
            active = equation.equation_kernel.depends_on(S.shape[1])
            if tuple(active) not in seen:
                seen.add(tuple(active))
                ratios.append(coverage_ratio(training[:, active], S[:, active]))
        return np.max(ratios, axis=0)

    def simulate(
        self,
        t_eval: Any,
        initial: Any,
        forcing: Any = None,
        inputs: dict | None = None,
        return_std: bool = False,
        **options: Any,
    ) -> Any:
        """Integrate ordinary differential equations from initial values.

        Parameters
        ----------
        t_eval : array-like of shape (n,)
            Times in rising order; the initial values belong to the first.
        initial : dict or array-like
            The value of each state, or a tuple of its value and those of its
            derivatives if its equation is of higher order, such as
            ``{"x": (1.0, 0.0), "y": 2.0}``; or all of them in this order in one array.
        forcing : dict of str to callable, default=None
            Right-hand sides that are not zero, of points (n, 1); or a tuple.
        inputs : dict, default=None
            Each input's name with a number or a function of points (n, 1).
        return_std : bool, default=False
            Whether standard deviations are returned too.
        **options : dict
            As of :meth:`LearnedEquation.simulate`.

        Returns
        -------
        states : ndarray of shape (n, sum of orders)
            State by state, each followed by its derivatives below the highest.
        std : ndarray of the same shape
            Only if `return_std`: linearised, of the unknown parts alone, not of noise.

        Raises
        ------
        SimulationError
            If the solution ends or the budget is spent; its `time` is how far the
            integration came.
        ValueError
            If there are several variables, or highest derivatives that the equations do
            not give linearly. Known equations on top are left out.

        Warns
        -----
        ExtrapolationWarning
            If features leave the region of the training features.
        """
        return simulate(self, t_eval, initial, forcing, inputs, return_std, **options)

    # --- reading --------------------------------------------------------------------

    def terms(self, return_std: bool = False) -> Any:
        """Coefficients of the terms of each unknown part.

        Parameters
        ----------
        return_std : bool, default=False
            Whether their standard errors are returned too.

        Returns
        -------
        terms : dict of str to dict of str to float
            What :meth:`LearnedEquation.terms` returns, by the name of the equation.
        std : dict of str to dict of str to float
            Only if `return_std`.
        """
        check_flag(return_std, "return_std")
        if not return_std:
            return {name: equation.terms() for name, equation in self.items()}
        both = {name: equation.terms(True) for name, equation in self.items()}
        return tuple({name: pair[i] for name, pair in both.items()} for i in (0, 1))

    def to_frame(self) -> Any:
        """The terms of all unknown parts as a table.

        Returns
        -------
        frame : pandas.DataFrame
            That of :meth:`LearnedEquation.to_frame` for each equation, one below the
            other, with an index of the levels `equation` and `term`.
        """
        pandas = import_optional("pandas")
        frames = {name: equation.to_frame() for name, equation in self.items()}
        return pandas.concat(frames, names=["equation", "term"])

    def path(self) -> dict[str, list]:
        """The equations that remain when terms are taken out one by one.

        Returns
        -------
        steps : dict of str to list of (n_terms, loss_ratio, unexplained, terms)
            What :meth:`LearnedEquation.path` returns, by the name of the equation.
        """
        return {name: equation.path() for name, equation in self.items()}

    def sparse(
        self, max_loss: float = 2.0, tol: float = 1e-3, n_terms: Any = None
    ) -> "LearnedSystem":
        """A system with fewer terms.

        Parameters
        ----------
        max_loss, tol : float, default=2.0, 1e-3
            As in :meth:`LearnedEquation.sparse`, for each equation on its own.
        n_terms : int or dict of str to int, default=None
            How many terms are kept in each equation instead, or in those named.

        Returns
        -------
        system : LearnedSystem
            With the coefficients that are best for these terms.
        """
        named = isinstance(n_terms, Mapping)
        unknown = [repr(name) for name in n_terms if name not in self] if named else []
        if unknown:
            raise ValueError(
                f"n_terms has {', '.join(unknown)}, which is no equation: they are "
                f"called {', '.join(self)}."
            )
        fewer = {}
        for name, equation in self.items():
            kept = n_terms.get(name) if named else n_terms
            try:
                fewer[name] = equation.sparse(max_loss, tol, kept)
            except ValueError as error:
                found, advice = str(error), ""
                if found.startswith("n_terms"):  # it has fewer
                    advice = (
                        ", the number of its terms. Equations may have numbers of "
                        f"their own, such as n_terms={{{name!r}: 1}}."
                    )
                    found = found.rstrip(".")
                raise ValueError(f"equation {name!r}: {found}{advice}") from None
        return LearnedSystem(fewer)

    def project(self, dictionary: Any = 2) -> "LearnedSystem":
        """Each unknown part as a combination of given functions, as near as possible.

        Parameters
        ----------
        dictionary : int, dict or kernel, default=2
            As in :meth:`LearnedEquation.project`.

        Returns
        -------
        system : LearnedSystem
            The least-squares fits at the learned states.
        """
        return LearnedSystem(
            {name: equation.project(dictionary) for name, equation in self.items()}
        )

    def formula(self, tol: float = 0.01, max_terms: int = 4) -> "LearnedSystem":
        """Each unknown part as the simplest formula that explains it.

        Parameters
        ----------
        tol, max_terms : float, default=0.01, int, default=4
            As in :meth:`LearnedEquation.formula`.

        Returns
        -------
        system : LearnedSystem
            The formulas.
        """
        return LearnedSystem(
            {name: own.formula(tol, max_terms) for name, own in self.items()}
        )

    def to_latex(self) -> str:
        """The equations in LaTeX, solved for the known parts.

        Returns
        -------
        latex : str
            An environment `aligned` with a line for each equation.
        """
        lines = [equation._write_latex(" &= ") for equation in self._marked()]
        return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"

    def to_text(self) -> str:
        """The equations as text, with standard errors.

        Returns
        -------
        text : str
            A line for each equation, as of :meth:`LearnedEquation.to_text`.
        """
        return "\n".join(equation.to_text() for equation in self._marked())

    def to_dict(self) -> dict[str, Any]:
        """The equations as numbers, texts, lists and dicts, for JSON.

        Returns
        -------
        plain : dict
            What :meth:`from_dict` makes the same system of; see
            :meth:`LearnedEquation.to_dict`.
        """
        equations = {name: equation.to_dict() for name, equation in self.items()}
        return {"format": SYSTEM, "equations": equations}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """The system of which :meth:`to_dict` gave the values.

        Parameters
        ----------
        plain : dict
            The values.

        Returns
        -------
        system : LearnedSystem
            That gives the same numbers.
        """
        equations = equations_of(plain).items()
        return cls({name: LearnedEquation.from_dict(each) for name, each in equations})

    def to_sympy(self) -> list:
        """The equations as sympy objects, solved for the known parts.

        Returns
        -------
        equations : list of sympy.Eq
            As of :meth:`LearnedEquation.to_sympy`, in functions called as the states.
        """
        return [equation.to_sympy() for equation in self._marked()]

    def __str__(self) -> str:
        return "\n".join(map(str, self._marked()))

    def __repr__(self):
        lines = (repr(equation) for equation in self._marked())
        lines = (line.removeprefix("<LearnedEquation ")[:-1] for line in lines)
        return f"<LearnedSystem {'; '.join(lines)}>"

    def _repr_latex_(self):
        return f"$\\displaystyle {self.to_latex()}$"

    def _repr_html_(self):
        return "\n".join(equation._repr_html_() for equation in self._marked())

    def _marked(self):
        """The equations as they are printed one below the other.

        Functions that they do not share, P, f and c0, c1, ..., have different names.
        """
        if len(self) == 1:
            return list(self.values())
        marked, n_coefficients = [], 0
        for position, equation in enumerate(self.values(), start=1):
            equation = copy(equation)
            equation._mark = str(position)
            equation._first_coefficient = n_coefficients
            letters = [letter for letter, _ in equation._unknown_functions().values()]
            n_coefficients += sum(letter.startswith("c") for letter in letters)
            marked.append(equation)
        return marked
