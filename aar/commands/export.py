"""The open session as a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from aar.commands.base import Command, Context, Result, Text, starting_with
from aar.protocol.errors import UsageError

if TYPE_CHECKING:
    from aar.protocol.events import Event
    from aar.runtime.session_export import Form


async def _export(context: Context, argument: str) -> Result:
    """Write the session without keys; what happens after the command is no part of it."""
    from aar.runtime.session_export import document, write

    session, last = context.session, context.session.last_seq
    form, path = _target(context, argument)

    def read() -> Iterable[Event]:
        return takewhile(lambda event: (event.seq or 0) <= last, session.events())

    def work() -> int:
        write(path, document(read, session.title, form))
        return path.stat().st_size

    size = await asyncio.to_thread(work)
    return Text(f"Wrote `{path}` ({size / 1000:,.1f} kB). Known keys are taken out of it.")


def _target(context: Context, argument: str) -> tuple[Form, Path]:
    """Return form and file; without a name the file lies in the workspace and is named for the session.

    Raises:
        UsageError: The file is there already, and is not an earlier export under the usual name.
    """
    from aar.runtime.session_export import Form, form_of

    forms: dict[str, Form] = {known: known for known in get_args(Form)}
    word, _, rest = argument.partition(" ")
    form = forms.get(word.lower())
    name = (argument if form is None else rest).strip().strip("\"'")
    path = _path(context.runtime.workspace, name)
    form = form or form_of(path) or "md"
    usual = f"aar-session-{context.session.session_id[-6:].lower()}.{form}"
    if os.path.isdir(path):  # noqa: PTH112 - a name too long is no folder, and no error here
        return form, path / usual
    if path.name != usual and os.path.lexists(path):
        raise UsageError(f"{path} is there already; give another name.")
    return form, path


def _path(workspace: Path, name: str) -> Path:
    try:
        return workspace / Path(name).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{name} names nobody's home folder; write the whole path.") from error


def _complete(context: Context, text: str) -> Sequence[str]:
    from aar.runtime.session_export import Form

    return starting_with(list(get_args(Form)), text)


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("export", "Write this session to a file, without keys.", _export,
                usage="[md | json | html] [FILE]", group="session", complete=_complete,
                example="/export html ~/parser.html"),
    ]  # fmt: skip
