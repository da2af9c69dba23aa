"""What the experiments share: options, a table on disk, measuring, a line of progress.

An experiment is a list of tasks and a function that measures one. A task is a dict of
the values that tell its row from others (number of observations, draw, method). Rows go
to a CSV file as soon as they are known, and a task that has a row is not done again:
after an interruption the same command continues, and a full run takes over the rows of
a quick one.
"""

import argparse
import csv
import os
import time
import warnings
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning


def read_options(description, argv=None):
    """Options of the command line, the same for every experiment."""
    parser = argparse.ArgumentParser(description=description)
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick", action="store_true", help="a few draws, minutes (the default)"
    )
    size.add_argument(
        "--full", action="store_true", help="as many draws as published, hours"
    )
    parser.add_argument("--draws", type=int, help="number of draws, instead of those")
    parser.add_argument("--jobs", type=int, default=1, help="processes, 1 by default")
    parser.add_argument(
        "--output", type=Path, default=Path("paper_results"), help="folder of results"
    )
    chosen = parser.parse_args(argv)
    chosen.output.mkdir(parents=True, exist_ok=True)
    return chosen


def draws(options, number, reference):
    """Draws by number, after the published data if their file is there.

    The environment variable KEQL_REFERENCE names the folder of such files. A quick run
    has the first one, if nothing else is said.
    """
    published = ["published"] if reference_path(reference) else []
    chosen = [*published, *range(options.draws or number)]
    return chosen if options.full or options.draws else chosen[:1]


def use_draw(data, draw, reference):
    """Put the published observations into a data set if these are asked for."""
    if draw == "published":
        with np.load(reference_path(reference)) as published:
            data.update({k: published[k] for k in ("X", "y", "X_test", "y_test")})
    return data


def reference_path(name):
    """A file of published data, or None."""
    folder = os.environ.get("KEQL_REFERENCE")
    path = Path(folder or ".", name)
    return path if folder and path.is_file() else None


def read_rows(path):
    """Rows of a table as dicts of strings; a line that was cut off is left out."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return list(csv.DictReader(whole.splitlines()))


def run(path, tasks, measure, jobs=1):
    """Measure the tasks that have no row yet; return the rows of all of them.

    Parameters
    ----------
    path : Path
        The CSV file.
    tasks : list of dict
        All with the same names.
    measure : callable
        ``measure(**task)`` returns a dict of figures, the same names for each task;
        arrays among them go to a file of their own, see :func:`read_arrays`.
    jobs : int, default=1
        Number of processes.

    Returns
    -------
    list of dict
        A row for each task, in their order, numbers as float.
    """
    names = list(tasks[0])
    done = {key_of(row, names): row for row in read_rows(path)}
    left = [task for task in tasks if key_of(task, names) not in done]
    print(f"{path}: {len(tasks)} rows, {len(left)} to do", flush=True)
    start = time.perf_counter()
    # Without processes a task runs here: no start-up, and its memory is its own.
    results = (
        (finish(task, measure) for task in left)
        if jobs == 1
        else Parallel(n_jobs=jobs, return_as="generator_unordered")(
            delayed(finish)(task, measure) for task in left
        )
    )
    for position, (task, figures) in enumerate(results, 1):
        arrays = {k: v for k, v in figures.items() if isinstance(v, np.ndarray)}
        row = task | {k: v for k, v in figures.items() if k not in arrays}
        if arrays:
            target = arrays_path(path, task)
            target.parent.mkdir(exist_ok=True)
            np.savez_compressed(target, **arrays)
        append(path, row)
        done[key_of(task, names)] = {name: str(value) for name, value in row.items()}
        passed = time.perf_counter() - start
        remaining = passed / position * (len(left) - position) / 60
        print(
            f"[{position}/{len(left)}] {describe(row)}; about {remaining:.0f} min left",
            flush=True,
        )
    return [
        {name: number(value) for name, value in done[key_of(task, names)].items()}
        for task in tasks
    ]


def finish(task, measure):
    """A task with its figures."""
    return task, measure(**task)


def key_of(row, names):
    """What tells a row from others."""
    return tuple(str(row[name]) for name in names)


def append(path, row):
    """Add a row to a table, all of it or nothing."""
    fresh = not path.exists() or path.stat().st_size == 0
    if not fresh:
        with path.open(encoding="utf-8", newline="") as file:
            header = next(csv.reader(file))
        if header != list(row):
            raise ValueError(
                f"{path} has the columns {header}, and this run those of {list(row)}: "
                "it is of another version; move it away."
            )
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)
        file.flush()
        os.fsync(file.fileno())


def arrays_path(path, task):
    """Where the arrays of a task are kept."""
    name = "_".join(str(value).replace(" ", "-") for value in task.values())
    return path.with_suffix("") / f"{name}.npz"


def read_arrays(path, task):
    """Arrays that were measured with a row."""
    with np.load(arrays_path(path, task)) as arrays:
        return dict(arrays)


def number(text):
    """A float where the text is one."""
    try:
        return float(text)
    except ValueError:
        return text


def describe(row):
    """A row in one line."""
    return ", ".join(
        f"{name} {value:.2g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in row.items()
    )


def measured(function):
    """Call a function; return its result, and how long and how much memory it took.

    Returns
    -------
    result
        Of the function.
    cost : dict
        `seconds`, of wall time, and `cpu_seconds`, of all threads; `peak_mb`, largest
        resident memory of the process meanwhile, all its modules included; `converged`,
        whether there was no warning that a fit did not converge; `load`, that of the
        machine before.
    """
    load = os.getloadavg()[0]
    reset_peak()
    start = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function()
    seconds = time.perf_counter() - start[0]
    cpu_seconds = time.process_time() - start[1]
    failed = any(issubclass(w.category, ConvergenceWarning) for w in caught)
    cost = {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "peak_mb": round(peak_mb()),
        "converged": int(not failed),
        "load": round(load, 1),
    }
    return result, cost


def reset_peak():
    """Let the peak memory count from here, where Linux allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def peak_mb():
    """Largest resident memory since the last reset (elsewhere: since the start)."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return float(line.split()[1]) / 1e3


def select(rows, **values):
    """Rows with given values."""
    return [r for r in rows if all(r[name] == value for name, value in values.items())]


def summary(rows, figure):
    """Mean, smallest, largest and median of a figure over rows."""
    values = np.array([row[figure] for row in rows], dtype=float)
    return values.mean(), values.min(), values.max(), np.median(values)


def report(name, rows, figure, published=None):
    """Print a mean over draws beside the published one."""
    if not rows:
        return
    mean, low, high, median = summary(rows, figure)
    spread = f" ({low:.2g} .. {high:.2g}, median {median:.2g}, n = {len(rows)})"
    known = "" if published is None else f"; published {published:.2g}"
    ratio = "" if published is None else f", {published / mean:.1f} times this"
    print(f"{name:44} {mean:.2g}{spread if len(rows) > 1 else ''}{known}{ratio}")


def new_figure(*arguments, **settings):
    """Figure and axes of matplotlib, drawn to a file and not to a screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(*arguments, layout="constrained", **settings)


def save(figure, path):
    """Write a figure, and say where."""
    figure.savefig(path, dpi=110)
    print(f"figure: {path}", flush=True)
