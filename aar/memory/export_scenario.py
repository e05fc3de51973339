"""A session as a scenario for the ``scripted`` provider: what the model said, step by step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

from aar.protocol.events import (
    AssistantMessage,
    ErrorEvent,
    Event,
    ProviderMeta,
    Reasoning,
    SessionEvent,
    StateEvent,
    ToolCall,
    UserMessage,
)
from aar.protocol.messages import TextBlock
from aar.protocol.state import StopReason

_ATTEMPTS: Final = 5
_STATUS: Final = {
    "auth": 401,
    "quota": 402,
    "rate_limit": 429,
    "overloaded": 529,
    "context_overflow": 413,
    "invalid_request": 400,
    "content_filter": 400,
    "unknown_model": 404,
    "provider_internal": 500,
    "network": 503,
    "timeout": 504,
    "incomplete_stream": 500,
    "malformed_response": 500,
}
"""A status that a server would answer with, by `ErrorKind`."""
_LAST_WORDS: Final = frozenset(
    {StopReason.MAX_STEPS, StopReason.STOPPED, StopReason.BUDGET, StopReason.TIMEOUT}
)
"""Runs that end so make one last request without tools, which a scenario answers with ``side_reply``."""


def to_scenario(events: Iterable[Event]) -> dict[str, Any]:
    """Return the scenario of the main agent's answers.

    Besides what the provider reads, it tells under ``prompts`` what the user said, in order, and under
    ``recorded`` how the session ended.
    """
    fold = _Fold()
    for event in events:
        if event.agent_id == "main":
            fold.take(event)
    return fold.finish()


class _Fold:
    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.prompts: list[str] = []
        self.recorded: dict[str, Any] = {}
        self.last_words: str | None = None
        self._key: tuple[str | None, int | None] | None = None
        self._step: dict[str, Any] = {}

    def take(self, event: Event) -> None:
        match event:
            case SessionEvent(action="start" | "fork"):
                self.recorded.update(session_id=event.session_id, cwd=event.cwd, model=event.model)
            case UserMessage(source="prompt" | "queue" | "continue"):
                blocks = [block.text for block in event.content if isinstance(block, TextBlock)]
                self.prompts.append("\n".join(blocks))
            case Reasoning() | AssistantMessage() | ToolCall():
                self._block(event)
            case ProviderMeta() if event.step is not None:
                self._end(event)
            case ErrorEvent(stage="model", severity="error" | "fatal"):
                status = _STATUS.get(str(event.kind), 500)
                repeat = _ATTEMPTS if event.retryable else 1
                self.steps.append({"status": status, "error": _literal(event.message), "repeat": repeat})
            case StateEvent() if event.stop_reason is not None:
                self._run_ended(event.stop_reason)
            case _:
                pass

    def _block(self, event: Reasoning | AssistantMessage | ToolCall) -> None:
        key = (event.run_id, event.step)
        if key != self._key:
            # Blocks of an answer that never ended are no answer.
            self._key, self._step = key, {}
        if isinstance(event, Reasoning):
            self._step["reasoning"] = self._step.get("reasoning", "") + _literal(event.content)
        elif isinstance(event, AssistantMessage):
            self._step["text"] = self._step.get("text", "") + _literal(event.content)
        else:
            given: Any = event.raw_arguments if event.raw_arguments is not None else event.arguments
            call = {"name": event.tool_name, "arguments": _literal(given), "id": event.call_id}
            self._step.setdefault("tool_calls", []).append(call)

    def _end(self, meta: ProviderMeta) -> None:
        step = self._step if self._key == (meta.run_id, meta.step) else {}
        usage = meta.usage
        told = {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        }
        self.steps.append({**step, "usage": told})
        self._key, self._step = None, {}

    def _run_ended(self, reason: StopReason) -> None:
        self.recorded["stop_reason"] = str(reason)
        if reason in _LAST_WORDS and self.steps and "tool_calls" not in self.steps[-1]:
            self.last_words = self.steps.pop().get("text", "")

    def finish(self) -> dict[str, Any]:
        scenario: dict[str, Any] = {
            "model": "scripted",
            "after": "error",
            "defaults": {"chunk_chars": 0, "arg_chunk_chars": 0},
            "prompts": self.prompts,
            "recorded": self.recorded,
            "steps": self.steps or [{"text": "", "repeat": 0}],
        }
        if self.last_words is not None:
            scenario["side_reply"] = self.last_words
        return scenario


def _literal(value: Any) -> Any:
    """Double the braces, which else are placeholders in a scenario."""
    if isinstance(value, str):
        return value.replace("{", "{{").replace("}", "}}")
    if isinstance(value, list):
        return [_literal(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _literal(item) for key, item in cast("dict[str, Any]", value).items()}
    return value
