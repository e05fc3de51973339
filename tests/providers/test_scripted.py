"""Scripted models: the scenario format, its faults, and clear words about bad files."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from aar.config.schema import Config
from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError
from aar.protocol.messages import Message, TextBlock
from aar.protocol.tool import ToolSpec
from aar.providers.base import Delta, ProviderRequest, ProviderResponse
from aar.providers.factory import make_provider
from aar.providers.scripted import ScriptedProvider

TOOLS = (ToolSpec("read", "Reads.", {"type": "object"}, frozenset(), None),)


@pytest.fixture
def scripted(tmp_path: Path):
    def make(scenario: Any, name: str = "s.json", **more: Any) -> ScriptedProvider:
        path = tmp_path / name
        path.write_text(scenario if isinstance(scenario, str) else json.dumps(scenario))
        return ScriptedProvider(path, **more)

    return make


async def ask(
    provider: ScriptedProvider, *, answers: int = 0, tools: bool = True, **extra: Any
) -> ProviderResponse:
    turns = [Message(role="user", content=(TextBlock(text="go"),))]
    turns += [Message(role="assistant", content=(TextBlock(text=str(n)),)) for n in range(answers)]
    return await provider.complete(ProviderRequest("s", "", turns, TOOLS if tools else (), extra=extra))


async def test_steps_are_played_in_order_with_their_placeholders(scripted: Any):
    call = {"name": "read", "arguments": {"path": "{cwd}/f{i}.txt", "why": "{{n}}"}}
    provider = scripted(
        {"steps": [{"text": "Step {n}", "reasoning": "hm", "repeat": 2, "tool_calls": [call]},
                   {"text": "ab", "text_repeat": 3, "finish": "length"}]},
        variables={"cwd": "/w"},
    )  # fmt: skip
    answers = [await ask(provider) for _ in range(4)]
    assert [answer.text for answer in answers] == ["Step 0", "Step 1", "ababab", "ababab"]
    assert answers[1].tool_uses[0].arguments == {"path": "/w/f1.txt", "why": "{n}"}
    assert [answer.tool_uses[0].call_id for answer in answers[:2]] == ["call_0_0", "call_1_0"]
    assert [answer.stop for answer in answers[1:3]] == ["tool_use", "max_tokens"]
    assert answers[0].reasoning == "hm"


async def test_history_decides_the_step_when_the_scenario_says_so(scripted: Any):
    provider = scripted({"select": "history", "steps": [{"text": "a"}, {"text": "b"}], "after": "loop"})
    assert [(await ask(provider, answers=n)).text for n in (1, 0, 1, 2)] == ["b", "a", "b", "a"]


async def test_requests_without_tools_get_the_side_reply_and_move_nothing(scripted: Any):
    steps = [{"text": "a", "tool_calls": [{"name": "read"}]}, {"text": "b"}]
    provider = scripted({"side_reply": "title", "steps": steps})
    assert [(await ask(provider, tools=tools)).text for tools in (False, True, False, True)] == [
        "title",
        "a",
        "title",
        "b",
    ]
    main = scripted({"side_reply": None, "steps": steps})
    assert (await ask(main, tools=False)).text == "a"


async def test_variables_come_from_the_file_the_caller_and_the_request(scripted: Any):
    provider = scripted(
        'steps = [{text = "{a} {b} {c} {d}"}]\nset = {a = 1, b = "file"}\n',
        "s.toml",
        variables={"b": "caller"},
    )
    assert (await ask(provider, set={"c": "request"})).text == "1 caller request {d}"


async def collect(provider: ScriptedProvider, seen: list[Delta]) -> None:
    async for delta in provider.stream(ProviderRequest("s", "", [], TOOLS)):
        seen.append(delta)


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ({"status": 429, "error": "slow down", "headers": {"Retry-After": "3"}}, ErrorKind.RATE_LIMIT),
        ({"status": 401, "error": "no"}, ErrorKind.AUTH),
        ({"text": "cut off here", "drop_after_chars": 4}, ErrorKind.INCOMPLETE_STREAM),
        ({"raw_sse": ["data: {broken\n\n"]}, ErrorKind.MALFORMED_RESPONSE),
    ],
)
async def test_faults_are_those_of_a_server(scripted: Any, step: dict[str, Any], kind: ErrorKind):
    provider = scripted({"steps": [step], "defaults": {"chunk_chars": 3}})
    seen: list[Delta] = []
    with pytest.raises(ProviderError) as caught:
        await collect(provider, seen)
    assert caught.value.error_kind is kind
    assert caught.value.retry_after_s == (3 if kind is ErrorKind.RATE_LIMIT else None)
    assert "".join(delta.text for delta in seen) == ("cut of" if "drop_after_chars" in step else "")


async def test_steps_can_run_out_into_an_error_and_broken_arguments_stay_broken(scripted: Any):
    broken = {"tool_calls": [{"name": "read", "arguments": '{"path": "x', "id": "mine"}]}
    provider = scripted({"after": "error", "steps": [broken]})
    use = (await ask(provider)).tool_uses[0]
    assert (use.raw_arguments, use.arguments, use.call_id) == ('{"path": "x', {}, "mine")
    with pytest.raises(ProviderError, match="exhausted"):
        await ask(provider)


async def test_usage_delays_and_price_are_as_told(scripted: Any):
    usage = {"prompt_tokens": 180_000, "completion_tokens": 5}
    provider = scripted({
        "steps": [{"text": "x", "usage": usage, "first_delay_ms": 30}, {"text": "word " * 8}],
        "price": {"input": 3.0, "output": 15.0}, "context_window": 9000, "dialect": "files",
    })  # fmt: skip
    started = time.monotonic()
    told = (await ask(provider)).usage
    assert time.monotonic() - started >= 0.03
    made_up = (await ask(provider)).usage
    assert told is not None
    assert (told.input, told.output) == (180_000, 5)
    assert made_up is not None
    assert made_up.input > 10
    assert made_up.output == 10
    known = provider.capabilities("s")
    assert known.price is not None
    assert known.price.cost(told) == pytest.approx(0.540075)
    assert (known.context_window, known.dialect, known.tools) == (9000, "files", False)
    assert scripted({"steps": [{}]}).capabilities("s").price is None


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "list named 'steps'"),
        ({}, "'steps': field required"),
        ({"steps": []}, "'steps'"),
        ({"steps": [{"text": 5}]}, r"'steps\[0\]\.text': input should be a valid string"),
        (
            {"steps": [{"tool_calls": [{"arguments": {}}]}]},
            r"'steps\[0\]\.tool_calls\[0\]\.name': field required",
        ),
        ({"steps": [{}], "select": "histori"}, "'select'"),
        ({"steps": [{"tool_cals": []}]}, "Did you mean 'tool_calls'"),
        ({"steps": [{"repeat": 0}]}, "no steps left"),
        ({"steps": [{}], "defaults": {"chunk_chars": -1}}, "chunk_chars"),
    ],
)
def test_a_bad_scenario_is_told_with_file_key_and_what_is_expected(scripted: Any, scenario: Any, words: str):
    with pytest.raises(ConfigurationError, match=words) as caught:
        scripted(scenario)
    assert "s.json" in str(caught.value)


def test_bad_toml_and_a_missing_file_are_told(scripted: Any, tmp_path: Path):
    with pytest.raises(ConfigurationError, match="not valid TOML"):
        scripted("steps = [", "s.toml")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        ScriptedProvider(tmp_path / "absent.json")


async def test_a_scenario_is_reached_by_name(tmp_path: Path):
    path = tmp_path / "s.json"
    path.write_text('{"steps": [{"text": "{who}"}], "_note": "comments may stand"}')
    config = Config.model_validate({"providers": {"scripted": {"extra": {"who": "me"}}}})
    provider = make_provider(f"scripted/{path}", config, data_dir=tmp_path, runtime_dir=tmp_path)
    assert isinstance(provider, ScriptedProvider)
    assert (await ask(provider)).text == "me"
