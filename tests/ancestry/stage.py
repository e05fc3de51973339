"""An open runtime whose model is a scenario file: the whole of aar below its doors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aar.core.agent import Agent, RunResult
from aar.core.session import Session
from aar.runtime import Runtime, open_runtime


def uses(name: str, /, **arguments: Any) -> dict[str, Any]:
    """Return a tool call of a scenario."""
    return {"name": name, "arguments": arguments}


def script(path: Path, *steps: Mapping[str, Any] | str, **fields: Any) -> str:
    """Write a scenario and return the name of the model that plays it."""
    told = [{"text": step} if isinstance(step, str) else dict(step) for step in steps]
    path.write_text(json.dumps({"steps": told, **fields}))
    return f"scripted/{path}"


class Stage:
    """A runtime with one session and its agent."""

    def __init__(self, runtime: Runtime, session: Session) -> None:
        self.runtime, self.session = runtime, session
        self.root = runtime.workspace
        self.agent: Agent = runtime.agent(session)

    async def run(self, prompt: str = "Do it.") -> RunResult:
        """Send a prompt and wait for the end of its run."""
        async with asyncio.timeout(60):
            return await self.agent.run(prompt, self.session)

    def of(self, *types: str) -> list[Any]:
        """Return the events of these types."""
        return [event for event in self.session.events() if event.type in types]

    @property
    def results(self) -> list[Any]:
        """The results of tools, in order."""
        return self.of("tool_result")


@asynccontextmanager
async def stage(
    tmp_path: Path,
    model: str,
    *,
    files: Mapping[str, str] | None = None,
    mode: Any = "auto",
    resume: str | None = None,
    sets: Sequence[str] = (),
    **options: Any,
) -> AsyncIterator[Stage]:
    """Open a runtime in ``tmp_path / "project"``, with a new session or with the stored one ``resume``."""
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    for name, text in (files or {}).items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    runtime = open_runtime(cwd=project, model=model, mode=mode, sets=tuple(sets), **options)
    session = runtime.open_session(session_id=resume)
    try:
        yield Stage(runtime, session)
    finally:
        await session.aclose()
        await runtime.aclose()
