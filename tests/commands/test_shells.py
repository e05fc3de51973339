"""Commands in the background: listed, tailed, ended, and a notice when one has ended."""

from __future__ import annotations

from pathlib import Path

from aar.commands.base import Context, Failure, Table, Text
from aar.commands.registry import Registry
from aar.runtime.conversation import Conversation
from tests.support.fakes import Turn, call
from tests.support.minds import Ask, place
from tests.support.waiting import until


async def test_background_commands_are_listed_tailed_and_ended_and_their_end_is_told(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        calls = [
            call("bash", command="echo done; exit 3", background=True),
            call("bash", command="echo waiting; sleep 60", background=True),
        ]
        return Turn(calls=calls) if ask.first else "Both run."

    async with place(tmp_path, think) as here:
        await here.run()
        registry = Registry()
        context = Context(Conversation(here.runtime, here.session), registry)
        running = here.runtime.background["shell_2"]
        await until(lambda: len(here.of("notice")) > 0 and b"waiting" in running.output())
        [notice] = [event.message for event in here.of("notice") if event.code == "background"]
        assert notice.startswith("The background command shell_1 has ended with exit code 3")
        table = await registry.run_line(context, "/shells")
        assert isinstance(table, Table)
        assert table.rows == (("shell_1", "ended", "done"), ("shell_2", "runs", "waiting"))
        shown = await registry.run_line(context, "/shells shell_2")
        assert isinstance(shown, Text)
        assert "waiting" in shown.markdown
        assert await registry.run_line(context, "/shells kill shell_2") == Text(
            "shell_2 is ended, with all its children."
        )
        assert not running.running
        assert isinstance(await registry.run_line(context, "/shells shell_9"), Failure)
        assert registry.complete(context, "/shells ki") == ["/shells kill shell_1", "/shells kill shell_2"]
