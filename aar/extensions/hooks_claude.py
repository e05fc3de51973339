"""The form of hooks that Claude Code documents: its names of events, tools and arguments, and ours for them.

Source: https://docs.claude.com/en/docs/claude-code/hooks (settings, input, output).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

EVENTS = {
    "PreToolUse": "before_tool",
    "PostToolUse": "after_tool",
    "PermissionRequest": "approval_needed",
    "UserPromptSubmit": "prompt_submit",
    "SessionStart": "session_start",
    "SessionEnd": "session_end",
    "Stop": "stop",
    "SubagentStop": "subagent_stop",
    "PreCompact": "compaction",
    "Notification": "notification",
}
_NAMES = {ours: theirs for theirs, ours in EVENTS.items()}
_TOOLS = {
    "read_file": "Read",
    "write_file": "Write",
    "edit_file": "Edit",
    "apply_patch": "MultiEdit",
    "bash": "Bash",
    "bash_output": "BashOutput",
    "kill_shell": "KillShell",
    "grep": "Grep",
    "find_files": "Glob",
    "list_directory": "LS",
    "web_fetch": "WebFetch",
    "web_search": "WebSearch",
    "task": "Task",
    "todo": "TodoWrite",
    "skill": "Skill",
}
_FILE = {"path": "file_path"}
_ARGUMENTS = {
    "read_file": _FILE,
    "write_file": _FILE,
    "edit_file": {**_FILE, "old_text": "old_string", "new_text": "new_string"},
    "task": {"agent": "subagent_type"},
    "skill": {"name": "skill"},
}


def matches_tool(matcher: str, name: str, claude: bool) -> bool:
    """Tell whether a hook is meant for ``name``: nothing and ``*`` mean all, else an expression.

    A matcher in Claude Code's form is compared with the name that Claude Code gives the tool.
    """
    if matcher in ("", "*"):
        return True
    names = {_TOOLS.get(name, name)} if claude else {name, _TOOLS.get(name, name)}
    try:
        return any(re.fullmatch(matcher, known) is not None for known in names)
    except re.error:
        return matcher in names


def claude_input(event: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a hook in Claude Code's form is given."""
    given: dict[str, Any] = {"hook_event_name": _NAMES.get(event, event)}
    tool = str(data.get("tool_name", ""))
    if tool:
        given["tool_name"] = _TOOLS.get(tool, tool)
        given["tool_input"] = _theirs(tool, data.get("arguments") or {}, str(data.get("workspace", "")))
        given["tool_use_id"] = data.get("call_id")
    if "output" in data:
        given["tool_response"] = {"output": data["output"], "is_error": data.get("is_error", False)}
    for ours in ("prompt", "stop_hook_active", "source", "reason", "trigger", "message"):
        if ours in data:
            given[ours] = data[ours]
    return given


def _theirs(tool: str, arguments: Mapping[str, Any], workspace: str) -> dict[str, Any]:
    names = _ARGUMENTS.get(tool, {})
    given = {names.get(key, key): value for key, value in arguments.items()}
    path = given.get("file_path")
    if isinstance(path, str) and workspace and not path.startswith("/"):
        given["file_path"] = f"{workspace}/{path}"
    return given


def our_arguments(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments in Claude Code's names under ours."""
    names = {theirs: ours for ours, theirs in _ARGUMENTS.get(tool, {}).items()}
    return {names.get(key, key): value for key, value in given.items()}
