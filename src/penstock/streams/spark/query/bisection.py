"""Finding the few among many that fail, by trying parts of them.

    failing(8, lambda start, stop: any(row in (2, 7) for row in range(start, stop)), most=100)
    # [2, 7]

One among a million takes twenty steps, each of one trial or two.
"""

from collections.abc import Callable

Fails = Callable[[int, int], bool]
"""Whether the part from a start to before an end fails."""


class TooMany(Exception):
    """More fail than are looked for."""


def failing(count: int, fails: Fails, *, most: int) -> list[int]:
    """Those of `count` that may fail, in order, if what fails in a part fails by itself. Where the
    whole fails, and not its first half, the second is taken to fail without being tried.

    All parts of one size are tried before smaller ones: where too many fail, that is soon known.
    Raises TooMany.
    """
    parts = [(0, count)] if count else []
    while any(stop - start > 1 for start, stop in parts):
        smaller: list[tuple[int, int]] = []
        for start, stop in parts:
            middle = (start + stop) // 2
            if stop - start == 1:
                smaller.append((start, stop))
            elif not fails(start, middle):
                smaller.append((middle, stop))
            else:
                smaller.append((start, middle))
                if fails(middle, stop):
                    smaller.append((middle, stop))
            if len(smaller) > most:
                raise TooMany
        parts = smaller
    return [start for start, _ in parts]
