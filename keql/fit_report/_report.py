"""The report of a fit, as text and as a table."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from typing import Any, NamedTuple

from keql._observations.units import with_unit
from keql.equation import number
from keql.fit_report._pages import html_page, markdown_page, write_page


@dataclass(frozen=True)
class ReportCriteria:
    """What a report calls wrong, and how far it looks.

    A root mean square residual may be `far_above_noise` times the noise level, of which
    the right one gives 1, and that of the equation the part `large_part` of the size of
    its terms: more says that an operator is missing, or that derivatives are poor.
    Losses of tries that found one minimum differ by `same_loss`, relatively. A log-
    hyperparameter has reached a bound at the distance `at_bound`: optimisers meet
    bounds to rounding. A combination of terms says something if it exceeds `signal`
    times what the errors of the features alone make of it (standard deviations), and,
    for terms of unit size, `rounding`. It names terms of at least the part `named_part`
    of the largest. Operators of which a combination is the part `related` of their size
    at most, and within `signal` times its own standard deviation, are related: the
    least of fields that determine their equations was 0.08. Of states that were found
    without an equation it is the part `loosely_related` if such states, and those of
    the fit, have it within `signal` times its errors at most places: those of a beam of
    two modes were 0.13 of the size of operators at most, and 0.5 to 1.6 times those
    errors; of others exact states differed by 12 times them at least. Errors of
    features are evaluated at `n_rows` rows in all, of `n_functions` functions: enough
    for a root mean square, and cheap beside a fit.
    """

    far_above_noise: float = 2.0
    large_part: float = 0.2
    same_loss: float = 0.01
    at_bound: float = 1e-6
    signal: float = 2.0
    rounding: float = 1e-10
    named_part: float = 0.3
    related: float = 0.05
    loosely_related: float = 0.2
    n_rows: int = 100
    n_functions: int = 4


class Choice(NamedTuple):
    """A quantity that a fit needed, its value as text, and where that is from."""

    name: str
    value: str
    reason: str


class Residual(NamedTuple):
    """Root mean square residual, its noise level, and the size of the target."""

    rms: float
    noise: float
    size: float


@dataclass(eq=False, repr=False)
class FitReport:
    """What a fit has chosen and why, how well it meets its data, what looks wrong.

    The attribute `fit_report_` of the estimators that learn; print it.

    Parameters
    ----------
    title : str
        What was fitted.
    choices : list of (name, value, reason)
        What was given or chosen, all of it text.
    residuals : dict of str to (rms, noise, size)
        Of the observations, in the units of `y`, and of the equation, in those of the
        forcing: root mean square residual, noise level, root mean square of what was
        to be met.
    identifiability : Identifiability or None
        How well the terms of the equation can be told apart: `n_terms`, `rank`,
        `condition` and `dependent_terms`. None for an equation without a list of terms;
        of a system, a dict by the names of the equations.
    alternatives : list of (str, float)
        Kernels that were compared, with their criterion, the best first: the error of
        predicting each observation from all others.
    concerns : list of str
        What looks wrong, and what to do about it.
    not_tried : list of (str, str), default=()
        Hypotheses about the equation or the states that were not tried, and why.
    criteria : dict of str to float, default={}
        By which hypotheses were compared, such as the factor of the error of
        predictions from which on one is clearly better.
    units : dict of str to str, default={}
        Units of the residuals, by the names that they have there.
    versions : dict of str to str, default={}
        The date of the fit, and versions of what it was made with.
    fitted : object, default=None
        States, equations and observations, for the first rows and the pictures.

    Examples
    --------
    In a travelling wave derivatives in time and space are proportional, and no data of
    one wave say which of them an equation should have:

    >>> import warnings
    >>> import numpy as np
    >>> from keql import TwoStepKEqL
    >>> from keql.kernels import Polynomial
    >>> X = np.random.default_rng(0).uniform(0, 3, (100, 2))
    >>> model = TwoStepKEqL(
    ...     operators=("u_t", "u_x", "u_xx"),
    ...     known_part="u_tt",
    ...     variables=("t", "x"),
    ...     equation_kernel=Polynomial(1),
    ... )
    >>> z = X[:, 1] - 0.5 * X[:, 0]
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     model = model.fit(X, np.sin(z) + z)
    >>> report = model.fit_report_
    >>> report.identifiability.n_terms, report.identifiability.rank
    (4, 3)
    >>> print(report.concerns[1][:43])
    the terms u_x and u_t trade off against one
    >>> report.concerns[1] in str(caught[0].message)
    True
    """

    title: str
    choices: list
    residuals: dict
    identifiability: object
    alternatives: list
    concerns: list
    not_tried: Sequence = ()
    criteria: dict = field(default_factory=dict)
    units: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)
    fitted: Any = None

    def sections(self, n_compared: int = 5) -> dict[str, list]:
        """The report as a table.

        Parameters
        ----------
        n_compared : int, default=5
            How many of the hypotheses that were compared are listed, the best first.

        Returns
        -------
        sections : dict of str to list of (str, str, str)
            By heading, rows of a name, a value and a remark.
        """
        compared = _first_rows(self.alternatives, n_compared)
        concerns, criteria = self.concerns or ["nothing"], self.criteria.items()
        sections = {
            "Found": [] if self.fitted is None else self.fitted.found(),
            "Data": [] if self.fitted is None else self.fitted.data(),
            "Chosen": [tuple(choice) for choice in self.choices],
            "Compared, by the error of predicting left-out observations": compared,
            "Not tried": [(name, reason, "") for name, reason in self.not_tried],
            "Residuals, root mean square": self._residuals(),
            "Identifiability": self._identifiability(),
            "What looks wrong": [("", concern, "") for concern in concerns],
            "Criteria": [(n.replace("_", " "), f"{v:g}", "") for n, v in criteria],
        }
        return {heading: rows for heading, rows in sections.items() if rows}

    def _residuals(self):
        rows = []
        for name, (error, noise, size) in self.residuals.items():
            is_equation = name.startswith("equation")
            sized = "known part and forcing" if is_equation else "values"
            remark = f"{percent(error, size)} of the {sized}"
            if noise > 0:
                remark = f"{error / noise:.2g} times the noise level, {remark}"
            value = with_unit(number(error), self.units.get(name))
            rows.append((name, value, remark))
        return rows

    def _identifiability(self):
        each = self.identifiability
        each = each if isinstance(each, dict) else {"": each}
        rows = []
        for name, own in each.items():
            if own is not None:
                remark = f"condition number {number(own.condition)}"
                heading = f"terms of {name}" if name else "terms"
                rows.append((heading, f"{own.rank} of {own.n_terms}", remark))
        return rows

    def __str__(self):
        lines = [self.title]
        for heading, rows in self.sections().items():
            lines += ["", heading]
            width = max(len(name) for name, *_ in rows)
            for name, value, remark in rows:
                text = f"{name:{width}}  {value}" if width else f"- {value}"
                lines.append("  " + text + (f"  ({remark})" if remark else ""))
        return "\n".join(lines)

    def to_html(self, path: str | PathLike | None = None) -> str:
        """A page with the report and pictures, which needs no other file.

        Parameters
        ----------
        path : str or path-like, default=None
            Where the page is written; None: nowhere.

        Returns
        -------
        page : str
            HTML.
        """
        return write_page(html_page(self), path)

    def to_markdown(self, path: str | PathLike | None = None) -> str:
        """The report with pictures as Markdown, which needs no other file.

        Parameters
        ----------
        path : str or path-like, default=None
            Where the text is written; None: nowhere.

        Returns
        -------
        text : str
            Markdown, with tables and embedded pictures.
        """
        return write_page(markdown_page(self), path)

    def __repr__(self):
        n = len(self.concerns)
        return f"<FitReport of {self.title}: {n} concern{'s' * (n != 1)}>"

    def _repr_html_(self):
        left, lines = 'style="text-align: left"', []
        for heading, rows in self.sections().items():
            lines.append(f'<th colspan="3" {left}>{escape(heading)}</th>')
            cells = (
                [f"<td {left}>{escape(text)}</td>" for text in row] for row in rows
            )
            lines += map("".join, cells)
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        caption = f"<caption>{escape(self.title)}</caption>"
        return f"<table>{caption}<tbody>{body}</tbody></table>"


def _first_rows(alternatives, n_shown):
    """Rows of the first alternatives, and one that counts the others."""
    rows = [(number(error), kernel, "") for kernel, error in alternatives[:n_shown]]
    if len(alternatives) > n_shown:
        rows.append(("...", f"{len(alternatives) - n_shown} more", ""))
    return rows


def times(value, unit):
    """A multiple of a noise level, as text."""
    return f"{multiple(value / unit)} times" if unit > 0 else "without comparison to"


def multiple(ratio):
    """A ratio in two digits as text, large ones as people write them: 8,500."""
    return f"{float(f'{ratio:.2g}'):,.0f}" if 100 <= ratio < 1e9 else f"{ratio:.2g}"


def percent(value, size):
    """A part of a size, as text."""
    return f"{value / size:.2g}" if size <= 0 else f"{100 * value / size:.2g} %"
