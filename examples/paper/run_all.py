"""All experiments, one after the other, with the same options.

python examples/paper/run_all.py --quick
"""

import sys
import time
from importlib import import_module

from experiment import read_options

SCRIPTS = (
    "duffing",
    "burgers_from_boundary",
    "burgers_shock",
    "burgers_observations",
    "darcy",
    "convergence",
    "theory",
    "other_equations",
    "larger",
)


def main(argv=None):
    """Run them and say how long each took."""
    read_options(__doc__.splitlines()[0], argv)  # or refuse before hours
    times = {}
    for name in SCRIPTS:
        print(f"\n== {name}", flush=True)
        start = time.perf_counter()
        import_module(name).main(argv)
        times[name] = time.perf_counter() - start
    print("\nMinutes: " + ", ".join(f"{n} {t / 60:.1f}" for n, t in times.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
