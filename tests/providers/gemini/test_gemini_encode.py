"""What is sent to Gemini: valid by the SDK's own types, unchanged where it must be, the same from turn to turn."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from aar.protocol.messages import Message, TextBlock
from aar.providers.base import ProviderRequest
from aar.providers.catalog import GeminiThinking, gemini_thinking
from aar.providers.gemini.encode import RequestEncoder
from aar.providers.gemini.schema import clean_schema
from aar.providers.gemini.seal import FOREIGN_SIGNATURE, seal_name
from aar.providers.gemini.thinking import thinking_config
from tests.providers.gemini.conversation import NO_INPUT, PIXEL, READ_FILE, SIGNED, conversation, user

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def request(messages: list[Message] | None = None, **more: Any) -> ProviderRequest:
    known = conversation() if messages is None else messages
    return ProviderRequest(**{"model": "m", "system": "be brief", "messages": known, **more})


def encoded(asked: ProviderRequest, thinking: GeminiThinking = "budget", **more: Any) -> dict[str, Any]:
    return json.loads(RequestEncoder(seal_name("host")).encode(asked, thinking, **more).body)


@pytest.mark.parametrize(("thinking", "level"), [("budget", "high"), ("level", "max"), ("coarse_level", 512)])
def test_a_full_conversation_is_valid_by_the_sdks_own_types(thinking: GeminiThinking, level: str | int):
    from google.genai import types

    body = encoded(
        request(
            tools=(READ_FILE, NO_INPUT),
            reasoning=level,
            max_output_tokens=100,
            temperature=0.5,
            stop=("END",),
            output_schema=SCHEMA,
        ),
        thinking,
    )
    assert list(body) == ["systemInstruction", "tools", "contents", "generationConfig"]
    contents = [types.Content.model_validate(content) for content in body["contents"]]
    assert [content.role for content in contents] == ["user", "model", "user", "model", "user", "model"]
    types.Content.model_validate(body["systemInstruction"])
    tools = types.Tool.model_validate(body["tools"][0])
    assert [tool.name for tool in tools.function_declarations or ()] == ["read_file", "list_all"]
    settings = types.GenerationConfig.model_validate(body["generationConfig"])
    assert (settings.max_output_tokens, settings.stop_sequences) == (100, ["END"])
    assert (settings.response_json_schema is not None) == (thinking != "budget")


def test_an_answer_goes_back_part_by_part_as_it_came():
    parts = encoded(request())["contents"][1]["parts"]
    came = SIGNED["candidates"][0]["content"]["parts"]
    assert parts == came


@pytest.mark.parametrize("thinking", ["budget", "level"])
def test_results_bear_the_servers_own_ids_only_and_images_stand_where_the_model_takes_them(thinking: Any):
    parts = encoded(request(), thinking)["contents"][2]["parts"]
    first, second = (part["functionResponse"] for part in parts[:2])
    image = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    assert first["id"] == "srv1"
    assert "id" not in second
    assert (first["response"], second["response"]) == (
        {"output": "a picture"}, {"error": "Error [not_found]: no b.txt"}
    )  # fmt: skip
    assert first.get("parts") == ([image] if thinking == "level" else None)
    assert parts[2:] == ([] if thinking == "level" else [{"text": "Images from read_file:"}, image])


def test_another_vendors_thinking_stays_away_and_its_calls_pass_the_signature_check():
    old = encoded(request())["contents"][3]["parts"]
    new = encoded(request(), "level")["contents"][3]["parts"]
    function = {"functionCall": {"name": "read_file", "args": {"unparsed_arguments": '{"path": "c'}}}
    assert old == [{"text": "Let me see more."}, function]
    assert new == [{"text": "Let me see more."}, {**function, "thoughtSignature": FOREIGN_SIGNATURE}]
    own = encoded(request(), "level")["contents"][1]["parts"]
    assert own == SIGNED["candidates"][0]["content"]["parts"]


def test_what_one_server_sealed_does_not_go_to_another():
    body = RequestEncoder(seal_name("elsewhere")).encode(request(), "budget").body
    assert b"Y2FsbA==" not in body
    assert b"I should look" not in body
    assert b"Looking. Now." in body


def test_the_bytes_of_a_request_are_the_beginning_of_the_next_one():
    messages = conversation()
    encoder = RequestEncoder(seal_name("host"))
    bodies: list[bytes] = []
    for count in (1, 3, 5):
        asked = request(messages[:count], tools=(READ_FILE,), reasoning="low")
        bodies.append(encoder.encode(asked, "level").body)
    for before, after in itertools.pairwise(bodies):
        stem = before[: before.index(b'],"generationConfig"')]
        assert after.startswith(stem)
    resumed = RequestEncoder(seal_name("host"))
    again = [Message.model_validate_json(message.model_dump_json()) for message in messages[:5]]
    assert resumed.encode(request(again, tools=(READ_FILE,), reasoning="low"), "level").body == bodies[-1]


def test_a_message_is_encoded_once_also_when_the_last_one_is_replaced(monkeypatch: pytest.MonkeyPatch):
    from aar.providers.gemini import encode as gemini_encode

    seen: list[Any] = []
    plain = gemini_encode.to_json
    monkeypatch.setattr(gemini_encode, "to_json", lambda value: seen.append(value) or plain(value))
    messages = conversation()
    encoder = RequestEncoder(seal_name("host"))
    encoder.encode(request(messages[:5]), "budget")
    other = [*messages[:4], user(TextBlock(text="Wait.")), messages[5]]
    body = encoder.encode(request(other), "budget").body
    assert sum("parts" in value and "role" in value for value in seen) == 7
    assert json.loads(body)["contents"][4] == {"role": "user", "parts": [{"text": "Wait."}]}
    assert body == RequestEncoder(seal_name("host")).encode(request(other), "budget").body


def test_fields_of_the_config_are_merged_and_a_null_removes():
    extra = {
        "safetySettings": [{"category": "x"}],
        "tools": [{"googleSearch": {}}],
        "generationConfig": {"topP": 0.5, "temperature": None},
        "contents": "never",
    }
    body = encoded(request(tools=(NO_INPUT,), temperature=1.0, extra={"labels": {"a": "b"}}), extra=extra)
    assert body["tools"] == [
        {"functionDeclarations": [{"name": "list_all", "description": "Lists."}]}, {"googleSearch": {}}
    ]  # fmt: skip
    assert (body["safetySettings"], body["labels"]) == ([{"category": "x"}], {"a": "b"})
    assert body["generationConfig"] == {"topP": 0.5, "thinkingConfig": {"includeThoughts": True}}
    assert isinstance(body["contents"], list)


def test_schemas_keep_what_gemini_knows():
    assert clean_schema(READ_FILE.input_schema) == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "mode": {"enum": ["text"]},
            "range": {"$ref": "#/$defs/Range"},
        },
        "$defs": {"Range": {"type": "object", "properties": {"default": {"type": "integer"}}}},
        "required": ["path"],
    }
    merged = clean_schema({
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "allOf": [{"properties": {"b": {"anyOf": [{"const": 1}, {"type": "null"}]}}, "required": ["b"]}],
    })  # fmt: skip
    assert merged["required"] == ["a", "b"]
    assert merged["properties"]["b"] == {"anyOf": [{"enum": [1]}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("model", "level", "expected"),
    [
        ("gemini-2.5-pro", "off", {"thinkingBudget": 128, "includeThoughts": False}),
        ("gemini-2.5-pro", "max", {"thinkingBudget": 32768, "includeThoughts": True}),
        ("gemini-2.5-flash", "off", {"thinkingBudget": 0, "includeThoughts": False}),
        ("gemini-2.5-flash-lite", "low", {"thinkingBudget": 2048, "includeThoughts": True}),
        ("gemini-3-pro-preview", "minimal", {"thinkingLevel": "LOW", "includeThoughts": True}),
        ("gemini-3-pro-preview", "max", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-3.1-pro-preview", "medium", {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        ("gemini-3-flash-preview", "off", {"thinkingLevel": "MINIMAL", "includeThoughts": False}),
        ("gemini-3-flash-preview", 1000, {"thinkingBudget": 1000, "includeThoughts": True}),
        ("gemini-2.5-flash", None, {"includeThoughts": True}),
        ("gemini-2.0-flash", "high", None),
        ("my-own", None, None),
        ("my-own", "medium", {"thinkingBudget": 8192, "includeThoughts": True}),
    ],
)
def test_reasoning_levels_are_told_as_the_model_takes_them(model: str, level: Any, expected: Any):
    assert thinking_config(gemini_thinking(model), level) == expected
