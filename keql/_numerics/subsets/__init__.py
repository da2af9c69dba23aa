"""Sets of columns in a linear regression: prior odds, evidence, neighbours."""

from keql._numerics.subsets.evidence import (
    SubsetEvidence,
    linear_evidence,
    log_likelihood_of,
    scales_of,
)
from keql._numerics.subsets.highest import HighestEvidence
from keql._numerics.subsets.odds import (
    MixedOdds,
    TermOdds,
    small_subsets,
    two_exchanged,
)

__all__ = [
    "HighestEvidence",
    "MixedOdds",
    "SubsetEvidence",
    "TermOdds",
    "linear_evidence",
    "log_likelihood_of",
    "scales_of",
    "small_subsets",
    "two_exchanged",
]
