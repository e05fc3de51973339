"""How much a test's subject does, counted so that a busy machine changes nothing."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable


def calls_made(work: Callable[[], object]) -> int:
    """Return how many functions, Python's and C's, ``work`` calls. What goes on inside one in C is not seen."""
    called = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal called
        called += event in {"call", "c_call"}

    before, collects = sys.getprofile(), gc.isenabled()
    # What a collection frees may call functions of its own.
    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return called
