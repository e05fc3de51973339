"""What servers ask of the user: forms (elicitation) and answers of the model (sampling)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from aar.protocol.ports import ToolContext
from aar.safety.sanitize import sanitize

JsonDict = dict[str, Any]
Sample = Callable[[str, list[tuple[str, str]], int], Awaitable[tuple[str, str]]]
"""``await sample(system, [(role, text), …], max_tokens)``: the text, and the model that wrote it."""
_YES, _NO = "Yes", "No"
_MOST_FIELDS = 20
_MOST_TOKENS = 8192
_SHOWN = 2000


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    context: ToolContext
    timer: asyncio.Timeout
    seconds: float


@dataclass(eq=False)
class Questions:
    """Answers what servers ask, through the question channel of the call that is under way.

    Attributes:
        sample_model: Asks the model for a server; ``None``: servers get no answers.
    """

    sample_model: Sample | None = None
    _calls: dict[str, list[_Call]] = field(default_factory=dict[str, list[_Call]])
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    @contextmanager
    def asking(
        self, server: str, context: ToolContext | None, timer: asyncio.Timeout, seconds: float
    ) -> Generator[None]:
        """Let questions of ``server`` go the way of this call; its time stands still meanwhile."""
        if context is None:
            yield
            return
        call = _Call(context, timer, seconds)
        calls = self._calls.setdefault(server, [])
        calls.append(call)
        try:
            yield
        finally:
            calls.remove(call)

    async def _ask(self, server: str, question: str, options: list[str]) -> str | None:
        """Return the user's answer; ``None`` when nobody can answer or no call is under way."""
        calls = self._calls.get(server)
        if not calls:
            return None
        call = calls[-1]
        async with self._one:
            call.timer.reschedule(None)
            try:
                return await call.context.ask(sanitize(question), options)
            finally:
                if not call.timer.expired():
                    call.timer.reschedule(asyncio.get_running_loop().time() + call.seconds)

    # --- forms -----------------------------------------------------------------------------------------

    async def elicit(self, server: str, params: JsonDict) -> JsonDict:
        """Ask for each field of a form; return the result of the protocol."""
        message = str(params.get("message", ""))[:_SHOWN]
        if params.get("mode") == "url":
            question = (
                f"The MCP server {server} wants you to open {params.get('url')}\n{message}\n"
                "Open it in your browser, if you trust it. Done?"
            )
            answer = await self._ask(server, question, [_YES, _NO])
            return {"action": "accept" if answer == _YES else "decline"}
        schema: JsonDict = params.get("requestedSchema") or {}
        fields = cast("dict[str, JsonDict]", schema.get("properties") or {})
        required = set(cast("list[str]", schema.get("required") or []))
        content: JsonDict = {}
        for name, described in list(fields.items())[:_MOST_FIELDS]:
            answer = await self._ask(server, _question(server, message, name, described), _options(described))
            if answer is None:
                return {"action": "decline"}
            value = _value(answer, described)
            if value is None and name in required:
                return {"action": "cancel"}
            if value is not None:
                content[name] = value
        if not fields:
            answer = await self._ask(server, f"The MCP server {server} asks: {message}", [_YES, _NO])
            return {"action": "accept" if answer == _YES else "decline", "content": {}}
        return {"action": "accept", "content": content}

    # --- answers of the model -----------------------------------------------------------------------------

    async def sample(self, server: str, params: JsonDict) -> JsonDict | None:
        """Let the model answer for a server once the user agreed; ``None``: they did not."""
        if self.sample_model is None:
            return None
        system = str(params.get("systemPrompt") or "")
        messages = [
            (str(item.get("role", "user")), _text(item.get("content")))
            for item in cast("list[JsonDict]", params.get("messages") or [])
        ]
        shown = "\n".join(text for _role, text in messages)
        tokens = max(1, min(int(params.get("maxTokens") or _MOST_TOKENS), _MOST_TOKENS))
        question = (
            f"The MCP server {server} wants your model to answer (up to {tokens} tokens, at your cost):\n"
            f"{system[:500]}\n{shown[:_SHOWN]}" + ("\n…" if len(shown) > _SHOWN else "") + "\nAllow it?"
        )
        if await self._ask(server, question, [_YES, _NO]) != _YES:
            return None
        text, model = await self.sample_model(system, messages, tokens)
        return {
            "role": "assistant",
            "content": {"type": "text", "text": text},
            "model": model,
            "stopReason": "endTurn",
        }


def _text(content: Any) -> str:
    parts = cast("list[Any]", content) if isinstance(content, list) else [content]
    texts = [
        str(cast("Mapping[str, Any]", part).get("text") or "") for part in parts if isinstance(part, dict)
    ]
    return "\n".join(texts)


def _question(server: str, message: str, name: str, described: JsonDict) -> str:
    label = described.get("title") or name
    more = f" ({described['description']})" if described.get("description") else ""
    return f"The MCP server {server} asks: {message}\n{label}{more}"[: 2 * _SHOWN]


def _options(described: JsonDict) -> list[str]:
    if described.get("type") == "boolean":
        return [_YES, _NO]
    choices = described.get("enum")
    if choices is None:
        titled = cast("list[JsonDict]", described.get("oneOf") or described.get("anyOf") or [])
        choices = [item["const"] for item in titled if "const" in item]
    return [str(choice) for choice in cast("list[Any]", choices)[:50]]


def _value(answer: str, described: JsonDict) -> Any:
    """Return an answer as the field wants it; ``None`` for one that does not fit."""
    kind = described.get("type")
    text = answer.strip()
    if kind == "boolean":
        return text.lower() in ("yes", "y", "true", "1") if text else None
    if kind in ("integer", "number"):
        try:
            return int(text) if kind == "integer" else float(text)
        except ValueError:
            return None
    if kind == "array":
        return [part.strip() for part in text.split(",") if part.strip()] or None
    options = _options(described)
    return None if not text or (options and text not in options) else text
