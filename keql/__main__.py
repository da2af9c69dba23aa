"""The command `keql`, or `python -m keql`: an equation from a table."""

import argparse
import csv
import json
import re
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np

from keql._estimators.one_step import OneStepKEqL
from keql.operators import parse_operator

DESCRIPTION = """Learn differential equations from a table with a row for each time.
In equations, other characters in names of columns than letters and digits are "_"."""
EPILOG = """examples:
  keql swing.csv --state u --time t --order 2 --report swing.html
  keql hares.csv --state prey predator --time year --units year=a --save hares.json
  keql rod.csv --state T --time t --space x --function rod --report rod.html
"""


def main(arguments=None) -> int:
    """Run the command and return its exit status.

    `arguments` are texts; None: those that the command was called with.
    """
    parser = make_parser()
    given = parser.parse_args(arguments)
    try:
        model, X, y, unused = read(given)
        for name, labels in unused.items():
            text = f"the column {name!r} is not used: if {', '.join(labels)} are"
            text += f" different experiments, say --function {name}"
            print(f"keql: {text}", file=sys.stderr)
        with warnings.catch_warnings(record=True, action="always") as caught:
            fit(model, X, y, given.table)
        for warning in caught:
            print(f"keql: {_with_options(warning.message)}", file=sys.stderr)
        hand_over(model, given)
    except KeyboardInterrupt:
        print("keql: interrupted before there was a result", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"keql: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"keql: error: {error}", file=sys.stderr)
        return 2
    return 0


def fit(model, X, y, table):
    """Fit; errors begin with the name of the table, and parameters are options."""
    try:
        model.fit(X, y)
    except ValueError as error:
        raise ValueError(f"{table}: {_with_options(error)}") from error


def _with_options(message):
    """A message of the package, with options of the command for its parameters."""
    return str(message).replace("function_column", "--function")


def make_parser():
    """The parser of the arguments."""
    parser = argparse.ArgumentParser(
        "keql",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    text = "a file of values separated by commas, semicolons (then with decimal commas"
    add("table", help=text + " as well) or tabs, with a line of names")
    add("--state", nargs="+", required=True, help="column(s) with the states")
    add("--time", required=True, help="column with the time")
    add("--space", nargs="*", default=[], help="column(s) with places, if any")
    add("--function", help="column that labels the experiment a row belongs to")
    text = "time derivative that the equation gives, 1 (default) or 2"
    add("--order", type=int, choices=(1, 2), default=1, help=text)
    text = "what it depends on, such as u u_x u_xx; default: the states, their"
    text += " lower derivatives in time, and first and second ones in space"
    add("--operators", nargs="+", help=text)
    add("--terms", default="auto", help='number of terms, or "auto" (default)')
    add("--units", nargs="*", default=[], help="units, such as t=h u=mV")
    add("--report", help="file for a report with pictures, .html or .md")
    add("--save", help="file for the equation, .json")
    add("--verbose", action="store_true", help="say what the fit is doing")
    return parser


def read(given):
    """What the arguments ask for: a model, its data, and columns that are not used.

    The model is not yet fitted; X is (n, n_columns) and y (n,) or (n, S). The columns
    are those of text that look like labels of experiments, {name: labels}.
    """
    _check_endings(given)
    names, rows, point = read_table(given.table)
    read_numbers = partial(numbers, rows, names, path=given.table, point=point)
    coordinates, states = [given.time, *given.space], given.state
    labels = [] if given.function is None else [given.function]
    options = [("--time", coordinates[:1]), ("--space", coordinates[1:])]
    options += [("--state", states), ("--function", labels)]
    for option, own in options:
        for name in own:
            if name not in names:
                raise ValueError(
                    f"{option} {name}: {given.table} has no column {name!r}: its "
                    f"columns are {', '.join(names)}."
                )
            if names.count(name) > 1:
                raise ValueError(
                    f"{option} {name}: {given.table} has several columns {name!r}."
                )
    columns = [read_numbers(name) for name in coordinates]
    X = np.column_stack(columns)
    if labels:
        own = [row[names.index(given.function)] for row in rows]
        X = np.column_stack([X.astype(object), np.array(own, dtype=object)])
    y = [read_numbers(name, needed=False) for name in states]
    y = np.column_stack(y)
    measured = np.any(np.isfinite(y), axis=1)
    y = y[measured]
    used = {*coordinates, *states, *labels}
    unused = {} if labels else _labels_of_columns(names, rows, used)
    return make_model(given), X[measured], y[:, 0] if len(states) == 1 else y, unused


def _labels_of_columns(names, rows, used, rows_of_each=5):
    """Columns beside those that are `used` with a few texts, again and again."""
    found = {}
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        labels = sorted({entry for entry in column if entry})
        is_text = all(re.search(r"[^\W\d_]", label) for label in labels)
        few = 1 < len(labels) <= len(rows) / rows_of_each
        if name not in used and is_text and few:
            found[name] = labels[:10]
    return found


def make_model(given):
    """The estimator that the arguments describe."""
    time, *places = map(_as_name, (given.time, *given.space))
    states = tuple(map(_as_name, given.state))
    derivatives = [
        [_derivative(state, time, k) for k in range(given.order + 1)]
        for state in states
    ]
    operators = [name for own in derivatives for name in own[:-1]]
    for state in states:
        for place in places:
            operators += [_derivative(state, place, k) for k in (1, 2)]
    known = tuple(own[-1] for own in derivatives)
    return OneStepKEqL(
        operators=tuple(given.operators or operators),
        known_part=known if len(known) > 1 else known[0],
        variables=(time, *places),
        function_column=None if given.function is None else -1,
        states=states,
        n_terms="auto" if given.terms == "auto" else _whole(given.terms),
        units=_units(given.units),
        verbose=int(given.verbose),
        random_state=0,
    )


def _as_name(column):
    """The name of a column in operators: "time (s)" is "time_s" there."""
    return re.sub(r"\W+", "_", column).strip("_")


def _derivative(state, variable, order):
    """Name of a derivative, as operators are called."""
    orders = (order,)
    return parse_operator(orders, (variable,), (state,)).name


def _whole(text):
    """A number of terms."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f'--terms {text} must be a whole number from 1, or "auto".')
    return int(text)


def _units(pairs):
    """Units by name, of texts such as "t=h"; None without any."""
    wrong = [text for text in pairs if text.count("=") != 1 or text[-1] == "="]
    if wrong:
        raise ValueError(f"--units {wrong[0]} must be a name and a unit, as in t=h.")
    named = (text.split("=", 1) for text in pairs)
    return {_as_name(name): unit for name, unit in named} or None


def _check_endings(given):
    """Refuse files that would be written in another format than they say."""
    for option, path, endings in (
        ("--report", given.report, (".html", ".md")),
        ("--save", given.save, (".json",)),
    ):
        if path is not None and Path(path).suffix not in endings:
            raise ValueError(f"{option} {path} must end in {' or '.join(endings)}.")
        if path is not None and not Path(path).absolute().parent.is_dir():
            raise ValueError(f"{option} {path}: there is no such folder.")


def read_table(path):
    """Names of the columns of a table, its rows, lists of texts, and its decimal point.

    That is a comma where values are separated by something else, and none has a point.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            sample = file.read(4096)
            file.seek(0)
            separator = max(",;\t", key=sample.partition("\n")[0].count)
            rows = [row for row in csv.reader(file, delimiter=separator) if any(row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{path} is no table of text in UTF-8: {error}. Save it as such."
        ) from error
    if len(rows) < 2:
        raise ValueError(f"{path} has no rows below a line of names.")
    names = [name.strip() for name in rows[0]]
    for i, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            raise ValueError(
                f"{path} has {len(row)} entries in line {i}, but {len(names)} names."
            )
    rows = [[entry.strip() for entry in row] for row in rows[1:]]
    used = {
        point
        for point in ".,"
        if any(
            re.fullmatch(rf"[+-]?\d*\{point}\d+\D?.*", e) for row in rows for e in row
        )
    }
    return names, rows, "," if separator != "," and used == {","} else "."


def numbers(rows, names, name, path, needed=True, point="."):
    """A column as numbers (n,) with a decimal `point`.

    Entries that are empty are NaN, unless they are `needed`.
    """
    values = []
    for i, row in enumerate(rows, start=2):
        entry = row[names.index(name)]
        missing = entry.lower() in {"", "na", "nan"}
        try:
            value = (
                np.nan if missing and not needed else float(entry.replace(point, "."))
            )
            if np.isinf(value):
                raise ValueError
            values.append(value)
        except ValueError:
            raise ValueError(
                f"{path} has {entry!r} in line {i} of the column {name!r}: that is no "
                "finite number. Write times as numbers, of hours for instance."
            ) from None
    return np.array(values)


def hand_over(model, given):
    """Print the equation and the report, and write what was asked for."""
    if given.report is None:
        print(model.fit_report_)
    else:
        print(model.equation_.to_text())
        report = model.fit_report_
        html = Path(given.report).suffix == ".html"
        (report.to_html if html else report.to_markdown)(given.report)
    if given.save is not None:
        text = json.dumps(model.equation_.to_dict(), indent=1)
        Path(given.save).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
