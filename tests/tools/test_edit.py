"""edit_file: every way to find the text, and bytes outside of it that never change."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.tools.builtin.edit_match import find, nearest, splice
from tests.support.tool_context import Bench

CLASS = "class A:\n    def area(self):\n        width = self.width\n        return width + self.height\n"

CASES = [
    ("exact", "a = 1\nb = 2\n", "a = 1", "a = 9", "a = 9\nb = 2\n"),
    ("exact", "a = 1\r\nb = 2\r\n", "a = 1\nb = 2", "a = 3\nb = 4", "a = 3\r\nb = 4\r\n"),
    ("exact", "x\r\ny\n", "y", "y\nz", "x\r\ny\nz\n"),
    ("trailing space ignored", "if x:   \n    go()\t\nend\n", "if x:\n    go()\n", "if y:\n    go()\n", "if y:\n    go()\nend\n"),
    ("trailing space ignored", "one\nlast", "last\n", "end\n", "one\nend"),
    ("indentation adapted", CLASS, "def area(self):\n    width = self.width", "def area(self):\n    w = self.w\n\n    x = 1",
     "class A:\n    def area(self):\n        w = self.w\n\n        x = 1\n        return width + self.height\n"),
    ("indentation adapted", "f:\n\tif x:\n\t\tgo()\n", "    if x:\n        go()", "    if y:\n        stop()", "f:\n\tif y:\n\t\tstop()\n"),
    ("indentation adapted", "a:\n  b\n", "        b\n", "        c\n", "a:\n  c\n"),
    ("typographic characters folded", "say “hi” – now\n", 'say "hi" - now', 'say "ho" - now', "say “ho” – now\n"),
    ("typographic characters folded", "a\u00a0b = 1\n", "a b = 1", "a b = 2", "a\u00a0b = 2\n"),
    ("nearest block", "def compute_total(items, tax):\n    return sum(items) * tax\n", "def compute_total(item, tax):\n    return sum(items) * tax\n",
     "def total(items):\n    return sum(items)\n", "def total(items):\n    return sum(items)\n"),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "text", "old", "new", "after"), CASES)
def test_each_strategy_changes_only_its_match(
    strategy: str, text: str, old: str, new: str, after: str
) -> None:
    found = find(text, old, new)
    assert found is not None
    assert found.strategy == strategy
    assert len(found.matches) == 1
    assert splice(text, found.matches) == after


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("value_one = compute(1, 2)\n", "value = 1"),
        ("x = 1\n", "x = 2"),
        (
            "def handler_a(request, response):\n    pass\ndef handler_b(request, response):\n    pass\n",
            "def handler_c(request, response):\n    pass\n",
        ),
        (
            "start()\nsomething entirely different here\nfinish_everything_now()\n",
            "start()\nx\nfinish_everything_now()\n",
        ),
        ("", "anything"),
        ("abc\n", "\n\n\n"),
    ],
)
def test_what_is_not_clearly_there_is_not_found(text: str, old: str) -> None:
    assert find(text, old, "new") is None


def test_the_nearest_lines_are_named() -> None:
    near = nearest("one\ndef add(a, b):\n    return a - b\n", "def add(x, y):\n    return x + y\n")
    assert near is not None
    assert (near.line, near.lines) == (2, ("def add(a, b):", "    return a - b"))


line = st.text(st.sampled_from("ab \t=é–"), max_size=8)
ends = st.sampled_from(["\n", "\r\n"])
text_of_lines = st.lists(st.tuples(line, ends), max_size=12).map(lambda rows: "".join(a + b for a, b in rows))


@settings(max_examples=120, deadline=None)
@given(text_of_lines, line, st.text("xyz \n", max_size=10), st.data())
def test_text_outside_a_match_never_changes(text: str, extra: str, new: str, data: st.DataObject) -> None:
    old = extra
    if text and data.draw(st.booleans()):
        start = data.draw(st.integers(0, len(text) - 1))
        old = text[start : data.draw(st.integers(start + 1, len(text)))].replace("\r\n", "\n")
    if not old:
        return
    found = find(text, old, new)
    if found is None:
        return
    position = 0
    for match in found.matches:
        assert position <= match.start <= match.end <= len(text)
        position = match.end
    first, last = found.matches[0], found.matches[-1]
    result = splice(text, found.matches)
    assert result.startswith(text[: first.start])
    assert result.endswith(text[last.end :])
    if found.strategy == "exact":
        matched = text[first.start : first.end].replace("\r\n", "\n")
        assert matched.strip("\r") == old.strip("\r")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("final", [True, False])
async def test_mark_line_ends_and_final_newline_stay(
    tmp_path: Path, mark: bytes, newline: str, final: bool
) -> None:
    text = newline.join(["alpha", "beta", "gamma"]) + (newline if final else "")
    (tmp_path / "f.txt").write_bytes(mark + text.encode())
    outcome = await Bench(tmp_path).call("edit_file", path="f.txt", old_text="beta", new_text="B1\nB2")
    expected = newline.join(["alpha", "B1", "B2", "gamma"]) + (newline if final else "")
    assert (tmp_path / "f.txt").read_bytes() == mark + expected.encode()
    assert outcome.output == "Edited f.txt at line 2, +2 -1 (exact match)."


async def test_utf_16_and_latin_1_files_keep_their_encoding(tmp_path: Path) -> None:
    (tmp_path / "wide.txt").write_bytes(b"\xff\xfe" + "größe\nzwei\n".encode("utf-16-le"))
    (tmp_path / "old.txt").write_bytes("größe\nzwei\n".encode("latin-1"))
    bench = Bench(tmp_path)
    for name in ("wide.txt", "old.txt"):
        await bench.call("edit_file", path=name, old_text="größe", new_text="Maß")
    assert (tmp_path / "wide.txt").read_bytes() == b"\xff\xfe" + "Maß\nzwei\n".encode("utf-16-le")
    assert (tmp_path / "old.txt").read_bytes() == "Maß\nzwei\n".encode("latin-1")
    with pytest.raises(ToolFailure, match="cannot hold"):
        await bench.call("edit_file", path="old.txt", old_text="zwei", new_text="→")


async def test_several_places_are_ambiguous_unless_all_are_meant(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x = 1\ny = 1\nx = 1\n")
    bench = Bench(tmp_path)
    with pytest.raises(ToolFailure, match=r"2 times in f \(lines 1, 3\)") as failure:
        await bench.call("edit_file", path="f", old_text="x = 1", new_text="x = 2")
    assert failure.value.category is ToolCategory.AMBIGUOUS
    outcome = await bench.call("edit_file", path="f", old_text="x = 1", new_text="x = 2", replace_all=True)
    assert (tmp_path / "f").read_text() == "x = 2\ny = 1\nx = 2\n"
    assert outcome.file_changes[0].added == outcome.file_changes[0].removed == 2


async def test_a_failed_edit_shows_the_nearest_lines_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("import os\n\ndef add(a, b):\n    return a - b\n")
    with pytest.raises(ToolFailure) as failure:
        await Bench(tmp_path).call(
            "edit_file", path="f.py", old_text="def add(x, y):\n    return x + y", new_text="z"
        )
    assert failure.value.category is ToolCategory.NOT_FOUND
    assert "     3\tdef add(a, b):" in failure.value.message


async def test_an_edit_made_before_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("value = 2\n")
    with pytest.raises(ToolFailure, match="already in the file"):
        await Bench(tmp_path).call("edit_file", path="f.py", old_text="number = one", new_text="value = 2")


async def test_an_edit_tells_the_change_with_blobs_and_a_diff(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("a\nb\nc\n")
    bench = Bench(tmp_path)
    outcome = await bench.call("Edit", file_path="f.py", old_string="b", new_string="B")
    change = outcome.file_changes[0]
    assert (change.path, change.action, change.added, change.removed) == ("f.py", "modify", 1, 1)
    assert bench.blobs.kept[change.before or ""] == b"a\nb\nc\n"
    assert bench.blobs.kept[change.after or ""] == b"a\nB\nc\n"
    assert outcome.diff == "--- a/f.py\n+++ b/f.py\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c"


async def test_an_empty_old_text_makes_a_new_file_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    outcome = await bench.call("edit_file", path="new/f.txt", old_text="", new_text="hello\n")
    assert outcome.file_changes[0].action == "create"
    with pytest.raises(ToolFailure, match="exists"):
        await bench.call("edit_file", path="new/f.txt", old_text="", new_text="other\n")
    assert (tmp_path / "new/f.txt").read_text() == "hello\n"


async def test_a_file_changed_by_another_since_it_was_read_is_not_edited(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one\ntwo\n")
    bench = Bench(tmp_path)
    await bench.call("read_file", path="f")
    (tmp_path / "f").write_text("one\ntwo\nthree\n")
    with pytest.raises(ToolFailure) as failure:
        await bench.call("edit_file", path="f", old_text="one", new_text="1")
    assert failure.value.category is ToolCategory.STALE_FILE
    await bench.call("read_file", path="f", start_line=1, end_line=1)
    await bench.call("edit_file", path="f", old_text="one", new_text="1")
    assert (tmp_path / "f").read_text() == "1\ntwo\nthree\n"


async def test_nothing_is_written_in_plan_mode(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.read_only = True
    for name, arguments in (
        ("edit_file", {"path": "f", "old_text": "", "new_text": "x"}),
        ("write_file", {"path": "f", "content": "x"}),
        ("apply_patch", {"patch": "*** Begin Patch\n*** Add File: f\n+x\n*** End Patch"}),
    ):
        with pytest.raises(ToolFailure, match="plan mode"):
            await bench.call(name, **arguments)
    assert list(tmp_path.iterdir()) == []
