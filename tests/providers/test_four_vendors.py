"""One conversation through the wires of five vendors in turn, with tools, thinking and an image.

Each run resumes the session with another vendor, whose server speaks that vendor's true wire. Each request
must be valid by the vendor's own types, every call must have its one result, and no vendor may see what
another one sealed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from tests.cli.support import aar, events, of_type, stored
from tests.providers.anthropic import support as anthropic
from tests.providers.gemini import bodies as gemini
from tests.providers.ollama.server import OllamaServer, Says
from tests.providers.openai import wire as responses
from tests.support.model_server import ModelServer, Reply, model_server

PIXEL = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\x9cc\xf8\xff"
    b"\xff?\0\x05\xfe\x02\xfe\xa75\x81\x84\0\0\0\0IEND\xaeB`\x82"
)
PATH = {"path": "notes.txt"}
ARGUMENTS = json.dumps(PATH)
SECRETS = {"anthropic": "c2lnLWFudGhyb3BpYw==", "openai": "gAAAopenai", "gemini": "c2lnLWdlbWluaQ=="}
"""What each vendor seals; only that vendor may get it back."""
OLLAMA = {
    "model_info": {"general.architecture": "q", "q.context_length": 40_960},
    "capabilities": ["completion", "tools", "thinking"],
}
ORDER = ["anthropic", "openai", "gemini", "openai-compatible", "ollama"]


def stream(body: bytes) -> Reply:
    return Reply(body=body, content_type="text/event-stream")


def anthropic_replies() -> list[Reply]:
    thinking = {"type": "thinking", "thinking": "thought of claude", "signature": SECRETS["anthropic"]}
    use = {"type": "tool_use", "id": "toolu_01AbCdEfGhIjKlMnOpQrStUv", "name": "read_file", "input": PATH}
    done = {"type": "text", "text": "Claude is done."}
    return [
        stream(anthropic.stream_of(anthropic.message(thinking, use, stop="tool_use"))),
        stream(anthropic.stream_of(anthropic.message(done))),
    ]


def openai_replies() -> list[Reply]:
    thought = responses.reasoning("thought of gpt", encrypted=SECRETS["openai"])
    # Real ids of this API are this long, and longer than some others take.
    calls = [
        responses.call("read_file", ARGUMENTS, f"call_{letter}{'x' * 56}", id=f"fc_{letter}")
        for letter in "ab"
    ]
    return [
        stream(responses.sse(responses.events([thought, *calls]))),
        stream(responses.sse(responses.events([responses.message("GPT is done.")]))),
    ]


def gemini_replies() -> list[Reply]:
    thought = gemini.piece({"text": "thought of gemini", "thought": True})
    call = gemini.call("read_file", SECRETS["gemini"], args=PATH)
    done = gemini.piece({"text": "Gemini is done."}, finish="STOP")
    return gemini.answers(gemini.sse(thought, gemini.piece(call, finish="STOP")), gemini.sse(done))


def compatible_replies() -> list[Reply]:
    return [
        Reply(reasoning="thought of deepseek", tool_calls=[("read_file", PATH)]),
        Reply(text="DeepSeek is done."),
    ]


@contextmanager
def ollama_server() -> Iterator[OllamaServer]:
    """Serve from a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    replies = [Says(thinking="thought of qwen", calls=[("read_file", PATH)]), Says(text="Qwen is done.")]
    server = OllamaServer(replies, facts=OLLAMA)
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(5)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


# --- What is valid by each vendor's own types -------------------------------------------------------------


def walked(value: Any) -> Any:
    """Walk through a validated value: what is declared as iterable is validated as it is read."""
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_unset=True)
    if isinstance(value, Mapping):
        return {name: walked(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [walked(item) for item in value]
    return value


def validated(kind: Any, body: Any) -> None:
    adapter = TypeAdapter(kind)
    walked(adapter.validate_python(body))


def anthropic_pairs(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    from anthropic.types import MessageCreateParams

    validated(MessageCreateParams, body)
    roles = [message["role"] for message in body["messages"]]
    assert all(one != other for one, other in itertools.pairwise(roles))
    blocks = [
        block for message in body["messages"] for block in message["content"] if isinstance(block, dict)
    ]
    return (
        [block["id"] for block in blocks if block["type"] == "tool_use"],
        [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"],
    )


def openai_pairs(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    validated(ResponseCreateParamsStreaming, body)
    items = body["input"]
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    assert all(len(call_id) <= 64 for call_id in calls)
    return calls, [item["call_id"] for item in items if item.get("type") == "function_call_output"]


def gemini_pairs(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    from google.genai import types

    for content in body["contents"]:
        types.Content.model_validate(content)
    # This wire pairs by place and name: results follow their calls, one for each.
    called: list[str] = []
    answered: list[str] = []
    for content in body["contents"]:
        for part in content["parts"]:
            for name, found in (("functionCall", called), ("functionResponse", answered)):
                if name in part:
                    found.append(part[name]["name"])
        if content["role"] == "user":
            assert len(called) == len(answered)
    return called, answered


def chat_pairs(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    known = json.loads(json.dumps(body))
    for message in known["messages"]:
        message.pop("reasoning_content", None)  # an extension of DeepSeek's
    validated(CompletionCreateParamsStreaming, known)
    messages = body["messages"]
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert all(len(call_id) <= 40 for call_id in calls)
    return calls, [message["tool_call_id"] for message in messages if message["role"] == "tool"]


def ollama_pairs(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    types = pytest.importorskip("ollama._types")
    types.ChatRequest.model_validate({key: value for key, value in body.items() if key != "options"})
    types.Options.model_validate(body["options"])
    messages = body["messages"]
    assert all(isinstance(message["content"], str) for message in messages)
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    assert all(isinstance(call["function"]["arguments"], dict) for call in calls)
    results = [message for message in messages if message["role"] == "tool"]
    assert all(result["tool_name"] == "read_file" for result in results)
    return [call["id"] for call in calls], [result["tool_call_id"] for result in results]


PAIRS: dict[str, Callable[[dict[str, Any]], tuple[list[str], list[str]]]] = {
    "anthropic": anthropic_pairs,
    "openai": openai_pairs,
    "gemini": gemini_pairs,
    "openai-compatible": chat_pairs,
    "ollama": ollama_pairs,
}


# --- The conversation -------------------------------------------------------------------------------------


def carry(tmp_path: Path, order: Sequence[str]) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Any]]:
    """Resume one session with each vendor in turn; return the requests and what each run printed."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("the notes")
    (project / "shot.png").write_bytes(PIXEL)
    models = {
        "anthropic": "anthropic/claude-sonnet-4-5",
        "openai": "openai/gpt-5",
        "gemini": "gemini/gemini-3-pro-preview",
        "openai-compatible": "openai-compatible/deepseek-vl-next",
        "ollama": "ollama/qwen3:8b",
    }
    replies = {
        "anthropic": anthropic_replies(),
        "openai": openai_replies(),
        "gemini": gemini_replies(),
        "openai-compatible": compatible_replies(),
    }
    printed: dict[str, Any] = {}
    with ExitStack() as stack:
        servers: dict[str, ModelServer | OllamaServer] = {
            name: stack.enter_context(model_server(told)) for name, told in replies.items()
        }
        servers["ollama"] = stack.enter_context(ollama_server())
        for place, name in enumerate(order):
            server = servers[name]
            address = server.base_url.removesuffix("/v1")
            resumed = ["--continue"] if place else ["--image", "shot.png"]
            ran = aar(
                *("run", "--model", models[name], "--base-url", address, "--output", "stream-json"),
                *("--set", "model.retries=1", "--set", "model.reasoning=high", *resumed),
                f"what do the notes say, {name}?",
                cwd=project,
            )
            assert ran.code == 0, (name, ran.err, ran.out[-2000:])
            printed[name] = ran.lines
        requests = {
            name: [
                request if isinstance(request, dict) else request.body
                for request in server.requests
                if isinstance(request, dict) or isinstance(request.body, dict)
            ]
            for name, server in servers.items()
        }
    return requests, printed


@pytest.mark.parametrize("first", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_one_conversation_goes_through_five_vendors_and_every_request_is_valid(first: int, tmp_path: Path):
    order = [*ORDER[first:], *ORDER[:first]]
    requests, printed = carry(tmp_path, order)
    calls_so_far = 0
    for name in order:
        asked, told = requests[name]
        for body, more in ((asked, 0), (told, 2 if name == "openai" else 1)):
            calls, results = PAIRS[name](body)
            assert calls == results
            assert len(calls) == calls_so_far + more
            if name != "gemini":
                assert len(set(calls)) == len(calls)
        calls_so_far = len(calls)
        assert of_type(printed[name], "tool_result")[0]["output"].endswith("the notes")
    check_thinking(requests, order)
    check_image(requests, printed, order)
    (session,) = stored()
    found = events(session)
    assert len(of_type(found, "user_message")) == len(order)
    assert len(of_type(found, "tool_call")) == len(of_type(found, "tool_result")) == 6


def check_thinking(requests: dict[str, list[dict[str, Any]]], order: Sequence[str]) -> None:
    """Sealed thinking goes back to its own vendor, in the request after it came, and to no other."""
    thoughts = {
        "anthropic": "thought of claude",
        "openai": "thought of gpt",
        "gemini": "thought of gemini",
        "openai-compatible": "thought of deepseek",
        "ollama": "thought of qwen",
    }
    for name in order:
        asked, told = (json.dumps(body) for body in requests[name])
        if name in SECRETS:
            assert SECRETS[name] in told
        assert thoughts[name] in told
        for other in order:
            if other != name:
                assert SECRETS.get(other, "?!") not in asked + told
                assert thoughts[other] not in asked + told
    last = json.dumps(requests[order[-1]][-1])
    answers = {
        "anthropic": "Claude is done.",
        "openai": "GPT is done.",
        "gemini": "Gemini is done.",
        "openai-compatible": "DeepSeek is done.",
        "ollama": "Qwen is done.",
    }
    assert [last.count(answers[name]) for name in order] == [*[1] * (len(order) - 1), 0]


def check_image(
    requests: dict[str, list[dict[str, Any]]], printed: dict[str, Any], order: Sequence[str]
) -> None:
    """Vendors that see get the image; the one that reads text only gets a remark, and the user a notice."""
    import base64

    data = base64.b64encode(PIXEL).decode()
    for name in order:
        bodies = [json.dumps(body) for body in requests[name]]
        notices = [notice["message"] for notice in of_type(printed[name], "notice")]
        if name == "ollama":
            assert all(data not in body and "is not shown: you read text only" in body for body in bodies)
            assert sum("reads text only" in notice for notice in notices) == 1
        else:
            assert all(data in body for body in bodies)
            assert not any("reads text only" in notice for notice in notices)
