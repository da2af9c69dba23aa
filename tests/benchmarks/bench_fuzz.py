"""How wrong calls end: thousands of valid calls, each with one argument changed,
or two.

    python tests/benchmarks/bench_fuzz.py --calls 10000 --seed 0

Outcomes are counted, and all but the good ones are listed:

- clear: an error of a kind that users expect, whose message names the argument;
- ran: the call ran, and nothing says that it should not have;
- obscure: an error from the inside, or one that does not name the argument;
- nonsense: the call ran, although the argument has no meaning;
- wrong: the argument means what it meant before, but the answer differs;
- hang, memory: the call took more than `--limit` seconds of processor time, or more
  than `--gigabytes`.
"""

import argparse
import contextlib
import io
import re
import resource
import signal
import time
import traceback
import warnings
from collections import Counter

import numpy as np
from fuzz_calls import fit_cases, method_cases, other_cases, reading_cases
from fuzz_further import STRUCTURAL, DiffersError, further_cases
from fuzz_mutations import FUNCTIONS, POOLS, _framed
from fuzz_tables import all_cases
from sklearn.exceptions import NotFittedError

from keql import SimulationError

STRUCTURE = 0.1  # the part of changes that are of no single argument
EXPECTED = (ValueError, TypeError, SimulationError, NotImplementedError, OSError)


class TooLong(BaseException):
    """Raised when a call has used its time."""


def attempt(case, arguments, limit):
    """What a call returns or raises: a pair of which one is None."""

    def ring(*_):
        raise TooLong

    signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, limit)  # processor time
    try:
        quiet = contextlib.redirect_stdout(io.StringIO())
        with warnings.catch_warnings(), quiet:
            warnings.simplefilter("ignore")
            return case.call(**arguments), None
    except (Exception, TooLong, DiffersError) as error:  # noqa: BLE001
        return None, error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _names(said, argument):
    """Whether an error names an argument."""
    singular = argument.removesuffix("s")
    return re.search(rf"(?<![A-Za-z]){re.escape(singular)}s?(?![A-Za-z])", said)


def judge(argument, verdict, answer, error, expected, also=()):
    """The outcome of a call with a changed argument, and what to say of it."""
    if isinstance(error, TooLong):
        return "hang", ""
    if isinstance(error, MemoryError):
        return "memory", str(error)
    if isinstance(error, DiffersError):
        return "wrong", str(error)
    if error is not None:
        said = f"{type(error).__name__}: {error}"
        names = [*re.split(" and |__", argument), *also]
        named = any(_names(said, each) for each in names)
        is_clear = isinstance(error, EXPECTED) and named
        is_clear = is_clear or isinstance(error, NotFittedError)
        if is_clear and not isinstance(error, np.linalg.LinAlgError):
            return ("wrong" if verdict == "same" else "clear"), said
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return "obscure", f"{said} [{frame.filename.split('/')[-1]}:{frame.lineno}]"
    if verdict == "refuse":
        return "nonsense", ""
    if verdict == "same" and answer is not None:
        size = np.max(np.abs(expected)) + 1e-300
        differs = np.max(np.abs(np.subtract(answer, expected))) / size
        if not differs < 1e-6:
            return "wrong", f"differs by {differs:.1e}"
    return "ran", ""


def mutate(case, rng, pairs):
    """One argument changed, or a part `pairs` of the times two: of two any may happen.

    Or a change that is of no single argument, as fuzz_further has them.

    Its name, what was done, what must happen, and arguments; None if that cannot be
    done.
    """
    if len(case.arguments) > 1 and rng.random() < STRUCTURE:
        return STRUCTURAL[rng.integers(len(STRUCTURAL))](case.arguments, rng)
    first = change(case, case.arguments, rng)
    if first is None or len(case.arguments) < 2 or rng.random() >= pairs:
        return first
    argument, label, _, arguments = first
    second = change(case, arguments, rng)
    if second is None or second[0] == argument:
        return first
    return f"{argument} and {second[0]}", f"{label}, {second[1]}", "any", second[3]


def change(case, arguments, rng):
    """One argument changed, as :func:`mutate` has it."""
    argument = rng.choice(sorted(case.arguments))
    pool = POOLS[case.roles[argument]]
    label, value, verdict = pool[rng.integers(len(pool))]
    arguments = dict(arguments)
    valid = arguments[argument]
    is_change = callable(value) and getattr(value, "__name__", "") == "<lambda>"
    is_change = is_change or value is _framed or value is list
    is_change = is_change or getattr(value, "__name__", "") == "spoiled"
    is_function = any(value is own for _, own, _ in FUNCTIONS)
    if is_change and not is_function:
        try:
            value = value(valid)
        except Exception:  # noqa: BLE001  which no table can be made of
            return None
    arguments[argument] = value
    return argument, label, verdict, arguments


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--gigabytes", type=float, default=6.0)
    parser.add_argument("--only", default="", help="part of the names of calls")
    parser.add_argument("--pairs", type=float, default=0.2, help="part of two changes")
    parser.add_argument("--show-ran", action="store_true")
    options = parser.parse_args()
    size = int(options.gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    rng, counts, listed = np.random.default_rng(options.seed), Counter(), Counter()
    cases = [*fit_cases(), *method_cases(), *other_cases(), *reading_cases()]
    cases += [*all_cases(), *further_cases()]
    cases = [case for case in cases if options.only in case.name]
    originals = [
        {k: v for k, v in case.arguments.items() if type(v) is np.ndarray}
        for case in cases
    ]
    expected = []
    for case in cases:
        answer, error = attempt(case, case.arguments, options.limit)
        if error is not None:
            raise RuntimeError(f"the valid call {case.name} failed") from error
        expected.append(answer)
    begun = time.process_time()
    while counts.total() < options.calls:
        i = rng.integers(len(cases))
        changed = mutate(cases[i], rng, options.pairs)
        if changed is None:
            continue
        argument, label, verdict, arguments = changed
        before = {k: np.array(v) for k, v in originals[i].items()}
        answer, error = attempt(cases[i], arguments, options.limit)
        outcome, said = judge(
            argument, verdict, answer, error, expected[i], cases[i].also
        )
        for name, values in before.items():
            if not np.array_equal(values, originals[i][name], equal_nan=True):
                outcome, said = "wrong", f"changes the given {name}"
                originals[i][name][...] = values
        counts[outcome] += 1
        if outcome not in {"clear", "ran"} or (options.show_ran and outcome == "ran"):
            line = f"{outcome:9}{cases[i].name}: {argument} {label}: {said[:150]}"
            print(f"after {counts.total()}: {line}" * (line not in listed), flush=True)
            listed[line] += 1
        if counts.total() % 500 == 0:
            print(dict(counts), f"{time.process_time() - begun:.0f} s", flush=True)
    for line, times in sorted(listed.items()):
        print(f"{times:4} {line}")
    print(dict(counts))


if __name__ == "__main__":
    main()
