"""A model that says what a scenario file tells it: for tests, demonstrations and measurements."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from aar.config.schema import Config
from aar.protocol.errors import ErrorKind, ProviderError
from aar.providers.base import Delta, Provider, ProviderCapabilities, ProviderRequest
from aar.providers.catalog import lookup
from aar.providers.chat_completions.body import BodyDecoder
from aar.providers.chat_completions.decode import AnswerContext, AnswerDecoder
from aar.providers.chat_completions.encode import RequestEncoder, WireOptions
from aar.providers.http.errors import server_error
from aar.providers.scenario import Script, Step, load_script

_SERVER = "the scenario"


class ScriptedProvider(Provider):
    """Answers from a scenario. Its answers go through the same decoder as a server's."""

    name = "scripted"

    def __init__(
        self,
        path: Path,
        *,
        variables: Mapping[str, str] | None = None,
        config: Config | None = None,
    ) -> None:
        """Read the scenario.

        Args:
            path: The file.
            variables: Values of placeholders; they win over the file's ``set``. ``{cwd}`` is the working
                directory of the process unless told otherwise.
            config: For ``[model] dialect`` and ``context_window``.

        Raises:
            ConfigurationError: The file cannot be used.
        """
        self._script: Script = load_script(path)
        self._config = config or Config()
        self._variables = {"cwd": str(Path.cwd()), **self._script.scenario.set, **(variables or {})}
        self._encoder = RequestEncoder(WireOptions(_SERVER))
        self._counter = 0

    def capabilities(self, model: str) -> ProviderCapabilities:
        """Tell what the scenario says about its model."""
        scenario = self._script.scenario
        known = lookup(self.name, scenario.model, self._config)
        if scenario.dialect is not None and self._config.model.dialect == "auto":
            known = replace(
                known,
                dialect=scenario.dialect,
                tools=scenario.dialect == "native",
                compact_prompt=scenario.dialect != "native",
            )
        if scenario.context_window is not None and self._config.model.context_window is None:
            known = replace(known, context_window=scenario.context_window)
        return replace(known, price=scenario.price, images=True, reasoning=True)

    async def stream(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Give the next step's answer piece by piece."""
        number, step = self._pick(request)
        encoded = self._encoder.encode(request, stream=True)
        if step.first_delay_ms:
            await asyncio.sleep(step.first_delay_ms / 1000)
        context = AnswerContext(_SERVER, request.model, step.headers, encoded.call_ids)
        if step.status != 200:
            raise self._error(step, request.model)
        if step.raw_sse:
            for delta in _raw(step.raw_sse, context):
                yield delta
            return
        decoder = AnswerDecoder(context)
        for chunk in self._chunks(step, number, len(encoded.body)):
            for delta in decoder.feed(chunk):
                yield delta
            if step.chunk_delay_ms:
                await asyncio.sleep(step.chunk_delay_ms / 1000)
        for delta in decoder.finish(whole=False):
            yield delta

    def _pick(self, request: ProviderRequest) -> tuple[int, Step]:
        script, scenario = self._script, self._script.scenario
        if script.uses_tools and not request.tools and scenario.side_reply is not None:
            return 0, script.reply(scenario.side_reply)
        if scenario.select == "history":
            number = sum(message.role == "assistant" for message in request.messages)
        else:
            number, self._counter = self._counter, self._counter + 1
        variables = {**self._variables, **_told(request.extra)}
        if number < len(script):
            return number, script.step(number, variables)
        if scenario.after == "error":
            return number, Step(status=500, error="scenario exhausted")
        position = number % len(script) if scenario.after == "loop" else len(script) - 1
        return number, script.step(position, variables)

    def _error(self, step: Step, model: str) -> ProviderError:
        headers = {name.lower(): value for name, value in step.headers.items()}
        body = {"error": {"message": step.error, "type": "scripted", "code": step.status}}
        return server_error(step.status, headers, body, server=_SERVER, model=model)

    def _chunks(self, step: Step, number: int, request_bytes: int) -> Iterator[dict[str, Any]]:
        """Yield the chunks in which a server would send the step.

        Raises:
            ProviderError: The step tells that the answer is cut.
        """
        text = step.text * step.text_repeat
        yield self._chunk({"role": "assistant", "content": ""})
        for piece in _pieces(step.reasoning, step.chunk_chars):
            yield self._chunk({"reasoning_content": piece})
        left = step.drop_after_chars
        for piece in _pieces(text, step.chunk_chars):
            yield self._chunk({"content": piece})
            if left is not None and (left := left - len(piece)) <= 0:
                break
        if left is not None and left <= 0:
            raise ProviderError(
                ErrorKind.INCOMPLETE_STREAM,
                f"The answer of {_SERVER} ended before it was complete. Try again.",
            )
        calls = [
            (call.id or f"call_{number}_{k}", call.name, _arguments(call.arguments))
            for k, call in enumerate(step.tool_calls)
        ]
        for k, (call_id, name, arguments) in enumerate(calls):
            head = {
                "index": k,
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }
            yield self._chunk({"tool_calls": [head]})
            for piece in _pieces(arguments, step.arg_chunk_chars):
                yield self._chunk({"tool_calls": [{"index": k, "function": {"arguments": piece}}]})
        finish = step.finish or ("tool_calls" if calls else "stop")
        written = len(text) + sum(len(name) + len(arguments) for _, name, arguments in calls)
        yield {**self._chunk({}, finish), "usage": step.usage or _usage(step, request_bytes, written)}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"model": self._script.scenario.model, "choices": [choice]}


def _usage(step: Step, request_bytes: int, written: int) -> dict[str, int]:
    per = step.chars_per_token
    return {"prompt_tokens": request_bytes // per, "completion_tokens": max(1, written // per)}


def _raw(items: list[str], context: AnswerContext) -> Iterator[Delta]:
    decoder = BodyDecoder(context)
    for item in (*items, "data: [DONE]\n\n"):
        yield from decoder.feed(item.encode())
    yield from decoder.finish()


def _told(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the placeholders that a request brings along under ``set``."""
    told = extra.get("set")
    return dict(cast("Mapping[str, Any]", told)) if isinstance(told, Mapping) else {}


def _arguments(arguments: dict[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _pieces(text: str, size: int) -> Iterator[str]:
    size = size or len(text) or 1
    for start in range(0, len(text), size):
        yield text[start : start + size]
