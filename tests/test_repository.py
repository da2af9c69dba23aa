"""The promises of the repository: documented objects, with examples."""

import ast
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
import typing
from pathlib import Path

import pytest

import keql
from keql.fit_report import FitReport

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "doc" / "api.rst"
PUBLIC_MODULES = [
    "keql",
    "keql.kernels",
    "keql.operators",
    "keql.datasets",
    "keql.metrics",
    "keql.model_selection",
    "keql.equation",
    "keql.fit_report",
    "keql.plotting",
]


def test_version():
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?((a|b|rc|\.dev)\d+)?", keql.__version__)


def test_the_package_is_the_one_that_is_meant():
    """`make dist` tests the wheel, whose sources lie beside the tests as well."""
    place = os.environ.get("KEQL_INSTALLED_IN")
    if place is None:
        pytest.skip("the variable KEQL_INSTALLED_IN does not say where it should be")
    assert Path(keql.__file__).is_relative_to(place)


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


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_objects_are_in_the_reference(name):
    module = importlib.import_module(name)
    listed = re.findall(r"^   (\w+)$", REFERENCE.read_text(encoding="utf-8"), re.M)
    assert {item for item in module.__all__ if not item.startswith("_")} <= set(listed)


def lower_bounds(project):
    """Return {name: version} of the oldest versions that the tests may meet."""
    named = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    return dict(requirement.split(">=") for requirement in named)


def pins(text):
    """Return {name: version} of the lines "name==version" of constraints for pip."""
    return dict(re.findall(r"^([\w-]+)==([\w.]+)$", text, re.M))


def defaults_that_differ(thing):
    """Names of parameters whose documented default is not that of the signature.

    Of "default=1.0, 2" each is that of a name, and a single one that of all.
    """
    entries = re.findall(
        r"^(\w[\w, ]*) : .*\bdefault=(.+)$", inspect.getdoc(thing), re.M
    )
    made_by = thing.__init__ if inspect.isclass(thing) else thing
    signature = inspect.signature(made_by).parameters
    for names, text in entries:
        names = names.split(", ")
        try:
            values = ast.literal_eval(text.replace(" and ", ", "))
        except (SyntaxError, ValueError):
            continue  # in words
        if len(names) == 1 or not isinstance(values, tuple):
            values = (values,) * len(names)
        for name, value in zip(names, values, strict=True):
            own = signature.get(name)
            if own is None or own.default is own.empty:
                continue
            if isinstance(own.default, (int, float, str, type(None))):
                if own.default != value:
                    yield f"{name}: {text}"


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_documented_defaults_are_those_of_the_signature(name):
    module = importlib.import_module(name)
    for item in module.__all__:
        thing = getattr(module, item)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert list(defaults_that_differ(thing)) == [], item


def test_defaults_that_differ_are_found():
    def wrong(a, b=1, c=2, d=None):
        """Add.

        Parameters
        ----------
        a : int
            First.
        b, c : int, default=1, 3
            Others.
        d : int, default=None
            Last.
        """

    assert list(defaults_that_differ(wrong)) == ["c: 1, 3"]


def test_bounds_and_pins_are_read():
    project = {"dependencies": ["a>=1.2"], "optional-dependencies": {"test": ["b>=3"]}}
    assert lower_bounds(project) == {"a": "1.2", "b": "3"}
    assert pins("# c==4\na==1.2\n\nb-b==3\n") == {"a": "1.2", "b-b": "3"}


def test_the_tests_run_with_the_oldest_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    bounds = lower_bounds(project["project"])
    pinned = pins((ROOT / "tests" / "oldest.txt").read_text(encoding="utf-8"))
    # Others may be pinned too, that these need in turn.
    assert {name: pinned.get(name) for name in bounds} == bounds


def test_public_modules_are_imported_when_they_are_named():
    script = (
        "import sys, keql\n"
        "assert 'keql.plotting' not in sys.modules and 'plotting' in dir(keql)\n"
        "assert keql.plotting.StateDisplay and keql.datasets.make_duffing\n"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    with pytest.raises(AttributeError, match="has no attribute 'plots'"):
        _ = keql.plots


def test_versions_are_shown(capsys):
    keql.show_versions()
    shown = capsys.readouterr().out
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [text.partition(">=")[0] for text in project["project"]["dependencies"]]
    for name in ["python", "keql", *needed]:
        assert re.search(rf"^  {name} +\S", shown, re.M), name
    assert re.search(r"\d threads$", shown, re.M)


def test_the_citation_is_of_this_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", text, re.M)[1] == keql.__version__


def test_the_source_archive_has_what_the_tests_need():
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
    for folder in (".ci", "doc", "examples", "tests"):
        assert f"graft {folder}\n" in manifest
    assert (ROOT / "keql" / "py.typed").is_file()


def test_workflows_call_targets_that_exist():
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    if not workflows:
        pytest.skip("the source archive has no workflows")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.M))
    texts = [path.read_text(encoding="utf-8") for path in workflows]
    called = set(re.findall(r"run: make ([a-z-]+)", "".join(texts)))
    assert {"test", "lint", "doc", "dist"} <= called <= targets


def test_a_release_has_absolute_addresses(tmp_path):
    """What the workflow does to the description that the package index shows."""
    workflow = ROOT / ".github" / "workflows" / "release.yml"
    if not workflow.exists():
        pytest.skip("the source archive has no workflows")
    if not sys.platform.startswith("linux"):
        pytest.skip("releases are made on Linux, whose sed has other options")
    for name in ("README.rst", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    lines = re.findall(r"^ +(sed -i .*)$", workflow.read_text(encoding="utf-8"), re.M)
    host = "https://example.org/them/keql"
    environment = os.environ | {"HOST": host, "GITHUB_REF_NAME": "v0.1.0"}
    for line in lines:
        subprocess.run(line, shell=True, check=True, cwd=tmp_path, env=environment)
    readme = (tmp_path / "README.rst").read_text(encoding="utf-8")
    pictures = re.findall(r"image:: (.*)", readme)
    assert pictures == [f"{host}/raw/v0.1.0/doc/_static/demo.png"]
    text = (tmp_path / "pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["project"]["urls"]["Source"] == host


def test_settings_of_the_project_can_be_read():
    yaml = pytest.importorskip("yaml")
    paths = [ROOT / "CITATION.cff", ROOT / ".pre-commit-config.yaml"]
    paths += (ROOT / ".github").rglob("*.yml")
    for path in paths:
        if path.is_file():
            assert yaml.safe_load(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("name", ["fit", "predict", "score", "simulate", "pde_solver"])
def test_types_are_said_and_can_be_resolved(name):
    """For type checkers, which read them because of py.typed."""
    for learner in (keql.TwoStepKEqL, keql.OneStepKEqL, keql.ReducedOneStepKEqL):
        method = getattr(learner, name)
        given = set(inspect.signature(method).parameters) - {"self"}
        assert {"return", *given} == set(typing.get_type_hints(method))
    assert typing.get_type_hints(keql.OneStepKEqL)["fit_report_"] is FitReport


def functions_of(module):
    """Yield the functions of a public module, and the methods of its classes."""
    for thing in (getattr(module, name) for name in module.__all__):
        if not inspect.isclass(thing):
            yield inspect.unwrap(thing) if callable(thing) else None
            continue
        for cls in thing.__mro__:
            for name, member in vars(cls).items():
                if name.startswith("_") and name not in ("__init__", "__call__"):
                    continue
                member = getattr(member, "__func__", member)
                yield member.fget if isinstance(member, property) else member


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_signatures_are_annotated(name):
    for function in functions_of(importlib.import_module(name)):
        if not inspect.isfunction(function) or "keql" not in function.__module__:
            continue
        if "<locals>" in function.__qualname__:
            continue  # made when a class is: hyperparameters of kernels
        given = set(inspect.signature(function).parameters) - {"self", "cls"}
        assert {"return", *given} <= set(function.__annotations__), function
