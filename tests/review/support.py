"""A conversation whose model is a `Mind`, in a repository with a change."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aar.commands.base import Context, Result
from aar.commands.registry import Registry
from aar.core.active_model import ActiveModel
from aar.runtime import open_runtime
from aar.runtime.conversation import Conversation
from tests.commands.support import ACTIONS, repository
from tests.support.fakes import Turn
from tests.support.minds import Ask, Mind


class Room:
    """An open conversation with its commands."""

    def __init__(self, talk: Conversation, mind: Mind) -> None:
        self.talk, self.mind = talk, mind
        self.root = talk.runtime.workspace
        self.context = Context(talk, Registry(), ACTIONS)

    async def run(self, line: str) -> Result:
        """Run a command line."""
        return await self.context.registry.run_line(self.context, line)

    async def say(self, prompt: str) -> Any:
        """Send a prompt, wait for the end of its run, return the result."""
        self.talk.submit(prompt)
        await self.talk.wait()
        return self.talk.last_result

    def of(self, *types: str, agent: str | None = None) -> list[Any]:
        """Return the events of these types."""
        return [
            event
            for event in self.talk.session.events()
            if event.type in types and (agent is None or event.agent_id == agent)
        ]


@asynccontextmanager
async def room(
    tmp_path: Path,
    think: Callable[[Ask], Turn | str],
    *,
    mode: Any = "edit",
    delay_s: float = 0.0,
    **options: Any,
) -> AsyncIterator[Room]:
    """Open a conversation in a repository of one commit."""
    project = tmp_path / "project"
    if not project.exists():
        repository(project)
    scenario = tmp_path / "model.json"
    scenario.write_text(json.dumps({"steps": [{"text": "unused"}]}))
    runtime = open_runtime(cwd=project, model=f"scripted/{scenario}", mode=mode, interactive=True, **options)
    mind = Mind(think, delay_s=delay_s)
    await runtime.active.provider.aclose()
    runtime.active = ActiveModel("mind/m", mind, "m", mind.capabilities("m"))
    talk = Conversation(runtime, runtime.open_session())
    try:
        yield Room(talk, mind)
    finally:
        await talk.aclose()
