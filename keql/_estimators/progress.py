"""Lines that say what a fit is doing."""

import threading
import time
from numbers import Real


class Progress:
    """Prints a line for each stage of a fit, and others while a stage takes long.

    With `verbose` 0 nothing is printed, with 2 a line for each step. Otherwise a stage
    that goes on has a line every `interval` seconds, about its last step and the
    equations that it led to, or, inside of a with statement, that it goes on. Each has
    the elapsed time, and says which of the hypotheses is being tried.
    """

    def __init__(self, verbose, interval=5.0):
        # What is none is refused by the estimator.
        self.verbose = verbose if isinstance(verbose, Real) else 0
        self.interval = interval
        self.begin = self.last = time.perf_counter()
        self.stage, self.problem, self.tried = None, None, ""
        self.n_fits = self.n_steps = 0
        self.equations = None
        self.is_over = threading.Event()

    def __enter__(self):
        if self.verbose:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.is_over.set()

    def _watch(self):
        """Say that a stage goes on for as long as nothing else is said."""
        while not self.is_over.wait(self.interval / 10):
            if time.perf_counter() - self.last >= self.interval:
                words = f"{self.tried}{self.stage or ''}".rstrip(", ")
                self.say(f"{words or 'two steps'}: goes on")

    def say(self, text):
        """Print a line with the elapsed time in seconds."""
        if self.verbose:
            self.last = time.perf_counter()
            # In one piece: two threads tell.
            line = f"[{self.last - self.begin:7.1f} s] {text}\n"
            print(line, end="", flush=True)

    def start(self, stage):
        """Tell that a stage begins, which goes on until another one does."""
        self.stage = stage
        self.say(stage)

    def hypothesis(self, name, number, n):
        """Tell that a hypothesis is tried, the `number`-th of `n`."""
        tried = f"hypothesis {number} of {n}, "
        if tried != self.tried:
            self._say_so_far()
            self.tried, self.stage = tried, None
            self.say(tried + name)

    def step(self, problem, result, equations=None):
        """Tell of an accepted step of a fit, with the problem that it is of.

        Fits are told apart by their problems, and by the numbers of their steps. Where
        they are told, `equations` returns those that the step led to.
        """
        if not self.verbose:
            return
        stage = "equation at collocation points"
        if problem.is_exact:
            stage = "states that obey the equation exactly"
        if problem.process is not None:
            stage = "states that obey the equation with noise"
        if stage != self.stage:
            self.stage, self.n_fits = stage, 0
            self.say(self.tried + stage)
        if problem is not self.problem or result.n_iter <= self.n_steps:
            self.n_fits += 1
        self.problem, self.n_steps, self.equations = problem, result.n_iter, equations
        due = time.perf_counter() - self.last >= self.interval
        if self.verbose > 1 or due:
            self.say(
                f"{self.tried}{stage}: fit {self.n_fits}, step {result.n_iter}, "
                f"loss {result.loss:.6g}, damping {result.damping_curve[-1]:.2g}"
            )
        if due:
            self._say_so_far()

    def _say_so_far(self, width=120):
        """Tell which equations the last step led to, each in a line of this width."""
        if not self.verbose or self.equations is None:
            return
        for equation in self.equations():
            text = " ".join(str(equation).split())
            if len(text) > width:
                text = text[: width - 4].rpartition(" ")[0] + " ..."
            self.say(f"so far {text}")
        self.equations = None

    def done(self, equation, doubts=""):
        """Tell what was found."""
        if equation is None:
            self.say("done")
            return
        first, *others = str(equation).splitlines()
        self.say(f"found {first}")
        for line in others:
            self.say(f"found {line}")
        if doubts:
            self.say("in doubt, see fit_report_")


def words_for_data(observations):
    """How much was observed, in a phrase."""
    n = sum(len(data.values) for data in observations.functions)
    functions = len(observations.functions)
    return f"{n} observations" + (f" of {functions} functions" * (functions > 1))
