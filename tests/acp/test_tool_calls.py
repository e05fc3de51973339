"""Tool calls as editors show them, and lines as JSON-RPC reads them: for any input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aar.tools.builtin.catalogue import builtin_tools
from aar.tools.builtin.diff import unified_diff
from aar.transports.acp import tool_calls
from aar.transports.acp.messages import RpcError, kind_of, parse
from aar.transports.acp.snippets import command, registry_entry, snippet
from aar.transports.acp.wire import encode
from tests.acp.oracle import judge

ROOT = Path("/work space/project")
LINES = st.lists(
    st.sampled_from(["a", "b", "", "- x", "+ y", "@@ -1 +1 @@", "\\ No", "--- q", " z"]), max_size=14
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["path", "content", "old_text", "new_text", "patch", "command", "start_line", "items"]
)

UNHURRIED = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""


def text_of(lines: list[str], *, bare: bool) -> str:
    text = "".join(f"{line}\n" for line in lines)
    return text.removesuffix("\n") if bare else text


@UNHURRIED
@given(LINES, LINES, st.booleans(), st.booleans())
def test_the_hunks_of_a_diff_turn_the_old_text_into_the_new(
    before: list[str], after: list[str], old_bare: bool, new_bare: bool
) -> None:
    old, new = text_of(before, bare=old_bare), text_of(after, bare=new_bare)
    diffs, places = tool_calls.diffs_of(unified_diff(old, new, "src/a.py"), ROOT)
    assert len(diffs) == len(places) == 0 if old == new else len(diffs) == len(places) > 0
    rest, made = old, ""
    for diff in diffs:
        head, found, rest = rest.partition(diff["oldText"]) if diff["oldText"] else (rest, "", "")
        assert found == diff["oldText"]
        made += head + diff["newText"]
        assert diff["path"] == str(ROOT / "src/a.py")
    if len(diffs) == 1:
        assert made + rest == new


def test_a_new_file_has_no_old_text_and_a_removed_one_no_new() -> None:
    (made,), _ = tool_calls.diffs_of(unified_diff(None, "x\ny\n", "a"), ROOT)
    assert made == {"type": "diff", "path": str(ROOT / "a"), "newText": "x\ny\n"}
    (gone,), _ = tool_calls.diffs_of(unified_diff("x\n", None, "a"), ROOT)
    assert (gone["path"], gone["oldText"], gone["newText"]) == (str(ROOT / "a"), "x\n", "")


@UNHURRIED
@given(st.sampled_from([tool.name for tool in builtin_tools()]), st.dictionaries(NAMES, JSON, max_size=5))
def test_any_arguments_make_a_call_that_an_editor_can_show(tool: str, arguments: dict[str, Any]) -> None:
    update = {
        "sessionUpdate": "tool_call",
        "toolCallId": "1",
        "title": tool_calls.title_of(tool, arguments),
        "kind": tool_calls.kind_of(tool),
        "locations": tool_calls.locations_of(tool, arguments, ROOT),
        "content": tool_calls.preview(tool, arguments, ROOT, None),
    }
    judge("SessionNotification", {"sessionId": "s", "update": update})
    assert update["title"]
    assert "\n" not in update["title"]


def test_a_patch_is_shown_by_files() -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n x\n-y\n+z\n*** Add File: b.py\n+new\n*** End Patch"
    first, second = tool_calls.preview("apply_patch", {"patch": patch}, ROOT, None)
    assert (first["path"], first["oldText"], first["newText"]) == (str(ROOT / "a.py"), "x\ny", "x\nz")
    assert (second["path"], second.get("oldText")) == (str(ROOT / "b.py"), None)


@UNHURRIED
@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_line_is_a_message_or_an_error_with_a_code(line: bytes) -> None:
    try:
        assert kind_of(parse(line)) in {"request", "notification", "response"}
    except RpcError as error:
        assert error.code in {-32700, -32600}  # noqa: PT017 - either is right


@UNHURRIED
@given(JSON)
def test_a_message_is_one_line_of_utf8(value: Any) -> None:
    line = encode({"value": value, "half": "\ud800"})
    assert line.count(b"\n") == 1
    assert json.loads(line.decode()) == {"value": value, "half": "\ud800"}


@pytest.mark.parametrize("editor", ["zed", "jetbrains", "vscode", "registry"])
def test_set_ups_in_json_are_json_and_name_the_command(editor: str) -> None:
    told = json.loads(snippet(editor))
    if editor == "registry":
        assert told == registry_entry()
        return
    (servers,) = told.values()
    assert [servers["aar"]["command"], *servers["aar"]["args"]] == command()


@pytest.mark.parametrize("editor", ["neovim", "emacs", "toad"])
def test_other_set_ups_name_the_command_too(editor: str) -> None:
    told = snippet(editor)
    assert command()[0] in told
    assert not {"PROGRAM", "COMMAND", "ARGS"} & set(told.replace("(", " ").replace(")", " ").split())
