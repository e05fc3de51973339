"""What waits until it is needed: patterns, of which a run uses one in five, parts of classes, collections."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable
from typing import Any, cast

_STARTING = 400_000
"""The threshold that `aar.__main__` sets, which imports next to nothing."""
_WORKING = 50_000
_METHODS = ("search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer", "pattern")


_MAKER = "_create_fn"
_LATE = frozenset(
    {"__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__repr__", "__setattr__", "__delattr__"}
)


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


def late_dataclass_methods() -> None:
    """Let dataclasses compile their ``__eq__``, ``__repr__`` and the like when they are first called.

    Each class has up to six functions that are compiled one by one, and a run defines 240 classes: most of
    these functions are never called. For the program, before it imports what it needs. Nothing changes from
    Python 3.13 on, which compiles them together.
    """
    import dataclasses

    if sys.version_info >= (3, 13) or getattr(dataclasses, _MAKER).__name__ != _MAKER:
        return
    make: Callable[..., Any] = getattr(dataclasses, _MAKER)

    def make_late(name: str, *args: Any, **kwargs: Any) -> Any:
        return _late_function(name, make, args, kwargs) if name in _LATE else make(name, *args, **kwargs)

    setattr(dataclasses, _MAKER, make_late)


def _late_function(name: str, make: Callable[..., Any], args: Any, kwargs: Any) -> Callable[..., Any]:
    made: list[Callable[..., Any]] = []

    def method(self: Any, *values: Any) -> Any:
        if not made:
            made.append(make(name, *args, **kwargs))
        return made[0](self, *values)

    method.__name__ = name
    return method


def collect_from_now_on() -> None:
    """Leave what there is out of all collections, and collect as usual. Does so once in a process.

    Nothing happens in a program that aar is a part of: its collector was not held back.
    """
    if gc.get_threshold()[0] == _STARTING:
        gc.freeze()
        gc.set_threshold(_WORKING, 20, 10)
