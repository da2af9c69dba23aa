"""What a fit has chosen and why, how well it meets its data, and what looks wrong."""

from keql.fit_report._describe import describe_fit, summary_of
from keql.fit_report._doubts import doubts_of
from keql.fit_report._related import energies
from keql.fit_report._report import FitReport, multiple
from keql.fit_report._two_steps import summary_of_two_steps

__all__ = ["FitReport"]
