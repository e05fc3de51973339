"""The provider against a loopback Ollama: facts, context in steps, faults, keys, lists."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from aar.config.schema import Config
from aar.protocol.errors import ErrorKind, ProviderError
from aar.protocol.messages import ImageBlock, Message, TextBlock
from aar.providers.base import Delta, ProviderRequest, ProviderResponse
from aar.providers.factory import make_provider
from aar.providers.ollama.provider import OllamaProvider, root_of
from tests.providers.ollama.server import OllamaServer, Says

HELLO = Message(role="user", content=(TextBlock(text="hi"),))
QWEN = {
    "model_info": {
        "general.architecture": "qwen3",
        "qwen3.context_length": 40_960,
        "clip.vision.context_length": 99,
    },
    "capabilities": ["completion", "tools", "thinking"],
}


def ask(text: str = "hi", model: str = "qwen3:8b", **more: Any) -> ProviderRequest:
    message = Message(role="user", content=(TextBlock(text=text),))
    return ProviderRequest(model=model, system="be brief", messages=[message], **more)


def provider_of(
    base_url: str,
    name: str = "qwen3:8b",
    settings: dict[str, Any] | None = None,
    environ: dict[str, str] | None = None,
    **config: Any,
) -> OllamaProvider:
    provider = make_provider(
        f"ollama/{name}",
        Config.model_validate({"providers": {"ollama": {"timeout": 60, **(settings or {})}}, **config}),
        data_dir=Path("/nowhere"),
        runtime_dir=Path("/nowhere"),
        base_url=base_url,
        environ=environ or {},
    )
    assert isinstance(provider, OllamaProvider)
    return provider


async def told(provider: OllamaProvider, request: ProviderRequest) -> tuple[ProviderResponse, list[str]]:
    deltas: list[Delta] = [delta async for delta in provider.stream(request)]
    response = deltas[-1].response
    assert response is not None
    return response, [delta.progress for delta in deltas if delta.progress is not None]


async def failure(provider: OllamaProvider, request: ProviderRequest) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await provider.complete(request)
    await provider.aclose()
    assert "\n" not in str(caught.value)
    return caught.value


async def test_a_question_is_answered_and_the_facts_are_asked_for_once():
    async with OllamaServer([Says(text="Hello.", thinking="greet")], facts=QWEN) as server:
        provider = provider_of(server.base_url, environ={"OLLAMA_API_KEY": "ollama-key-123456"})
        for _ in range(3):
            response, notes = await told(provider, ask(reasoning="high"))
            assert (response.text, response.reasoning, notes) == ("Hello.", "greet", [])
        await provider.aclose()
    assert server.shown == ["qwen3:8b"]
    assert server.requests[0]["think"] is True
    assert server.requests[0]["options"]["num_ctx"] == 8_192
    assert server.headers["authorization"] == "Bearer ollama-key-123456"


async def test_answers_that_do_not_stream_are_the_same():
    reply = Says(text="Hello.", thinking="greet", calls=[("ls", {"path": "."})])
    answers: list[list[Any]] = []
    async with OllamaServer([reply], facts=QWEN) as server:
        for stream in (True, False):
            provider = provider_of(server.base_url, model={"stream": stream})
            response = await provider.complete(ask())
            await provider.aclose()
            answers.append([block.model_dump(exclude={"call_id"}) for block in response.blocks])
    assert [request["stream"] for request in server.requests] == [True, False]
    assert answers[0] == answers[1]


async def test_context_grows_in_steps_with_the_prompt_and_never_shrinks():
    async with OllamaServer([Says(text="ok")], facts=QWEN) as server:
        provider = provider_of(server.base_url)
        for size in (10, 20_000, 60_000, 10):
            await provider.complete(ask("x" * size))
        _, notes = await told(provider, ask("word " * 36_000))
        await provider.aclose()
    allotted = [request["options"]["num_ctx"] for request in server.requests]
    assert allotted == [8_192, 16_384, 32_768, 32_768, 40_960]
    assert len(notes) == 1
    assert "40960" in notes[0]


async def test_a_prompt_that_cannot_fit_is_refused_before_it_is_sent():
    async with OllamaServer([Says(text="ok")], facts=QWEN) as server:
        error = await failure(provider_of(server.base_url), ask("word " * 100_000))
    assert error.error_kind is ErrorKind.CONTEXT_OVERFLOW
    assert "40960" in str(error)
    assert server.requests == []


async def test_an_image_counts_as_tokens_and_not_as_its_bytes():
    image = ImageBlock(media_type="image/png", data="A" * 2_000_000)
    request = ask()
    request = ProviderRequest(
        model="qwen3:8b",
        system="",
        messages=[HELLO, *request.messages, Message(role="user", content=(image,))],
    )
    async with OllamaServer([Says(text="ok")], facts=QWEN) as server:
        provider = provider_of(server.base_url)
        await provider.complete(request)
        await provider.aclose()
    assert server.requests[0]["options"]["num_ctx"] == 8_192


OVERFLOW = json.dumps(
    {
        "error": {
            "code": 400,
            "message": "request (8889 tokens) exceeds the available context size (8192 tokens), try increasing it",
            "type": "exceed_context_size_error",
        }
    }
)


async def test_what_ollama_refuses_as_too_long_gets_more_room_while_there_is_more():
    refusal = Says(status=400, error=OVERFLOW)
    async with OllamaServer([refusal, refusal, Says(text="ok")], facts=QWEN) as server:
        provider = provider_of(server.base_url)
        response, notes = await told(provider, ask())
        await provider.aclose()
    assert response.text == "ok"
    assert [request["options"]["num_ctx"] for request in server.requests] == [8_192, 16_384, 32_768]
    assert all(request["truncate"] is False for request in server.requests)
    assert len(notes) == 2
    async with OllamaServer(
        [Says(status=400, error="the input length exceeds the context length")]
    ) as server:
        error = await failure(provider_of(server.base_url, settings={"context_window": 10_000}), ask())
    assert error.error_kind is ErrorKind.CONTEXT_OVERFLOW
    assert [request["options"]["num_ctx"] for request in server.requests] == [8_192, 10_000]


async def test_an_old_ollama_that_may_have_cut_the_prompt_is_told_of():
    async with OllamaServer([Says(text="ok", prompt=8_192)], facts=QWEN) as server:
        provider = provider_of(server.base_url)
        _, notes = await told(provider, ask())
        await provider.aclose()
    assert any("may have cut the prompt" in note for note in notes)


async def test_the_user_decides_how_much_context_is_allotted():
    async with OllamaServer([Says(text="ok")], facts=QWEN) as server:
        for settings, expected in (
            ({"context_window": 4_096}, 4_096),
            ({"extra": {"options": {"num_ctx": 12_345, "seed": 1}}}, 12_345),
        ):
            provider = provider_of(server.base_url, settings=settings)
            await provider.complete(ask())
            await provider.aclose()
            assert server.requests[-1]["options"]["num_ctx"] == expected
        provider = provider_of(server.base_url, settings={"context_window": 4_096})
        assert provider.capabilities("qwen3:8b").context_window == 4_096
        modelfile = {**QWEN, "parameters": 'stop  "<|end|>"\nnum_ctx    16384\n'}
        server.facts = modelfile
        provider = provider_of(server.base_url, "other")
        await provider.complete(ask(model="other"))
        await provider.aclose()
    assert server.requests[-1]["options"]["num_ctx"] == 16_384


def test_capabilities_come_from_the_server_and_an_absent_one_costs_no_time():
    from threading import Thread

    answers = {
        "blind:8b": {"capabilities": ["completion"], "model_info": {"a.context_length": 5000}},
        "llava": {"capabilities": ["completion", "vision", "tools"], "model_info": {}},
    }
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for _ in answers:
            connection, _ = listener.accept()
            with connection:
                request = b""
                while not request.endswith(b"}"):
                    request += connection.recv(9999)
                body = json.dumps(answers[json.loads(request.partition(b"\r\n\r\n")[2])["model"]]).encode()
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    thread = Thread(target=serve, daemon=True)
    thread.start()
    with listener:
        provider = provider_of(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        for model in answers:
            provider.capabilities(model)
        thread.join(5)
        # One glance may have been too short on a busy machine; the answer is known afterwards.
        plain, seeing = provider.capabilities("blind:8b"), provider.capabilities("llava")
    assert (plain.dialect, plain.tools, plain.images, plain.context_window) == ("text", False, False, 5000)
    assert (seeing.dialect, seeing.tools, seeing.images, seeing.reasoning) == ("native", True, True, False)
    start = time.monotonic()
    absent = provider.capabilities("qwen3:8b")
    assert absent.dialect == "native"
    assert time.monotonic() - start < 20


async def test_a_slow_answer_about_the_model_does_not_hold_up_a_start(monkeypatch: pytest.MonkeyPatch):
    for module in ("provider", "facts"):
        monkeypatch.setattr(f"aar.providers.ollama.{module}.SHOW_TIMEOUT_S", 30.0)
    async with OllamaServer([Says(text="ok")], facts=QWEN, show_delay_s=0.5) as server:
        provider = provider_of(server.base_url)
        start = time.monotonic()
        provider.capabilities("qwen3:8b")
        assert time.monotonic() - start < 20
        response = await provider.complete(ask())
        assert response.text == "ok"
        assert provider.capabilities("qwen3:8b").context_window == 40_960
        await provider.aclose()


async def test_thinking_is_left_out_for_a_model_that_cannot_and_the_user_is_told():
    plain = {**QWEN, "capabilities": ["completion", "tools"]}
    async with OllamaServer([Says(text="ok")], facts=plain) as server:
        provider = provider_of(server.base_url)
        _, notes = await told(provider, ask(reasoning="high"))
        assert len(notes) == 1
        _, notes = await told(provider, ask(reasoning="off"))
        assert notes == []
        await provider.aclose()
    assert all("think" not in request for request in server.requests)
    refusal = Says(status=400, error='"gemma:7b" does not support thinking')
    async with OllamaServer([refusal, Says(text="ok")]) as server:
        provider = provider_of(server.base_url)
        response, notes = await told(provider, ask(reasoning="high"))
        assert (response.text, len(notes)) == ("ok", 1)
        await provider.aclose()
    assert ["think" in request for request in server.requests] == [True, False]


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (
            Says(status=404, error="model 'qwen3:8b' not found"),
            ErrorKind.UNKNOWN_MODEL,
            "ollama pull qwen3:8b",
        ),
        (
            Says(status=500, error="model requires more system memory (9.1 GiB) than is available (3.2 GiB)"),
            ErrorKind.INVALID_REQUEST,
            "context_window",
        ),
        (
            Says(status=400, error="registry.ollama.ai/library/x does not support tools"),
            ErrorKind.INVALID_REQUEST,
            "model.dialect=text",
        ),
        (Says(text="half", done=False), ErrorKind.INCOMPLETE_STREAM, "Try again"),
        (Says(text="half", error="an error was encountered"), ErrorKind.PROVIDER_INTERNAL, "encountered"),
        (Says(status=503, error="server busy, please try again"), ErrorKind.OVERLOADED, "busy"),
    ],
)
async def test_a_fault_is_told_in_one_sentence_that_says_what_to_do(reply: Says, kind: ErrorKind, words: str):
    async with OllamaServer([reply], facts=QWEN) as server:
        error = await failure(provider_of(server.base_url), ask())
    assert error.error_kind is kind
    assert words in str(error)


async def test_an_ollama_that_does_not_run_is_named():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    error = await failure(provider_of(f"http://127.0.0.1:{port}"), ask())
    assert error.error_kind is ErrorKind.NETWORK
    assert str(error) == (
        f"Ollama is not running at 127.0.0.1:{port}. Start it with: ollama serve, or check base_url."
    )


async def test_an_ollama_that_is_started_later_is_asked_what_its_model_can_do():
    async with OllamaServer([Says(text="ok")], facts=QWEN) as server:
        address = server.base_url
        port = int(address.rpartition(":")[2])
    provider = provider_of(address)
    assert provider.capabilities("qwen3:8b").context_window != 40_960
    with pytest.raises(ProviderError, match="not running"):
        await provider.complete(ask())
    async with OllamaServer([Says(text="ok")], facts=QWEN, port=port):
        assert (await provider.complete(ask())).text == "ok"
    assert provider.capabilities("qwen3:8b").context_window == 40_960
    await provider.aclose()


async def test_models_are_listed():
    async with OllamaServer([], models=["qwen3:8b", "gpt-oss:20b"]) as server:
        provider = provider_of(f"{server.base_url}/v1")
        assert await provider.list_models() == ["qwen3:8b", "gpt-oss:20b"]
        await provider.aclose()


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/api", "/api/chat"])
def test_an_address_may_name_any_of_the_servers_wires(end: str):
    assert root_of(f"http://h:1{end}") == "http://h:1"
    assert root_of("http://h/base/v1") == "http://h/base"
