"""The architecture: imports go strictly downward, and stay few.

Everything is read from the source with `ast`; nothing is imported.
"""

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "keql"

# A module imports from lower layers only, never from its own. A package such as
# keql.kernels counts as one unit, within which its modules may import each other.
LAYERS = {
    "keql.kernels": 0,
    "keql._numerics": 0,
    "keql.metrics": 0,
    "keql._columns": 0,
    "keql.model_selection": 1,
    "keql._feature_cloud": 0,
    "keql.fit_report": 3,
    "keql.operators": 1,
    "keql.datasets": 1,
    "keql._basis": 1,
    "keql._formulas": 0,
    "keql._readout": 1,
    "keql._weights": 1,
    "keql._state_prior": 1,
    "keql._equation_prior": 1,
    "keql._draws": 1,
    "keql._restarts": 2,
    "keql.kernels._projected": 1,
    "keql._known_part": 2,
    "keql._observations": 2,
    "keql._posterior": 2,
    "keql._regression": 2,
    "keql._problems": 2,
    "keql._dual": 3,
    "keql._primal": 3,
    "keql._coverage": 0,
    "keql.exceptions": 0,
    "keql._simulation": 1,
    "keql.equation": 2,
    "keql._given_equation": 3,
    "keql._base": 3,
    "keql._boundary": 3,
    "keql._known_problem": 4,
    "keql._windows": 5,
    "keql._solving": 5,
    "keql._default_kernel": 6,
    "keql.pde_solver": 7,
    "keql._solver_mixin": 8,
    "keql._joint": 8,
    "keql._joint_fits": 9,
    "keql._evolution_grid": 0,
    "keql._border": 3,
    "keql._evolution": 4,
    "keql._law_search": 5,
    "keql._integration": 1,
    "keql._descent": 5,
    "keql._law_growth": 6,
    "keql._terms": 4,
    "keql._scales": 3,
    "keql.two_step": 10,
    "keql.one_step": 10,
    "keql.reduced_one_step": 11,
    "keql.plotting": 11,
    "keql": 12,
}

# What a module may import when it is itself imported, and what only inside the
# functions that need it, because it is slow to import or optional.
CORE = {"autograd", "joblib", "numpy", "scipy", "sklearn", "threadpoolctl"}
CORE |= sys.stdlib_module_names
LAZY = {"dask", "distributed", "matplotlib", "pandas", "rich", "sympy"}

# scikit-learn may change its private helpers at any release: one module knows them.
SKLEARN_PRIVATE = "keql._base"


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


def unit_of(path):
    """Return the unit of the table to which a dotted path inside keql belongs.

    A name that is no unit of its own is one that keql/__init__.py defines.
    """
    unit = ".".join(path.split(".")[:2])
    return unit if unit in LAYERS else "keql"


def layer_violations(module, imports):
    """Describe the imports of keql's own modules that do not go downward."""
    own = unit_of(module)
    return [
        f"{module}:{item.line} (layer {LAYERS[own]}) imports {item.path} "
        f"(layer {LAYERS[unit_of(item.path)]})"
        for item in imports
        if item.path.split(".")[0] == "keql"
        and unit_of(item.path) != own
        and LAYERS[unit_of(item.path)] >= LAYERS[own]
    ]


def package_violations(module, imports):
    """Describe the imports of packages that keql does not allow itself."""
    found = []
    for item in imports:
        top = item.path.split(".")[0]
        if top in CORE | {"keql"} or (item.lazy and top in LAZY):
            continue
        advice = "import it inside a function" if top in LAZY else "not a dependency"
        found.append(f"{module}:{item.line} imports {item.path}: {advice}")
    return found


def private_violations(module, imports):
    """Describe the imports of private names of scikit-learn."""
    return [
        f"{module}:{item.line} imports {item.path}: only {SKLEARN_PRIVATE} may"
        for item in imports
        if item.path.split(".")[0] == "sklearn"
        and any(re.match("_(?!_)", part) for part in item.path.split("."))
        and module != SKLEARN_PRIVATE
    ]


RULES = [layer_violations, package_violations, private_violations]
FILES = sorted(PACKAGE.rglob("*.py"))


def test_every_module_has_a_layer():
    top_level = {".".join(module_name(path).split(".")[:2]) for path in FILES}
    assert FILES, f"no modules in {PACKAGE}"
    assert top_level <= set(LAYERS), "modules missing from the table of layers"


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
LAYER_CASES = [
    ("keql.equation", "from keql.operators import features", False),
    ("keql.equation", "from .operators import features", False),
    ("keql.operators", "from keql.equation import LearnedEquation", True),
    ("keql.operators", "from .equation import LearnedEquation", True),
    ("keql.operators", "from . import equation", True),
    ("keql.operators", "import keql.equation as e", True),
    ("keql.operators", "def f():\n    from keql import equation", True),
    ("keql.one_step", "from .two_step import TwoStepKEqL", True),
    ("keql.metrics", "from ._linalg import solve", True),
    ("keql.metrics", "from keql import TwoStepKEqL", True),
    ("keql.kernels._radial", "from ._base import Kernel", False),
    ("keql.kernels._radial", "from .._base import validate", True),
    ("keql.kernels._radial", "from ..metrics import relative_l2_error", True),
    ("keql", "from .two_step import TwoStepKEqL", False),
]
PACKAGE_CASES = [
    ("keql.metrics", "import numpy as np\nimport math", False),
    ("keql.metrics", "from keql.kernels import RBF", False),
    ("keql.metrics", "import polars", True),
    ("keql.metrics", "def f():\n    import polars", True),
    ("keql.plotting", "from matplotlib import pyplot", True),
    ("keql.plotting", "try:\n    import matplotlib\nexcept ImportError:\n    0", True),
    ("keql.plotting", "class A:\n    def f(self):\n        import matplotlib", False),
]
PRIVATE_CASES = [
    ("keql.two_step", "from sklearn import __version__", False),
    ("keql.two_step", "from sklearn.base import BaseEstimator", False),
    ("keql.two_step", "from sklearn.base import _fit_context", True),
    ("keql.two_step", "from sklearn.utils._param_validation import Interval", True),
    ("keql.two_step", "import sklearn.utils._param_validation", True),
    ("keql._base", "from sklearn.utils._param_validation import Interval", False),
]


@pytest.mark.parametrize(
    ("rule", "module", "source", "objects"),
    [
        (rule, *case)
        for rule, cases in zip(
            RULES, [LAYER_CASES, PACKAGE_CASES, PRIVATE_CASES], strict=True
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
