"""Reports to hand on: a page of HTML, or of Markdown, with its pictures inside."""

import base64
import io
import re
from html import escape
from os import PathLike
from pathlib import Path

import numpy as np

from keql._numerics.arguments import in_short
from keql._observations.units import labelled, with_unit

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; overflow-wrap: anywhere; }
td { border-top: 1px solid #8886; padding: 0.3rem 0.8rem 0.3rem 0; text-align: left;
     vertical-align: top; }
td:first-child:not([colspan]) { white-space: nowrap; }
figure { margin: 1.5rem 0; }
.quiet, figcaption { opacity: 0.75; }
@media (max-width: 40rem) {
  td, td:first-child:not([colspan]) { display: block; white-space: normal; }
  td + td { border: 0; }
}
img { max-width: 100%; background: white; }
"""


def html_page(report):
    """A page of HTML."""
    parts = [f"<h1>{escape(report.title)}</h1>"]
    for heading, rows in _sections(report).items():
        lines = []
        for name, value, remark in rows:
            cells = f"<td>{escape(name)}</td>" if name else ""
            width = (not name) + (not remark) + 1
            span = f' colspan="{width}"' if width > 1 else ""
            cells += f"<td{span}>{_with_powers(value)}</td>"
            cells += f'<td class="quiet">{escape(remark)}</td>' if remark else ""
            lines.append(f"<tr>{cells}</tr>")
        body = "\n".join(lines)
        table = f"<table>\n{body}\n</table>"
        if heading == "Criteria":  # many numbers, for those who want to know
            parts.append(f"<details><summary>{heading}</summary>\n{table}</details>")
            continue
        parts.append(f"<h2>{escape(heading)}</h2>\n{table}")
        if heading == "Data":
            parts += [
                f'<figure><img alt="{escape(caption)}" src="{source}">\n'
                f"<figcaption>{_with_powers(caption)}</figcaption></figure>"
                for caption, source in pictures(report.fitted)
            ]
    title, body = escape(report.title), "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _with_powers(text):
    """Text in HTML with numbers above the line for "h^-1" and "u^2"."""
    return re.sub(r"\^(-?\d+(?:\.\d+)?)", r"<sup>\1</sup>", escape(text))


def markdown_page(report):
    """A text in Markdown."""
    parts = [f"# {report.title}"]
    for heading, rows in _sections(report).items():
        lines = ["| | | |", "|---|---|---|"]
        lines += [f"| {' | '.join(map(_in_cell, row))} |" for row in rows]
        parts += [f"## {heading}", "\n".join(lines)]
        if heading == "Data":
            shown = pictures(report.fitted)
            parts += [f"![{caption}]({source})" for caption, source in shown]
    return "\n\n".join(parts) + "\n"


def write_page(text, path):
    """Write a page to a file, if one is named, and return it."""
    if path is None:
        return text
    if not isinstance(path, str | PathLike):
        raise TypeError(f"path is {in_short(path)}: it must be a name of a file.")
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        kind = type(error) if isinstance(error, OSError) else ValueError
        raise kind(f"path={in_short(path)}: {reason}. Nothing was written.") from error
    return text


def _sections(report):
    """All sections of a report, with all that was compared, and versions."""
    made = [(name, str(version), "") for name, version in report.versions.items()]
    sections = report.sections(n_compared=len(report.alternatives))
    return sections | ({"Versions": made} if made else {})


def _in_cell(text):
    """Text in a cell of a table: as it is, without what Markdown would read."""
    for mark in "\\|*_`<^~":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ")


def pictures(fitted, resolution=150, n_states=4):
    """Pictures of a fit: pairs of a caption and the address of an embedded image.

    The first `n_states` states of the first function on a grid of `resolution` points a
    coordinate, of three coordinates in the middle of the first one and on a coarser
    grid; each equation; the steps.
    """
    # Imported when a picture is drawn: displays are slow to import.
    from keql import plotting

    drawn = []
    if len(fitted.variables) <= 3:
        coarser = 60 if len(fitted.variables) == 3 else resolution
        drawn += _draw_states(plotting, fitted, coarser, n_states)
    for equation, target in zip(fitted.equations, fitted.targets, strict=True):
        if equation.equation_kernel is not None:
            values = equation.unknown_part(equation.training_features)
            known = str(equation).partition(" = ")[0]
            known = f"({known})" if " " in known else known
            label = f"f - {known}" if equation.has_forcing else f"-{known}"
            label = labelled(label if equation.known_part.terms else "f", equation.unit)
            figure, ax = _new_figure(width=4.2)
            plotting.EquationParityDisplay.from_predictions(
                target, values, label=label, ax=ax
            )
            caption = "the unknown part of the equation at the learned states"
            drawn.append((f"{caption}, predicted and as it should be", figure))
    if len(fitted.loss_curve) > 1:
        figure, ax = _new_figure()
        plotting.LossCurveDisplay.from_predictions(fitted.loss_curve, ax=ax)
        caption = (
            "the loss after each step; it may rise where one fit begins from another"
        )
        drawn.append((caption, figure))
    return [(caption, _embedded(figure)) for caption, figure in drawn]


def _draw_states(plotting, fitted, resolution, n_states):
    """The states of the first function with its observations.

    Observations of a slice are not shown: few or none of them lie there.
    """
    data, state = fitted.observations.functions[0], fitted.fits[0]
    lower, upper = data.points.min(axis=0), data.points.max(axis=0)
    is_slice = len(lower) == 3
    pairs = zip(lower[is_slice:], upper[is_slice:], strict=True)
    axes = [np.linspace(a, b, resolution) for a, b in pairs]
    shown = np.column_stack([axis.ravel() for axis in np.meshgrid(*axes)])
    points, where = shown, ", and observations"
    units, drawn = fitted.units, []
    if is_slice:
        middle, first = (lower[0] + upper[0]) / 2, fitted.variables[0]
        points = np.column_stack([np.full(len(shown), middle), shown])
        where = f" at {first} = {with_unit(f'{middle:.3g}', units.of(first))}"
    variables = [units.labelled(name) for name in fitted.variables[is_slice:]]
    for name in fitted.observations.states[:n_states]:
        operator = units.identity(name)
        samples = fitted.observations.of_state(name)
        own = [L.name == name for L in data.operators]
        observed = data.of_operator(own.index(True)) if samples and any(own) else None
        observed = None if is_slice else observed
        figure, ax = _new_figure()
        plotting.StateDisplay.from_predictions(
            shown,
            state.evaluate(points, operator),
            std=np.sqrt(state.variance(points, operator)),
            X=None if observed is None else observed.points,
            y=None if observed is None else observed.values,
            variables=variables,
            name=units.labelled(name),
            ax=ax,
        )
        label = fitted.observations.labels[0]
        whose = "" if label is None else f" of {label}"
        drawn.append((f"the learned state {name}{whose}{where}", figure))
    return drawn


def _new_figure(width=6.0):
    """A figure that no window shows, `width` inches wide, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 3.6), layout="constrained")
    return figure, figure.subplots()


def _embedded(figure):
    """The address of a picture that is part of the page."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
