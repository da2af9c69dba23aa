"""Validate the docstrings of the public interface with numpydoc.

numpydoc's own command looks for its settings in pyproject.toml only once there is
one. They are in setup.cfg here, and what is checked is the interface as it is
imported: what the public modules name in ``__all__``, and the public methods and
properties that classes define or inherit from the package.
"""

import configparser
import importlib
import inspect
import re
import sys
from pathlib import Path

from numpydoc.validate import get_validation_checks, validate

ROOT = Path(__file__).resolve().parent.parent
PUBLIC_MODULES = (
    "keql",
    "keql.kernels",
    "keql.operators",
    "keql.datasets",
    "keql.metrics",
    "keql.model_selection",
    "keql.equation",
    "keql.fit_report",
    "keql.plotting",
    "keql.exceptions",
)


def settings():
    """Return the checks to make and the pattern of names to leave alone."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    section = config["tool:numpydoc_validation"]
    names = {name.strip() for name in section["checks"].split(",")}
    return get_validation_checks(names), section.get("exclude", "")


def members(cls):
    """Yield the names of the public members of `cls` that the package wrote."""
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        if isinstance(member, (classmethod, staticmethod)):
            member = member.__func__
        elif isinstance(member, property):
            member = member.fget
        # Members that scikit-learn supplies keep scikit-learn's docstrings, and an
        # override without one keeps that of the method it overrides.
        ours = inspect.isfunction(member) and member.__module__.startswith("keql")
        inherits = ours and not member.__doc__ and inspect.getdoc(getattr(cls, name))
        if ours and not inherits and not name.startswith("_"):
            yield name


def public_names():
    """Yield the dotted name of every public object once, methods included."""
    seen = set()
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            thing = getattr(module, name)
            documented = inspect.isclass(thing) or inspect.isroutine(thing)
            if not documented or id(thing) in seen:
                continue
            seen.add(id(thing))
            yield f"{module_name}.{name}"
            if inspect.isclass(thing):
                for member in members(thing):
                    yield f"{module_name}.{name}.{member}"


def main():
    """Print what is wrong; return the exit status."""
    checks, exclude = settings()
    n_names, errors = 0, set()
    for name in public_names():
        if exclude and re.search(exclude, name):
            continue
        n_names += 1
        report = validate(name)
        path = Path(report["file"] or "")
        place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else name
        # A method inherited by several classes is one docstring: report it once.
        for code, message in report["errors"]:
            if code in checks:
                short = name.split(".")[-1]
                errors.add((str(place), report["file_line"] or 0, short, code, message))
    for place, line, name, code, message in sorted(errors):
        print(f"{place}:{line}: {name}: {code} {message}")
    print(f"numpydoc: {n_names} docstrings, {len(errors)} errors")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
