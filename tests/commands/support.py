"""A conversation with a scripted model in a real git repository, and what its commands answer."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aar.commands.base import Context, HealthCheck, Result
from aar.commands.registry import Registry
from aar.runtime import open_runtime
from aar.runtime.conversation import Conversation

ACTIONS = frozenset({"attach", "keys", "layout", "quit", "theme"})
WRITE = {"tool_calls": [{"name": "write_file", "arguments": {"path": "b.txt", "content": "b\n"}}]}


class Desk:
    """A door without a screen."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.talk = context.conversation

    async def run(self, line: str) -> Result:
        """Run a command line."""
        return await self.context.registry.run_line(self.context, line)

    async def say(self, prompt: str) -> None:
        """Send a prompt and wait for the end of its run, allowing what is asked."""

        def allow(event: Any) -> None:
            if event.type == "approval_request":
                asyncio.get_running_loop().call_later(0.02, answer, event.request_id)

        def answer(request_id: str) -> None:
            if any(request.request_id == request_id for request in self.talk.agent.approvals.pending):
                self.talk.answer(request_id, "allow")
            else:
                asyncio.get_running_loop().call_later(0.02, answer, request_id)

        stop = self.talk.session.on_event(allow)
        self.talk.submit(prompt)
        await self.talk.wait()
        stop()


def git(folder: Path, *words: str) -> str:
    """Run git in ``folder``."""
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def repository(folder: Path) -> Path:
    """Make a repository with one commit."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", "a.txt")
    git(folder, "commit", "-q", "-m", "Begin with one")
    return folder


def checks() -> list[HealthCheck]:
    """Return what a doctor found."""
    return [HealthCheck("wall", "warn", "none", "install bubblewrap"), HealthCheck("git", "ok", "here")]


@asynccontextmanager
async def desk(
    tmp_path: Path, *steps: dict[str, Any], mode: str = "ask", **options: Any
) -> AsyncIterator[Desk]:
    """Open a conversation in ``tmp_path / "project"``, a repository unless it is there already."""
    project = tmp_path / "project"
    if not project.exists():
        repository(project)
    scenario = tmp_path / "model.json"
    scenario.write_text(json.dumps({"steps": list(steps) or [{"text": "ok"}]}))
    name = f"scripted/{scenario}"
    runtime = open_runtime(cwd=project, model=name, mode=mode, interactive=True, **options)
    talk = Conversation(runtime, runtime.open_session())
    try:
        yield Desk(Context(talk, Registry(), ACTIONS, checks))
    finally:
        await talk.aclose()
