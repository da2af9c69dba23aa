"""The command: a table in, an equation, a report and a file out; clear errors."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from keql import LearnedEquation, LearnedSystem
from keql.__main__ import main, make_model, make_parser, read

ROOT = Path(__file__).resolve().parent.parent
T = np.linspace(0, 4, 25)


@pytest.fixture
def table(tmp_path):
    """A file with two states, a label, a text and a gap; with a semicolon as well."""
    path = tmp_path / "table.csv"
    rows = ["t,x,u,v,rod,note"]
    for i, t in enumerate(T):
        u = "" if i == 3 else f"{np.exp(-t):.17g}"
        rows.append(f"{t:.17g},{i % 5},{u},{2 * np.exp(-t / 2):.17g},a{i % 2},good")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def call(table, *arguments):
    return main([str(table), *arguments])


def test_an_equation_from_a_table(table, tmp_path, capsys):
    report, saved = tmp_path / "out.html", tmp_path / "out.json"
    given = ["--state", "u", "--time", "t", "--units", "t=h", "--report", str(report)]
    assert call(table, *given, "--save", str(saved)) == 0
    shown = capsys.readouterr().out
    assert re.match(r"du/dt = -1\.0\d*(\(\d+\))? h\^-1 u$", shown)
    assert "<h2>Found</h2>" in report.read_text(encoding="utf-8")
    plain = json.loads(saved.read_text(encoding="utf-8"))
    equation = LearnedEquation.from_dict(plain)
    assert equation.terms() == {"u": pytest.approx(-1.0, rel=1e-3)}
    assert equation.to_text() == shown.strip()


@pytest.mark.slow
def test_a_system_from_a_table(table, tmp_path, capsys):
    saved, report = tmp_path / "out.json", tmp_path / "out.md"
    given = ["--state", "u", "v", "--time", "t", "--save", str(saved)]
    assert call(table, *given, "--report", str(report)) == 0
    system = LearnedSystem.from_dict(json.loads(saved.read_text(encoding="utf-8")))
    assert set(system) == {"u_t", "v_t"}
    assert report.read_text(encoding="utf-8").startswith("# OneStepKEqL")


def model_of(*arguments):
    return make_model(make_parser().parse_args(["none.csv", *arguments]))


def test_what_the_arguments_mean():
    model = model_of("--state", "u", "--time", "t", "--order", "2", "--terms", "3")
    assert (model.operators, model.known_part) == (("u", "u_t"), "u_tt")
    assert (model.variables, model.n_terms, model.units) == (("t",), 3, None)
    model = model_of("--state", "T_C", "c", "--time", "t_h", "--space", "x", "y")
    assert model.operators[:4] == ("T_C", "c", "T_C_x", "T_C_xx")
    assert model.known_part == ("T_C_t_h", "c_t_h")
    assert model.variables == ("t_h", "x", "y") and model.n_terms == "auto"
    model = model_of(
        "--state", "u", "--time", "t_h", "--order", "2", "--operators", "u"
    )
    assert (model.operators, model.known_part) == (("u",), "u_t_h_t_h")


def test_names_of_columns_that_operators_cannot_have():
    given = ["--state", "θ (rad)", "--time", "time (s)", "--order", "2"]
    model = model_of(*given, "--units", "time (s)=s", "θ (rad)=rad")
    assert (model.states, model.variables) == (("θ_rad",), ("time_s",))
    assert model.known_part == "θ_rad_time_s_time_s"
    assert model.units == {"time_s": "s", "θ_rad": "rad"}


def test_columns_of_labels_and_places(table):
    given = ["--state", "u", "--time", "t", "--space", "x", "--function", "rod"]
    model, X, y, _ = read(make_parser().parse_args([str(table), *given]))
    assert X.shape == (24, 3) and y.shape == (24,)
    assert X[:2, 2].tolist() == ["a0", "a1"] and model.function_column == -1
    assert X[:, 0].tolist() == np.delete(T, 3).tolist()
    *_, unused = read(make_parser().parse_args([str(table), *given[:4]]))
    assert unused == {"rod": ["a0", "a1"]}
    names = model.set_params(known_part=None, operators=None).fit(X, y).functions_
    assert names == ("a0", "a1")


WRONG = [
    (["--state", "w", "--time", "t"], "no column 'w': its columns are t, x, u, v, rod"),
    (["--state", "note", "--time", "t"], "'good' in line 2 of the column 'note'"),
    (["--state", "v", "--time", "u"], "'' in line 5 of the column 'u': that is no fin"),
    (["--state", "u", "--time", "t", "--report", "a.pdf"], "must end in .html or .md"),
    (["--state", "u", "--time", "t", "--save", "/no/where/a.json"], "no such folder"),
    (["--state", "u", "--time", "t", "--units", "h"], "--units h must be a name and"),
    (["--state", "u", "--time", "t", "--units", "z=h"], "units has an entry for 'z'"),
    (["--state", "u", "--time", "t", "--terms", "few"], "--terms few must be a whole"),
]


@pytest.mark.parametrize("arguments, message", WRONG)
def test_errors_say_what_to_do(table, capsys, arguments, message):
    assert call(table, *arguments) == 2
    shown = capsys.readouterr()
    lines = [x for x in shown.err.splitlines() if "the column 'rod' is not" not in x]
    assert lines[0].startswith("keql: error: ") and message in shown.err
    assert shown.out == "" and "Traceback" not in shown.err


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "has no rows"),
        ("t,u\n", "has no rows"),
        ("t,u\n1,2\n1,2,3\n", "has 3 entries in line 3, but 2 names"),
    ],
)
def test_tables_that_are_none(tmp_path, capsys, text, message):
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    assert call(path, "--state", "u", "--time", "t") == 2
    assert message in capsys.readouterr().err
    assert call(tmp_path / "missing.csv", "--state", "u", "--time", "t") == 2
    assert "No such file" in capsys.readouterr().err


def test_tables_of_other_programs(tmp_path):
    """With a mark at the beginning, semicolons, and spaces after them."""
    path = tmp_path / "table.csv"
    path.write_text("\ufefft; u\n0; 1\n1; NA\n2; 0.1\n", encoding="utf-8")
    given = [str(path), "--state", "u", "--time", "t"]
    _, X, y, _ = read(make_parser().parse_args(given))
    assert X.tolist() == [[0.0], [2.0]] and y.tolist() == [1.0, 0.1]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_decimal_commas(tmp_path, separator):
    """As spreadsheets of half of Europe write them; not beside decimal points."""
    path, rows = (
        tmp_path / "table.csv",
        ["t,u", "0;1,0", "1e-1;-,5", "2;NA", "3;1,5E-1"],
    )
    path.write_text("\n".join(rows).replace(",u", ";u").replace(";", separator))
    given = make_parser().parse_args([str(path), "--state", "u", "--time", "t"])
    _, X, y, _ = read(given)
    assert X[:, 0].tolist() == [0.0, 0.1, 3.0] and y.tolist() == [1.0, -0.5, 0.15]
    path.write_text(f"t{separator}u\n0.5{separator}1,5\n")
    with pytest.raises(ValueError, match="'1,5' in line 2 .* is no finite number"):
        read(given)


def test_the_command_is_a_module_as_well():
    call = [sys.executable, "-m", "keql", "--help"]
    shown = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    assert shown.startswith("usage: keql ") and "decimal commas" in shown


def test_two_experiments_in_one_table(tmp_path, capsys):
    """Without the column that tells them apart; with it their equation is found."""
    path, rows = tmp_path / "table.csv", ["t,u,cup"]
    for cup, first in (("a", 60.0), ("b", -15.0)):
        rows += [f"{t},{20 + first * np.exp(-t)},{cup}" for t in T]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    given = ["--state", "u", "--time", "t"]
    assert call(path, *given) == 2
    shown = capsys.readouterr().err
    assert f"keql: error: {path}: y has 2 values at each of 25 places" in shown
    assert "labels them, --function, or add one" in shown
    assert "keql: the column 'cup' is not used: if a, b are different exp" in shown
    assert call(path, *given, "--function", "cup") == 0
    assert re.search(r"equation +u_t = -1\.0\d* u \+ 20\.0", capsys.readouterr().out)


def test_interruption(table, capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("keql.__main__.fit", interrupt)
    assert call(table, "--state", "u", "--time", "t", "--function", "rod") == 130
    assert capsys.readouterr().err == "keql: interrupted before there was a result\n"


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown and "--report" in shown
    with pytest.raises(SystemExit) as stop:
        main(["table.csv"])
    assert stop.value.code == 2 and "--state" in capsys.readouterr().err


def test_the_command_is_installed_with_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["scripts"] == {"keql": f"{main.__module__}:main"}
