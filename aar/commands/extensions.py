"""Python extensions: which there are, their commands and panels, and reading everything again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aar.commands.base import (
    Command,
    Context,
    Failure,
    Result,
    Submit,
    Table,
    Text,
    need_idle,
    need_no_argument,
    one_line,
)
from aar.commands.registry import Registry
from aar.extensions.hooks_config import AfterEdit, Hook
from aar.protocol.errors import UsageError

if TYPE_CHECKING:
    from aar.extensions.api import CommandEntry
    from aar.extensions.manager import Extension
    from aar.protocol.panel import Panel, PanelLine
    from aar.runtime.conversation import Conversation


def follow(registry: Registry, conversation: Conversation, from_files: Callable[[], list[Command]]) -> None:
    """Keep commands from files and of extensions in ``registry``, also when they are read again.

    A command whose name is taken is passed over; the user is told.
    """
    added: list[str] = []
    extensions = conversation.runtime.extras.extensions

    def refresh() -> None:
        for name in added:
            registry.remove(name)
        added.clear()
        theirs = [
            _command(extension, entry)
            for extension in extensions.extensions
            for entry in extension.registered.commands
        ]
        for command in from_files():
            add(command, conversation.runtime.notices.append)
        for command in theirs:
            # What is told at the start has been told when extensions are there.
            add(command, lambda message: extensions.tell(conversation.session, message))

    def add(command: Command, tell: Callable[[str], None]) -> None:
        try:
            registry.add(command)
            added.append(command.name)
        except UsageError as error:
            tell(str(error))

    extensions.on_loaded.append(refresh)
    refresh()


def _command(extension: Extension, entry: CommandEntry) -> Command:
    async def run(context: Context, argument: str) -> Result:
        from aar.extensions.worker import ExtensionTroubleError

        here = context.runtime.extras.extensions.here(context.session)
        if here is None:
            return Failure(f"/{entry.name} cannot be used: its extension is not loaded here.")
        try:
            said = await here.call(extension, entry.function, argument, here.context(extension))
        except ExtensionTroubleError as error:
            return Failure(f"/{entry.name} of the extension {extension.name} failed: {error}.")
        return _result(entry.name, said)

    return Command(entry.name, one_line(entry.summary), run, entry.usage, "more")


def _result(name: str, said: Any) -> Result:
    from aar.extensions.api_types import Rows, Send

    match said:
        case None:
            return Text("Done.")
        case str():
            return Text(said) if said.strip() else Text("Done.")
        case Send():
            return Submit(said.prompt, said.note or f"/{name}")
        case Rows():
            rows = tuple(tuple(str(cell) for cell in row) for row in said.rows)
            return Table(said.title, tuple(said.columns), rows, said.note)
        case _:
            return Failure(f"/{name} answered {type(said).__name__}; a command answers text, Rows or Send.")


async def _reload(context: Context, argument: str) -> Result:
    """Read extensions, skills, commands, agents and hooks again."""
    need_idle(context)
    extras = context.runtime.extras
    problems = await extras.reload()
    context.conversation.renew_agent()
    loaded = extras.extensions.extensions
    counts = (
        f"{len(loaded)} extensions, {len(extras.skills)} skills, {len(extras.command_files)} commands "
        f"from files and {len(extras.profiles)} agents are in use."
    )
    return Text("\n\n".join([counts, *(f"- {problem}" for problem in problems)]))


async def _extensions(context: Context, argument: str) -> Result:
    """List the extensions and what each brings."""
    extensions = context.runtime.extras.extensions
    await extensions.ready(context.session)
    manager = extensions.manager
    rows = [
        (item.name, item.source.tier, item.failure or "works", brings(item)) for item in manager.extensions
    ]
    rows += [(item.name, item.tier, "disabled", "") for item in manager.discovery.disabled]
    rows += [(item.name, item.tier, "overridden", "") for item in manager.discovery.overridden]
    if not rows:
        return Text("There are no extensions; docs/extensions.md tells how one is made.")
    return Table("Extensions", ("name", "from", "state", "brings"), tuple(rows))


def brings(extension: Extension) -> str:
    """Return in a few words what an extension registered."""
    found = extension.registered
    parts: Sequence[tuple[str, Sequence[object]]] = (
        ("tool", found.tools),
        ("command", found.commands),
        ("hook", found.hooks),
        ("prompt layer", found.prompts),
        ("provider", tuple(found.providers)),
        ("theme", tuple(found.themes)),
        ("panel", found.panels),
        ("part", tuple(found.parts)),
    )
    return ", ".join(f"{len(items)} {name}{'s' * (len(items) != 1)}" for name, items in parts if items)


async def _hooks(context: Context, argument: str) -> Result:
    """List the hooks of user, project and extensions, with what each runs."""
    from aar.runtime.hooks import load_hooks

    need_no_argument(argument, "hooks")
    base, extensions = context.runtime.base, context.runtime.extras.extensions
    hooks, edits, problems = await asyncio.to_thread(load_hooks, base)
    rows = [(hook.event, hook.matcher or "all", one_line(hook.command), _whose(hook)) for hook in hooks]
    rows += [("after_edit", edit.glob, one_line(edit.command), _whose(edit)) for edit in edits]
    rows += [
        (entry.event, entry.tools or "all", entry.function.__name__, f"extension {extension.name}")
        for extension in extensions.extensions
        for entry in extension.registered.hooks
    ]
    if not rows:
        return Text(" ".join(["There are no hooks; docs/hooks.md tells how one is made.", *problems]))
    return Table("Hooks", ("when", "for", "runs", "from"), tuple(rows), " ".join(problems))


def _whose(hook: Hook | AfterEdit) -> str:
    theirs = " (Claude Code)" if isinstance(hook, Hook) and hook.claude else ""
    return ("the project" if hook.project else "you") + theirs


async def _panels(context: Context, argument: str) -> Result:
    """Show the panels of extensions."""
    panels = context.runtime.extras.extensions.panels(context.session)
    if argument:
        panels = tuple(panel for panel in panels if argument in panel.name)
    if not panels:
        return Text("No extension shows a panel here.")
    return Text("\n\n".join(panel_markdown(panel) for panel in panels))


def panel_markdown(panel: Panel) -> str:
    """Return a panel as Markdown."""
    return "\n".join([f"**{one_line(panel.title)}**", "", *(f"- {_line(line)}" for line in panel.lines)])


def _line(line: PanelLine) -> str:
    if line.kind == "gauge":
        return f"{line.text}: {line.amount or 0:.0%}"
    if line.kind == "action":
        return f"{line.text}: `{line.value}`"
    return f"{line.text}: {line.value}" if line.kind == "field" else line.text


def _panel_names(context: Context, text: str) -> Sequence[str]:
    panels = context.runtime.extras.extensions.panels(context.session)
    return [panel.name for panel in panels if text in panel.name]


def commands() -> tuple[Command, ...]:
    """Return the commands of this module."""
    return (
        Command(
            "reload",
            "Read extensions, skills, commands, agents and hooks again.",
            _reload,
            group="more",
            example="/reload",
        ),
        Command("hooks", "List the hooks: what runs on which events.", _hooks, group="look"),
        Command("extensions", "List the extensions.", _extensions, group="look", example="/extensions"),
        Command(
            "panels",
            "Show the panels of extensions.",
            _panels,
            "[NAME]",
            "look",
            complete=_panel_names,
            example="/panels companion",
        ),
    )
