"""What an equation is: known and learned parts, terms, formulas."""

from keql.equation._basis import (
    EXACT,
    FixedUnknownPart,
    InducingBasis,
    PolynomialBasis,
    WeightPosterior,
    draw_rows,
    make_basis,
    regression_posterior,
)
from keql.equation._formulas import number
from keql.equation._known import (
    EquationSetup,
    GivenEquation,
    LearnedModel,
    bind_known_part,
    make_known_part,
)
from keql.equation._learned import LearnedEquation
from keql.equation._monomials import (
    coefficients,
    find_terms,
    term_name,
    terms_of,
    weights_of,
)

__all__ = ["LearnedEquation"]
