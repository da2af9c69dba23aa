"""Settings of the documentation."""

import inspect
import os
import sys
from pathlib import Path

from sphinx_gallery.sorting import ExplicitOrder

import keql

project = "keql"
author = "the keql developers"
copyright = f"2026, {author}"
version = release = keql.__version__

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "mathml",
    "notebooks",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
html_math_renderer = "mathml"
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]

html_theme = "pydata_sphinx_theme"
html_title = f"keql {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "keql"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navbar_persistent": ["search-field"],
    "navbar_end": ["theme-switcher"],
    "show_nav_level": 2,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
# The landing page has cards in place of chapters.
html_sidebars = {"index": []}

autosummary_generate = True
# In the contents of a page, methods go without the name of their class.
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"
# The template of a class lists its members; numpydoc would list them again.
numpydoc_show_class_members = False
# Prompts are no part of what is copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# The gallery: all examples but two that are made for the command line, by topic; the
# folder of the paper's experiments has no header and is no part of it. Names of files
# differ between folders.
topics = ("tutorials", "equations", "systems", "predictions", "choices")
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"(demo|solve_known_equation)\.py$",
    "subsection_order": ExplicitOrder([f"../examples/{topic}" for topic in topics]),
    "within_subsection_order": ExplicitOrder(
        [
            "tutorial_1_equation.py",
            "tutorial_2_noise.py",
            "tutorial_3_predict.py",
            "tutorial_4_systems.py",
            "first_steps.py",
            "burgers_boundary.py",
            "scratch_assay.py",
            "darcy_coefficients.py",
            "system_forecast.py",
            "system_streams.py",
            "system_planets.py",
            "system_doses.py",
            "system_reaction_diffusion.py",
            "system_boundary_law.py",
            "forecast_oscillator.py",
            "assay_forecast.py",
            "operator_learning.py",
            "uncertainty.py",
            "grid_search.py",
            "own_kernel.py",
            "many_functions.py",
            "*",
        ]
    ),
    "write_computation_times": False,
    # Tables are shown; what calls of matplotlib return is not.
    "capture_repr": ("_repr_html_",),
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
