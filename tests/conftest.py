"""What all tests share."""

import os
from pathlib import Path

import pytest
from joblib.externals.loky import get_reusable_executor

import keql

# Figures are drawn without a screen. Set before anything imports matplotlib.
os.environ.setdefault("MPLBACKEND", "Agg")

# Benchmarks are scripts: `make benchmark` runs them, not pytest.
collect_ignore = ["benchmarks"]

ROOT = Path(__file__).resolve().parent.parent


def pytest_report_header():
    """Return which copy of the package is tested: a checkout or an installed wheel."""
    return f"keql: {Path(keql.__file__).parent}"


@pytest.fixture(scope="session")
def reference():
    """Return a function that finds a file of published or measured data.

    The files are not part of the repository. They are looked for in the folder that
    the environment variable KEQL_REFERENCE names, else in ../shared/reference beside
    the repository; a test that needs one which is not there is skipped.
    """
    default = ROOT.parent / "shared" / "reference"
    folder = Path(os.environ.get("KEQL_REFERENCE") or default)

    def find(name):
        path = folder / name
        if not path.is_file():
            pytest.skip(
                f"reference file {name} not found: set KEQL_REFERENCE to its folder"
            )
        return path

    return find


@pytest.fixture
def own_workers():
    """Give a test worker processes of its own: none from before, none left over.

    joblib keeps its processes for the next call. They know the import path of the
    moment they were started, and would not find what a later test adds to it.
    """
    get_reusable_executor().shutdown(wait=True)
    yield
    get_reusable_executor().shutdown(wait=True)
