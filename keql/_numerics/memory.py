"""What is too large for the machine, or takes hours, is refused before it starts.

And how this process uses memory: in parts, and for how long.
"""

import ctypes
import os
import platform
from dataclasses import dataclass

from sklearn import get_config


@dataclass(frozen=True)
class MemoryBudget:
    """How much memory arrays may take: the part `fraction` of that of the machine.

    The rest is for what else runs, and for what arrays of that size lead to.
    """

    fraction: float = 0.75

    def bytes(self):
        """Bytes that may be taken, or None where the machine does not say."""
        try:
            total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, OSError, ValueError):  # Windows has no sysconf
            return None
        return self.fraction * total

    def refuse_above(self, n_numbers, what, advice):
        """Refuse `n_numbers` in float64.

        `what` says, as the beginning of a sentence, what they are needed for, `advice`
        what else to give.
        """
        available, needed = self.bytes(), 8.0 * min(n_numbers, 1e300)
        if available is not None and needed > available:
            raise ValueError(
                f"{what} would take {needed / 1e9:,.3g} GB of memory, and at most "
                f"{available / 1e9:,.3g} GB may be taken, {self.fraction:.0%} of that "
                f"of this machine: {advice}"
            )


def refuse_steps(n_steps, what, advice, most=1e7):
    """Refuse a computation of more than `most` steps, which takes hours."""
    if n_steps > most:
        raise ValueError(
            f"{what} would take {n_steps:,.3g} steps, and at most {most:,.0f} are "
            f"taken, as these last for hours: {advice}"
        )


def in_chunks(points, n_numbers, copies=64):
    """Parts of points (n, d), as large as scikit-learn's working memory allows.

    For each row a computation makes `n_numbers` in float64, and many `copies` of
    them. There is one part at least.
    """
    available = get_config()["working_memory"] * 2**20  # it is in MiB
    n_rows = max(1, int(available // (8 * copies * max(1, n_numbers))))
    return [points[i : i + n_rows] for i in range(0, max(1, len(points)), n_rows)]


def keep_freed_memory(n_bytes=2**28):
    """Tell the C library that this process keeps up to `n_bytes` that are free.

    A library that gives memory back at once, as dask tells it to do in its workers,
    asks for it again for the next array, and the system clears each page: steps of a
    joint fit take twice the processor time then. Only of the library of GNU can this
    be asked (its man page mallopt(3) has the two numbers). Returns whether it agreed.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    trim_threshold, mmap_threshold = -1, -3
    library = ctypes.CDLL(None)
    return bool(
        library.mallopt(trim_threshold, n_bytes)
        and library.mallopt(mmap_threshold, n_bytes)
    )
