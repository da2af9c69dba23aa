"""Other terms that explain the data about as well, in words."""

from math import exp, log

from keql.fit_report._report import percent


def rivals_in_words(rivals, most=3):
    """Other terms that explain the data about as well, as a sentence, or empty.

    rivals : list of (set of str, float). Terms and log odds, those of the fit first.
    most : int. How many are told.
    """
    if len(rivals) < 2:
        return ""
    (chosen, _), *others = rivals
    texts = [f"{_difference(t, chosen)} ({_odds(o)})" for t, o in others[:most]]
    if len(others) > most:
        texts.append(f"{len(others) - most} more")
    return (
        f"the data do not tell the terms from others: {'; '.join(texts)}. Observe "
        "more, or with less noise, or say more of the equation"
    )


def wider_rivals_in_words(rivals, most=3):
    """Terms of wider hypotheses that the data alone do not exclude, in a list.

    rivals : list of (set of str, float). Terms, and by what part of its size their
        equation differs from that of the fit, whose terms come first.
    most : int. How many are told.
    """
    if len(rivals) < 2:
        return []
    (chosen, _), *others = rivals
    texts = [_difference(terms, chosen) for terms, _ in others[:most]]
    if len(others) > most:
        texts.append(f"{len(others) - most} more")
    part = percent(max(part for _, part in others), 1.0)
    return [
        "of equations of a wider kind, which count as improbable before data are seen, "
        f"the data alone do not exclude some that differ by up to {part} from this one "
        f"where states are: {'; '.join(texts)}. Observe more, or with less noise, or "
        "give an equation_kernel"
    ]


def _odds(log_odds, most=1e6):
    """Odds as text, those beyond `most` as such."""
    if log_odds > log(most):
        return f"odds above {most:,.0f}"
    return f"odds {exp(log_odds):.2g}"


def _difference(terms, chosen):
    """What a set of terms has in place of another, in words."""
    more, less = sorted(terms - chosen), sorted(chosen - terms)
    if more and less:
        return f"{', '.join(more)} instead of {', '.join(less)}"
    return f"also {', '.join(more)}" if more else f"without {', '.join(less)}"
