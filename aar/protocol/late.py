"""What waits until it is needed: patterns, of which a run uses one in five, parts of classes, collections."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, cast

_STARTING = 400_000
"""The threshold that `aar.__main__` sets, which imports next to nothing."""
_WORKING = 50_000
_METHODS = ("search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer", "pattern")


_MAKER = "_create_fn"
_LATE = frozenset(
    {"__init__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__repr__"}
    | {"__setattr__", "__delattr__"}
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


class _LateMethod:
    """Stands in a class for a method; whoever looks it up first has it compiled, and put in its place."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.__name__, self._make = name, cache(make)

    def __get__(self, instance: object, owner: type) -> Any:
        method, name = self._make(), self.__name__
        for kind in owner.__mro__:
            if kind.__dict__.get(name) is self:
                method.__qualname__ = f"{kind.__qualname__}.{name}"
                setattr(kind, name, method)
        return method.__get__(instance, owner)

    def __call__(self, *values: Any) -> Any:
        # What dataclasses wrap, such as `__repr__`, they call as a function.
        return self._make()(*values)


def late_dataclass_methods() -> None:
    """Let dataclasses compile ``__init__``, ``__eq__``, ``__repr__`` and the like when they are first used.

    Each class has up to seven functions that are compiled one by one, and a run defines 220 classes: most of
    these functions are never called. Saves a tenth of what comes before the first request. For the program,
    before it imports what it needs. Nothing changes from Python 3.13 on, which compiles them together.
    """
    import dataclasses

    if sys.version_info >= (3, 13) or getattr(dataclasses, _MAKER).__name__ != _MAKER:
        return
    make: Callable[..., Any] = getattr(dataclasses, _MAKER)

    def make_late(name: str, *args: Any, **kwargs: Any) -> Any:
        if name in _LATE:
            return _LateMethod(name, lambda: make(name, *args, **kwargs))
        return make(name, *args, **kwargs)

    setattr(dataclasses, _MAKER, make_late)


def collect_from_now_on() -> None:
    """Leave what there is out of all collections, and collect as usual. Does so once in a process.

    Nothing happens in a program that aar is a part of: its collector was not held back.
    """
    if gc.get_threshold()[0] == _STARTING:
        gc.freeze()
        gc.set_threshold(_WORKING, 20, 10)
