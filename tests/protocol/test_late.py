"""What waits until it is needed."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from unittest import mock

import pytest

from aar.protocol.late import collect_from_now_on, late_pattern

PROGRAM = """
import gc
from aar.protocol.late import collect_from_now_on
gc.set_threshold(400_000, 20, 10)
collect_from_now_on()
first = gc.get_freeze_count()
collect_from_now_on()
print(gc.get_threshold()[0], first > 0, gc.get_freeze_count() == first)
"""


def test_a_late_pattern_compiles_once_and_at_its_first_use() -> None:
    with mock.patch("re.compile", wraps=re.compile) as compiled:
        pattern = late_pattern(r"(?P<word>a+)b", re.IGNORECASE)
        assert not compiled.called
        assert [found["word"] for found in pattern.finditer("AAb ab b")] == ["AA", "a"]
        assert pattern.sub("-", "aab c") == "- c"
        assert pattern.pattern == r"(?P<word>a+)b"
    assert compiled.call_count == 1


def test_a_late_pattern_has_nothing_that_a_pattern_has_not() -> None:
    with pytest.raises(AttributeError):
        late_pattern("a").find("a")  # type: ignore[attr-defined]


def test_an_agent_that_begins_leaves_the_imports_out_of_all_collections_once() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["50000", "True", "True"]


def test_the_collector_of_a_program_that_uses_aar_is_left_alone() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    collect_from_now_on()
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
