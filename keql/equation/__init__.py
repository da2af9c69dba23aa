"""What an equation is: known and learned parts, terms, formulas."""

from keql.equation._basis import (
    FixedUnknownPart,
    InducingBasis,
    PolynomialBasis,
    draw_rows,
    make_basis,
)
from keql.equation._formulas import number
from keql.equation._known import GivenEquation, bind_known_part, make_known_part
from keql.equation._learned import LearnedEquation
from keql.equation._monomials import (
    coefficients,
    find_terms,
    term_name,
    terms_of,
    weights_of,
)
from keql.equation._posterior import EXACT, WeightPosterior, regression_posterior
from keql.equation._setup import EquationSetup, LearnedModel

__all__ = ["LearnedEquation"]
