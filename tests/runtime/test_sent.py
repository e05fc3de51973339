"""What is shown as sent is what was sent, without keys; and a step can be asked again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aar.commands.base import Failure, Table, Text
from aar.protocol.errors import UsageError
from aar.providers.base import ProviderRequest
from aar.providers.scripted import ScriptedProvider
from aar.runtime.resample import resample
from aar.runtime.sent import dump_text, sent_at, sent_next
from aar.runtime.session_export import redactor
from tests.commands.support import WRITE, desk

KEY = "sk-ant-api03-" + "A1b2" * 12
READ = {"text": "I look.", "tool_calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]}


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[ProviderRequest]:
    """Return all requests that scripted models get."""
    seen: list[ProviderRequest] = []
    stream = ScriptedProvider.stream

    def watched(self: ScriptedProvider, request: ProviderRequest):
        seen.append(request)
        return stream(self, request)

    monkeypatch.setattr(ScriptedProvider, "stream", watched)
    return seen


async def test_each_step_is_shown_as_it_was_sent(tmp_path: Path, requests: list[ProviderRequest]) -> None:
    async with desk(tmp_path, READ, WRITE, {"text": "Done."}, {"text": "Welcome."}) as at:
        await at.say("Look and write.")
        await at.say("Thanks.")
        events = list(at.talk.session.events())
        assert len(requests) == 4
        for number, request in enumerate(requests, 1):
            sent = sent_at(events, number)
            assert sent.system == request.system
            assert sent.messages == list(request.messages)
            assert sent.tool_names == tuple(tool.name for tool in request.tools)
            assert not sent.tools_changed
        for wrong in (0, 5):
            with pytest.raises(UsageError, match="steps 1 to 4"):
                sent_at(events, wrong)
        following = sent_next(at.talk.agent, at.talk.session)
        assert following.system == requests[-1].system
        assert following.messages[:-1] == list(requests[-1].messages)
        assert following.messages[-1].text == "Welcome."


async def test_sections_of_the_context_are_shown_word_for_word_without_keys(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await at.say(f"The key is {KEY}.")
        everything = await at.run("/context all")
        assert isinstance(everything, Text)
        assert at.talk.agent.view_of(at.talk.session).prompt.layers[0].text in everything.markdown
        assert "The key is [redacted]" in everything.markdown
        one = await at.run("/context message 1")
        assert isinstance(one, Text)
        assert one.markdown.startswith("**message 1** · user")
        assert "identity" not in one.markdown
        wrong = await at.run("/context weather")
        assert isinstance(wrong, Failure)
        assert "identity" in wrong.sentence
        sent = sent_at(at.talk.session.events(), 1)
        assert KEY not in "".join(dump_text(sent, redactor().redact))
        assert KEY not in json.dumps(redactor().redact_json(sent.to_dict()))
        steps = await at.run("/timeline")
        assert isinstance(steps, Table)
        assert [row[0] for row in steps.rows] == ["1"]


async def test_a_step_asked_again_runs_no_tool_and_tells_what_was_the_same(
    tmp_path: Path, requests: list[ProviderRequest]
) -> None:
    other = {
        "text": "No.",
        "tool_calls": [{"name": "write_file", "arguments": {"path": "x", "content": "x"}}],
    }
    async with desk(tmp_path, READ, {"text": "Done."}, READ, other) as at:
        await at.say("Look.")
        seq = at.talk.session.last_seq
        sent = sent_at(at.talk.session.events(), 1)
        samples = [sample async for sample in resample(at.context.runtime, sent, 2)]
        assert [(s.same_calls, s.same_text) for s in samples] == [(True, True), (False, False)]
        assert samples[1].calls == (("write_file", {"path": "x", "content": "x"}),)
        first, _, again, _ = requests
        assert (again.system, list(again.messages)) == (first.system, list(first.messages))
        assert {tool.name for tool in again.tools} == {tool.name for tool in first.tools}
        assert at.talk.session.last_seq == seq
        assert not (tmp_path / "project" / "x").exists()


async def test_a_run_with_many_failing_calls_says_so_at_its_end(tmp_path: Path) -> None:
    lost = [{"name": "read_file", "arguments": {"path": f"no-{n}"}} for n in range(5)]
    async with desk(tmp_path, {"tool_calls": lost}, {"text": "Sorry."}) as at:
        await at.say("Read.")
        told = [e for e in at.talk.session.events() if getattr(e, "code", "") == "hint"]
        assert [event.message for event in told] == ["5 of 5 tool calls failed (read_file: not_found 5×)."]
