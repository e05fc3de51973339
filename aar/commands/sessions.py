"""Sessions: list, go on with one, copy, rename, begin again; and what stands now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aar.commands.base import (
    Choice,
    ChoiceItem,
    Command,
    Context,
    Failure,
    Result,
    Table,
    Text,
    money,
    one_line,
)
from aar.commands.git_facts import git
from aar.memory.session_scan import SessionInfo
from aar.protocol.errors import StorageError, UsageError

if TYPE_CHECKING:
    from aar.memory.session_words import Hit

_MOST = 200
_MOST_HITS = 50


async def _sessions(context: Context, argument: str) -> Result:
    """List the sessions of this folder, go on with one, or find some by words."""
    store = context.runtime.store
    first, _, words = argument.partition(" ")
    everywhere = first == "all"
    if everywhere and words.strip():
        return await _search(context, words.strip(), None) or Failure(f"Nothing holds {words.strip()!r}.")
    if argument and not everywhere:
        try:
            found = await asyncio.to_thread(store.find, argument)
        except StorageError as error:
            hits = await _search(context, argument, context.runtime.workspace)
            return hits or Failure(
                f"{error} None of this folder holds it either; /sessions all WORDS looks in all."
            )
        await context.conversation.resume(found)
        return Text(f"Going on with {_name(context)}.")
    infos = await asyncio.to_thread(store.list, None if everywhere else context.runtime.workspace)
    if not infos:
        return Text("There are no stored sessions yet.")
    now = context.session.session_id
    items = tuple(_item(info, info.id == now, everywhere=everywhere) for info in infos[:_MOST])
    more = f"The newest {_MOST} of {len(infos)}." if len(infos) > _MOST else ""
    return Choice("Sessions", items, more)


async def _search(context: Context, words: str, folder: Path | None) -> Choice | None:
    """Return the sessions in which all ``words`` stand in one message, the best first."""
    if not any(character.isalnum() for character in words):
        return None
    hits = await asyncio.to_thread(context.runtime.store.search, words, folder, _MOST_HITS)
    now = context.session.session_id
    items = tuple(_found(hit, hit.session.id == now, everywhere=folder is None) for hit in hits)
    return Choice(f"Sessions with {one_line(words, 60)}", items, "The best first.") if items else None


def _found(hit: Hit, current: bool, *, everywhere: bool) -> ChoiceItem:
    item = _item(hit.session, current, everywhere=everywhere)
    many = f" ({hit.count} places)" if hit.count > 1 else ""
    return replace(item, detail=f"{hit.kind}: {one_line(hit.plain, 120)}{many} · {item.detail}")


def _item(info: SessionInfo, current: bool, *, everywhere: bool) -> ChoiceItem:
    place = f" · {Path(info.cwd).name}" if everywhere and info.cwd else ""
    when = info.updated[:16].replace("T", " ")
    cost = f" · {money(info.cost_usd, known=info.cost_known)}" if info.cost_usd is not None else ""
    detail = f"{when} · {info.events} events{cost}{place} · {info.id[-6:]}"
    return ChoiceItem(one_line(info.title or "(untitled)", 70), f"/sessions {info.id}", detail, current)


def _name(context: Context) -> str:
    return f"“{one_line(context.session.title or 'untitled', 60)}” ({context.session.session_id})"


async def _clear(context: Context, argument: str) -> Result:
    """Begin a fresh session; ``argument`` is its title."""
    old = _name(context)
    await context.conversation.new_session(argument or None)
    return Text(f"A new session. {old} is kept; /sessions brings it back.")


async def _fork(context: Context, argument: str) -> Result:
    """Go on with a copy."""
    seq = None
    if argument:
        if not argument.isdigit() or not 1 <= int(argument) <= context.session.last_seq:
            last = context.session.last_seq
            raise UsageError(f"/fork takes the number of an event from 1 to {last}, or nothing.")
        seq = int(argument)
    original = context.session.session_id
    await context.conversation.fork(seq)
    return Text(f"This is a copy of {original}, which stays as it is: {context.session.session_id}.")


async def _rename(context: Context, argument: str) -> Result:
    """Give the session another title."""
    if not argument.strip():
        raise UsageError("Say the new title: /rename TITLE.")
    return Text(f"The session is called “{context.session.rename(argument)}” now.")


async def _status(context: Context, argument: str) -> Result:
    """Tell where things stand."""
    runtime, session, totals = context.runtime, context.session, context.session.totals
    branch = await git(context, "symbolic-ref", "--short", "-q", "HEAD")
    why = f" ({runtime.why_model})" if runtime.why_model else ""
    rows = [
        ("session", session.session_id),
        ("title", session.title or "(untitled)"),
        ("folder", str(runtime.workspace)),
        ("branch", (branch or "").strip() or "none"),
        ("model", f"{runtime.active.name}{why}"),
        ("thinking", str(runtime.reasoning or "the model's default")),
        ("mode", runtime.mode),
        ("wall", await asyncio.to_thread(runtime.wall)),
        ("project settings", "trusted" if runtime.base.trusted else "not used (none, or not trusted)"),
        ("state", "running" if context.conversation.running else str(totals.state())),
        ("waiting prompts", str(len(context.conversation.agent.queue.prompts))),
        ("tokens", f"{totals.usage.total:,} in {totals.steps} steps"),
        ("cost", money(totals.cost_usd, known=totals.cost_known)),
    ]
    rows += [("more folders", str(root)) for root in runtime.roots]
    if session.degraded:
        rows.append(("stored", "no: the disk does not take it; it is kept in memory"))
    return Table("Status", (), tuple(rows))


def _complete_sessions(context: Context, text: str) -> Iterable[str]:
    return [word for word in ("all",) if word.startswith(text)]


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("status", "Tell where things stand: session, model, mode, wall, cost.", _status,
                group="session"),
        Command("sessions", "List the sessions of this folder, find some, go on with one.", _sessions,
                usage="[ID | WORDS | all [WORDS]]", group="session", aliases=("resume",),
                example="/sessions rounding error",
                complete=lambda context, text: list(_complete_sessions(context, text))),
        Command("clear", "Begin a fresh session; this one is kept.", _clear, usage="[TITLE]",
                group="session", aliases=("new",)),
        Command("fork", "Go on with a copy of this session, up to an event.", _fork, usage="[SEQ]",
                group="session"),
        Command("rename", "Give this session another title.", _rename, usage="TITLE", group="session",
                example="/rename Parser rewrite"),
    ]  # fmt: skip
