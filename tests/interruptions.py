"""Functions that are interrupted, as from the keyboard, or fail at a call."""


class InterruptAt:
    """Lets a function be called so many times; then it is Ctrl-C, or a failure."""

    def __init__(self, function, n, error=KeyboardInterrupt):
        self.function, self.n, self.error, self.calls = function, n, error, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        if self.calls == self.n:
            raise self.error
        return self.function(*args, **kwargs)
