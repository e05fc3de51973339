"""Agents and skills: which there are, who works, who works for whom."""

from __future__ import annotations

from collections.abc import Sequence

from aar.commands.base import (
    Choice,
    ChoiceItem,
    Command,
    Context,
    Failure,
    Result,
    Table,
    Text,
    one_line,
    starting_with,
)

_NONE = "none"


async def _agent(context: Context, argument: str) -> Result:
    """Show the agents to choose from, or let one work."""
    runtime = context.runtime
    now = runtime.profile.name if runtime.profile is not None else _NONE
    if not argument:
        items = [ChoiceItem(_NONE, f"/agent {_NONE}", "aar itself", now == _NONE)]
        items += [
            ChoiceItem(item.name, f"/agent {item.name}", one_line(item.description), item.name == now)
            for item in runtime.extras.profiles.values()
        ]
        return Choice("Agents", tuple(items), "The agent that works in this session.")
    if argument == now:
        return Text(f"{argument} works already.")
    context.conversation.set_agent(None if argument == _NONE else argument)
    return Text("aar itself works from now on." if argument == _NONE else f"{argument} works from now on.")


def _names(context: Context, text: str) -> Sequence[str]:
    return starting_with([*context.runtime.extras.profiles, _NONE], text)


async def _agents(context: Context, argument: str) -> Result:
    """Show who works or waits for the agent, stop one, or say something to one."""
    team = context.runtime.extras.team(context.session)
    verb, _, rest = argument.partition(" ")
    if verb == "stop" and rest:
        if team.cancel(rest.strip()):
            return Text(f"{rest.strip()} is stopped.")
        return Failure(f"No agent {rest.strip()!r} works; /agents shows who does.")
    if verb == "tell" and rest:
        agent_id, _, said = rest.strip().partition(" ")
        if said.strip() and team.steer(agent_id, said.strip()):
            return Text(f"{agent_id} hears it before its next step.")
        return Failure("Write /agents tell ID WORDS, with the id of an agent that works.")
    if argument:
        return Failure("Write /agents, /agents stop ID or /agents tell ID WORDS.")
    rows = tuple(
        (child.agent_id, team.state(child), one_line(child.title, 60)) for child in team.children.values()
    )
    if not rows:
        return Text("No agent has worked for this one yet.")
    return Table("Agents of this session", ("id", "state", "task"), rows)


async def _skills(context: Context, argument: str) -> Result:
    """List the skills."""
    skills = context.runtime.extras.skills
    if not skills:
        return Text("There are no skills; docs/skills.md tells where they lie.")
    rows = tuple(
        (f"/{item.name}", one_line(item.description, 80), str(item.folder)) for item in skills.values()
    )
    return Table("Skills", ("skill", "what it is for", "folder"), rows)


def _completed(context: Context, text: str) -> Sequence[str]:
    team = context.runtime.extras.team(context.session)
    return starting_with([f"stop {child.agent_id}" for child in team.working], text)


def commands() -> tuple[Command, ...]:
    """Return the commands of this module."""
    return (
        Command(
            "agent",
            "Let another agent work in this session.",
            _agent,
            "[NAME|none]",
            "model",
            complete=_names,
            example="/agent reviewer",
        ),
        Command(
            "agents",
            "Show the agents that work for this one; stop one or say something to it.",
            _agents,
            "[stop ID|tell ID WORDS]",
            "work",
            complete=_completed,
            example="/agents stop explore-7k2m9q",
        ),
        Command("skills", "List the skills.", _skills, group="look", example="/skills"),
    )
