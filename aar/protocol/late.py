"""What waits until it is needed: patterns, of which a run uses one in five, and the garbage collector."""

from __future__ import annotations

import gc
import re
from typing import Any, cast

_STARTING = 400_000
"""The threshold that `aar.__main__` sets, which imports next to nothing."""
_WORKING = 50_000
_METHODS = ("search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer", "pattern")


class _LatePattern:
    """Compiles at the first use; afterwards each method is the compiled pattern's own."""

    def __init__(self, source: str, flags: int) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = re.compile(self._source, self._flags)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def late_pattern(source: str, flags: int = 0) -> re.Pattern[str]:
    """Return what does as ``re.compile(source, flags)``, but compiles when it is first used.

    To compile costs about a millisecond for 200 characters. What is returned has the methods of a pattern;
    it cannot be given to the functions of `re`.
    """
    return cast("re.Pattern[str]", _LatePattern(source, flags))


def collect_from_now_on() -> None:
    """Leave what there is out of all collections, and collect as usual. Does so once in a process.

    Nothing happens in a program that aar is a part of: its collector was not held back.
    """
    if gc.get_threshold()[0] == _STARTING:
        gc.freeze()
        gc.set_threshold(_WORKING, 20, 10)
