"""What one reads of a learned equation: terms, coefficients, formulas, fewer terms."""

from copy import copy
from itertools import combinations_with_replacement
from math import factorial, prod
from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy import linalg

from keql._numerics.arguments import as_rows, check_flag, check_positive, is_int, naming
from keql._numerics.linalg import rms
from keql._numerics.memory import in_chunks
from keql.equation._formulas import PrintableEquation, import_optional
from keql.equation._monomials import (
    PathStep,
    as_product,
    make_terms,
    terms_of,
    text_product,
)
from keql.equation._reading._formula_search import simplest_formula
from keql.kernels import (
    Constant,
    Dictionary,
    Polynomial,
    Restriction,
    as_kernel,
    parse_monomial,
)


class ReadableEquation(PrintableEquation):
    """The part of a learned equation that is for people."""

    # Of the equation, which has all else that its values need.
    inputs: tuple
    n_operators: int
    basis: Any
    weights: np.ndarray
    posterior: Any
    training_features: np.ndarray
    original: Any
    unknown_part: Any
    _simplified: Any
    _unknown_columns: Any

    @property
    def n_unknown_features(self) -> int:
        """How many of the first columns of the features P sees."""
        return len(self.variables) + len(self.inputs) + self.n_operators

    @property
    def equation_kernel(self) -> Any:
        """Kernel of the RKHS of P; None if the equation is known and P = 0."""
        return self.basis.kernel

    def terms(self, return_std: bool = False) -> Any:
        """Coefficients of the equation, with the signs that are printed.

        Parameters
        ----------
        return_std : bool, default=False
            Whether their standard errors are returned too.

        Returns
        -------
        terms : dict of str to float
            For instance ``{"u u_x": 0.5, "u_xx": 0.01}`` of an equation printed as
            "u_t = 0.500 u u_x + 0.0100 u_xx"; "1" is the constant. In order of falling
            contribution on the data, the root mean square of the term at the learned
            states.
        std : dict of str to float
            Only if `return_std`: posterior standard deviations, as small as the noise
            levels of the fit say.

        Raises
        ------
        ValueError
            If P has no finite list of terms.

        Notes
        -----
        An equation is printed solved for its known part: the coefficients are those
        of its right-hand side, f - P. Without a known part it is printed as P = f, and
        they are those of P.
        """
        check_flag(return_std, "return_std")
        terms = self._terms()
        order = np.argsort(terms.sizes(self.weights))[::-1]
        values, names = self._sign * terms.coefficients @ self.weights, terms.names
        coefficients = {names[i]: float(values[i]) for i in order}
        if not return_std:
            return coefficients
        if not names:
            return coefficients, {}
        std = self._need_posterior().std(terms.coefficients)
        return coefficients, {names[i]: float(std[i]) for i in order}

    def to_frame(self) -> Any:
        """The coefficients of the equation as a table, with the signs printed.

        Returns
        -------
        frame : pandas.DataFrame
            One row for each term, in order of falling contribution, with the columns
            `coefficient` (as in :meth:`terms`), `standard_error`, `contribution` (root
            mean square of the term at the learned states, in units of the forcing) and
            `share` (of the sum of all contributions); and with units the column
            `unit`, that of the coefficient.
        """
        pandas = import_optional("pandas")
        terms, posterior = self._terms(), self.posterior
        sizes, no_errors = terms.sizes(self.weights), np.full(len(terms.names), np.nan)
        errors = (
            no_errors
            if posterior is None or not len(sizes)
            else posterior.std(terms.coefficients)
        )
        columns = {
            "coefficient": self._sign * terms.coefficients @ self.weights,
            "standard_error": errors,
            "contribution": sizes,
            "share": sizes / (sizes.sum() or 1.0),
        }
        if self.units is not None:
            units = map(self._unit_of_coefficient, terms.products)
            columns["unit"] = ["" if unit is None else str(unit) for unit in units]
        frame = pandas.DataFrame(columns, pandas.Index(terms.names, name="term"))
        return frame.iloc[np.argsort(sizes)[::-1]]

    def coefficient(self, term: str, points: Any, return_std: bool = False) -> Any:
        """Coefficient of a term as a function of the coordinates, as it is printed.

        For equations with variable coefficients, learned with a kernel such as
        ``RBF(0.4, active_dims=("x1", "x2")) * Polynomial(1)``: the equation is
        printed with sums of c_j(x) m_j, products m_j of operators.

        Parameters
        ----------
        term : str
            A product of operators such as "u_xx" or "u u_x"; "1" for what multiplies
            none.
        points : array-like of shape (n, d)
            Where; followed by columns with the values of the inputs if the
            coefficients depend on these.
        return_std : bool, default=False
            Whether the posterior standard deviation is returned too.

        Returns
        -------
        values : ndarray of shape (n,)
            Of the coefficient of the printed equation, of the sign of :meth:`terms`.
        std : ndarray of shape (n,)
            Only if `return_std`.

        Raises
        ------
        ValueError
            If P is no polynomial of the operators with such a term.
        """
        check_flag(return_std, "return_std")
        with naming("term"):
            powers = self._parse_term(term)
        points = self._check_arguments(points)
        # A Taylor coefficient in the operators, which is exact for polynomials.
        n_zeros = self.n_unknown_features - points.shape[1]
        S = np.column_stack([points, np.zeros((len(points), n_zeros))])
        factor = self._sign * prod(factorial(power) for power in powers)
        posterior, parts = self._need_posterior() if return_std else None, []
        for rows in in_chunks(S, len(self.weights), copies=8):
            features = self.basis(rows, powers) / factor
            std = [] if posterior is None else [posterior.std(features)]
            parts.append([features @ self.weights, *std])
        values, *std = np.concatenate(parts, axis=1)
        return (values, *std) if return_std else values

    def coefficient_terms(self) -> list[str]:
        """Products of operators whose coefficients depend on the coordinates.

        Returns
        -------
        terms : list of str
            With a coefficient other than zero, by falling contribution on the data.
        """
        if self.equation_kernel is None:
            return []
        products = self._coefficient_products()
        if products is None:
            raise ValueError(self._no_coefficients())
        return [text_product(product) for product in products]

    def path(self) -> list[PathStep]:
        """The equations that remain when terms are taken out one by one.

        Each time the term goes that costs least: states and other coefficients move
        to where the loss of the fit is lowest without it, in its quadratic
        approximation.

        Returns
        -------
        steps : list of (n_terms, loss_ratio, unexplained, terms)
            From all terms to one: how many there are, the loss over that with all
            terms, the relative L2 distance on the data from P with all terms, and
            their names.
        """
        if self.equation_kernel is None:
            return []
        return [step for step, _ in self._path()]

    def sparse(
        self, max_loss: float = 2.0, tol: float = 1e-3, n_terms: int | None = None
    ) -> Self:
        """An equation with fewer terms.

        Parameters
        ----------
        max_loss : float, default=2.0
            Largest loss of the fit without the terms that are taken out, in units of
            that with all terms; as few terms are kept as that allows.
        tol : float, default=1e-3
            Terms are also taken out, whatever the loss, as long as P changes by less
            on the data, relatively: in what is not printed.
        n_terms : int, default=None
            How many terms are kept instead, whatever the loss.

        Returns
        -------
        equation : LearnedEquation
            With the coefficients that are best for these terms. What was lost is in
            its `loss_ratio` and `unexplained`, and printed with its representation.

        See Also
        --------
        path : All equations to choose from.

        Notes
        -----
        The loss is that of :meth:`path`, in the quadratic approximation at the fitted
        states. To fit again with these terms only, pass the new equation's
        `equation_kernel` to an estimator.
        """
        if self.equation_kernel is None:  # nothing to take out
            return copy(self)
        kept = sorted(self._choose_terms(max_loss, tol, n_terms))
        terms, kernel = self._terms(), self.equation_kernel
        posterior = self._need_posterior().transform(terms.coefficients).restrict(kept)
        if terms.exponents is None:
            kernel = kernel.keep(kept)
        else:
            exponents = map(tuple, terms.exponents[kept].tolist())
            kernel = Restriction(kernel, list(exponents))
        # From the coefficients of the terms to the weights of the new kernel.
        inverse = linalg.inv(make_terms(kernel, self._unknown_names()).coefficients)
        return self._simplified(kernel, posterior.transform(inverse))

    def project(self, dictionary: Any = 2) -> Self:
        """P as a combination of given functions, as near as possible on the data.

        Parameters
        ----------
        dictionary : int, dict or kernel, default=2
            Degree of a polynomial in what P depends on; ``{name: function}`` with
            functions of named features in `autograd.numpy`, such as
            ``{"sin(u)": lambda u: np.sin(u)}``; or a kernel of finite dimension.

        Returns
        -------
        equation : LearnedEquation
            The least-squares fit to P at the learned states. How far it is from P is
            in its `unexplained`, and printed with its representation.
        """
        if self.equation_kernel is None:  # P = 0
            return copy(self)
        S = self._unknown_columns(self.training_features)
        with naming("dictionary"):
            kernel = self._as_dictionary(dictionary, S)
            features = kernel.feature_map(S)
        if features is None:
            raise ValueError(
                f"dictionary={dictionary!r} has no finite list of functions: give a "
                "degree, {name: function}, or a polynomial kernel."
            )
        # The new weights are this matrix times the old ones, and so is their posterior.
        scale = np.maximum(linalg.norm(features, axis=0), np.finfo(float).tiny)
        scaled, psi = features / scale, self.basis(S)
        matrix, _, rank, _ = linalg.lstsq(scaled, psi, lapack_driver="gelsy")
        matrix /= scale[:, None]
        has_posterior = features.shape[1] <= rank <= len(self.weights)
        if self.posterior is None or not has_posterior:
            return self._simplified(kernel, None, matrix @ self.weights)
        with naming("dictionary"):
            return self._simplified(kernel, self.posterior.transform(matrix))

    def formula(self, tol: float = 0.01, max_terms: int = 4) -> Self:
        """P as the simplest formula of elementary functions that explains it.

        Parameters
        ----------
        tol : float, default=0.01
            Relative L2 distance on the data from the P that was learned up to which a
            formula explains it.
        max_terms : int, default=4
            Most terms of the formula.

        Returns
        -------
        equation : LearnedEquation
            The formula with the fewest coefficients and inner parameters; if none with
            so few terms explains P, the nearest that was found. How far it is from P is
            in its `unexplained`, and printed with its representation.

        See Also
        --------
        project : P as a combination of functions that are given.

        Notes
        -----
        Terms are products of up to three of what P depends on, and sines, cosines,
        exponentials, logarithms, powers and poles of one of these, alone or times
        another. Sets of terms grow one by one, those nearest to P with inner parameters
        on a grid; these are then found by nonlinear least squares.
        """
        check_positive(tol, "tol")
        check_positive(max_terms, "max_terms", Integral)
        if self.equation_kernel is None:  # P = 0
            return copy(self)
        S, names = self._unknown_columns(self.training_features), self._unknown_names()
        used = np.flatnonzero(self.equation_kernel.depends_on(S.shape[1]))
        functions = simplest_formula(
            {names[i]: S[:, i] for i in used},
            self.unknown_part(self.training_features),
            tol,
            max_terms,
        )
        if not functions:  # P is zero on the data
            return copy(self)
        return self.project({function.name: function for function in functions})

    @property
    def unexplained(self) -> float:
        """Relative L2 distance on the data from the P that was learned; 0 for that."""
        if self.original is None:
            return 0.0
        learned = self.original.unknown_part(self.training_features)
        difference = self.unknown_part(self.training_features) - learned
        size = linalg.norm(learned)
        return float(linalg.norm(difference) / size) if size else 0.0

    @property
    def loss_ratio(self) -> float:
        """Loss of the fit without the terms taken out, over that with all terms."""
        if self.original is None or self.posterior is None:
            return 1.0
        return float(self.posterior.loss / self.original.posterior.loss)

    def _terms(self):
        terms = terms_of(self)
        if terms is None:
            raise ValueError(
                f"the equation kernel {self.equation_kernel} is not polynomial: P has "
                "no finite list of terms. Call unknown_part for its values, "
                "`coefficient` where coefficients depend on the coordinates, `project` "
                "for the nearest polynomial, or learn with keql.kernels.Polynomial."
            )
        return terms

    def _no_coefficients(self):
        return (
            f"the equation kernel {self.equation_kernel} is not polynomial in the "
            "operators: P has no coefficients. Use unknown_part, or project P on "
            "polynomials with `project`."
        )

    def _parse_term(self, term):
        """Powers of what P depends on in a product of operators that P may have."""
        names = self._unknown_names()
        if self.equation_kernel is None:
            raise ValueError(f"the equation {self} is known: P = 0 has no terms.")
        powers, is_factor = parse_monomial(term, names), self._is_factor()
        degree = self.equation_kernel.degree_in(is_factor)
        if degree is None:
            raise ValueError(self._no_coefficients())
        if np.any(np.array(powers)[~is_factor]) or sum(powers) > degree:
            factors = [names[i] for i in np.flatnonzero(is_factor)]
            raise ValueError(
                f"term={term!r} must be a product of at most {degree} of the operators "
                f"{', '.join(factors)}, or '1'."
            )
        return powers

    def _check_points(self, points, parameter="points"):
        points, d = as_rows(points, parameter), len(self.variables)
        if points.shape[1] != d:
            raise ValueError(
                f"{parameter} has {points.shape[1]} column(s), the equation has the "
                f"{d} variable(s) {', '.join(self.variables)}."
            )
        return points

    def _coefficient_products(self):
        """Products with coefficient functions, the largest first, or None."""
        mask = self._is_factor()
        degree = self.equation_kernel.degree_in(mask)
        if degree is None:
            return None
        names = self._unknown_names()
        used = np.flatnonzero(mask & self.equation_kernel.depends_on(len(names)))
        S = self._unknown_columns(self.training_features)
        sizes = {}
        # Functions often share their points.
        places, inverse = np.unique(S[:, ~mask], axis=0, return_inverse=True)
        for n_factors in range(degree + 1):
            for columns in combinations_with_replacement(used, n_factors):
                powers = np.bincount(np.array(columns, int), minlength=len(names))
                product = as_product(names, powers)
                c = self.coefficient(text_product(product), places)
                sizes[product] = rms(c[inverse.ravel()] * np.prod(S**powers, axis=1))
        present = (product for product in sizes if sizes[product] > 0)
        return sorted(present, key=lambda product: -sizes[product])

    def _choose_terms(self, max_loss, tol, n_terms):
        """Positions of the terms that :meth:`sparse` keeps."""
        steps = self._path()
        check_positive(max_loss, "max_loss")
        check_positive(1 if isinstance(tol, float | int) and tol == 0 else tol, "tol")
        if n_terms is not None:
            is_number = is_int(n_terms) and not isinstance(n_terms, bool)
            chosen = [k for step, k in steps if is_number and step.n_terms == n_terms]
            message = f"{n_terms=} must be a whole number from 1 to {len(steps)}."
        else:
            fine = [s.loss_ratio <= max_loss or s.unexplained < tol for s, _ in steps]
            chosen = [k for (_, k), is_fine in zip(steps, fine, strict=True) if is_fine]
            message = f"{max_loss=} must be at least 1."
        if not chosen:
            raise ValueError(message)
        return chosen[-1]

    def _path(self):
        """The steps of :meth:`path`, each with the positions of its terms."""
        posterior, terms = self._need_posterior(), self._terms()
        names, sizes = terms.names, terms.sizes(self.weights)
        learned = terms.values @ (terms.coefficients @ self.weights)
        size = linalg.norm(learned) or 1.0
        path = []
        for kept, weights, loss in posterior.transform(terms.coefficients).eliminate():
            difference = learned - terms.values[:, list(kept)] @ weights
            losses = float(loss / posterior.loss), float(linalg.norm(difference) / size)
            by_size = tuple(names[i] for i in sorted(kept, key=lambda i: -sizes[i]))
            path.append((PathStep(len(kept), *losses, by_size), kept))
        return path

    def _need_posterior(self):
        if self.posterior is None:
            raise ValueError(
                "the equation has no posterior of its weights: it was made by hand, or "
                "projected on more functions than the data tell apart."
            )
        return self.posterior

    def _as_dictionary(self, dictionary, S):
        """The kernel whose functions P is projected on, bound to the features `S`."""
        names, d = self._unknown_names(), len(self.variables)
        default = np.arange(d, len(names))
        if isinstance(dictionary, int | np.integer):
            columns = np.flatnonzero(self.equation_kernel.depends_on(S.shape[1]))
            kernel = Polynomial(int(dictionary), active_dims=tuple(columns.tolist()))
            variance = np.mean(self.unknown_part(S) ** 2) or 1.0
            kernel = Constant(variance, "fixed") * kernel
        elif isinstance(dictionary, dict):
            kernel = Dictionary(dictionary)
        else:
            kernel = as_kernel(dictionary)
        return kernel.bind(names, default=tuple(default.tolist())).scaled_to(S)

    def _check_arguments(self, points):
        """Points with the inputs that the coefficients depend on, if there are any."""
        names, points = self._unknown_names(), as_rows(points, "points")
        arguments = [names[i] for i in np.flatnonzero(~self._is_factor())]
        if len(arguments) == len(self.variables):
            return self._check_points(points)
        if points.shape[1] != len(arguments):
            raise ValueError(
                f"points has {points.shape[1]} column(s), the coefficients depend on "
                f"{', '.join(arguments)}: give one column for each."
            )
        return points

    def _is_factor(self):
        """Which of the columns that P sees are factors of its terms.

        These are the operators, and the inputs if P is a polynomial in them: otherwise
        the coefficients depend on the inputs, as they do on the coordinates.
        """
        column, d = np.arange(self.n_unknown_features), len(self.variables)
        with_inputs = column >= d
        if not self.inputs or self.equation_kernel.degree_in(with_inputs) is not None:
            return with_inputs
        return column >= d + len(self.inputs)
