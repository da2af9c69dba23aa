"""References in the text of notebooks, which are no pages of the site.

sphinx-gallery turns the text of the examples into Markdown, but leaves roles such as
``:doc:`` and ``:class:`` as they are. Here they become their titles, or code.
"""

import re

ROLE = re.compile(r":(?:doc|ref|term|mod|class|func|meth|attr):`([^`]+)`")
TITLED = re.compile(r"(.*\S)\s*<[^<>]+>", re.DOTALL)


def plain(text):
    """Return a text in which each reference is its title, or its name as code."""
    return ROLE.sub(_title, text)


def _title(match):
    titled = TITLED.fullmatch(match[1])
    if titled:
        return titled[1]
    name = match[1]
    if name.startswith("~"):
        name = name.rpartition(".")[2]
    return f"`{name.rpartition('/')[2]}`"


def setup(app):
    """Convert references before sphinx-gallery converts everything else."""
    from sphinx_gallery import notebook

    convert = notebook.rst2md
    notebook.rst2md = lambda text, *args, **kwargs: convert(
        plain(text), *args, **kwargs
    )
    return {"parallel_read_safe": True}
