"""Settings of the documentation."""

import inspect
import os

from sphinx_gallery.sorting import ExplicitOrder

import keql

project = "keql"
author = "the keql developers"
copyright = f"2026, {author}"
version = release = keql.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
html_theme = "alabaster"
html_theme_options = {
    "description": "Learn differential equations from scattered data with kernels",
    "page_width": "70rem",
}

autosummary_generate = True
autodoc_typehints = "none"
# The template of a class lists its members; numpydoc would list them again.
numpydoc_show_class_members = False

# The gallery: all examples but two that are made for the command line. Folders without
# a header, those of the tutorials and of the paper's experiments, are no part of it
# (but names of files must differ from those in them).
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"(demo|solve_known_equation)\.py$",
    "within_subsection_order": ExplicitOrder(
        [
            "first_steps.py",
            "forecast_oscillator.py",
            "burgers_boundary.py",
            "system_forecast.py",
            "system_streams.py",
            "system_doses.py",
            "system_reaction_diffusion.py",
            "system_boundary_law.py",
            "darcy_coefficients.py",
            "operator_learning.py",
            "uncertainty.py",
            "grid_search.py",
            "scratch_assay.py",
            "assay_forecast.py",
            "own_kernel.py",
            "many_functions.py",
            "*",
        ]
    ),
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "reference_url": {"keql": None},
    "doc_module": ("keql",),
    "backreferences_dir": "generated/backreferences",
}

# Links to the pages of other projects need the network, and a build without it
# would warn: they are made on request only.
if os.environ.get("KEQL_DOC_LINKS"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
    }


def skip_foreign_member(app, what, name, obj, skip, options):
    """Leave out the members that classes inherit from other packages."""
    function = obj.fget if isinstance(obj, property) else inspect.unwrap(obj)
    module = getattr(function, "__module__", None) or ""
    return skip or module.split(".")[0] != "keql"


def setup(app):
    """Register the hooks."""
    app.connect("autodoc-skip-member", skip_foreign_member)
