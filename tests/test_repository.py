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
    "keql.plotting",
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


@pytest.mark.parametrize(
    "path", ["README.rst", "doc/quickstart.rst", "doc/guide_reading.rst"]
)
def test_documented_code_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where figures are saved
    blocks = code_blocks((ROOT / path).read_text(encoding="utf-8"))
    assert blocks
    namespace = {}
    for block in blocks:
        exec(compile(block, f"<code of {path}>", "exec"), namespace)


def test_readme_shows_what_is_printed(capsys):
    text = (ROOT / "README.rst").read_text(encoding="utf-8")
    exec(compile(code_blocks(text)[0], "<code of README.rst>", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    shown = re.search(r"^    (u_t = .*) \+ \.\.\.\n    (.*)\n", text, re.M).groups()
    names, values = zip(*(terms(line) for line in shown), strict=True)
    assert names[0] == terms(printed[0])[0][: len(names[0])]
    assert values[0] == pytest.approx(terms(printed[0])[1][: len(values[0])], rel=0.05)
    assert values[1] == pytest.approx(terms(printed[1])[1], rel=0.05)


def terms(line):
    """Return the names of a printed equation, and its numbers."""
    pairs = re.findall(r"(?<![\w^])([\d.]+(?:e[+-]\d+)?) ?([a-z_^2 ]*)", line)
    return [name.strip() for _, name in pairs], [float(value) for value, _ in pairs]
