"""llama.cpp inside the worker process: one model, one slot, one answer at a time.

Prompts of ChatML models (Qwen and others) are laid out here token by token: text of the user, of files and
of tools is never read as a control token, and the prefix is the same from step to step, so that llama.cpp
re-uses what it has evaluated. Models with another chat format go through the template in their GGUF file.
"""

from __future__ import annotations

import http.client
import importlib
import json
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from aar.providers.local.prefixes import PrefixStore

Emit = Callable[[dict[str, Any]], None]

BATCH = 64
"""Prompt tokens evaluated at once: as fast as 512 on a CPU, and a cancel waits for one batch at most."""

PROMPT_CACHE_MIB = 512
"""Memory in which llama.cpp keeps evaluated prompts of other conversations."""

DRAFT_MATCH = 3
DRAFT_LENGTH = 12
"""When the last 3 tokens stood in the prompt before, the 12 that followed there are tried at once, and those
that the model would have chosen too are kept. A whole-file answer mostly repeats the file: measured, it
takes half the processor time."""

MIN_PREFIX_TOKENS = 150
"""Shorter system prompts are not kept on disk: reading them again takes about as long."""


class EngineError(Exception):
    """A request failed. ``kind`` is one of ``ErrorKind``'s values; ``str`` is a sentence for people."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Engine(Protocol):
    """What the worker serves."""

    def generate(
        self, request: Mapping[str, Any], emit: Emit, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        """Answer ``request``: emit ``{"text"}`` and ``{"progress"}`` events, return those of the end."""
        ...


class LlamaEngine:
    """One loaded model.

    Args:
        settings: ``model`` (path), ``n_ctx`` (tokens), ``threads``, ``prefix_dir`` and ``folder`` (private,
            for the socket that llama.cpp opens).

    Raises:
        EngineError: llama.cpp is not there or cannot load the file.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._n_ctx = int(settings["n_ctx"])
        self._socket = str(Path(settings["folder"]) / f"l-{settings['key']}.sock")
        self._key = secrets.token_urlsafe(32)
        self._slots = Path(settings["prefix_dir"])
        self._slots.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._server = self._load(settings)
        start, end = self._tokenize("<|im_start|>", True), self._tokenize("<|im_end|>", True)
        self._chatml = (start[0], end[0]) if len(start) == len(end) == 1 else None
        self._newline = self._tokenize("\n")
        self._texts: dict[str, list[int]] = {}
        self._prefixes = PrefixStore(self._slots, str(settings["key"]))
        self._seen: set[tuple[int, ...]] = set()

    def _load(self, settings: Mapping[str, Any]) -> Any:
        try:
            xllamacpp: Any = importlib.import_module("xllamacpp")
        except ImportError as error:
            raise EngineError(
                "configuration",
                f"The embedded model cannot run here ({error}): run `pip install -e '.[local]'` in aar's "
                "folder and see that the system has libgomp.",
            ) from error
        Path(self._socket).unlink(missing_ok=True)
        try:
            server = xllamacpp.Server(_params(xllamacpp, settings, self._socket, self._key, self._slots))
        except (RuntimeError, ValueError) as error:
            raise EngineError(
                "configuration",
                f"llama.cpp cannot load {settings['model']} ({error}): "
                "is it a GGUF model, and is there memory for it?",
            ) from error
        # llama.cpp leaves the socket open to all; the folder is private, this is a second lock.
        Path(self._socket).chmod(0o600)
        return server

    def close(self) -> None:
        """Remove the socket. Memory goes with the process."""
        Path(self._socket).unlink(missing_ok=True)

    def generate(
        self, request: Mapping[str, Any], emit: Emit, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        """Answer one request; see `Engine`.

        Raises:
            EngineError: ``context_overflow`` and whatever else llama.cpp refuses.
        """
        body: dict[str, Any] = {
            "temperature": 0,
            **request.get("extra", {}),
            "stream": True,
            "cache_prompt": True,
            "return_progress": True,
            "timings_per_token": True,
            "id_slot": 0,
        }
        if request.get("temperature") is not None:
            body["temperature"] = request["temperature"]
        if request.get("json_schema") is not None:
            body["json_schema"] = request["json_schema"]
        answer = _Answer(request.get("stop", ()), emit, cancelled)
        if self._chatml is None:
            body["messages"] = request["messages"]
            body["max_tokens"] = request["max_tokens"]
            self._server.handle_chat_completions(body, answer.take)
        else:
            tokens = self._prompt(request["messages"])
            body["n_predict"] = min(request["max_tokens"], self._room(tokens))
            answer.evaluated = self._warm(request["messages"], emit, cancelled)
            body["prompt"] = tokens
            if not cancelled():
                self._server.handle_completions(body, answer.take)
        return answer.finish()

    def _room(self, tokens: Sequence[int]) -> int:
        room = self._n_ctx - len(tokens)
        if room < 1:
            raise EngineError(
                "context_overflow",
                f"The prompt has {len(tokens)} tokens and the context of the embedded model {self._n_ctx}: "
                "shorten the conversation, or set a larger `providers.local.context_window`.",
            )
        return room

    def _prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Lay out ChatML: each turn is start, role, newline, content, end, newline."""
        tokens: list[int] = []
        for message in messages:
            tokens += self._turn(message)
        assert self._chatml is not None
        return [*tokens, self._chatml[0], *self._tokenize("assistant\n")]

    def _turn(self, message: Mapping[str, str]) -> list[int]:
        assert self._chatml is not None
        text = f"{message['role']}\n{message['content']}"
        tokens = self._texts.pop(text, None)
        if tokens is None:
            tokens = self._tokenize(text)
        self._texts[text] = tokens
        while len(self._texts) > 256:
            del self._texts[next(iter(self._texts))]
        return [self._chatml[0], *tokens, self._chatml[1], *self._newline]

    def _warm(self, messages: Sequence[Mapping[str, str]], emit: Emit, cancelled: Callable[[], bool]) -> int:
        """Have the system prompt evaluated: from disk if it can be, else now, and keep it on disk.

        Returns how many tokens were evaluated for it.
        """
        if not messages or messages[0]["role"] != "system":
            return 0
        tokens = self._turn(messages[0])
        key = tuple(tokens)
        if key in self._seen or len(tokens) < MIN_PREFIX_TOKENS or len(tokens) >= self._n_ctx:
            return 0
        saved = self._prefixes.best(tokens)
        if saved is not None and not self._slot("restore", saved.file):
            self._prefixes.drop(saved)
            saved = None
        evaluated = 0
        if saved is None or saved.shared < len(tokens):
            evaluated = self._evaluate(tokens, emit, cancelled)
            if cancelled():
                return evaluated
            self._prefixes.keep(tokens, lambda file: self._slot("save", file))
        self._seen.add(key)
        return evaluated

    def _evaluate(self, tokens: list[int], emit: Emit, cancelled: Callable[[], bool]) -> int:
        answer = _Answer((), emit, cancelled)
        body = {"prompt": tokens, "n_predict": 0, "stream": True, "cache_prompt": True, "id_slot": 0}
        extra = {"return_progress": True, "timings_per_token": True}
        self._server.handle_completions(body | extra, answer.take)
        return answer.finish()["input"]

    def _tokenize(self, text: str, special: bool = False) -> list[int]:
        body = {"content": text, "add_special": False, "parse_special": special}
        status, answer = self._http("/tokenize", body)
        if status != http.client.OK:
            raise EngineError("provider_internal", f"llama.cpp could not read the prompt: {answer}")
        return answer["tokens"]

    def _slot(self, action: str, file: str) -> bool:
        status, _ = self._http(f"/slots/0?action={action}", {"filename": file})
        return status == http.client.OK

    def _http(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.connect(self._socket)
            headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


def _params(xllamacpp: Any, settings: Mapping[str, Any], address: str, key: str, slots: Path) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.n_ctx = settings["n_ctx"]
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.slot_save_path = f"{slots}/"
    # A name that ends in .sock makes llama.cpp listen on a Unix socket: no port is opened.
    params.hostnames = [address]
    params.api_keys = [key]
    params.ui = False
    params.warmup = False
    params.verbosity = 1
    drafts = params.speculative
    drafts.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    drafts.ngram_simple.size_n = DRAFT_MATCH
    drafts.ngram_simple.size_m = DRAFT_LENGTH
    return params


class _Answer:
    """Turns llama.cpp's chunks into events, and finds stop sequences across chunk borders."""

    def __init__(self, stop: Sequence[str], emit: Emit, cancelled: Callable[[], bool]) -> None:
        self._stop = [text for text in stop if text]
        self._emit = emit
        self._cancelled = cancelled
        self._held = ""
        self.evaluated = 0
        """Tokens evaluated for this answer before it was asked for."""
        self._end: str | None = None
        self._error: EngineError | None = None
        self._timings: dict[str, Any] = {}

    def take(self, chunk: dict[str, Any]) -> bool:
        """Handle a chunk; true tells llama.cpp to stop. An exception here would be swallowed."""
        try:
            return self._take(chunk)
        except OSError:
            self._end = "cancelled"
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self._error = EngineError("malformed_response", f"llama.cpp gave an unknown chunk: {error!r}")
        return True

    def _take(self, chunk: dict[str, Any]) -> bool:
        if "error" in chunk:
            self._error = _engine_error(chunk["error"])
            return True
        self._timings = chunk.get("timings") or self._timings
        if "prompt_progress" in chunk:
            self._emit({"prompt": chunk["prompt_progress"]})
        for choice in chunk.get("choices", ()):
            text = choice.get("text") or choice.get("delta", {}).get("content") or ""
            if text and self._text(text):
                self._end = "stop_sequence"
                return True
            if choice.get("finish_reason"):
                self._end = choice["finish_reason"]
        if self._cancelled():
            self._end = self._end or "cancelled"
            return True
        return False

    def _text(self, text: str) -> bool:
        """Emit what can no longer be the beginning of a stop sequence; true when one is whole."""
        self._held += text
        found = [at for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if found:
            ready, self._held = self._held[: min(found)], ""
        else:
            keep = max((_overlap(self._held, stop) for stop in self._stop), default=0)
            ready, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        if ready:
            self._emit({"text": ready})
        return bool(found)

    def finish(self) -> dict[str, Any]:
        """Return the last event.

        Raises:
            EngineError: The request failed.
        """
        if self._error is not None:
            raise self._error
        if self._held:
            self._emit({"text": self._held})
            self._held = ""
        # What `evaluated` counts is found in the cache when the answer itself is asked for.
        cached = max(0, int(self._timings.get("cache_n", 0)) - self.evaluated)
        return {
            "stop": self._end or "cancelled",
            "input": int(self._timings.get("prompt_n", 0)) + self.evaluated,
            "cache_read": cached,
            "output": int(self._timings.get("predicted_n", 0)),
            "timings": self._timings,
        }


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of ``text`` may begin ``stop``."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)


def _engine_error(error: Mapping[str, Any]) -> EngineError:
    message = str(error.get("message", error))
    if error.get("type") == "exceed_context_size_error":
        return EngineError(
            "context_overflow",
            f"The prompt has {error.get('n_prompt_tokens')} tokens and the context of the embedded model "
            f"{error.get('n_ctx')}: "
            "shorten the conversation, or set a larger `providers.local.context_window`.",
        )
    if error.get("type") == "invalid_request_error":
        return EngineError("invalid_request", f"llama.cpp refused the request: {message}")
    return EngineError("provider_internal", f"llama.cpp failed: {message}")
