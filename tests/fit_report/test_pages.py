"""Reports to hand on: what they say, and that they need no other file."""

import base64
import html
import io
import re
from html.parser import HTMLParser

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from keql import OneStepKEqL, TwoStepKEqL
from keql.fit_report import FitReport
from keql.kernels import RBF, Polynomial
from keql.metrics import relative_l2_error

T = np.linspace(0, 6, 25)
PICTURE = re.compile(r"data:image/png;base64,([\w+/=]+)")


@pytest.fixture(scope="module")
def model():
    """An oscillator found by exact states, in hours and millivolts, with noise."""
    y = 20 * np.cos(2 * T) + 0.2 * np.random.default_rng(0).standard_normal(25)
    units = {"t": "h", "u": "mV"}
    model = OneStepKEqL("u", "u_tt", variables="t", units=units, n_terms=1)
    return model.fit(T[:, None], y)


class Outline(HTMLParser):
    """Tags that are open, and those that were opened."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.sources = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.sources += [v for k, v in attributes if k in {"src", "href"}]
        if tag not in {"meta", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole(model, tmp_path):
    path = tmp_path / "report.html"
    page = model.fit_report_.to_html(path)
    assert path.read_text(encoding="utf-8") == page
    outline = Outline()
    outline.feed(page)
    assert outline.open == [] and outline.seen.count("img") == len(outline.sources) >= 2
    assert all(PICTURE.fullmatch(source) for source in outline.sources)
    assert "http" not in page


def test_pictures_can_be_seen(model):
    for code in PICTURE.findall(model.fit_report_.to_html()):
        picture = matplotlib.image.imread(io.BytesIO(base64.b64decode(code)))
        assert min(picture.shape[:2]) > 300 and np.ptp(picture[..., :3]) > 0.5


def test_what_the_page_says(model):
    report = model.fit_report_
    page = html.unescape(report.to_html())
    text = report.to_markdown()
    for words in ("d2u/dt2 = -4.", "h^-2 u", "25 values", "0.00 to 6.00 h"):
        assert words in text.replace("\\", "")
        words = re.sub(r"\^(-?\d)", r"<sup>\1</sup>", words)
        assert words in page
    # Long sentences in a row of their own are broken, names at its beginning are not.
    assert "td:first-child:not([colspan]) { white-space: nowrap; }" in page
    captions = re.findall("<figcaption>(.*)</figcaption>", page)
    assert captions[0] == "the learned state u, and observations"
    assert len(captions) == page.count("<img") >= 2
    for name in ("date", "python", "keql", "numpy", "scipy"):
        assert report.versions[name] in page
    assert text.startswith("# OneStepKEqL, 25 observations") and "\n## Found\n" in text
    assert len(PICTURE.findall(text)) == len(PICTURE.findall(page))


def test_the_error_is_that_of_the_fit_in_the_end(model):
    """Of the size of the noise, with its unit; not that of what was tried before."""
    rows = {name: value for name, value, _ in model.fit_report_.sections()["Found"]}
    value, unit = rows["error of predictions"].split()
    assert unit == "mV" and 0.1 < float(value) < 0.4


def test_errors_of_an_early_stage_are_called_so():
    """Kernels are compared before the search ends; the report says both errors."""
    rng = np.random.default_rng(1)
    X, kernel = rng.uniform(size=(30, 2)), RBF([1.0, 0.7], "fixed")
    y = np.exp(-X[:, 0]) * np.sin(3 * X[:, 1])
    given = {"collocation_points": 40, "variables": ("t", "x"), "n_restarts": 0}
    model = OneStepKEqL(("u", "u_x"), "u_t", equation_kernel=Polynomial(1), **given)
    model.set_params(solver="dual", n_terms=None, max_iter=20)
    report = model.fit(X, y).fit_report_
    reason = dict((c.name, c.reason) for c in report.choices)["state kernel"]
    assert re.search(r"error [\d.e-]+ at that stage$", reason)
    found = {name: value for name, value, _ in report.sections()["Found"]}
    assert float(found["error of predictions"]) > 0
    fixed = TwoStepKEqL(("u", "u_x"), "u_t", state_kernel=kernel)
    fixed.set_params(variables=("t", "x"), equation_kernel=Polynomial(1))
    fixed.set_params(observation_noise=1e-5)
    found = fixed.fit(X, y).fit_report_.sections()["Found"]
    assert [name for name, *_ in found] == ["equation"]


@pytest.mark.slow
def test_several_states_and_functions():
    table = pd.DataFrame({"t": np.tile(T, 2), "run": ["a|b"] * 25 + ["c"] * 25})
    y = pd.DataFrame({"x": np.sin(table.t), "y_1": np.cos(table.t)})
    y = y.mul(np.exp(-0.2 * table.t), axis=0)
    y.loc[::3, "x"] = np.nan
    model = TwoStepKEqL(("x", "y_1"), ("x_t", "y_1_t"), variables="t", n_inducing=30)
    model.set_params(function_column="run", collocation_points=30).fit(table, y)
    report = model.fit_report_
    page, text = report.to_html(), report.to_markdown()
    assert page.count("<img") == 4  # two states, two equations
    assert "the learned state y_1 of a|b" in page
    assert r"a\|b, c" in text and "33 values" in text
    assert all(line.count("|") - line.count(r"\|") == 4 for line in table_rows(text))


def table_rows(text):
    """Lines of the tables in a text."""
    return [line for line in text.splitlines() if line.startswith("|")]


def test_fields_are_shown_as_maps():
    X = np.random.default_rng(0).uniform(size=(60, 2))
    y = np.exp(-X[:, 0]) * np.sin(3 * X[:, 1])
    model = TwoStepKEqL(None, variables=("t", "x")).fit(X, y)
    report = model.fit_report_
    assert report.to_html().count("<img") == 1 and "equation" not in report.sections()
    X = np.random.default_rng(0).uniform(size=(40, 4))
    report = TwoStepKEqL(None).fit(X, X[:, 0]).fit_report_
    assert "<img" not in report.to_html()


def test_three_coordinates_are_shown_as_a_slice():
    X = np.random.default_rng(0).uniform(0, 2, (80, 3))
    y = np.exp(-X[:, 0]) * X[:, 1]
    given = {"state_kernel": RBF(1.5, "fixed"), "observation_noise": 1e-3}
    model = TwoStepKEqL("u", "u_t", variables=("t", "x", "y"), **given)
    model.set_params(equation_kernel=Polynomial(1), units={"t": "h"})
    page = model.fit(X, y).fit_report_.to_html()
    assert re.search(r'alt="the learned state u at t = (0\.9\d*|1|1\.0\d*) h"', page)


def test_a_report_that_knows_no_fit():
    report = FitReport("By hand", [], {}, None, [], ["a <concern>"])
    assert "a &lt;concern&gt;" in report.to_html()
    assert "Found" not in report.sections()


def test_equations_with_standard_errors():
    """Without units they are asked for; they are those of the table of terms."""
    y = np.cos(2 * T) + 0.02 * np.random.default_rng(0).standard_normal(25)
    model = TwoStepKEqL("u", "u_tt", variables="t", equation_kernel=Polynomial(1))
    equation = model.fit(T[:, None], y).equation_
    text = equation.to_text()
    assert "(" not in str(equation)
    for (name, value), error in zip(
        equation.terms().items(), equation.terms(True)[1].values(), strict=True
    ):
        shown = re.search(
            r"(\d\.\d+)\((\d+)\)" + (f" {name}" if name == "u" else ""), text
        )
        digits = len(shown[1].partition(".")[2])
        if name == "u":
            assert float(shown[1]) == round(abs(value), digits)
            assert int(shown[2]) == round(error * 10**digits)
    assert relative_l2_error(y, model.predict(T[:, None])) < 0.05
