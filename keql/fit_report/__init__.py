"""What a fit has chosen and why, how well it meets its data, and what looks wrong."""

from keql.fit_report._describe import (
    SearchSummary,
    at_points,
    describe_fit,
    summary_of,
)
from keql.fit_report._given import pulled, pulled_to_zero
from keql.fit_report._report import FitReport, multiple, percent
from keql.fit_report._rivals import rivals_in_words, wider_rivals_in_words
from keql.fit_report._two_steps import summary_of_two_steps
from keql.fit_report._undetermined import (
    coarse,
    energies,
    exhausted,
    missed,
    not_exact,
    related,
    travelling,
    undetermined,
    unexplained,
    unresolved,
    with_advice_once,
)

__all__ = ["FitReport"]
