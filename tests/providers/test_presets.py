"""Servers known by name: what each is sent, and shapes of messages that are learnt from refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from aar.config.schema import Config
from aar.protocol.messages import Message, ReasoningBlock, TextBlock, ToolResultBlock, ToolUseBlock
from aar.providers.base import Delta, Provider, ProviderRequest
from aar.providers.factory import make_provider
from aar.providers.presets import PRESETS
from tests.support.model_server import ModelServer, Reply

STEERED = [
    Message(role="user", content=(TextBlock(text="go"),)),
    Message(
        role="assistant",
        content=(
            ReasoningBlock(text="another vendor's", signature="c2ln"),
            ToolUseBlock(call_id="toolu_01AbCdEfGh", name="read", arguments={"path": "x"}),
        ),
    ),
    Message(
        role="user",
        content=(
            ToolResultBlock(call_id="toolu_01AbCdEfGh", name="read", output="one"),
            TextBlock(text="and be quick"),
        ),
    ),
]


def provider_of(name: str, base_url: str, **tables: Any) -> Provider:
    config = Config.model_validate({"providers": {name: {"timeout": 60}}, **tables})
    nowhere = Path("/nowhere")
    return make_provider(
        f"{name}/m", config, data_dir=nowhere, runtime_dir=nowhere, base_url=base_url, environ={}
    )


def ask(**more: Any) -> ProviderRequest:
    return ProviderRequest(model="m", system="s", messages=STEERED, **more)


async def sent_by(name: str, **more: Any) -> dict[str, Any]:
    async with ModelServer([Reply(text="ok")]) as server:
        provider = provider_of(name, server.base_url)
        response = await provider.complete(ask(**more))
        await provider.aclose()
    assert response.text == "ok"
    assert server.requests[0].path == "/v1/chat/completions"
    return server.requests[0].body


CHAT = sorted(name for name, preset in PRESETS.items() if preset.kind == "chat" and name != "openai")


@pytest.mark.parametrize("name", CHAT)
async def test_each_server_gets_a_conversation_whose_calls_and_results_fit(name: str):
    body = await sent_by(name, max_output_tokens=77)
    types = pytest.importorskip("openai.types.chat.completion_create_params")
    wanted = TypeAdapter(types.CompletionCreateParamsStreaming)
    known = {key: value for key, value in body.items() if key not in {"reasoning", "thinking"}}
    for message in known["messages"]:
        message.pop("reasoning_content", None)
    # Messages are declared as iterable, and so are validated as they are read.
    assert len([list(message) for message in wanted.validate_python(known)["messages"]]) >= 5
    (answer,) = [message for message in body["messages"] if message.get("tool_calls")]
    (result,) = [message for message in body["messages"] if message["role"] == "tool"]
    assert answer["tool_calls"][0]["id"] == result["tool_call_id"]
    assert "another vendor" not in json.dumps(body)
    assert body[PRESETS[name].max_tokens_field] == 77
    assert ("stream_options" in body) == (name != "mistral")


async def test_mistral_gets_ids_of_nine_letters_and_an_answer_before_the_user():
    body = await sent_by("mistral")
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    call_id = body["messages"][3]["tool_call_id"]
    assert len(call_id) == 9
    assert call_id.isalnum()


@pytest.mark.parametrize(
    ("name", "level", "fields"),
    [
        ("deepseek", "max", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
        ("deepseek", "off", {"thinking": {"type": "disabled"}}),
        ("moonshot", "high", {"thinking": {"type": "enabled"}}),
        ("zai", "off", {"thinking": {"type": "disabled"}}),
        ("openrouter", "max", {"reasoning": {"effort": "xhigh"}}),
        ("groq", "low", {"reasoning_effort": "low"}),
        ("xai", "high", {"reasoning_effort": "high"}),
        ("fireworks", "off", {"reasoning_effort": "none"}),
        ("vllm", "low", {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "low"}}),
        ("llamacpp", "off", {"chat_template_kwargs": {"enable_thinking": False}}),
    ],
)
async def test_each_server_is_told_to_think_in_its_own_words(name: str, level: str, fields: dict[str, Any]):
    body = await sent_by(name, reasoning=level)
    assert {key: body.get(key) for key in fields} == fields
    told = {"reasoning", "reasoning_effort", "thinking", "chat_template_kwargs"} & set(body)
    assert told == set(fields)


@pytest.mark.parametrize(
    ("name", "model", "cache", "marked"),
    [
        ("openrouter", "anthropic/claude-x", "auto", True),
        ("openrouter", "anthropic/claude-x", "off", False),
        ("openrouter", "google/gemini-x", "auto", False),
        ("groq", "anthropic/claude-x", "auto", False),
    ],
)
async def test_a_cache_that_must_be_asked_for_is_asked_for(name: str, model: str, cache: str, marked: bool):
    async with ModelServer([Reply(text="ok")]) as server:
        provider = provider_of(name, server.base_url, model={"cache": cache})
        await provider.complete(ProviderRequest(model=model, system="s", messages=STEERED))
        await provider.aclose()
    assert (server.requests[0].body.get("cache_control") == {"type": "ephemeral"}) is marked


@pytest.mark.parametrize("name", ["deepseek", "moonshot"])
async def test_a_call_of_another_vendor_goes_with_empty_thinking_where_thinking_is_demanded(name: str):
    body = await sent_by(name)
    assert body["messages"][2]["reasoning_content"] == ""


@pytest.mark.parametrize("name", ["deepseek", "moonshot", "openrouter", "groq", "openai-compatible"])
async def test_thinking_goes_back_to_the_server_that_gave_it(name: str):
    async with ModelServer([Reply(reasoning="hm", tool_calls=[("read", {"path": "x"})])]) as server:
        provider = provider_of(name, server.base_url)
        response = await provider.complete(ask())
        call = response.tool_uses[0]
        result = ToolResultBlock(call_id=call.call_id, name="read", output="two")
        messages = [
            *STEERED,
            Message(role="assistant", content=response.blocks),
            Message(role="user", content=(result,)),
        ]
        await provider.complete(ProviderRequest(model="m", system="s", messages=messages))
        await provider.aclose()
    assert server.requests[1].messages[-2]["reasoning_content"] == "hm"


@pytest.mark.parametrize(
    ("refusal", "shown"),
    [
        (
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
            lambda body: body["messages"][2].get("reasoning_content") == "",
        ),
        (
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            lambda body: body["messages"][2].get("reasoning_content") == "",
        ),
        (
            "Unexpected role 'user' after role 'tool'",
            lambda body: (
                [message["role"] for message in body["messages"][3:]] == ["tool", "assistant", "user"]
            ),
        ),
    ],
)
async def test_a_shape_of_messages_that_a_server_wants_is_learnt_from_its_refusal(refusal: str, shown: Any):
    replies = [Reply(status=400, error=refusal), Reply(text="ok")]
    async with ModelServer(replies) as server:
        provider = provider_of("openai-compatible", server.base_url)
        deltas: list[Delta] = [delta async for delta in provider.stream(ask())]
        await provider.complete(ask())
        await provider.aclose()
    assert [shown(request.body) for request in server.requests] == [False, True, True]
    assert [delta.progress for delta in deltas if delta.progress] != []
    assert deltas[-1].response is not None
