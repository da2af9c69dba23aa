"""Linear differential operators: their names, Gram matrices and features."""

from keql.operators._autodiff import apply_operator
from keql.operators._differential import (
    DifferentialOperator,
    as_factor,
    extend_operators,
    identity_of,
    parse_operator,
    position_of,
)
from keql.operators._gram import (
    KernelExpansion,
    gram,
    gram_blocks,
    gram_diagonal,
    gram_rows,
    refuse_large_gram,
)
from keql.operators._hierarchical import HierarchicalGram

__all__ = [
    "DifferentialOperator",
    "KernelExpansion",
    "apply_operator",
    "gram",
    "gram_diagonal",
    "parse_operator",
]
