"""The promises of the repository: documented objects, a README that runs."""

import importlib
import inspect
import re
import textwrap
from pathlib import Path

import pytest

import keql

ROOT = Path(__file__).resolve().parent.parent
PUBLIC_MODULES = [
    "keql",
    "keql.kernels",
    "keql.operators",
    "keql.datasets",
    "keql.metrics",
    "keql.equation",
]


def test_version():
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?((a|b|rc|\.dev)\d+)?", keql.__version__)


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_all_names_exist_once(name):
    module = importlib.import_module(name)
    assert module.__doc__
    assert len(set(module.__all__)) == len(module.__all__)
    assert [item for item in module.__all__ if not hasattr(module, item)] == []


def has_example(docstring):
    """Return whether a numpydoc docstring has an Examples section with code."""
    _, heading, section = docstring.partition("\nExamples\n--------\n")
    return bool(heading) and ">>>" in section


def test_has_example_can_fail():
    assert has_example("Add.\n\nExamples\n--------\n>>> 1 + 1\n2")
    assert not has_example("Add.\n\nExamples\n--------\nTo be written.")
    assert not has_example("Add.\n\n>>> 1 + 1\n2")
    assert not has_example("")


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_objects_have_examples(name):
    module = importlib.import_module(name)
    objects = {item: getattr(module, item) for item in module.__all__}
    without = [
        item
        for item, thing in objects.items()
        if (inspect.isclass(thing) or inspect.isroutine(thing))
        and not has_example(inspect.cleandoc(thing.__doc__ or ""))
    ]
    assert without == []


def code_blocks(text):
    """Return the Python code blocks of a reStructuredText document."""
    pattern = r"^\.\. code-block:: python\n\n((?:(?:    .*)?\n)+)"
    return [textwrap.dedent(block) for block in re.findall(pattern, text, re.M)]


@pytest.mark.parametrize("path", ["README.rst", "doc/quickstart.rst"])
def test_documented_code_runs(path):
    blocks = code_blocks((ROOT / path).read_text(encoding="utf-8"))
    assert blocks
    namespace = {}
    for block in blocks:
        exec(compile(block, f"<code of {path}>", "exec"), namespace)
