"""The recordings' own replay server, in a thread, and what a case expects of a client."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.providers.test_recordings import RECORDINGS

MODELS = {
    "anthropic": "anthropic/x",
    "openai-chat": "openai/x",
    "openai-responses": "openai/x",
    "gemini": "gemini/x",
    "ollama": "ollama/x",
    "openai-compatible": "openai-compatible/x",
}
"""By the provider of a recording: the model that is asked for."""

ENDINGS = {
    "anthropic": "anthropic-stream-text-nonascii",
    "openai-chat": "openai-chat-stream-text-4omini",
    "openai-responses": "responses-stream-text-4o",
    "gemini": "gemini-stream-text",
    "ollama": "ollama-stream-text",
    "openai-compatible": "compat-stream-ollama-v1-text-nonascii",
}
"""A plain answer of each wire, for what is asked after the case itself."""


def settings_of(case: dict[str, Any]) -> list[str]:
    """Return the flags that a case needs besides its model."""
    chat = case["provider"] == "openai-chat"
    return ["--set", "model.api=chat"] if chat else []


def _server_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recordings_server", RECORDINGS / "server.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def replay(*names: str, log: Path | None = None, options: tuple[str, ...] = ()) -> Iterator[str]:
    """Serve these cases, one after the other, and yield the server's address."""
    module = _server_module()
    arguments = [word for name in names for word in ("--case", name)]
    if log is not None:
        arguments += ["--log", str(log)]
    server = module.make_server(module.options([*arguments, *options]))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def requests_in(log: Path) -> list[dict[str, Any]]:
    """Return the requests that were answered with a case."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [line for line in lines if line["case"] is not None]
