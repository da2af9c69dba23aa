"""Formulas as MathML: browsers draw them without scripts, fonts or a network."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

logger = logging.getLogger(__name__)


def mathml(node, display):
    """Return a formula as MathML; warn of commands that have no translation."""
    latex = node.astext()
    if r"\\" in latex and r"\begin" not in latex:
        latex = rf"\begin{{align*}}{latex}\end{{align*}}"
    result = convert(latex, display=display)
    text = re.sub("<[^>]*>", " ", result)
    if unknown := re.findall(r"\\[a-zA-Z]+|&(?![#\w])", text):
        logger.warning("formula with %s, unknown", ", ".join(unknown), location=node)
    return result


def visit_inline(translator, node):
    """Write a formula within a line."""
    translator.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def visit_displayed(translator, node):
    """Write a formula on lines of its own."""
    translator.body.append(f'<div class="formula">{mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app):
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
