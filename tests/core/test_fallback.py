"""Another model goes on when one has finally failed: which, when, and with whose consent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from aar.core.active_model import ActiveModel
from aar.core.fallback import FALLBACK_KINDS, Consent, FallbackChain, consent_by
from aar.core.provider_runner import ProviderRunner
from aar.core.session import Session
from aar.protocol.errors import ConfigurationError, ErrorKind, ProviderError
from aar.protocol.events import Approval, ApprovalRequest
from aar.providers.base import Dialect, ProviderCapabilities
from tests.support.fakes import (
    Person,
    ToldProvider,
    Turn,
    World,
    call,
    check_messages,
    done,
    no_tasks_left,
    tool,
)
from tests.support.waiting import until

FINAL = frozenset({ErrorKind.INVALID_REQUEST, ErrorKind.CONTENT_FILTER, ErrorKind.CONTEXT_OVERFLOW})


def failing(kind: ErrorKind = ErrorKind.AUTH, **turn: Any) -> Turn:
    return Turn(fail=ProviderError(kind, f"It said {kind}."), **turn)


def model(name: str, *turns: Turn | str, server: str = "", dialect: Dialect = "native") -> ActiveModel:
    provider = ToldProvider(turns)
    provider.name, provider.server = name.split("/")[0], server
    return ActiveModel(name, provider, name.split("/")[1], ProviderCapabilities(dialect=dialect))


def chain(world: World, *models: ActiveModel, consent: Consent | None = None, allow: bool = False) -> World:
    """Let ``models`` go on for the world's own; a name that none of them has cannot be opened."""
    known = {active.name: active for active in models}

    def open_model(name: str) -> ActiveModel:
        if name not in known:
            raise ConfigurationError(f"There is no {name}.")
        return known[name]

    names = [active.name for active in models]
    fallback = FallbackChain(names, open_model, consent=consent, allow_remote=allow)
    settings = world.agent.runner._settings
    world.agent.runner = ProviderRunner(world.active, settings, chance=lambda: 0.0, fallback=fallback)
    return world


def requests(active: ActiveModel) -> list[Any]:
    assert isinstance(active.provider, ToldProvider)
    return active.provider.requests


async def test_the_next_model_goes_on_in_the_middle_of_the_run(tmp_path: Path) -> None:
    other = model("b/y", "I go on.")
    world = chain(World(tmp_path, [Turn(calls=[call("list_directory", path=".")]), failing()]), other)
    result = await world.run()
    assert (result.stop_reason, result.text, result.steps) == ("end_turn", "I go on.", 2)
    (switch,) = world.of("model_switch")
    assert (switch.from_model, switch.to_model, switch.reason) == ("told/m", "b/y", "It said auth.")
    assert not switch.discard
    (request,) = requests(other)
    assert request.model == "y"
    check_messages(request.messages)
    assert [message.role for message in request.messages] == ["user", "assistant", "user"]
    assert world.of("provider_meta")[-1].provider == "b"
    assert world.of("provider_meta")[-1].attempts == 2
    assert world.of("error") == []
    assert world.session.totals.model == "b/y"


async def test_each_model_has_its_attempts_before_the_next_is_asked(tmp_path: Path) -> None:
    second, third = model("b/y", failing(ErrorKind.NETWORK)), model("c/z", "At last.")
    world = chain(World(tmp_path, [failing(ErrorKind.OVERLOADED)], retries=3), second, third)
    assert (await world.run()).text == "At last."
    assert [len(world.provider.requests), len(requests(second)), len(requests(third))] == [3, 3, 1]
    assert [event.type for event in world.of("retry", "model_switch")] == [
        *["retry"] * 2,
        "model_switch",
        *["retry"] * 2,
        "model_switch",
    ]
    assert world.of("provider_meta")[0].attempts == 7


async def test_a_server_that_is_left_alone_is_not_waited_for(tmp_path: Path) -> None:
    provider = ToldProvider([failing(ErrorKind.NETWORK)])
    provider.server = "models.example"
    other = model("b/y", "I go on.")
    world = chain(World(tmp_path, provider), other)
    for _ in range(2):
        assert (await world.run()).text == "I go on."
    assert len(provider.requests) == 5
    assert "left alone for a minute" in [event.reason for event in world.of("model_switch")][-1]


async def test_when_all_fail_the_last_error_ends_the_run(tmp_path: Path) -> None:
    world = chain(World(tmp_path, [failing()]), model("b/y", failing(ErrorKind.QUOTA)))
    result = await world.run()
    assert result.exit_code == 4
    assert result.error == {"kind": "quota", "message": "It said quota."}


@pytest.mark.parametrize("kind", [kind for kind in ErrorKind if kind in FALLBACK_KINDS | FINAL])
async def test_which_failures_fall_back(tmp_path: Path, kind: ErrorKind) -> None:
    other = model("b/y", "I go on.")
    result = await chain(World(tmp_path, [failing(kind)], retries=1), other).run()
    assert bool(requests(other)) == (kind in FALLBACK_KINDS)
    assert result.exit_code == (0 if kind in FALLBACK_KINDS else 4)


def test_the_page_names_the_kinds_that_fall_back() -> None:
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()
    row = page.split("| falls back | does not |")[1].splitlines()[2]
    falls, stays = row.strip("| ").split(" | ")
    assert {name.strip(" `") for name in falls.split(",")} == set(FALLBACK_KINDS)
    assert [kind in stays for kind in sorted(FINAL)] == [True] * 3


async def test_words_that_were_shown_of_the_failed_answer_are_void(tmp_path: Path) -> None:
    broken = failing(ErrorKind.MALFORMED_RESPONSE, text="I was about")
    world = chain(World(tmp_path, [broken]), model("b/y", "All of it."))
    assert (await world.run()).text == "All of it."
    assert world.of("model_switch")[0].discard
    assert [event.content for event in world.of("assistant_message")] == ["All of it."]
    assert world.finished_chunks == 2


async def test_an_answer_that_broke_after_its_call_was_shown_is_not_asked_again(tmp_path: Path) -> None:
    broken = failing(
        ErrorKind.INCOMPLETE_STREAM, text="I write", calls=[call("write_file", path="a", content="")]
    )
    other = model("b/y", "Never.")
    world = chain(World(tmp_path, [broken]), other)
    result = await world.run()
    assert (result.exit_code, len(world.provider.requests), requests(other)) == (4, 1, [])
    assert world.of("tool_call") == []
    assert world.of("assistant_message")[0].partial


async def test_the_next_prompt_begins_with_the_first_model_again(tmp_path: Path) -> None:
    other = model("b/y", "For now.")
    world = chain(World(tmp_path, [failing(), "I am back."]), other)
    assert (await world.run()).text == "For now."
    assert (await world.run()).text == "I am back."
    back = world.of("model_switch")[-1]
    assert (back.from_model, back.to_model) == ("b/y", "told/m")
    assert world.session.totals.model == "told/m"
    assert len(requests(other)) == 1


async def test_a_model_that_cannot_be_opened_is_passed_over_with_a_word(tmp_path: Path) -> None:
    world = World(tmp_path, [failing()])
    last = model("c/z", "I go on.")

    def broken(name: str) -> ActiveModel:
        if name == "b/y":
            raise ConfigurationError("Set B_KEY.")
        return last

    fallback = FallbackChain(["told/m", "b/y", "c/z"], broken)
    world.agent.runner = ProviderRunner(world.active, world.agent.runner._settings, fallback=fallback)
    assert (await world.run()).text == "I go on."
    (notice,) = world.of("notice")
    assert (notice.code, notice.message) == (
        "fallback_unusable",
        "The fallback b/y cannot be used. Set B_KEY.",
    )


async def test_a_model_of_another_dialect_gets_the_conversation_in_its_own(tmp_path: Path) -> None:
    other = model("b/y", "I go on.", dialect="text")
    world = chain(World(tmp_path, [Turn(calls=[call("list_directory", path=".")]), failing()]), other)
    assert (await world.run()).text == "I go on."
    (request,) = requests(other)
    assert request.tools == ()
    assert not any(message.tool_uses for message in request.messages)


# --- from this machine to another's


def local_world(folder: Path, **options: Any) -> World:
    provider = ToldProvider([failing(ErrorKind.NETWORK)])
    provider.server = "127.0.0.1:8080"
    return World(folder, provider, retries=1, **options)


async def test_without_anybody_to_ask_a_conversation_stays_on_this_machine(tmp_path: Path) -> None:
    remote, near = model("b/y", "Never.", server="b.example"), model("c/z", "Near.", server="localhost:1")
    world = chain(local_world(tmp_path), remote, near)
    assert (await world.run()).text == "Near."
    assert requests(remote) == []
    (notice,) = world.of("notice")
    assert (notice.code, notice.level) == ("fallback_refused", "warning")
    assert notice.message == (
        "b/y was not asked: this conversation was with a model on this machine, and would have left it. "
        'To let it, set [model] fallback_remote = "allow" in your own config.'
    )


async def test_configuration_can_allow_it(tmp_path: Path) -> None:
    world = chain(local_world(tmp_path), model("b/y", "Far.", server="b.example"), allow=True)
    assert (await world.run()).text == "Far."
    assert world.of("approval_request", "notice") == []


@pytest.mark.parametrize("decision", ["allow", "reject", "cancelled"])
async def test_a_person_decides(tmp_path: Path, decision: str) -> None:
    person = Person(lambda _: {"decision": decision})
    remote = model("b/y", "Far.", server="b.example")
    world = chain(local_world(tmp_path), remote, consent=consent_by(person))
    result = await world.run()
    (asked,) = world.of("approval_request")
    assert (asked.tool_name, asked.arguments["to"], asked.arguments["server"]) == (
        "model_fallback",
        "b/y",
        "b.example",
    )
    assert "sent to b.example" in asked.why["reasons"][1]
    (answer,) = world.of("approval")
    assert (answer.decision, answer.request_id, answer.call_id) == (decision, asked.request_id, asked.call_id)
    assert bool(requests(remote)) == (decision == "allow")
    assert result.exit_code == (0 if decision == "allow" else 4)
    states = [str(event.state) for event in world.of("state")]
    assert states[states.index("waiting_for_input") + 1] == "running"


async def test_consent_for_the_session_is_remembered_and_once_is_not(tmp_path: Path) -> None:
    def answer(_: ApprovalRequest) -> dict[str, Any]:
        return {"scope": "once" if not person.asked[1:] else "session"}

    person = Person(answer)
    remote = model("b/y", "Far.", server="b.example")
    world = chain(local_world(tmp_path), remote, consent=consent_by(person))
    for _ in range(4):
        assert (await world.run()).text == "Far."
    assert len(person.asked) == 2


async def test_a_question_that_is_open_can_be_cancelled(tmp_path: Path) -> None:
    world = local_world(tmp_path, person="door")
    assert world.person is not None
    chain(world, model("b/y", "Far.", server="b.example"), consent=consent_by(world.person))
    run = world.start()
    await until(lambda: world.person.pending)
    world.agent.cancel()
    assert (await run).stop_reason == "cancelled"
    assert no_tasks_left() == []


async def test_a_door_answers_as_for_a_tool(tmp_path: Path) -> None:
    world = local_world(tmp_path, person="door")
    chain(world, model("b/y", "Far.", server="b.example"), consent=consent_by(world.person))
    run = world.start()
    await until(lambda: world.person.pending)
    world.agent.answer(world.person.pending[0].request_id, "allow", scope="session")
    assert (await run).text == "Far."
    assert isinstance(world.of("approval")[0], Approval)


async def test_a_session_with_a_question_about_a_fallback_can_be_resumed(tmp_path: Path) -> None:
    world = chain(
        local_world(tmp_path),
        model("b/y", "Far.", server="b.example"),
        consent=consent_by(Person(lambda _: {})),
    )
    await world.run()
    world.session.close()
    again = Session.resume(world.store, world.session.session_id)
    check_messages(again.messages())
    assert again.totals.model == "b/y"


# --- the user wants another model


async def test_the_user_switches_in_the_middle_of_a_run(tmp_path: Path) -> None:
    other = model("b/y", "I take over.", dialect="text")

    def switch(_arguments: dict[str, Any], _context: Any) -> Any:
        world.agent.runner.switch(other, world.session)
        return done()

    world = World(tmp_path, [Turn(calls=[call("switch")]), "Never."], tools=[tool("switch", switch)])
    assert (await world.run()).text == "I take over."
    (request,) = requests(other)
    assert (request.model, request.tools) == ("y", ())
    assert len(world.provider.requests) == 1


async def test_an_answer_under_way_is_still_that_of_the_model_that_gives_it(tmp_path: Path) -> None:
    gate = asyncio.Event()
    world = World(tmp_path, [Turn("First.", gate=gate)])
    run = world.start()
    await until(lambda: world.provider.requests)
    world.agent.runner.switch(model("b/y", "Second."), world.session)
    gate.set()
    assert (await run).text == "First."
    assert world.of("provider_meta")[0].provider == "told"
    assert (await world.run()).text == "Second."


async def test_a_model_that_the_user_left_while_it_failed_is_not_asked_again(tmp_path: Path) -> None:
    gate = asyncio.Event()
    world = World(tmp_path, [failing(gate=gate)])
    run = world.start()
    await until(lambda: world.provider.requests)
    world.agent.runner.switch(model("b/y", "I go on."), world.session)
    gate.set()
    assert (await run).text == "I go on."
    assert len(world.provider.requests) == 1


async def test_the_user_switches_between_two_prompts(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn(calls=[call("list_directory", path=".")]), "First."])
    await world.run()
    other = model("b/y", "Second.", "Third.")
    world.agent.runner.switch(other, world.session, by="user")
    assert (await world.run()).text == "Second."
    assert (await world.run()).text == "Third."
    (setting,) = world.of("setting")
    assert json.loads(setting.to_json())["from"] == "told/m"
    assert (setting.key, setting.to, setting.by) == ("model", "b/y", "user")
    assert world.of("model_switch") == []
    assert requests(other)[0].model == "y"
    check_messages(requests(other)[0].messages)
    world.agent.runner.switch(other, world.session)
    assert len(world.of("setting")) == 1
