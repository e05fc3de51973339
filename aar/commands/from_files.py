"""Slash commands that come from files: the user's and the project's own, and one for each skill."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aar.commands.base import Command, Context, Result, Submit, fence
from aar.commands.extensions import follow
from aar.commands.mcp import follow_prompts
from aar.commands.registry import Registry
from aar.protocol.errors import AarError, ToolFailure, UsageError
from aar.protocol.ports import SpawnRequest

if TYPE_CHECKING:
    from aar.extensions.command_files import CommandFile
    from aar.extensions.skills import Skill
    from aar.runtime.conversation import Conversation

_SECONDS = 30.0
_MAX_OUTPUT = 20_000


def registry_for(conversation: Conversation) -> Registry:
    """Return all commands of a session: the built-in ones, those from files, skills, then extensions.

    A file whose name is taken is passed over; the user is told at the start of a run.
    """
    registry = Registry()
    extras = conversation.runtime.extras

    def from_files() -> list[Command]:
        files = [_command(file) for file in extras.command_files.values()]
        taken = {command.name for command in files}
        skills = [skill for skill in extras.skills.values() if skill.name not in taken]
        return files + [_skill(skill) for skill in skills if registry.find(skill.name) is None]

    follow(registry, conversation, from_files)
    follow_prompts(registry, conversation.runtime.servers.bridge)
    return registry


def _command(file: CommandFile) -> Command:
    async def run(context: Context, argument: str) -> Result:
        outputs = {command: await _output(context, command) for command in file.commands()}
        from aar.extensions.command_files import fill_in, put_outputs

        # Commands of the file run as they stand there: what the user types never gets into them.
        prompt = put_outputs(fill_in(file.body, argument), outputs)
        return Submit(prompt, note=f"/{file.name} ({file.source})")

    return Command(file.name, file.description or "From a file.", run, file.hint, "more")


async def _output(context: Context, command: str) -> str:
    """Run a command of a file where the rules allow it unasked; return what it wrote, as a code block."""
    executor, runtime = context.conversation.agent.executor, context.runtime
    spec = executor.registry.get("bash")
    if spec is None or not executor.offers("bash"):
        return f"(`{command}` did not run: there is no shell here)"
    decision = await asyncio.to_thread(executor.policy.decide, spec, {"command": command})
    if decision.decision != "allow":
        why = "; ".join(decision.reasons) or "it would have to be asked for"
        return f"(`{command}` did not run: {why})"
    request = SpawnRequest(
        ("/bin/sh", "-c", command),
        runtime.workspace,
        timeout_s=_SECONDS,
        read_only=executor.policy.mode == "plan",
        max_output=_MAX_OUTPUT,
    )
    try:
        ended = await runtime.spawner.run(request)
    except (AarError, OSError) as error:
        return f"(`{command}` did not run: {error})"
    return fence(ended.output.decode("utf-8", "replace"))


def _skill(skill: Skill) -> Command:
    async def run(context: Context, argument: str) -> Result:
        from aar.extensions.skills import loaded

        try:
            text = await asyncio.to_thread(loaded, skill, argument)
        except ToolFailure as error:
            raise UsageError(error.message) from error
        request = argument or f"Use the skill {skill.name}."
        return Submit(request, note=f"with the skill {skill.name}", facts=((f"skill:{skill.name}", text),))

    return Command(skill.name, skill.description[:200], run, skill.hint, "more")
