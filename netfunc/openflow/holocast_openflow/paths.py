"""Path sets, and the DSCP marks of paths."""

from collections.abc import Iterable

MAX_PATHS = 8

Paths = frozenset[int]
NONE: Paths = frozenset()


def codepoint(path: int) -> int:
    """Return the DSCP of a path: pool 2, xxxx11, experimental or local use (RFC 2474, 6)."""
    return 4 * (path - 1) + 3


def parse(indices: object, where: str) -> Paths:
    """Parse a path set from JSON or YAML; ValueError has one sentence."""
    if not isinstance(indices, list) or not all(type(i) is int and 1 <= i <= MAX_PATHS for i in indices):
        raise ValueError(f"{where} is not an array of numbers from 1 to {MAX_PATHS}")
    return frozenset(indices)


def name(paths: Iterable[int]) -> str:
    """Format a path set as "1+2+5", the empty one as "none"."""
    return "+".join(str(i) for i in sorted(paths)) or "none"
