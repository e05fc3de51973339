"""The catalogue, the registry, the schemas and the check of arguments."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import BaseModel

from aar.protocol.errors import ConfigurationError, ToolCategory, ToolFailure
from aar.protocol.tool import SideEffect, ToolSpec
from aar.tools.builtin.catalogue import builtin_tools
from aar.tools.builtin.describe import describe_call
from aar.tools.registry import FOREIGN_NAMES, ToolRegistry
from aar.tools.schema import lean_schema, validate_arguments
from tests.support.tool_context import REGISTRY
from tests.support.work import calls_made

SPECS = builtin_tools()
NAMES = {
    "read_file", "write_file", "edit_file", "apply_patch", "list_directory", "find_files", "grep", "bash",
    "bash_output", "kill_shell", "read_output", "todo", "plan", "ask_user", "web_fetch",
}  # fmt: skip


def get(name: str) -> ToolSpec:
    spec = REGISTRY.get(name)
    assert spec is not None
    return spec


def test_all_built_in_tools_are_there() -> None:
    assert {spec.name for spec in SPECS} == NAMES


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_each_description_says_what_when_inputs_outputs_and_limits(spec: ToolSpec) -> None:
    text = spec.description
    assert re.match(r"[A-Z][^\n]{15,}?[.;]", text)
    assert re.search(r"^When:|Use it ", text, re.MULTILINE)
    assert re.search(r"^Inputs:|Takes |Use it with |a shell command", text, re.MULTILINE)
    assert re.search(r"^Output:|[Rr]eturns", text, re.MULTILINE)
    assert re.search(r"^Limits:|at most|is cut|are killed|is killed|cut in the middle", text, re.MULTILINE)
    assert 150 < len(text) < 1500
    for name in spec.input_schema["properties"]:
        described = "description" in spec.input_schema["properties"][name]
        assert described or name in text, name
    assert spec.summary.endswith(".")
    assert len(spec.summary) <= 80
    assert "\n" not in spec.summary


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_each_schema_is_lean_and_closed(spec: ToolSpec) -> None:
    text = json.dumps(spec.input_schema)
    assert spec.input_schema["additionalProperties"] is False
    assert not any(word in text for word in ('"title": "', "$ref", "$defs", "anyOf", '"null"'))
    assert spec.arguments is not None
    assert set(spec.input_schema["properties"]) == set(spec.arguments.model_fields)


def test_building_all_specs_is_quick() -> None:
    assert calls_made(builtin_tools) < 30_000


def test_only_readers_run_side_by_side() -> None:
    for spec in SPECS:
        if spec.concurrency == "parallel":
            assert spec.read_only
    assert SideEffect.WRITE in get("edit_file").side_effects


@pytest.mark.parametrize(
    ("foreign", "ours"),
    [("Read", "read_file"), ("Bash", "bash"), ("str_replace", "edit_file"), ("LS", "list_directory"), ("ReadFile", "read_file"),
     ("Glob", "find_files"), ("functions.grep", "grep"), ("write-file", "write_file"), ("TodoWrite", "todo")],
)  # fmt: skip
def test_foreign_names_are_understood(foreign: str, ours: str) -> None:
    assert get(foreign).name == ours


def test_every_foreign_name_leads_to_a_tool() -> None:
    assert set(FOREIGN_NAMES.values()) <= NAMES


def test_unknown_tools_get_the_nearest_names() -> None:
    assert REGISTRY.get("frobnicate") is None
    assert REGISTRY.nearest("read_fil")[0] == "read_file"
    assert REGISTRY.nearest("zzzzzz") == []


def test_names_are_unique_and_enabled_is_checked() -> None:
    registry = ToolRegistry(SPECS)
    with pytest.raises(ConfigurationError, match="two tools named grep"):
        registry.register(get("grep"))
    assert [spec.name for spec in registry.specs(["Bash", "read_file"])] == ["read_file", "bash"]
    with pytest.raises(ConfigurationError, match="did you mean grep"):
        registry.specs(["grepp"])


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        (
            "read_file",
            {},
            r"'path' is missing \(a string is needed\)\. read_file accepts: path \(required\), start_line",
        ),
        ("read_file", {"path": "a", "start_line": "abc"}, "'start_line' must be a whole number, not \"abc\""),
        ("read_file", {"path": 5}, "'path' must be a string, not 5"),
        ("read_file", {"path": "a", "strat_line": 1}, "did you mean 'start_line'"),
        ("read_file", {"path": "a", "start_line": 5, "end_line": 2}, "end_line must not be smaller"),
        ("read_file", {"path": "a", "start_line": 0}, "greater than or equal to 1"),
        ("read_file", {"path": "a", "file_path": "b"}, "mean the same"),
        ("find_files", {"pattern": "*", "sort": "size"}, "path"),
        ("todo", {"items": [{"title": "x", "status": "maybe"}]}, r"items\.0\.status"),
        ("todo", {"items": "no list"}, "'items' must be a list"),
    ],
)
def test_wrong_arguments_are_named(tool: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolFailure, match=message) as failure:
        validate_arguments(get(tool), arguments)
    assert failure.value.category is ToolCategory.INVALID_ARGUMENTS


def test_clear_slips_are_forgiven() -> None:
    checked = validate_arguments(get("read_file"), {"file_path": "a", "start_line": "5", "end_line": None})
    assert isinstance(checked, BaseModel)
    assert checked.model_dump() == {"path": "a", "start_line": 5, "end_line": None}
    checked = validate_arguments(get("todo"), {"items": '[{"title": "x"}]'})
    assert isinstance(checked, BaseModel)
    assert checked.model_dump()["items"][0]["status"] == "pending"


def test_a_tool_without_a_model_is_checked_against_its_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"count": {"type": "integer"}, "kind": {"type": "string", "enum": ["a", "b"]}},
        "required": ["count"],
        "additionalProperties": False,
    }
    spec = ToolSpec("outside", "", schema, frozenset(), None)
    assert validate_arguments(spec, {"count": "3", "kind": "a"}) == {"count": 3, "kind": "a"}
    for wrong in ({}, {"count": True}, {"count": 1, "kind": "c"}, {"count": 1, "other": 1}, {"count": "x"}):
        with pytest.raises(ToolFailure):
            validate_arguments(spec, wrong)


def test_unusual_annotations_go_through_pydantic() -> None:
    class Odd(BaseModel):
        table: dict[str, int]
        either: int | str = 1

    schema = lean_schema(Odd)
    assert schema["properties"]["table"] == {"additionalProperties": {"type": "integer"}, "type": "object"}
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["table"]


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("read_file", {"path": "src/a.py", "start_line": 1, "end_line": 40}, "Read src/a.py:1-40"),
        ("read_file", {"path": "src/a.py"}, "Read src/a.py"),
        ("edit_file", {"path": "src/a.py"}, "Edit src/a.py"),
        ("bash", {"command": "pytest  -q\n"}, "$ pytest -q"),
        ("grep", {"pattern": "x", "glob": "*.py"}, "Search 'x' (*.py)"),
        (
            "apply_patch",
            {"patch": "*** Begin Patch\n*** Add File: a\n+x\n*** Delete File: b\n"},
            "Patch a, b",
        ),
        ("todo", {"items": [1, 2]}, "Update the todo list (2 items)"),
        ("mcp_x", {"a": 1}, "mcp_x(a='1')"),
        ("write_file", {}, "Write ?"),
        ("bash", {"command": "x" * 500}, "$ " + "x" * 157 + "…"),
    ],
)
def test_a_call_is_described_in_a_line(name: str, arguments: dict[str, Any], line: str) -> None:
    assert describe_call(name, arguments) == line
