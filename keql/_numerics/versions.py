"""Versions of the package and of what it computes with."""

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from threadpoolctl import threadpool_info


def versions_of(names):
    """Versions of installed packages by name; None for those that are not there."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


@cache
def computing_versions():
    """Versions of Python, of the package and of what its results depend on.

    They are looked up once: every report has them.
    """
    names = ("keql", "numpy", "scipy", "scikit-learn", "autograd", "joblib")
    return {"python": platform.python_version()} | versions_of(names)


def show_versions() -> None:
    """Print what a report of a problem should say about the machine.

    Versions of Python, of keql, of the packages that it needs and of those that it uses
    where they are installed, and the libraries of linear algebra with their threads.

    Examples
    --------
    >>> import keql
    >>> keql.show_versions()  # doctest: +ELLIPSIS
    System
      python           ...
      platform         ...
    """
    optional = ["matplotlib", "threadpoolctl", "pandas", "polars", "xarray", "sympy"]
    optional += ["rich", "dask", "distributed", "pytest"]
    lines = [
        "System",
        _row("python", platform.python_version()),
        _row("platform", platform.platform()),
        "Packages",
        *(_row(name, found or "not installed") for name, found in _packages(optional)),
        "Linear algebra",
    ]
    lines += [
        _row(pool["internal_api"], _described(pool)) for pool in threadpool_info()
    ]
    print("\n".join(lines))


def _packages(optional):
    """Names and versions: of what results depend on first, then of the others."""
    packages = computing_versions() | versions_of(optional)
    return [pair for pair in packages.items() if pair[0] != "python"]


def _described(pool):
    """What threadpoolctl knows of a library: its version, and how many threads."""
    known = pool["version"] or "version unknown"
    return f"{known}, {pool['num_threads']} threads"


def _row(name, value):
    """One line of the list: a name, and what there is to say."""
    return f"  {name:<16} {value}"
