"""aar as a model, asked by the clients that OpenAI and Anthropic publish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import call, events, of_type, script, stored
from tests.serve.support import TOKEN, Served, served
from tests.support.waiting import until

STEPS = (
    {"reasoning": "Let me look.", **call("read_file", "I read it.", path="notes.txt")},
    "It says milk.",
    "Bread, then.",
)


@asynccontextmanager
async def clients(
    server: Served,
) -> AsyncIterator[tuple[Any, Any]]:
    import anthropic  # both take a second: only for the tests that run them
    import openai

    async with (
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=TOKEN, max_retries=2) as one,
        anthropic.AsyncAnthropic(base_url=server.url, api_key=TOKEN, max_retries=2) as other,
    ):
        yield one, other


def said(*words: str) -> Any:
    """Return a conversation in turns: user, assistant, user …"""
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(words)]


async def test_a_conversation_goes_on_in_its_session(project: Path, tmp_path: Path) -> None:
    async with (
        served(project, script(tmp_path / "m.json", *STEPS, select="history")) as server,
        clients(server) as (chat, _),
    ):
        first = await chat.chat.completions.create(model="aar", messages=said("What is noted?"))
        assert first.choices[0].message.content == "It says milk."
        assert first.choices[0].finish_reason == "stop"
        assert first.usage is not None
        assert first.usage.total_tokens == first.usage.prompt_tokens + first.usage.completion_tokens > 0
        talk = said("What is noted?", "It says milk.", "Buy something else.")
        second = await chat.chat.completions.create(model="aar", messages=talk)
        assert second.choices[0].message.content == "Bread, then."
        assert (await server.get("/api/sessions"))["sessions"][0]["open"] is False
    assert len(stored()) == 1
    told = [event["content"][0]["text"] for event in of_type(events(stored()[0]), "user_message")]
    assert told == ["What is noted?", "Buy something else."]


async def test_a_stream_has_all_words_thoughts_and_the_usage(project: Path, tmp_path: Path) -> None:
    async with (
        served(project, script(tmp_path / "m.json", *STEPS, select="history")) as server,
        clients(server) as (chat, _),
    ):
        stream = await chat.chat.completions.create(
            model="aar", messages=said("What?"), stream=True, stream_options={"include_usage": True}
        )
        pieces = [piece async for piece in stream]
        deltas = [piece.choices[0].delta for piece in pieces if piece.choices]
        text = "".join(delta.content or "" for delta in deltas)
        assert text == "I read it.\n\nIt says milk."
        assert "Let me look." in "".join(getattr(delta, "reasoning_content", "") for delta in deltas)
        assert [piece.choices[0].finish_reason for piece in pieces if piece.choices][-1] == "stop"
        assert pieces[-1].usage is not None
        assert pieces[-1].usage.completion_tokens > 0
        talk = said("What?", text, "Again.")
        again = await chat.chat.completions.create(model="aar", messages=talk)
        assert again.choices[0].message.content == "Bread, then."
    assert len(stored()) == 1


async def test_messages_answer_as_anthropic_does(project: Path, tmp_path: Path) -> None:
    async with (
        served(project, script(tmp_path / "m.json", *STEPS, select="history")) as server,
        clients(server) as (_, claude),
    ):
        asked: dict[str, Any] = {"model": "aar", "max_tokens": 100, "messages": said("What is noted?")}
        whole = await claude.messages.create(**asked, system="Be brief.")
        assert [block.text for block in whole.content if block.type == "text"] == ["It says milk."]
        assert (whole.stop_reason, whole.role) == ("end_turn", "assistant")
        assert whole.usage.output_tokens > 0
        async with claude.messages.stream(**{**asked, "messages": said("Something else.")}) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            final = await stream.get_final_message()
        assert text == "I read it.\n\nIt says milk."
        assert final.stop_reason == "end_turn"
        assert final.usage.output_tokens > 0
    first = min(stored(), key=lambda file: file.name)
    [prompt] = of_type(events(first), "user_message")
    assert prompt["content"][0]["text"] == "Be brief."


async def test_a_history_of_elsewhere_stands_before_the_prompt(project: Path, tmp_path: Path) -> None:
    async with served(project, script(tmp_path / "m.json", "Rye.")) as server, clients(server) as (chat, _):
        pixel = "data:image/png;base64,iVBORw0KGgo="
        look = [{"type": "text", "text": "And this?"}, {"type": "image_url", "image_url": {"url": pixel}}]
        talk = [{"role": "system", "content": "You bake."}, *said("Hello", "Good day"), *said("x")]
        talk[-1]["content"] = look
        answer = await chat.chat.completions.create(model="aar", messages=talk)
        assert answer.choices[0].message.content == "Rye."
    found = events(stored()[0])
    users = of_type(found, "user_message")
    assert [block["text"] for block in users[0]["content"]] == ["You bake.", "Hello"]
    assert [block["type"] for block in users[1]["content"]] == ["text", "image"]
    assert [event["content"] for event in of_type(found, "assistant_message")] == ["Good day", "Rye."]


async def test_each_agent_is_a_model(project: Path, tmp_path: Path) -> None:
    import openai

    async with served(project, script(tmp_path / "m.json", "Looked.")) as server, clients(server) as pair:
        chat, claude = pair
        names = [model.id async for model in chat.models.list()]
        assert names[0] == "aar"
        assert "aar/explore" in names
        assert [model.id async for model in claude.models.list()] == names
        assert (await chat.models.retrieve("aar/explore")).id == "aar/explore"
        answer = await chat.chat.completions.create(model="aar/explore", messages=said("Look."))
        assert answer.model == "aar/explore"
        with pytest.raises(openai.NotFoundError, match="aar/explore"):
            await chat.chat.completions.create(model="gpt-5", messages=said("Look."))


async def test_what_cannot_be_done_is_refused_and_nothing_is_kept(project: Path, tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"n": 2},
        {"response_format": {"type": "json_object"}},
        {"tool_choice": "required"},
        {"messages": said("Hello", "Good day")},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]},
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y"}}]}
            ]
        },
        {"messages": []},
    ]
    async with served(project, script(tmp_path / "m.json", "No.")) as server:
        for more in wrong:
            body = {"model": "aar", "messages": said("Hi"), **more}
            told = await server.post("/v1/chat/completions", body, 400)
            assert told["error"]["message"], more
        for more in ({"tool_choice": {"type": "any"}}, {"messages": said("Hello", "Good day")}):
            await server.post("/v1/messages", {"model": "aar", "messages": said("Hi"), **more}, 400)
    assert stored() == []


async def test_a_model_that_fails_is_an_error_and_is_not_asked_twice(project: Path, tmp_path: Path) -> None:
    import anthropic
    import openai

    failing = {"status": 401, "error": "no such key"}
    async with served(project, script(tmp_path / "m.json", failing)) as server, clients(server) as pair:
        chat, claude = pair
        with pytest.raises(openai.APIStatusError) as failed:
            await chat.chat.completions.create(model="aar", messages=said("Hi"))
        assert failed.value.status_code == 502
        assert len(stored()) == 1, "a client that tries again by itself would let the agent work twice"
        with pytest.raises(openai.APIError):
            async for _ in await chat.chat.completions.create(model="aar", messages=said("Hi"), stream=True):
                pass
        with pytest.raises(anthropic.APIStatusError):
            async with claude.messages.stream(model="aar", max_tokens=9, messages=said("Hi")) as stream:
                await stream.until_done()


async def test_a_run_ends_when_its_client_goes_away(project: Path, tmp_path: Path) -> None:
    steps = (call("bash", command="touch begun; sleep 60"), "Never.")
    model = script(tmp_path / "m.json", *steps)
    async with served(project, model, mode="auto") as server:
        for stream in (False, True):
            body = {"model": "aar", "messages": said("Wait."), "stream": stream}
            asking = asyncio.ensure_future(server.http.post("/v1/chat/completions", json=body))
            await until(lambda: (project / "begun").exists())
            asking.cancel()
            async with asyncio.timeout(60):
                while any(one["open"] for one in (await server.get("/api/sessions"))["sessions"]):
                    await asyncio.sleep(0.02)
            (project / "begun").unlink()
    ends = [of_type(events(file), "state")[-1]["state"] for file in stored()]
    assert ends == ["cancelled", "cancelled"]
