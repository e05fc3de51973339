"""apply_patch: both formats, loose context, all or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.tools.builtin.diff import count_changes, unified_diff
from aar.tools.builtin.patch_apply import apply_hunks
from aar.tools.builtin.patch_parse import parse_patch
from tests.support.tool_context import Bench

lines = st.lists(
    st.sampled_from(["", "a", "b", " ", "-- x", "++ y", "@@ z", "--- q", "tab\t", "é"]), max_size=25
)
texts = st.tuples(lines, st.booleans()).map(lambda t: "\n".join(t[0]) + ("\n" if t[1] and t[0] else ""))


@settings(max_examples=150, deadline=None)
@given(texts, texts)
def test_a_unified_diff_of_ours_applies_back(before: str, after: str) -> None:
    if before == after:
        return
    (patch,) = parse_patch(unified_diff(before, after, "f"))
    assert apply_hunks(before, patch) == after


def test_files_without_lines_and_names_in_quotes_are_read_as_git_writes_them() -> None:
    quoted = r'"a/\303\244\t\"\\x" "b/\303\244\t\"\\x"'
    patch = (
        f"diff --git {quoted}\nnew file mode 100644\nindex 0000000..e69de29\n"
        "diff --git a/some name b/some name\ndeleted file mode 100644\nindex e69de29..0000000\n"
        "diff --git a/f b/f\nnew file mode 100644\nindex 0000000..1\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+f\n"
        r'diff --git "a/\303\274" "b/\303\274"'
        "\nindex 1..2 100644\n"
        r'--- "a/\303\274"'
        "\n"
        r'+++ "b/\303\274"'
        "\n@@ -1 +1 @@\n-u\n+v\n"
    )
    read = [(file.action, file.path, len(file.hunks)) for file in parse_patch(patch)]
    assert read == [("add", 'ä\t"\\x', 0), ("delete", "some name", 0), ("add", "f", 1), ("update", "ü", 1)]


@settings(max_examples=100, deadline=None)
@given(texts, texts)
def test_counts_agree_with_the_diff(before: str, after: str) -> None:
    body = unified_diff(before, after, "f").split("\n")[2:]
    added, removed = count_changes(before, after)
    assert added == sum(line.startswith("+") for line in body)
    assert removed == sum(line.startswith("-") for line in body)


def envelope(body: str) -> str:
    return f"*** Begin Patch\n{body}\n*** End Patch"


@pytest.mark.parametrize("before", ["a\nb\nc\n", "a\r\nb\r\nc\r\n", "a\nb\nc"])
@pytest.mark.parametrize(
    "patch",
    [
        envelope("*** Update File: f\n@@\n a\n-b\n+B1\n+B2\n c"),
        envelope("*** Update File: f\n a\n-b\n+B1\n+B2\n c\n*** End of File"),
        envelope("*** Update File: f\n@@ a\n-b\n+B1\n+B2"),
        "```diff\n--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n a\n-b\n+B1\n+B2\n c\n```",
        "--- f\n+++ f\n@@ -10,2 +10,2 @@\n-b\n+B1\n+B2\n",
        "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -2 +2,2 @@ fn\n-b\n+B1\n+B2\n",
        "--- a/f\n+++ b/f\n@@\n-b\n+B1\n+B2\n",
    ],
)
async def test_every_form_of_a_patch_applies_and_keeps_line_ends(
    tmp_path: Path, before: str, patch: str
) -> None:
    (tmp_path / "f").write_bytes(before.encode())
    await Bench(tmp_path).call("apply_patch", patch=patch)
    newline = "\r\n" if "\r\n" in before else "\n"
    assert (tmp_path / "f").read_bytes().decode() == before.replace("b", f"B1{newline}B2")


async def test_context_may_differ_in_space_and_quotes_but_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("\tsay(“x”)  \n\told\nend\n")
    await Bench(tmp_path).call(
        "apply_patch", patch=envelope('*** Update File: f\n say("x")\n-old\n+\tnew\n end')
    )
    assert (tmp_path / "f").read_text() == "\tsay(“x”)  \n\tnew\nend\n"


async def test_anchors_choose_among_equal_places(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("def a():\n    return 0\ndef b():\n    return 0\n")
    patch = envelope("*** Update File: f\n@@ def b():\n-    return 0\n+    return 1")
    await Bench(tmp_path).call("apply_patch", patch=patch)
    assert (tmp_path / "f").read_text() == "def a():\n    return 0\ndef b():\n    return 1\n"


async def test_one_patch_adds_changes_deletes_and_renames(tmp_path: Path) -> None:
    for name in ("change", "delete", "move"):
        (tmp_path / name).write_text(f"{name}\nend\n")
    patch = envelope(
        "*** Add File: sub/new\n+one\n+two\n\n*** Update File: change\n-change\n+CHANGE\n"
        "*** Delete File: delete\n*** Update File: move\n*** Move to: moved\n-move\n+MOVE"
    )
    outcome = await Bench(tmp_path).call("apply_patch", patch=patch)
    found = {
        str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert found == {"sub/new": "one\ntwo\n", "change": "CHANGE\nend\n", "moved": "MOVE\nend\n"}
    actions = {change.path: change.action for change in outcome.file_changes}
    assert actions == {"sub/new": "create", "change": "modify", "delete": "delete", "moved": "rename"}
    assert "R move -> moved (+1 -1)" in outcome.output


async def test_unified_diffs_add_delete_and_rename(tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("x\n")
    (tmp_path / "old").write_text("x\n")
    patch = (
        "--- /dev/null\n+++ b/new\n@@ -0,0 +1,1 @@\n+hello\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "diff --git a/old b/name\nsimilarity index 50%\nrename from old\nrename to name\n"
        "--- a/old\n+++ b/name\n@@ -1 +1 @@\n-x\n+y\n"
    )
    await Bench(tmp_path).call("apply_patch", patch=patch)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"new": "hello\n", "name": "y\n"}


@pytest.mark.parametrize(
    ("second", "category"),
    [
        ("*** Update File: b\n-not there at all\n+x", ToolCategory.NOT_FOUND),
        ("*** Update File: missing\n-a\n+x", ToolCategory.NOT_FOUND),
        ("*** Add File: b\n+x", ToolCategory.INVALID_ARGUMENTS),
        ("*** Add File: ../out\n+x", ToolCategory.BLOCKED),
        ("*** Add File: locked\n+x\n*** Update File: b\nbad line", ToolCategory.INVALID_ARGUMENTS),
        ("*** Add File: b/below/a/file\n+x", ToolCategory.INVALID_ARGUMENTS),
    ],
)
async def test_when_one_part_fails_nothing_changes(
    tmp_path: Path, second: str, category: ToolCategory
) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a").write_text("a\n")
    (root / "b").write_text("b\n")
    with pytest.raises(ToolFailure) as failure:
        await Bench(root).call("apply_patch", patch=envelope(f"*** Update File: a\n-a\n+A\n{second}"))
    assert failure.value.category is category
    assert {path.name: path.read_text() for path in root.iterdir()} == {"a": "a\n", "b": "b\n"}
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


@pytest.mark.parametrize(
    "patch", ["hello", envelope(""), envelope("*** Update File: f"), "@@ -1 +1 @@\n-a\n+b"]
)
async def test_what_is_no_patch_is_explained(tmp_path: Path, patch: str) -> None:
    with pytest.raises(ToolFailure, match="cannot be read at its line"):
        await Bench(tmp_path).call("apply_patch", patch=patch)
