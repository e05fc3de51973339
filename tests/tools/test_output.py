"""Kept outputs, and ``read_output`` over them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.ports import ToolContext
from aar.tools.builtin.output import MAX_LINE_BYTES, ReadOutputArgs, read_output
from aar.tools.output_store import OutputStore


@pytest.fixture
def store(tmp_path: Path) -> OutputStore:
    return OutputStore(tmp_path / "deep" / "outputs")


async def read(store: OutputStore, ref: str, chars: int = 50_000, **arguments: object) -> str:
    context = cast("ToolContext", SimpleNamespace(outputs=store, max_output_chars=chars))
    return (await read_output(ReadOutputArgs(ref=ref, **arguments), context)).output  # type: ignore[arg-type]


def test_kept_text_is_private_and_comes_back(store: OutputStore, tmp_path: Path) -> None:
    reference = store.keep("call_1", "text\r\nä")
    path = store.path(reference)
    assert reference == "out_call_1"
    assert path.read_bytes() == "text\r\nä".encode()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_nothing_is_made_before_it_is_needed(store: OutputStore, tmp_path: Path) -> None:
    with pytest.raises(ToolFailure):
        store.path("out_x")
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize("call_id", ["../../etc/passwd", "a/b", "", "x" * 500, "ä\n\0", "..", "-rf"])
def test_any_call_id_stays_in_the_folder(store: OutputStore, tmp_path: Path, call_id: str) -> None:
    reference, path = store.new_file(call_id)
    assert path.parent == tmp_path / "deep" / "outputs"
    assert not path.exists()
    assert store.keep(call_id, "text") == reference
    assert store.path(reference) == path


def test_a_second_output_of_a_call_gets_a_name_of_its_own(store: OutputStore) -> None:
    assert store.keep("c", "one") != store.keep("c", "two")
    assert store.path("out_c.2").read_text() == "two"


@pytest.mark.parametrize("reference", ["out_absent", "../secret", "out_../x", "", "out_c/../../x", "out_\0"])
def test_an_unknown_reference_is_not_found(store: OutputStore, reference: str) -> None:
    store.keep("c", "text")
    with pytest.raises(ToolFailure) as caught:
        store.path(reference)
    assert caught.value.category is ToolCategory.NOT_FOUND


def test_a_symlink_is_not_followed(store: OutputStore, tmp_path: Path) -> None:
    store.keep("c", "text")
    (tmp_path / "deep/outputs/out_link").symlink_to("/etc/passwd")
    with pytest.raises(ToolFailure):
        store.path("out_link")


async def test_lines_are_numbered_and_the_next_part_is_named(store: OutputStore) -> None:
    ref = store.keep("c", "".join(f"line {n}\n" for n in range(1, 501)))
    text = await read(store, ref)
    assert text.startswith("     1  line 1\n")
    assert text.endswith("   200  line 200\n[... more follows; go on with start_line 201 ...]")
    assert (await read(store, ref, start_line=499)) == "   499  line 499\n   500  line 500"
    assert (await read(store, ref, start_line=3, end_line=3)) == "     3  line 3"


async def test_a_pattern_finds_lines_without_regard_to_case(store: OutputStore) -> None:
    ref = store.keep("c", "ok\nERROR one\nfine\nfailed two\n")
    assert await read(store, ref, pattern="error|fail") == "     2  ERROR one\n     4  failed two"
    assert await read(store, ref, pattern="(absent") == "No line holds '(absent'."
    assert await read(store, ref, pattern="o", start_line=4) == "     4  failed two"


async def test_the_answer_stays_within_the_limit(store: OutputStore) -> None:
    ref = store.keep("c", "x" * 100 + "\n" + ("y" * 90 + "\n") * 100)
    text = await read(store, ref, chars=1000, start_line=1, end_line=101)
    assert len(text) < 1200
    assert "go on with start_line" in text


async def test_a_huge_line_is_cut_with_a_note(store: OutputStore) -> None:
    ref = store.keep("c", "a" * 3_000_000 + "\nnext\n")
    text = await read(store, ref)
    assert f"[... {3_000_000 - MAX_LINE_BYTES + 1} bytes of this line left out]" in text
    assert text.endswith("     2  next")


async def test_lines_past_the_end_and_wrong_ranges_are_told(store: OutputStore) -> None:
    ref = store.keep("c", "one\n")
    assert await read(store, ref, start_line=9) == "The output has 1 lines; line 9 is past its end."
    with pytest.raises(ToolFailure, match="before start_line"):
        await read(store, ref, start_line=5, end_line=2)
    assert await read(store, store.keep("d", "")) == "The output is empty."
