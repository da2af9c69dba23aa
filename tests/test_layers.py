"""The architecture: packages import strictly downward, and stay small.

Everything is read from the source with `ast`; nothing is imported.
"""

import ast
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "keql"

# A package imports only from those before it, and within itself.
ORDER = [
    "exceptions",
    "_numerics",
    "metrics",
    "kernels",
    "operators",
    "_observations",
    "equation",
    "_regression",
    "_joint",
    "_evolution",
    "_solving",
    "model_selection",
    "plotting",
    "fit_report",
    "_estimators",
    "datasets",
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


@cache
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
        "__main__.py",
        "exceptions.py",
        "metrics.py",
    }
    # A package may have folders; what is in them belongs to it.
    folders = [path.relative_to(PACKAGE.parent).parts[:-1] for path in FILES]
    assert {parts[:2][-1] for parts in folders} <= set(ORDER)


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
    ("keql.exceptions", "from ._numerics.linalg import solve", True),
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


# --- how large things may be, and what knows what -------------------------------------

# Each rule takes the texts of the modules by their paths, such as
# {"keql/metrics.py": "import numpy"}, and, where it is about a number, its limit.


def dotted(path):
    """Return the dotted name of the module in the file "keql/kernels/_base.py"."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def package_in(path):
    """Return the entry of ORDER to which the module in the file `path` belongs."""
    return package_of(dotted(path))


def top_level_entries(modules, limit):
    """Describe a package with more than `limit` modules and folders at its top."""
    entries = {path.split("/")[1] for path in modules}
    return [f"keql has {len(entries)} entries"] if len(entries) > limit else []


def crowded_folders(modules, limit):
    """Describe the folders of more than `limit` modules, not counting __init__."""
    folders = defaultdict(set)
    for path in modules:
        folder, _, name = path.rpartition("/")
        folders[folder] |= {name} - {"__init__.py"}
    return [
        f"{folder} has {len(names)} modules"
        for folder, names in folders.items()
        if len(names) > limit
    ]


def long_files(modules, limit):
    """Describe the files of more than `limit` lines."""
    lengths = {path: len(source.splitlines()) for path, source in modules.items()}
    return [f"{path} has {n} lines" for path, n in lengths.items() if n > limit]


def long_functions(modules, limit):
    """Describe the functions of more than `limit` lines, docstring included.

    Data sets are excepted: the parameters of one are many, and documented in full.
    """
    return [
        f"{path}:{node.lineno} {node.name} has {length} lines"
        for path, source in modules.items()
        if package_in(path) != "datasets"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (length := node.end_lineno - node.lineno + 1) > limit
    ]


def too_many_constants(modules, limit):
    """Describe all constants of modules if the package has more than `limit`."""
    constants = [
        f"{path}:{node.lineno} {name}"
        for path, source in modules.items()
        for node in module_level(ast.parse(source))
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and not is_text(node.value)
        for name in assigned_names(node)
        if re.fullmatch("_?[A-Z][A-Z0-9_]*", name)
    ]
    return constants if len(constants) > limit else []


def module_level(node):
    """Yield the statements that run when a module is imported, outside of classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from module_level(child)


def assigned_names(node):
    """Return the names and attributes to which a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [
        child.id if isinstance(child, ast.Name) else child.attr
        for target in targets
        for child in ast.walk(target)
        if isinstance(child, (ast.Name, ast.Attribute))
        and isinstance(child.ctx, ast.Store)
    ]


def is_text(value):
    """Return whether a value is text, a collection of texts, or a regular expression.

    Colours are texts, too: "C0" or "#1f77b4".
    """
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str)
    if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
        return all(map(is_text, value.elts))
    if isinstance(value, ast.Dict):
        return all(map(is_text, value.values))
    if isinstance(value, ast.Call):
        function = value.func
        method_of_text = isinstance(function, ast.Attribute) and is_text(function.value)
        return method_of_text or ast.unparse(function) == "re.compile"
    return isinstance(value, ast.JoinedStr)


def import_circles(modules):
    """Describe a circle of modules of which each imports the next one.

    Only imports count that run when the module is itself imported. To import a module
    is to import the packages that hold it, but for those that hold the importing one,
    which are being imported already.
    """
    names = {dotted(path) for path in modules}
    graph = {}
    for path, source in modules.items():
        own = dotted(path)
        graph[own] = {
            name
            for item in read_imports(source, own, path.endswith("__init__.py"))
            if not item.lazy
            for name in prefixes(item.path)
            if name in names and not f"{own}.".startswith(f"{name}.")
        }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [" imports ".join(reversed(error.args[1]))]
    return []


def prefixes(path):
    """Return "a", "a.b" and "a.b.c" of the dotted path "a.b.c"."""
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def foreign_attributes(modules):
    """Describe the uses of private attributes that another package defines.

    Those of self, cls and super() are a class's own, or inherited.
    """
    trees = {path: ast.parse(source) for path, source in modules.items()}
    defined = defaultdict(set)
    for path, tree in trees.items():
        defined[package_in(path)] |= defined_names(tree)
    return [
        f"{path}:{node.lineno} uses {ast.unparse(node)}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and re.match("_(?!_)", node.attr)
        and ast.unparse(node.value) not in {"self", "cls", "super()"}
        and node.attr not in defined[package_in(path)] | NAMED_TUPLE
    ]


# The public methods of named tuples, which begin so in order not to be fields.
NAMED_TUPLE = {"_asdict", "_make", "_replace"}


def defined_names(tree):
    """Return the functions, classes and attributes of classes that a module defines."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            names |= set(assigned_names(node))
    return names


# Each rule with its limit, if it is about a number.
LIMITS = {
    top_level_entries: 18,
    crowded_folders: 12,
    long_files: 500,
    long_functions: 50,
    too_many_constants: 60,
    import_circles: None,
    foreign_attributes: None,
}


def violations_of(rule, modules, limit):
    """Apply a rule, with its limit if it has one."""
    return rule(modules) if limit is None else rule(modules, limit)


@pytest.mark.parametrize("rule", LIMITS, ids=lambda rule: rule.__name__)
def test_limits_of_the_package(rule):
    modules = {
        path.relative_to(PACKAGE.parent).as_posix(): path.read_text(encoding="utf-8")
        for path in FILES
    }
    violations = violations_of(rule, modules, LIMITS[rule])
    assert not violations, "\n".join(violations)


# The rules themselves: some modules, a limit, and whether the rule objects.
A, B, KERNELS, METRICS, DATA = (
    "keql/kernels/_a.py",
    "keql/kernels/_b.py",
    "keql/kernels/__init__.py",
    "keql/metrics.py",
    "keql/datasets/_a.py",
)
THREE = {A: "", B: "", METRICS: ""}
CLASS = "class A:\n    _a = 1\n"
LIMIT_CASES = [
    (top_level_entries, THREE, 2, False),
    (top_level_entries, THREE, 1, True),
    (crowded_folders, {KERNELS: "", **THREE}, 2, False),
    (crowded_folders, {KERNELS: "", **THREE}, 1, True),
    (long_files, {A: "1\n2\n", B: "1\n2"}, 2, False),
    (long_files, {A: "1\n2\n3", B: ""}, 2, True),
    (long_functions, {A: "@f\ndef g():\n    return 1"}, 2, False),
    (long_functions, {A: "def f():\n    '''Long.\n    '''"}, 2, True),
    (long_functions, {A: "class A:\n    def f(self):\n        0\n        0"}, 2, True),
    (long_functions, {A: "def f():\n    def g():\n        0\n    0"}, 3, True),
    (long_functions, {DATA: "def f():\n    0\n    0"}, 2, False),
    (too_many_constants, {A: "A = 1\nb, __all__ = 2, []", B: "B: int = 1"}, 2, False),
    (too_many_constants, {A: "A = 1\nB = 2", B: "A = 1"}, 2, True),
    (too_many_constants, {A: "A, (B, *_C) = 1, (2, 3)"}, 2, True),
    (too_many_constants, {A: "A = B = 1"}, 1, True),
    (too_many_constants, {A: "A: int = 1"}, 0, True),
    (too_many_constants, {A: "try:\n    A = 1\nexcept E:\n    0"}, 0, True),
    (too_many_constants, {A: "A = 'a'\nB = ('b', f'{b}')\nC = {1: 'c'}"}, 0, False),
    (
        too_many_constants,
        {A: "A = re.compile('a')\nB = [['b'], 'c'.split()]"},
        0,
        False,
    ),
    (too_many_constants, {A: "A = ('a', 1)"}, 0, True),
    (too_many_constants, {A: "A = {'a': 1}"}, 0, True),
    (too_many_constants, {A: f"{CLASS}def f():\n    A = 1"}, 0, False),
    (import_circles, {A: "from ._b import b", B: "import numpy"}, None, False),
    (import_circles, {A: "from ._b import b", B: "from ._a import a"}, None, True),
    (import_circles, {A: "from ._b import b", B: "from . import _a"}, None, True),
    (
        import_circles,
        {A: "from . import _b", B: "def f():\n from . import _a"},
        None,
        False,
    ),
    # A package is imported before its modules, which may ask it for others; but to
    # import one of its modules from outside is to import all that it imports.
    (import_circles, {KERNELS: "from . import _a", A: "from . import b"}, None, False),
    (
        import_circles,
        {
            KERNELS: "from keql import metrics",
            A: "",
            METRICS: "from .kernels import _a",
        },
        None,
        True,
    ),
    (foreign_attributes, {A: f"{CLASS}A._a", B: "0"}, None, False),
    (foreign_attributes, {A: CLASS, B: "b._a"}, None, False),
    (foreign_attributes, {A: CLASS, METRICS: "b._a"}, None, True),
    (foreign_attributes, {A: CLASS, METRICS: "b.c()._a()"}, None, True),
    (foreign_attributes, {A: "self._a, n = 1, 2\nf._a"}, None, False),
    (foreign_attributes, {A: "self._a + cls._b + super()._c"}, None, False),
    (foreign_attributes, {A: "self.b._a"}, None, True),
    (foreign_attributes, {A: "a.b_\na.__b__\na._replace(b=1)"}, None, False),
]


@pytest.mark.parametrize(
    ("rule", "modules", "limit", "objects"),
    LIMIT_CASES,
    ids=[f"{case[0].__name__}-{i}" for i, case in enumerate(LIMIT_CASES)],
)
def test_limits(rule, modules, limit, objects):
    assert bool(violations_of(rule, modules, limit)) is objects


def test_every_rule_can_object():
    outcomes = {(rule, objects) for rule, *_, objects in LIMIT_CASES}
    assert outcomes == {(rule, answer) for rule in LIMITS for answer in (False, True)}
