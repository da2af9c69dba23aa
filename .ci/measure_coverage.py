"""Count the lines of the package that the tests run; with the standard library alone.

``python .ci/measure_coverage.py ARGUMENTS`` runs pytest with these arguments and this
module as a plugin, in its own process and in those of pytest-xdist. It then prints for
each module how many of its lines ran and which did not, and fails below the part of
lines that FEWEST says. Lines that run in other processes only, such as workers of
joblib, are not counted.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = f"{ROOT / 'keql'}{os.sep}"
FOLDER = "KEQL_COVERAGE_FOLDER"
FEWEST = 0.95


class Recorder:
    """What runs: a trace function that keeps the lines of the package's files.

    A function all of whose lines have run is not traced any more, which leaves a fit
    nearly as quick as it is.
    """

    def __init__(self):
        self.codes, self.waiting = {}, {}

    def start(self):
        """Trace this thread, and those that are started later."""
        threading.settrace(self)
        sys.settrace(self)

    def __call__(self, frame, event, argument):
        """Trace a function of the package from its first line; no other function."""
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return None
        if id(code) not in self.codes:
            self.codes[id(code)], self.waiting[id(code)] = code, own_lines(code)
        waiting = self.waiting[id(code)]
        waiting.discard(frame.f_lineno)

        def trace(frame, event, argument):
            waiting.discard(frame.f_lineno)
            return trace

        return trace if waiting else None

    def save(self, folder):
        """Write the lines to a file of this process."""
        ran = {}
        for key, code in self.codes.items():
            own = own_lines(code) - self.waiting[key]
            ran.setdefault(code.co_filename, set()).update(own)
        text = json.dumps({path: sorted(lines) for path, lines in ran.items()})
        Path(folder, f"{os.getpid()}.json").write_text(text, encoding="utf-8")


def pytest_sessionfinish(session, exitstatus):
    """Keep what this process has run, when its tests are over."""
    sys.settrace(None)
    RECORDER.save(os.environ[FOLDER])


def own_lines(code):
    """Lines of a code object, without those of others in it."""
    return {line for _, _, line in code.co_lines() if line}


def lines_of(code):
    """Lines of a code object and of those in it, which a run may reach."""
    lines = own_lines(code)
    for constant in code.co_consts:
        if hasattr(constant, "co_lines"):
            lines |= lines_of(constant)
    return lines


def ranges(lines):
    """Sorted lines as text: "3-5, 8"."""
    groups = []
    for line in sorted(lines):
        if groups and line == groups[-1][1] + 1:
            groups[-1][1] = line
        else:
            groups.append([line, line])
    return ", ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in groups)


def summarise(ran):
    """Print each module's lines, and return the part of all that ran."""
    n_lines = n_ran = 0
    for path in sorted(Path(PACKAGE).rglob("*.py")):
        code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
        lines = lines_of(code)
        missing = lines - ran.get(str(path), set())
        n_lines, n_ran = n_lines + len(lines), n_ran + len(lines) - len(missing)
        part = 1 - len(missing) / max(1, len(lines))
        name = path.relative_to(ROOT)
        print(f"{name!s:44} {len(lines):5} {part:6.1%}  {ranges(missing)}")
    print(f"{'all':44} {n_lines:5} {n_ran / n_lines:6.1%}")
    return n_ran / n_lines


def main():
    """Run pytest, print the table, return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
        environment = os.environ | {
            FOLDER: folder,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        command = [sys.executable, "-m", "pytest", "-p", "measure_coverage"]
        status = subprocess.run(command + sys.argv[1:], env=environment).returncode
        ran = {}
        for file in Path(folder).glob("*.json"):
            for path, lines in json.loads(file.read_text(encoding="utf-8")).items():
                ran.setdefault(path, set()).update(lines)
    part = summarise(ran)
    return status or int(part < FEWEST)


if __name__ == "__main__":
    sys.exit(main())

# As a plugin: pytest imports it before anything imports the package.
RECORDER = Recorder()
RECORDER.start()
