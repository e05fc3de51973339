"""read_file, write_file, list_directory, and the tools that only talk."""

from __future__ import annotations

import base64
import tracemalloc
from pathlib import Path

import pytest

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.tools.builtin.files import drops_most
from tests.support.tool_context import Bench

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_lines_are_numbered_and_ranges_are_inclusive(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one\ntwo\nthree")
    bench = Bench(tmp_path)
    assert (await bench.call("read_file", path="f")).output == "     1\tone\n     2\ttwo\n     3\tthree"
    assert (await bench.call("read_file", path="f", start_line="2", end_line=2)).output == "     2\ttwo"
    assert (await bench.call("Read", file_path="f", offset=2, limit=1)).output == "     2\ttwo"
    with pytest.raises(ToolFailure, match="only 3 lines"):
        await bench.call("read_file", path="f", start_line=9)


async def test_a_long_file_is_previewed_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"{n}\n" for n in range(1, 5001)))
    bench = Bench(tmp_path)
    outcome = await bench.call("read_file", path="f")
    assert outcome.truncated
    assert "  2000\t2000\n[f has 5,000 lines; shown are 1-2000. Go on with start_line=2001" in outcome.output
    assert (await bench.call("read_file", path="f", start_line=4999)).output.endswith("  5000\t5000")


async def test_output_stays_within_what_the_model_sees(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(("x" * 99 + "\n") * 1500 + "y" * 9000 + "\n")
    bench = Bench(tmp_path)
    outcome = await bench.call("read_file", path="f")
    assert len(outcome.output) <= bench.max_output_chars
    assert "Go on with start_line=" in outcome.output
    outcome = await bench.call("read_file", path="f", start_line=1501)
    assert "[1 line cut at 2,000 characters.]" in outcome.output


@pytest.mark.parametrize(
    ("data", "shown", "note"),
    [
        ("é\n".encode(), "é", None),
        (b"\xef\xbb\xbfhi\n", "hi", None),
        (b"\xff\xfe" + "hé\nyo\n".encode("utf-16-le"), "hé\n     2\tyo", "utf-16-le"),
        (b"\xfe\xff" + "h\u0a0aé\n".encode("utf-16-be"), "h\u0a0aé", "utf-16-be"),
        ("é\nü\n".encode("latin-1"), "é\n     2\tü", "latin-1"),
        (b"a\r\nb\r\n", "a\n     2\tb", "CR LF"),
    ],
)
async def test_encodings_are_read_and_told(tmp_path: Path, data: bytes, shown: str, note: str | None) -> None:
    (tmp_path / "f").write_bytes(data)
    output = (await Bench(tmp_path).call("read_file", path="f")).output
    assert output.startswith(f"     1\t{shown}")
    assert (note in output) if note else "[" not in output


async def test_empty_and_binary_files_and_images_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "program").write_bytes(b"\x7fELF\0\0\0")
    (tmp_path / "dot.png").write_bytes(PNG)
    (tmp_path / "big.png").write_bytes(PNG + b"\0" * 5 * 1024 * 1024)
    bench = Bench(tmp_path)
    assert (await bench.call("read_file", path="empty")).output == "empty is empty."
    with pytest.raises(ToolFailure, match=r"binary file \(7 bytes, ELF program"):
        await bench.call("read_file", path="program")
    outcome = await bench.call("read_file", path="dot.png")
    assert outcome.images[0].media_type == "image/png"
    assert base64.b64decode(outcome.images[0].data) == PNG
    with pytest.raises(ToolFailure, match="smaller copy"):
        await bench.call("read_file", path="big.png")


async def test_a_file_of_150_mb_is_streamed(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        for _ in range(150):
            file.write((b"x" * 1023 + b"\n") * 1024)
    bench = Bench(tmp_path)
    tracemalloc.start()
    try:
        outcome = await bench.call("read_file", path="big", start_line=100_000, end_line=100_001)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.output == "\n".join(f"{n:6d}\t{'x' * 1023}" for n in (100_000, 100_001))
    assert peak < 20_000_000


async def test_one_endless_line_does_not_fill_memory(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"y" * 40_000_000)
    tracemalloc.start()
    try:
        outcome = await Bench(tmp_path).call("read_file", path="big")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.output.startswith("     1\t" + "y" * 2000 + "\n[1 line cut")
    assert peak < 20_000_000


async def test_writing_tells_whether_the_file_is_new(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    outcome = await bench.call("write_file", path="a/b.txt", content="one\ntwo\n")
    assert outcome.output == "Created a/b.txt (2 lines)."
    assert outcome.diff == "--- /dev/null\n+++ b/a/b.txt\n@@ -0,0 +1,2 @@\n+one\n+two"
    outcome = await bench.call("write_file", path="a/b.txt", content="one\n2\n")
    assert outcome.output == "Overwrote a/b.txt (2 lines, +1 -1)."
    outcome = await bench.call("write_file", path="a/b.txt", content="one\n2\n")
    assert outcome.output == "a/b.txt already has this content; nothing changed."
    assert outcome.file_changes == ()


async def test_a_rewrite_keeps_mark_and_line_ends(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    await Bench(tmp_path).call("write_file", path="f", content="a\nc\n")
    assert (tmp_path / "f").read_bytes() == b"\xef\xbb\xbfa\r\nc\r\n"


@pytest.mark.parametrize(
    ("before", "after", "drops"), [(40, 15, True), (40, 16, False), (39, 1, False), (1000, 399, True)]
)
def test_a_rewrite_that_drops_most_is_recognised(before: int, after: int, drops: bool) -> None:
    assert drops_most("x\n" * before, "x\n" * after) is drops


async def test_a_rewrite_that_drops_most_is_refused_unless_it_is_meant(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\n" * 100)
    bench = Bench(tmp_path)
    with pytest.raises(ToolFailure, match="has 100 lines and the new content only 1"):
        await bench.call("write_file", path="f", content="# rest unchanged\n")
    assert (tmp_path / "f").read_text() == "x\n" * 100
    await bench.call("write_file", path="f", content="short\n", allow_shrink=True)
    assert (tmp_path / "f").read_text() == "short\n"


async def test_a_folder_is_listed_folders_first(tmp_path: Path) -> None:
    (tmp_path / "z").mkdir()
    (tmp_path / "b.txt").write_text("x" * 1500)
    (tmp_path / ".hidden").touch()
    (tmp_path / "link").symlink_to("b.txt")
    output = (await Bench(tmp_path).call("LS")).output
    assert output == ".: 1 folder, 3 files (1 hidden)\nz/\n.hidden  0 B\nb.txt  1.5 KB\nlink -> b.txt"


async def test_a_full_folder_is_capped_and_a_missing_one_named(tmp_path: Path) -> None:
    for number in range(520):
        (tmp_path / f"{number:04}").touch()
    bench = Bench(tmp_path)
    output = (await bench.call("list_directory", path=".")).output
    assert output.endswith("[20 more entries are not shown; use find_files to look for a name.]")
    with pytest.raises(ToolFailure) as failure:
        await bench.call("list_directory", path="nowhere")
    assert failure.value.category is ToolCategory.NOT_FOUND


async def test_a_todo_list_is_kept_and_shown(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    outcome = await bench.call(
        "todo", todos=[{"content": "read", "status": "done", "activeForm": "x"}, "write"]
    )
    assert outcome.output == "The todo list, 1 of 2 completed:\n[x] 1. read\n[ ] 2. write"
    assert [(item.id, item.status) for item in bench.plans[-1]] == [("1", "completed"), ("2", "pending")]


async def test_a_plan_names_its_dependencies(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    items = [
        {"id": "a", "title": "First"},
        {"id": "b", "title": "Then", "depends_on": ["a"], "done_when": "test -e b"},
    ]
    outcome = await bench.call("plan", items=items)
    assert "[ ] b. Then (after a) — done when test -e b" in outcome.output
    assert bench.plans[-1][1].depends_on == ("a",)


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([{"id": "a", "title": "x"}, {"id": "a", "title": "y"}], "ids must differ"),
        ([{"id": "a", "title": "x", "depends_on": ["q"]}], "does not exist"),
        (
            [{"id": "a", "title": "x", "depends_on": ["b"]}, {"id": "b", "title": "y", "depends_on": ["a"]}],
            "circle",
        ),
    ],
)
async def test_a_plan_that_cannot_be_followed_is_refused(
    tmp_path: Path, items: list[object], reason: str
) -> None:
    bench = Bench(tmp_path)
    with pytest.raises(ToolFailure, match=reason):
        await bench.call("plan", items=items)
    assert bench.plans == []


async def test_the_user_is_asked_or_the_model_decides(tmp_path: Path) -> None:
    bench = Bench(tmp_path, answer="blue")
    assert (
        await bench.call("ask_user", question="Colour?", options=["red", "blue"])
    ).output == "The user answered: blue"
    assert bench.asked == ["Colour?"]
    assert "state the assumption" in (await Bench(tmp_path).call("ask_user", question="Colour?")).output
