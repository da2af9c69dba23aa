"""The pages of the documentation: their code runs, and prints what they show."""

import contextlib
import io
import re
import textwrap
import warnings
from pathlib import Path

import pytest
from test_layers import ORDER

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "doc").glob("*.rst"))
SLOW = {
    "coming_from.rst",
    "guide_data.rst",
    "guide_kernels.rst",
    "guide_reading.rst",
    "guide_searches.rst",
    "guide_solving.rst",
    "guide_systems.rst",
    "guide_uncertainty.rst",
}
ENCODING = {"encoding": "utf-8"}
# Numbers in what is printed; they may differ a little between machines.
NUMBER = re.compile(r"(?<![\w^.])-?\d+\.?\d*(?:e[+-]?\d+)?(?!\w)")
TOLERANCE = 0.05


def code_blocks(text, language="python"):
    """Return the code blocks of a reStructuredText document."""
    pattern = rf"^\.\. code-block:: {language}\n\n((?:(?:    .*)?\n)+)"
    return [textwrap.dedent(block) for block in re.findall(pattern, text, re.M)]


def blocks_and_outputs(text):
    """Return each Python code block with what is shown as its output, or None.

    The output is in a block of the language "none" before the next Python block.
    """
    parts = re.split(r"^(?=\.\. code-block:: python)", text, flags=re.M)[1:]
    shown = [(code_blocks(part)[0], code_blocks(part, "none")) for part in parts]
    return [(code, output[0] if output else None) for code, output in shown]


def run(code, namespace):
    """Return what code prints, and the warnings and the error that it ends in."""
    error = []
    with (
        contextlib.redirect_stdout(io.StringIO()) as printed,
        warnings.catch_warnings(record=True, action="always") as caught,
    ):
        try:
            exec(compile(code, "<code of a page>", "exec"), namespace)
        except (ValueError, TypeError, RuntimeError) as raised:
            error = [f"{type(raised).__name__}: {raised}"]
    warned = [f"{item.category.__name__}: {item.message}" for item in caught]
    return "\n".join([printed.getvalue(), *warned, *error])


def same_output(shown, printed):
    """Return whether two texts agree but for white space and the last digits."""
    words = ["".join(NUMBER.sub("#", text).split()) for text in (shown, printed)]
    numbers = [[float(n) for n in NUMBER.findall(text)] for text in (shown, printed)]
    return words[0] == words[1] and numbers[0] == pytest.approx(
        numbers[1], rel=TOLERANCE
    )


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("u_t = 0.50 u\n", "u_t = 0.51 u", True),
        ("u_t = 0.50 u^2", "u_t = 0.50 u^3", False),
        ("u_t = 0.50 u", "u_t = 0.60 u", False),
        ("u_t = 0.50 u", "u_t = -0.50 u", False),
        ("1.2e-05", "1.2e-07", False),
        ("", "u", False),
    ],
)
def test_outputs_are_compared(shown, printed, same):
    assert same_output(shown, printed) is same


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.slow] * (path.name in SLOW))
        for path in PAGES
    ],
)
def test_documented_code_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where figures are saved
    text = path.read_text(**ENCODING)
    namespace = {}
    pairs = blocks_and_outputs(text)
    assert len(pairs) == text.count("code-block:: python")
    for code, shown in pairs:
        printed = run(code, namespace)
        if shown is None:
            assert not re.search(r"^\w+(Error|Warning): ", printed, re.M), printed
        else:
            assert same_output(shown, printed), f"shown:\n{shown}\nprinted:\n{printed}"


def test_readme_shows_what_is_printed(capsys):
    text = (ROOT / "README.rst").read_text(**ENCODING)
    own, code, system = code_blocks(text)
    shown = re.search(r"^    d2u.*", text, re.M)[0]
    assert same_output(shown, run(own, {}))
    exec(compile(code, "<code of README.rst>", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    shown = re.search(r"^    (u_t = .*) \+ \.\.\.\n    (.*)\n", text, re.M).groups()
    names, values = zip(*(terms(line) for line in shown), strict=True)
    assert names[0] == terms(printed[0])[0][: len(names[0])]
    assert values[0] == pytest.approx(terms(printed[0])[1][: len(values[0])], rel=0.05)
    # The likelihood is flat: where it ends depends on the optimizer of the version of
    # scipy, and the error with it.
    assert values[1] == pytest.approx(terms(printed[1])[1], rel=0.2)
    shown = re.search(r"^    x_t = (?:.*\n    )+z_t = .*", text, re.M)[0]
    assert same_output(shown, run(system, {}))


def terms(line):
    """Return the names of a printed equation, and its numbers."""
    pairs = re.findall(r"(?<![\w^])([\d.]+(?:e[+-]\d+)?) ?([a-z_^2 ]*)", line)
    return [name.strip() for _, name in pairs], [float(value) for value, _ in pairs]


def test_packages_of_the_developer_page():
    """The listing shows all packages, those on top first."""
    page = (ROOT / "doc" / "developer.rst").read_text(**ENCODING)
    listing = page.partition("    keql/\n")[2].partition("\n\n")[0]
    listed = re.findall(r"^      (\w+)(?:/|\.py) ", listing, re.M)
    above = [name for name in reversed(ORDER) if name != "keql"]
    assert sorted(listed) == sorted(above)
    middle = [name for name in above if name not in {"metrics", "exceptions"}]
    assert [name for name in listed if name in middle] == middle


def labels_with_titles(text):
    """The labels of a page that stand above a title, which is what a link shows."""
    return re.findall(
        r"^\.\. _([\w-]+):\n\n(?:\.\. .*\n\n)*.+\n[=~^-]{3,}$", text, re.M
    )


def test_links_without_words_go_to_titles():
    text = "\n.. _a:\n\nTitle\n-----\n\n.. _b:\n\nNo title,\nbut a text.\n"
    assert labels_with_titles(text) == ["a"]
    pages = [path.read_text(**ENCODING) for path in (ROOT / "doc").glob("*.rst")]
    sources = [path.read_text(**ENCODING) for path in (ROOT / "keql").rglob("*.py")]
    linked = set(re.findall(r":ref:`([\w-]+)`", "\n".join(pages + sources)))
    known = {label for page in pages for label in labels_with_titles(page)}
    assert linked <= known
    assert len(linked) > 5
