"""Open questions in line mode: what a tool would do, and one key to decide."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

from aar.protocol.events import ApprovalRequest
from aar.runtime.questions import ASK_TOOL
from aar.tools.builtin.describe import describe_call
from aar.transports.approval_text import beside_diff, diff_lines
from aar.transports.chat.paper import Paper


class Asker(Protocol):
    """Reads answers from the user."""

    async def key(self, prompt: str, keys: str) -> str:
        """Return one of ``keys``; nothing when the user wants to stop (Ctrl-C, Ctrl-D)."""
        ...

    async def text(self, prompt: str, default: str = "") -> str | None:
        """Return a line; ``None`` when the user takes the question back."""
        ...


@dataclass(frozen=True)
class Decision:
    """An answer, as `Conversation.answer` takes it."""

    decision: Literal["allow", "reject", "cancelled"]
    details: dict[str, Any] = field(default_factory=dict[str, Any])


async def ask(request: ApprovalRequest, paper: Paper, asker: Asker) -> Decision:
    """Show a question with everything that it is about, and return the answer."""
    if request.tool_name == ASK_TOOL:
        return await _ask_user(request, paper, asker)
    paper.line()
    paper.line(f"? {describe_call(request.tool_name, request.arguments)}", "yellow")
    _show_arguments(paper, request)
    _show_reasons(paper, request)
    keys, words = _keys(request)
    while True:
        key = await asker.key(f"{words} ", keys)
        decision = await _decided(key, request, paper, asker)
        if decision is not None:
            return decision


def _show_arguments(paper: Paper, request: ApprovalRequest) -> None:
    """Write all arguments, whole: nobody should allow what they were not shown."""
    for name, value in beside_diff(request).items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if "\n" in text:
            paper.line(f"  {name}:")
            for line in text.rstrip("\n").split("\n"):
                paper.line(f"  | {line}")
        else:
            paper.line(f"  {name}: {text}")
    for line in diff_lines(request):
        paper.line(f"  {line}", "green" if line[:1] == "+" else "red" if line[:1] == "-" else "")


def _show_reasons(paper: Paper, request: ApprovalRequest) -> None:
    reasons = cast("list[object]", request.why.get("reasons") or ["the permission mode asks for such calls"])
    for reason in reasons:
        paper.line(f"  why: {reason}", "dim")
    rule = request.why.get("rule")
    if isinstance(rule, Mapping):
        named = cast("Mapping[str, object]", rule)
        paper.line(f"  rule: {named.get('text')} ({named.get('layer')})", "dim")
    if request.wall:
        held = "no wall around it" if request.wall == "none" else f"inside the wall {request.wall}"
        paper.line(f"  {held}", "dim")
    if request.proposed_rule:
        paper.line(f"  s and a would keep the rule {request.proposed_rule}", "dim")


def _keys(request: ApprovalRequest) -> tuple[str, str]:
    """Return the keys that answer, and the words that tell of them."""
    words = {
        "y": "y yes",
        "s": "s session",
        "a": "a always",
        "e": "e edit",
        "n": "n no",
        "f": "f no, because",
    }
    keys = "y"
    keys += "s" if "session" in request.scopes else ""
    keys += "a" if {"project", "user"} & set(request.scopes) else ""
    keys += "enf"
    return keys, f"[{', '.join(words[key] for key in keys)}]"


async def _decided(key: str, request: ApprovalRequest, paper: Paper, asker: Asker) -> Decision | None:
    """Return what a key means; ``None``: the question stands."""
    match key:
        case "y":
            return Decision("allow")
        case "s":
            return await _with_rule(request, asker, "session")
        case "a":
            scope = "project" if "project" in request.scopes else "user"
            return await _with_rule(request, asker, scope)
        case "e":
            return await _edited(request, paper, asker)
        case "f":
            feedback = await asker.text("What should it do instead? ")
            return Decision("reject", {"feedback": feedback}) if feedback else None
        case "n":
            return Decision("reject")
        case _:
            return Decision("cancelled")


async def _with_rule(request: ApprovalRequest, asker: Asker, scope: str) -> Decision | None:
    """Let the user change the rule that is kept."""
    rule = await asker.text(f"Keep this rule for the {scope}: ", request.proposed_rule or "")
    if not rule:
        return None
    return Decision("allow", {"scope": scope, "rule": rule})


async def _edited(request: ApprovalRequest, paper: Paper, asker: Asker) -> Decision | None:
    """Let the user change the arguments: of one that is text, the text itself, else JSON."""
    arguments = dict(request.arguments)
    if request.tool_name == "bash" and isinstance(arguments.get("command"), str):
        command = await asker.text("Command: ", arguments["command"])
        if not command:
            return None
        return Decision("allow", {"edited_arguments": {**arguments, "command": command}})
    told = await asker.text("Arguments as JSON: ", json.dumps(arguments, ensure_ascii=False))
    if not told:
        return None
    try:
        changed: Any = json.loads(told)
    except ValueError as error:
        paper.line(f"! This is not JSON: {error}.", "red")
        return None
    if not isinstance(changed, dict):
        paper.line("! The arguments must be a JSON object.", "red")
        return None
    return Decision("allow", {"edited_arguments": cast("dict[str, Any]", changed)})


async def _ask_user(request: ApprovalRequest, paper: Paper, asker: Asker) -> Decision:
    """Put a question of the model: a number takes an option, anything else is the answer."""
    options = [str(item) for item in request.arguments.get("options") or ()]
    paper.line()
    paper.line(f"? {request.arguments.get('question', '')}", "yellow")
    for number, option in enumerate(options, 1):
        paper.line(f"  {number}. {option}")
    hint = f"1-{len(options)} or your own words" if options else "your answer"
    said = await asker.text(f"[{hint}] ")
    if said is None:
        return Decision("cancelled")
    if said.strip().isdigit() and 1 <= int(said) <= len(options):
        said = options[int(said) - 1]
    return Decision("allow", {"feedback": said}) if said.strip() else Decision("reject")
