"""What waits until it is needed."""

from __future__ import annotations

import copy
import dataclasses
import gc
import inspect
import re
import subprocess
import sys
from unittest import mock

import pytest

from aar.protocol.late import collect_from_now_on, late_dataclass_methods, late_pattern

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


@pytest.fixture
def late_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = getattr(dataclasses, "_create_fn", None)
    if maker is None:
        pytest.skip("this Python compiles the methods of a class together")
    monkeypatch.setattr(dataclasses, "_create_fn", maker)
    for _ in range(2):
        late_dataclass_methods()
        # A command that ran in this process may have done so before.
        assert dataclasses._create_fn.__name__ == "make_late"


@pytest.mark.parametrize("slots", [False, True])
def test_dataclasses_whose_methods_are_compiled_late_are_as_all_others(
    late_methods: None, slots: bool
) -> None:
    @dataclasses.dataclass(frozen=True, order=True, slots=slots)
    class Point:
        x: int
        y: int = 2
        more: tuple[object, ...] = ()

    @dataclasses.dataclass(slots=slots)
    class Node:
        name: str
        next: Node | None = None

    one, same, other = Point(1), Point(1, 2), Point(x=1, y=3)
    for _ in range(2):
        assert one == same
        assert one != other
        assert one != (1, 2, ())
        assert one < other
        assert not one >= other
        assert hash(one) == hash(same) == hash((1, 2, ()))
        assert repr(one).endswith("Point(x=1, y=2, more=())")
        with pytest.raises(dataclasses.FrozenInstanceError, match="assign to field 'x'"):
            one.x = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="delete field 'x'"):
            del one.x
    assert Point.__eq__.__qualname__.endswith("Point.__eq__")
    assert copy.copy(one) == again(one) == dataclasses.replace(one) == one
    assert (
        str(inspect.signature(Point)) == "(x: 'int', y: 'int' = 2, more: 'tuple[object, ...]' = ()) -> None"
    )
    loop = Node("a")
    loop.next = loop
    assert repr(loop).count("...") == 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(loop)


def again(point: object) -> object:
    return type(point)(**dataclasses.asdict(point))  # type: ignore[call-overload]


def test_a_constructor_is_compiled_at_its_first_use(late_methods: None) -> None:
    @dataclasses.dataclass
    class Base:
        """Has a constructor."""

        x: int

    class Below(Base):
        pass

    assert type(vars(Base)["__init__"]).__name__ == "_LateMethod"
    assert Below(3).x == 3
    assert inspect.isfunction(vars(Base)["__init__"])
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Base()  # type: ignore[call-arg]


def test_a_program_that_uses_aar_keeps_its_dataclasses() -> None:
    code = "import dataclasses, aar; aar.Session; print(dataclasses._create_fn.__name__)"
    if hasattr(dataclasses, "_create_fn"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "_create_fn\n"
