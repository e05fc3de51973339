"""Runs that outgrow the window: what is sent, what stays, what is told."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from aar.core.compaction.writer import SYSTEM
from aar.core.fold import SUMMARY_HEADING
from aar.protocol.errors import ErrorKind, ProviderError, UsageError
from aar.protocol.messages import ImageBlock, TextBlock
from aar.protocol.usage import Price
from tests.compaction.support import GOOD_NOTES, SmallWorld, good_notes, outputs
from tests.support.fakes import Turn, call
from tests.support.waiting import until
from tests.support.work import calls_made

OVERFLOW = ProviderError(ErrorKind.CONTEXT_OVERFLOW, "The conversation is too long for m. Compact it first.")


def big_file(root: Path, number: int, lines: int = 120) -> str:
    root.mkdir(exist_ok=True, parents=True)
    name = f"f{number}.txt"
    (root / name).write_text("".join(f"line {line} of {name} with some words\n" for line in range(lines)))
    return name


def reading(root: Path, count: int, *, words: int = 0) -> list[Turn]:
    """Steps that each read a file of about 1,500 tokens, and say ``words`` words."""
    return [
        Turn(" ".join([f"Step {i}."] + ["word"] * words), [call("read_file", path=big_file(root, i))])
        for i in range(count)
    ]


async def test_old_outputs_shrink_first_and_can_be_read_again(tmp_path: Path) -> None:
    root = tmp_path / "p"
    world = SmallWorld(root, [*reading(root, 6), "Done."])
    result = await world.run("Read them all.")
    assert result.stop_reason == "end_turn"
    world.check_requests()
    first = world.compactions[0]
    assert (first.summary, first.trigger) == ("", "auto")
    assert first.tokens_after < first.tokens_before
    assert world.script.asked == []
    kept = outputs(world.script.requests[-1].messages)
    assert "put aside to make room" in kept[0]
    assert "line 119" in kept[-1]
    reference = first.shrunk[0].output_ref
    assert reference is not None
    assert f"read_output(ref='{reference}')" in kept[0]
    world.script.turns = [Turn("", [call("read_output", ref=reference, pattern="line 60 ")]), Turn("Seen.")]
    world.script.requests.clear()
    await world.run("And line 60 of the first?")
    assert "line 60 of f0.txt" in world.results[-1].output


async def test_then_the_oldest_turns_become_a_summary_that_keeps_the_thread(tmp_path: Path) -> None:
    root = tmp_path / "p"
    request = "Make it faster.\n\nNever touch  `vendor/`; keep 3.11 support."
    turns = [*reading(root, 14, words=500), Turn("", [call("todo", items=[])]), "Done."]
    world = SmallWorld(root, turns, window=20_000)
    result = await world.run(request)
    assert result.stop_reason == "end_turn"
    world.check_requests()
    last = [event for event in world.compactions if event.summary][-1]
    sent = world.script.requests[-1].messages
    assert sent[0].content[0].text.startswith(SUMMARY_HEADING)
    assert any(isinstance(block, TextBlock) and block.text == request for block in sent[0].content)
    assert "Keep the old API, because plugins use it." in last.summary
    assert "f0.txt" in last.summary
    assert last.tokens_after < 0.7 * 20_000
    assert len({request.system for request in world.script.requests}) == 1
    states = [str(event.state) for event in world.of("state")]
    assert states.count("compacting") == len(world.compactions)
    at = states.index("compacting")
    assert states[at - 1 : at + 2] == ["running", "compacting", "running"]
    assert len(world.of("user_message")) == 1


async def test_the_prefix_changes_only_where_a_compaction_is_told(tmp_path: Path) -> None:
    root = tmp_path / "p"
    world = SmallWorld(root, [*reading(root, 40, words=60), "Done."], window=30_000)
    await world.run("Read on.")
    requests = world.script.requests
    broken = 0
    for before, now in pairwise(requests):
        same = all(a is b or a == b for a, b in zip(before.messages[:-1], now.messages, strict=False))
        broken += not (same and len(now.messages) > len(before.messages))
    assert broken == len(world.compactions)
    assert 2 <= broken <= len(requests) / 4
    assert not [notice for notice in world.of("notice") if notice.code == "cache_broken"]


async def test_an_overflow_is_compacted_once_and_the_request_sent_again(tmp_path: Path) -> None:
    root = tmp_path / "p"
    turns = [*reading(root, 5), Turn(fail=OVERFLOW), "Done."]
    world = SmallWorld(root, turns, window=128_000)
    result = await world.run("Read them.")
    assert (result.stop_reason, result.text) == ("end_turn", "Done.")
    assert [event.trigger for event in world.compactions] == ["overflow"]
    assert result.steps == 6
    assert len(world.script.requests[-1].messages) < len(world.script.requests[-2].messages)
    world.check_requests()


async def test_a_second_overflow_of_the_same_request_is_an_error_with_advice(tmp_path: Path) -> None:
    root = tmp_path / "p"
    world = SmallWorld(root, [*reading(root, 5), Turn(fail=OVERFLOW)], window=128_000)
    result = await world.run("Read them.")
    assert (result.stop_reason, result.exit_code) == ("error", 4)
    assert len(world.compactions) == 1
    error = world.of("error")[-1]
    assert (error.kind, error.stage) == ("context_overflow", "context")
    assert "larger window" in error.message
    assert "Compact it first" not in error.message


async def test_an_overflow_with_nothing_to_leave_out_is_an_error_with_advice(tmp_path: Path) -> None:
    world = SmallWorld(tmp_path / "p", [Turn(fail=OVERFLOW)])
    result = await world.run("x " * 3000)
    assert result.stop_reason == "error"
    assert "shorten the last message" in world.of("error")[-1].message


async def test_compactions_that_do_not_help_stop_the_run_with_a_sentence(tmp_path: Path) -> None:
    root = tmp_path / "p"
    turns = reading(root, 30, words=2500)
    world = SmallWorld(root, turns, window=9_000)
    result = await world.run("Go.")
    assert result.stop_reason == "error"
    assert "twice in a row" in world.of("error")[-1].message
    assert len(world.compactions) <= 4
    world.check_requests()


async def test_a_giant_result_that_was_not_seen_yet_counts_and_is_cut(tmp_path: Path) -> None:
    root = tmp_path / "p"
    names = [big_file(root, number, 500) for number in range(3)]
    turns = [Turn("", [call("read_file", path=name) for name in names]), "Done."]
    world = SmallWorld(root, turns, window=20_000)
    result = await world.run("Read all at once.")
    assert result.stop_reason == "end_turn"
    sent = world.script.requests[-1].messages
    assert [("put aside" in text) for text in outputs(sent)].count(True) >= 2
    assert all("line 0 of" in text for text in outputs(sent))
    assert world.compactions[-1].tokens_after < 20_000 * 0.75


@pytest.mark.parametrize(
    "answer",
    ["", "   \n", '{"name": "bash", "arguments": {"command": "ls"}}', ProviderError(ErrorKind.NETWORK, "No way."),
     "x" * 50_000],
    ids=["empty", "blank", "tool call", "network", "endless"],
)  # fmt: skip
async def test_without_usable_notes_the_facts_alone_make_the_summary(tmp_path: Path, answer: Any) -> None:
    root = tmp_path / "p"
    world = SmallWorld(root, [*reading(root, 8, words=900), "Done."], notes=lambda prompt: answer)
    world.agent.config = world.agent.config.__class__(
        **{**_fields(world.agent.config), "model": world.agent.config.model.model_copy(update={"retries": 1})}
    )
    result = await world.run("Keep the tests green.")
    assert result.stop_reason == "end_turn"
    told = [notice for notice in world.of("notice") if notice.code == "compaction_fallback"]
    assert told
    assert "could not sum up" in told[0].message
    summary = [event for event in world.compactions if event.summary][-1].summary
    assert "f0.txt" in summary
    assert "Step 0." in summary
    assert "Keep the tests green." in world.texts()


def _fields(config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


async def test_notes_that_were_unusable_are_asked_for_once_more(tmp_path: Path) -> None:
    answers = iter(["I cannot help with that.", GOOD_NOTES])

    def notes(prompt: str) -> str:
        return "NOTHING MISSING" if "What is missing" in prompt else next(answers, GOOD_NOTES)

    root = tmp_path / "p"
    world = SmallWorld(root, [*reading(root, 8, words=900), "Done."], notes=notes)
    await world.run("Go.")
    assert "Begin with the line" in world.script.asked[1]
    assert "Keep the old API" in next(event for event in world.compactions if event.summary).summary


async def test_the_second_question_adds_what_was_missing(tmp_path: Path) -> None:
    def notes(prompt: str) -> str:
        return "Sure:\n- constraints: Port 8443 stays." if "What is missing" in prompt else GOOD_NOTES

    root = tmp_path / "p"
    world = SmallWorld(root, [*reading(root, 8, words=900), "Done."], notes=notes)
    await world.run("Go.")
    summary = next(event for event in world.compactions if event.summary)
    assert summary.notes["constraints"] == ("Port 8443 stays.",)
    assert "Port 8443 stays." in summary.summary


async def test_what_notes_cost_counts_for_run_and_session_and_is_no_step(tmp_path: Path) -> None:
    root = tmp_path / "p"
    world = SmallWorld(root, [*reading(root, 8, words=900), "Done."], price=Price(input=1.0, output=1.0))
    result = await world.run("Go.")
    spent = world.session.totals.agents["compaction"]
    assert spent.requests == len(world.script.asked) > 0
    assert spent.cost_usd > 0
    assert result.cost_usd == pytest.approx(world.session.totals.cost_usd)
    assert result.steps == 9 == world.session.totals.agents["main"].steps == world.session.totals.steps


async def test_a_cancel_in_the_middle_of_a_compaction_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "p"
    world = SmallWorld(root, [*reading(root, 8, words=900), "Done."])
    reached = asyncio.Event()
    original = world.script.stream

    async def hanging(request: Any) -> Any:
        if request.system == SYSTEM:
            reached.set()
            await asyncio.Event().wait()
        async for delta in original(request):
            yield delta

    world.script.stream = hanging  # type: ignore[method-assign]
    task = world.start("Go.")
    await asyncio.wait_for(reached.wait(), 60)
    assert str(world.session.totals.state()) == "compacting"
    world.agent.cancel()
    result = await task
    assert result.stop_reason == "cancelled"
    assert not [event for event in world.compactions if event.summary]
    assert str(world.session.totals.state()) == "cancelled"


async def test_compact_on_demand_keeps_what_the_user_names(tmp_path: Path) -> None:
    root = tmp_path / "p"
    world = SmallWorld(root, [*reading(root, 4), "Done."], window=128_000)
    await world.run("Read.")
    event = await world.agent.compact(world.session, "the port numbers")
    assert event is not None
    assert event.trigger == "manual"
    assert event.tokens_after < event.tokens_before
    assert "the port numbers" in world.script.asked[0]
    assert str(world.session.totals.state()) == "idle"
    world.script.turns = [Turn("Going on.")]
    assert (await world.run("Go on.")).stop_reason == "end_turn"
    world.check_requests()


async def test_compact_on_demand_of_a_short_conversation_does_nothing(tmp_path: Path) -> None:
    world = SmallWorld(tmp_path / "p", ["Hello."])
    assert await world.agent.compact(world.session) is None
    await world.run("Hi.")
    assert await world.agent.compact(world.session) is None
    assert world.script.asked == []


async def test_compact_on_demand_waits_for_nobody(tmp_path: Path) -> None:
    world = SmallWorld(tmp_path / "p", [Turn("Hm.", gate=asyncio.Event()), "x"])
    world.script.turns = [Turn("", [call("bash", command="sleep 5")])]
    task = world.start()
    await until(lambda: world.agent.running)
    with pytest.raises(UsageError, match="under way"):
        await world.agent.compact(world.session)
    world.agent.cancel()
    await task


async def test_images_of_old_turns_are_no_part_of_the_question_for_notes(tmp_path: Path) -> None:
    root = tmp_path / "p"
    world = SmallWorld(root, [*reading(root, 8, words=900), "Done."])
    image = ImageBlock(media_type="image/png", data="iVBORw0KGgo" * 50)
    async with asyncio.timeout(60):
        await world.agent.run([TextBlock(text="What is this?"), image], world.session)
    assert all("iVBORw0KGgo" not in prompt for prompt in world.script.asked)
    assert any(isinstance(block, ImageBlock) for block in world.session.messages()[0].content)


async def test_a_fixed_reserve_does_not_starve_large_or_small_windows(tmp_path: Path) -> None:
    root = tmp_path / "p"
    for number, window in enumerate((200_000, 1_000_000)):
        world = SmallWorld(
            root / str(number), [*reading(root / str(number), 4), Turn("Done.")], window=window
        )
        await world.run("Go.")
        assert world.compactions == []


async def test_watching_the_window_costs_the_same_at_any_length(tmp_path: Path) -> None:
    from aar.core.compaction.meter import session_tokens
    from aar.protocol.events import AssistantMessage, UserMessage

    world = SmallWorld(tmp_path / "p", ["x"])
    session = world.session

    def grow(count: int) -> int:
        took: list[int] = []
        for _ in range(count):
            session.append(UserMessage(content=(TextBlock(text="a few words " * 5),)))
            session.append(AssistantMessage(content="and an answer " * 5, run_id="r", step=session.last_seq))
            took.append(calls_made(lambda: session_tokens(session)))
        return sorted(took)[len(took) // 2]

    first = grow(100)
    grow(1500)
    last = grow(100)
    assert 0 < last <= 2 * first
    assert good_notes("") == GOOD_NOTES
