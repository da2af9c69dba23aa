"""What a fit has chosen and why, how well it meets its data, and what looks wrong."""

from keql.fit_report._describe import SearchSummary, describe_fit
from keql.fit_report._report import FitReport
from keql.fit_report._undetermined import rivals_in_words, undetermined

__all__ = ["FitReport"]
