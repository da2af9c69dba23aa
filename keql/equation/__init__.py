"""What an equation is: known and learned parts, terms, formulas."""

from keql.equation._basis import (
    EXACT,
    FixedUnknownPart,
    InducingBasis,
    NoUnknownPart,
    PolynomialBasis,
    SystemBasis,
    WeightPosterior,
    regression_posterior,
    regression_rows,
    with_slopes,
)
from keql.equation._explicit import Layout, layout_of, solve_each
from keql.equation._formulas import number
from keql.equation._known import (
    GivenEquation,
    GivenSystem,
    SystemKnownPart,
    bind_known_part,
    bind_known_parts,
    make_known_part,
)
from keql.equation._learned import LearnedEquation, rms_std
from keql.equation._monomials import (
    are_monomials,
    averaged,
    coefficients,
    find_terms,
    highest_derivatives,
    restricted,
    term_name,
    terms_of,
    text_product,
    values_of,
    weights_of,
)
from keql.equation._setup import (
    EquationSetup,
    EquationTerms,
    LearnedModel,
    draw_rows,
    make_basis,
    with_few_weights,
)
from keql.equation._system import LearnedSystem

__all__ = ["LearnedEquation", "LearnedSystem"]
