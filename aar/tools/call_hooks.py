"""Hooks around a tool call: before policy looks at it, and after it has its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.protocol.events import ContextEvent
from aar.protocol.messages import TextBlock
from aar.protocol.ports import Emit, Hooks, HookVerdict
from aar.protocol.tool import ToolOutcome
from aar.tools.pending_call import PendingCall, failure
from aar.tools.schema import validate_arguments

_MAX_OUTPUT = 50_000


def _data(item: PendingCall, workspace: Path) -> dict[str, Any]:
    return {
        "tool_name": item.tool_name,
        "arguments": dict(item.raw),
        "call_id": item.call.call_id,
        "agent_id": item.call.agent_id,
        "workspace": str(workspace),
    }


def _keep(item: PendingCall, said: HookVerdict) -> None:
    item.context += [(text, said.trusted) for text in said.context]


async def before_tool(hooks: Hooks, item: PendingCall, workspace: Path) -> None:
    """Let hooks refuse a call, change its arguments or add context; policy judges what comes out of it."""
    if item.spec is None or not hooks.wants("before_tool"):
        return
    said = await hooks.fire("before_tool", _data(item, workspace))
    _keep(item, said)
    if said.refusal is not None:
        item.refusal = failure(ToolCategory.BLOCKED, f"A hook did not let this call run: {said.refusal}")
        return
    item.hook_allows = said.allow
    if said.arguments is not None:
        try:
            item.set_arguments(validate_arguments(item.spec, {**item.raw, **said.arguments}))
        except ToolFailure as error:
            item.refusal = failure(error.category, f"A hook changed this call's arguments. {error.message}")


async def after_tool(hooks: Hooks, item: PendingCall, outcome: ToolOutcome, workspace: Path) -> ToolOutcome:
    """Tell hooks of a result and of changed files; what they object to stands at the end of the result."""
    for event in ("after_tool", "file_changed"):
        if not hooks.wants(event) or (event == "file_changed" and not outcome.file_changes):
            continue
        data = {
            **_data(item, workspace),
            "output": outcome.output[:_MAX_OUTPUT],
            "is_error": outcome.is_error,
            "files": [change.model_dump(mode="json") for change in outcome.file_changes],
        }
        said = await hooks.fire(event, data)
        _keep(item, said)
        if said.refusal is not None:
            outcome = replace(outcome, output=f"{outcome.output}\n[hook] {said.refusal}")
    return outcome


def tell_context(items: Sequence[PendingCall], emit: Emit) -> None:
    """Put what hooks said about the calls of a step before the model, after all results."""
    for item in items:
        for text, trusted in item.context:
            blocks = (TextBlock(text=text),)
            emit.append(ContextEvent(source="hook", label=item.tool_name, content=blocks, trusted=trusted))
