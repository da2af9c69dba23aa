"""The architecture: packages import strictly downward, and stay small.

Everything is read from the source with `ast`; nothing is imported.
"""

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "keql"

# A package imports only from those before it, and within itself.
ORDER = [
    "exceptions",
    "metrics",
    "_numerics",
    "kernels",
    "operators",
    "_observations",
    "equation",
    "_regression",
    "_joint",
    "_evolution",
    "_solving",
    "model_selection",
    "fit_report",
    "_estimators",
    "datasets",
    "plotting",
    "keql",
]

# What a module may import when it is itself imported, and what only inside the
# functions that need it, because it is slow to import or optional.
CORE = {"autograd", "joblib", "numpy", "scipy", "sklearn", "threadpoolctl"}
CORE |= sys.stdlib_module_names
LAZY = {"dask", "distributed", "matplotlib", "pandas", "rich", "sympy"}

# scikit-learn may change its private helpers at any release: one module knows them.
SKLEARN_PRIVATE = "keql._estimators.base"


@dataclass(frozen=True)
class Import:
    """One imported name: its dotted path, and whether a function imports it."""

    path: str
    lazy: bool
    line: int


def read_imports(source, module, is_package):
    """Return every import in `source`, the text of the module called `module`."""
    tree = ast.parse(source)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    lazy = {
        id(child)
        for function in ast.walk(tree)
        if isinstance(function, functions)
        for child in ast.walk(function)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            paths = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                # One dot is the package that holds the module, each further dot the
                # package above; a package's __init__ is its own first dot.
                parts = module.split(".")
                keep = len(parts) - node.level + is_package
                origin = ".".join(parts[:keep] + ([origin] if origin else []))
            paths = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [Import(path, id(node) in lazy, node.lineno) for path in paths]
    return found


def module_name(path):
    """Return the dotted name of the module in the file `path`."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(path):
    """Return the entry of ORDER to which a dotted path inside keql belongs.

    A name that is no package of its own is one that keql/__init__.py defines.
    """
    second = [*path.split("."), "keql"][1]
    return second if second in ORDER else "keql"


def order_violations(module, imports):
    """Describe the imports of keql's own packages that do not go downward."""
    own = package_of(module)
    return [
        f"{module}:{item.line} imports {item.path}, which is above it"
        for item in imports
        if item.path.split(".")[0] == "keql"
        and ORDER.index(package_of(item.path)) > ORDER.index(own)
    ]


def underscore_violations(module, imports):
    """Describe the private names of one of keql's packages that another one imports.

    Internal packages have an underscore themselves, and their modules have none; a
    public package hands what others need on in its __init__.
    """
    return [
        f"{module}:{item.line} imports {item.path}, a private name"
        for item in imports
        if item.path.split(".")[0] == "keql"
        and package_of(item.path) != package_of(module)
        and any(re.match("_(?!_)", part) for part in item.path.split(".")[2:])
    ]


def dependency_violations(module, imports):
    """Describe the imports of other projects that keql does not allow itself."""
    found = []
    for item in imports:
        top = item.path.split(".")[0]
        if top in CORE | {"keql"} or (item.lazy and top in LAZY):
            continue
        advice = "import it inside a function" if top in LAZY else "not a dependency"
        found.append(f"{module}:{item.line} imports {item.path}: {advice}")
    return found


def sklearn_violations(module, imports):
    """Describe the imports of private names of scikit-learn."""
    return [
        f"{module}:{item.line} imports {item.path}: only {SKLEARN_PRIVATE} may"
        for item in imports
        if item.path.split(".")[0] == "sklearn"
        and any(re.match("_(?!_)", part) for part in item.path.split("."))
        and module != SKLEARN_PRIVATE
    ]


RULES = [
    order_violations,
    underscore_violations,
    dependency_violations,
    sklearn_violations,
]
FILES = sorted(PACKAGE.rglob("*.py"))


def test_every_module_belongs_to_a_package():
    assert FILES, f"no modules in {PACKAGE}"
    assert {path.name for path in PACKAGE.glob("*.py")} == {
        "__init__.py",
        "exceptions.py",
        "metrics.py",
    }
    assert {path.parent.name for path in FILES} <= set(ORDER)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_imports_of_the_package(rule):
    violations = []
    for path in FILES:
        module = module_name(path)
        source = path.read_text(encoding="utf-8")
        imports = read_imports(source, module, path.name == "__init__.py")
        violations += rule(module, imports)
    assert not violations, "\n".join(violations)


# The rules themselves: a module, its text, and whether the rule objects.
ORDER_CASES = [
    ("keql.equation._learned", "from keql.operators import features", False),
    ("keql.equation._learned", "from ..operators import features", False),
    ("keql.operators._gram", "from keql.equation import LearnedEquation", True),
    ("keql.operators._gram", "from ..equation import LearnedEquation", True),
    ("keql.operators._gram", "from .. import equation", True),
    ("keql.operators._gram", "import keql.equation as e", True),
    ("keql.operators._gram", "def f():\n    from keql import equation", True),
    ("keql.metrics", "from ._numerics.linalg import solve", True),
    ("keql.metrics", "from keql import TwoStepKEqL", True),
    ("keql.kernels._radial", "from ._base import Kernel", False),
    ("keql.kernels._radial", "from ..metrics import relative_l2_error", False),
    ("keql.kernels._radial", "from ..operators import gram", True),
    ("keql", "from ._estimators.two_step import TwoStepKEqL", False),
]
UNDERSCORE_CASES = [
    ("keql.equation._learned", "from keql.equation._basis import make_basis", False),
    ("keql._joint.dual", "from keql.equation import make_basis", False),
    ("keql._joint.dual", "from keql.equation._basis import make_basis", True),
    ("keql._joint.dual", "from keql.equation import _basis", True),
    ("keql._joint.dual", "from keql._numerics.linalg import cholesky", False),
    ("keql._joint.dual", "from keql._numerics.linalg import _cholesky", True),
]
DEPENDENCY_CASES = [
    ("keql.metrics", "import numpy as np\nimport math", False),
    ("keql.metrics", "from keql.kernels import RBF", False),
    ("keql.metrics", "import polars", True),
    ("keql.metrics", "def f():\n    import polars", True),
    ("keql.plotting", "from matplotlib import pyplot", True),
    ("keql.plotting", "try:\n    import matplotlib\nexcept ImportError:\n    0", True),
    ("keql.plotting", "class A:\n    def f(self):\n        import matplotlib", False),
]
SKLEARN_CASES = [
    ("keql.metrics", "from sklearn import __version__", False),
    ("keql.metrics", "from sklearn.base import BaseEstimator", False),
    ("keql.metrics", "from sklearn.base import _fit_context", True),
    ("keql.metrics", "from sklearn.utils._param_validation import Interval", True),
    ("keql.metrics", "import sklearn.utils._param_validation", True),
    (SKLEARN_PRIVATE, "from sklearn.utils._param_validation import Interval", False),
]


@pytest.mark.parametrize(
    ("rule", "module", "source", "objects"),
    [
        (rule, *case)
        for rule, cases in zip(
            RULES,
            [ORDER_CASES, UNDERSCORE_CASES, DEPENDENCY_CASES, SKLEARN_CASES],
            strict=True,
        )
        for case in cases
    ],
)
def test_rules(rule, module, source, objects):
    imports = read_imports(source, module, is_package=module == "keql")
    assert bool(rule(module, imports)) is objects


@pytest.mark.parametrize(
    ("module", "is_package", "source", "path"),
    [
        ("keql.kernels", True, "from ._radial import RBF", "keql.kernels._radial.RBF"),
        ("keql.kernels", True, "from ..metrics import f", "keql.metrics.f"),
        ("keql.kernels._radial", False, "from . import _base", "keql.kernels._base"),
        ("keql.kernels._radial", False, "from .. import metrics", "keql.metrics"),
    ],
)
def test_relative_imports_are_resolved(module, is_package, source, path):
    assert [item.path for item in read_imports(source, module, is_package)] == [path]
