"""All experiments, with the same options; --jobs says how many run side by side.

python examples/paper/run_all.py --quick --jobs 2
"""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from experiment import read_options

# The longest first, so that no core waits for the last one.
SCRIPTS = (
    "burgers_observations",
    "burgers_shock",
    "other_equations",
    "larger",
    "theory",
    "duffing",
    "darcy",
    "convergence",
    "burgers_from_boundary",
)


def main(argv):
    """Run them and say how long each took."""
    options = read_options(__doc__.splitlines()[0], argv)  # or refuse before hours
    with ThreadPoolExecutor(options.jobs) as pool:
        minutes = list(pool.map(lambda name: run_script(name, argv), SCRIPTS))
    pairs = zip(SCRIPTS, minutes, strict=True)
    print("\nMinutes: " + ", ".join(f"{name} {taken:.1f}" for name, taken in pairs))


def run_script(name, argv):
    """Run one and print its lines after its name; the minutes that it took."""
    start = time.perf_counter()
    script = str(Path(__file__).with_name(f"{name}.py"))
    command = [sys.executable, "-u", script, *argv, "--jobs", "1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, **pipes) as process:
        for line in process.stdout:
            print(f"{name}: {line}", end="", flush=True)
    if process.returncode:
        raise SystemExit(f"{name}.py failed, see its lines above")
    return (time.perf_counter() - start) / 60


if __name__ == "__main__":
    main(sys.argv[1:])
