"""Hooks: programs (or Python callables) of user and project that hear of what happens, and may object.

A command gets one JSON object on standard input. Exit code 0 lets go on, and standard output may be a JSON
object; 2 blocks, with standard error as the reason; anything else is a failure, which blocks only where the
hook is set to ``fail = "closed"``. Settings and answers in the form of Claude Code are understood.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from aar.extensions.hooks_claude import claude_input, matches_tool, our_arguments
from aar.extensions.hooks_config import Hook
from aar.protocol.errors import AarError
from aar.protocol.ports import HookVerdict, Spawner, SpawnRequest
from aar.protocol.text import clean_text

MAX_CHARS = 10_000
"""Characters of a reason or of context that the model sees."""
_MAX_OUTPUT = 1_000_000
_PLAIN_CONTEXT = frozenset({"prompt_submit", "session_start"})
"""Events whose plain output is context for the model."""
_BLOCKING = frozenset(
    {"before_tool", "prompt_submit", "stop", "subagent_stop", "after_tool", "approval_needed"}
)

Listener = Callable[[str, Mapping[str, Any]], Awaitable[HookVerdict | None]]
"""A Python hook: ``await listener(event, data)``; ``None`` says nothing."""
Tell = Callable[[str], None]


@dataclass
class HookRunner:
    """Runs the hooks of a session; the `aar.protocol.ports.Hooks` of its agents.

    Attributes:
        hooks: From configuration and files, in their order.
        spawner: Starts commands.
        workspace: Where they run.
        session_id: Of the session.
        transcript: The session's file, for hooks that read it.
        mode: Returns the permission mode.
        wall: Returns the name of the wall around commands.
        tell: Tells the user that a hook failed.
        listeners: Python hooks by event.
        guests: Python hooks of extensions by event; others after these were reloaded.
    """

    hooks: Sequence[Hook]
    spawner: Spawner
    workspace: Path
    session_id: str
    transcript: str
    mode: Callable[[], str]
    wall: Callable[[], str]
    tell: Tell
    listeners: dict[str, list[Listener]] = field(default_factory=dict[str, list[Listener]])
    guests: dict[str, list[Listener]] = field(default_factory=dict[str, list[Listener]])
    _told: set[str] = field(default_factory=set[str])

    def listen(self, event: str, listener: Listener) -> None:
        """Add a Python hook."""
        self.listeners.setdefault(event, []).append(listener)

    def wants(self, event: str) -> bool:
        """Tell whether anything hears of ``event``."""
        heard = self.listeners.get(event) or self.guests.get(event)
        return bool(heard) or any(hook.event == event for hook in self.hooks)

    async def fire(self, event: str, data: Mapping[str, Any]) -> HookVerdict:
        """Run all hooks of ``event`` side by side and return what they say together.

        One that blocks wins over all that allow. Changed arguments of later hooks win over earlier ones.
        """
        name = str(data.get("tool_name") or data.get("source") or data.get("trigger") or "")
        chosen = [
            hook
            for hook in self.hooks
            if hook.event == event and matches_tool(hook.matcher, name, hook.claude)
        ]
        work = [self._command(hook, data) for hook in chosen]
        listeners = (*self.listeners.get(event, ()), *self.guests.get(event, ()))
        work += [self._listener(listener, event, data) for listener in listeners]
        verdicts = await asyncio.gather(*work)
        return joined([verdict for verdict in verdicts if verdict is not None])

    async def _listener(self, listener: Listener, event: str, data: Mapping[str, Any]) -> HookVerdict | None:
        try:
            return await listener(event, data)
        except Exception as error:
            self._tell_once(f"A hook on {event} failed ({type(error).__name__}: {error}); work goes on.")
            return None

    async def _command(self, hook: Hook, data: Mapping[str, Any]) -> HookVerdict | None:
        if hook.project and self.wall() == "none" and self.mode() != "unsafe":
            self._tell_once("Hooks of the project do not run, because no sandbox holds here.")
            return None
        given = claude_input(hook.event, data) if hook.claude else dict(data)
        common = {"session_id": self.session_id, "cwd": str(self.workspace)}
        if hook.claude:
            common |= {"transcript_path": self.transcript, "permission_mode": _claude_mode(self.mode())}
        else:
            common |= {"event": hook.event, "mode": self.mode()}
        request = SpawnRequest(
            ("/bin/sh", "-c", hook.command),
            self.workspace,
            env={"AAR_PROJECT_DIR": str(self.workspace), "CLAUDE_PROJECT_DIR": str(self.workspace)},
            kind="tool" if hook.sandbox else "helper",
            timeout_s=hook.timeout,
            read_only=self.mode() == "plan",
            stdin=json.dumps({**common, **given}, ensure_ascii=False, default=str).encode(),
            max_output=_MAX_OUTPUT,
            merge_stderr=False,
        )
        try:
            ended = await self.spawner.run(request)
        except (AarError, OSError) as error:
            return self._failed(hook, str(error))
        if ended.timed_out:
            return self._failed(hook, f"it took longer than {hook.timeout:g} s")
        output, problem = _text(ended.output), _text(ended.stderr)
        if ended.exit_code == 2:
            reason = problem or output or f"the hook {hook.command!r} blocks it"
            return HookVerdict(refusal=reason[:MAX_CHARS], trusted=not hook.project)
        if ended.exit_code != 0:
            return self._failed(hook, f"it ended with code {ended.exit_code}. {problem[-300:]}".strip())
        return self._answer(hook, data, output)

    def _failed(self, hook: Hook, why: str) -> HookVerdict | None:
        self._tell_once(f"The hook on {hook.event} ({hook.command[:80]}) failed: {why}")
        if hook.fail == "closed" and hook.event in _BLOCKING:
            return HookVerdict(refusal=f"the hook that must agree failed: {why}", trusted=not hook.project)
        return None

    def _answer(self, hook: Hook, data: Mapping[str, Any], output: str) -> HookVerdict | None:
        if not output.startswith("{"):
            plain = hook.event in _PLAIN_CONTEXT and output
            return HookVerdict(context=(output[:MAX_CHARS],), trusted=not hook.project) if plain else None
        try:
            answer = json.loads(output)
        except ValueError:
            return self._failed(hook, "its answer is no JSON object")
        if message := _str(answer, "systemMessage"):
            self._tell_once(f"Hook: {message[:500]}")
        return verdict_of(hook, cast("dict[str, Any]", answer), data)

    def _tell_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self.tell(message)


def verdict_of(hook: Hook, answer: Mapping[str, Any], data: Mapping[str, Any]) -> HookVerdict:
    """Return what the JSON answer of a hook says, in aar's form or Claude Code's."""
    special = _table(answer, "hookSpecificOutput")
    permission = _table(special, "decision")
    decision = (
        _str(special, "permissionDecision") or _str(permission, "behavior") or _str(answer, "decision") or ""
    )
    reason = (
        _str(special, "permissionDecisionReason")
        or _str(permission, "message")
        or _str(answer, "reason")
        or _str(answer, "stopReason")
        or f"the hook {hook.command!r} blocks it"
    )
    blocks = decision in ("deny", "block") or answer.get("continue") is False
    context = _str(special, "additionalContext") or _str(answer, "context")
    changed: dict[str, Any] | None = None
    if updated := _table(special, "updatedInput") or _table(permission, "updatedInput"):
        changed = our_arguments(str(data.get("tool_name", "")), updated)
    elif own := _table(answer, "arguments"):
        changed = own
    return HookVerdict(
        refusal=reason[:MAX_CHARS] if blocks else None,
        arguments=changed,
        # A project may make things stricter, never looser.
        allow=decision in ("allow", "approve") and not hook.project,
        context=(context[:MAX_CHARS],) if context else (),
        trusted=not hook.project,
    )


def joined(verdicts: Sequence[HookVerdict]) -> HookVerdict:
    """Return what several hooks say together."""
    refusals = [verdict.refusal for verdict in verdicts if verdict.refusal is not None]
    changed = [verdict.arguments for verdict in verdicts if verdict.arguments is not None]
    return HookVerdict(
        refusal="\n".join(refusals) if refusals else None,
        arguments=changed[-1] if changed else None,
        allow=any(verdict.allow for verdict in verdicts) and not refusals,
        context=tuple(text for verdict in verdicts for text in verdict.context),
        trusted=all(verdict.trusted for verdict in verdicts),
    )


def _text(data: bytes) -> str:
    return clean_text(data.decode("utf-8", "replace")).strip()


def _str(table: Mapping[str, Any], key: str) -> str | None:
    value = table.get(key)
    return value if isinstance(value, str) and value else None


def _table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _claude_mode(mode: str) -> str:
    return {"plan": "plan", "edit": "acceptEdits", "unsafe": "bypassPermissions"}.get(mode, "default")
