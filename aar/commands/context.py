"""What the model sees: how much of its window is filled, with what exactly, and making it shorter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aar.commands.base import Command, Context, Failure, Result, Table, Text, fence, starting_with
from aar.protocol.errors import UsageError

_PARTS = {
    "system": "instructions",
    "rules": "project rules",
    "tools": "descriptions of tools",
    "history": "conversation",
    "outputs": "results of tools",
    "images": "images",
    "free": "free",
}
_BAR = 12


async def _context(context: Context, argument: str) -> Result:
    """Show what fills the model's window, or one section of it word for word."""
    if argument:
        return await asyncio.to_thread(_exact, context, argument)
    parts = context.conversation.context()
    rows = tuple(
        (
            _PARTS.get(part.name, part.name),
            f"{part.tokens:,}",
            f"{100 * part.share:.1f} %",
            "#" * min(_BAR, round(_BAR * part.share)),
        )
        for part in parts
    )
    runtime = context.runtime
    at = runtime.config.context.compact_at
    window = runtime.active.capabilities.context_window
    note = (
        f"About {window:,} tokens in all; compacted at {at:.0%}. /compact does it now, /context all shows it."
    )
    return Table("What fills the window", ("part", "tokens", "share", ""), rows, note, frozenset({1, 2}))


def _exact(context: Context, wanted: str) -> Result:
    """Return sections of the next request as they are sent, without known keys."""
    from aar.runtime.sent import sent_next
    from aar.runtime.session_export import redactor

    sections = list(sent_next(context.conversation.agent, context.session).sections())
    groups = {"messages": "message ", "all": ""}
    start = groups.get(wanted)
    chosen = [s for s in sections if s.name == wanted or (start is not None and s.name.startswith(start))]
    if not chosen:
        names = dict.fromkeys("messages" if s.name.startswith("message ") else s.name for s in sections)
        raise UsageError(f"/context takes one of {', '.join(names)}, message N, all, or nothing.")
    clean = redactor().redact
    parts = [
        f"**{s.name}** · {s.source} · about {s.tokens:,} tokens\n\n{fence(clean(s.text))}" for s in chosen
    ]
    return Text("\n\n".join(parts))


def _complete_sections(context: Context, text: str) -> Sequence[str]:
    layers = [layer.name for layer in context.conversation.agent.view_of(context.session).prompt.layers]
    return starting_with(list(dict.fromkeys((*layers, "tools", "messages", "all"))), text)


async def _compact(context: Context, argument: str) -> Result:
    """Sum up the older part of the conversation for the model; ``argument`` says what matters most."""
    done = await context.conversation.compact(argument)
    if done is None:
        return Failure("There is nothing to sum up yet: the conversation is short.")
    numbers = f"**{done.tokens_before:,} tokens became {done.tokens_after:,}.**"
    return Text(f"{numbers} The session keeps every word; the model goes on with this:\n\n{done.summary}")


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("context", "Show what fills the model's window, or a section of it word for word.", _context,
                usage="[SECTION | all]", group="look", complete=_complete_sections, example="/context rules"),
        Command("compact", "Sum up the older part of the conversation for the model.", _compact,
                usage="[FOCUS]", group="session", example="/compact keep what we found about the parser"),
    ]  # fmt: skip
