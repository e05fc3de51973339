"""Runs over sessions that were there before."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aar.core.session import Session
from aar.memory.session_store import SessionStore
from tests.support.fakes import Turn, World, call, check_messages, done, tool
from tests.support.waiting import until


async def test_a_resumed_session_goes_on_with_the_whole_conversation(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions")
    first = World(tmp_path / "w", [Turn("I look.", [call("list_directory", path=".")]), "One."], store=store)
    await first.run("Begin.")
    sent = first.session.messages()
    await first.session.aclose()
    session = Session.resume(store, first.session.session_id)
    second = World(tmp_path / "w", ["Two."], store=store, session=session)
    result = await second.run("Go on.")
    assert (result.text, result.steps) == ("Two.", 1)
    request = second.provider.requests[0].messages
    assert list(request[: len(sent)]) == sent
    assert request[-1].text == "Go on."
    assert len(second.of("prompt")) == 1
    session.close()


async def test_a_run_that_its_process_left_behind_is_closed_when_the_session_is_resumed(
    tmp_path: Path,
) -> None:
    async def hang(_arguments: object, _context: object) -> object:
        await asyncio.Event().wait()
        return done()

    store = SessionStore(tmp_path / "sessions")
    world = World(tmp_path / "w", [Turn("Wait.", [call("hang")])], store=store, tools=[tool("hang", hang)])
    run = world.start()
    await until(lambda: world.of("tool_call"))
    # What another process would find after a kill: the file as it is now.
    copy = SessionStore(tmp_path / "copy")
    source = store.path(world.session.session_id)
    target = tmp_path / "copy" / source.parent.name / source.name
    target.parent.mkdir(parents=True, mode=0o700)
    target.write_bytes(source.read_bytes())
    session = Session.resume(copy, world.session.session_id)
    again = World(tmp_path / "w", ["Going on."], store=copy, session=session)
    assert (await again.run("Go on.")).text == "Going on."
    assert [item.category for item in again.results] == ["interrupted"]
    check_messages(session.messages())
    session.close()
    world.agent.cancel()
    await run
    world.session.close()
