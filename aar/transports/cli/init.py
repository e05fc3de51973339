"""``aar init``: a commented config file for the user, and a first ``AGENTS.md`` for the repository."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from threading import Event

import click

from aar.config.files import cannot_write
from aar.config.paths import Paths, ensure, paths, project_root
from aar.protocol.errors import ConfigurationError, StorageError
from aar.safety.sanitize import sanitize

_MAX_FILES = 50_000


@click.command()
@click.option(
    "--agents-md/--no-agents-md",
    default=None,
    help="Write an AGENTS.md without asking, or do not; where nobody can be asked: not.",
)
@click.option("--cwd", type=click.Path(path_type=Path), help="Which folder; by default the present one.")
def init(agents_md: bool | None, cwd: Path | None) -> int:
    """Write a commented config file, and offer an AGENTS.md drafted from this repository.

    Nothing that exists is changed.
    """
    here = (cwd or Path.cwd()).expanduser()
    if not here.is_dir():
        raise ConfigurationError(f"The folder {here} does not exist; --cwd names an existing one.")
    _config(paths())
    root = project_root(here)
    file = next((root / name for name in ("AGENTS.md", "CLAUDE.md") if (root / name).exists()), None)
    if file is not None:
        click.echo(f"{file} is there already; it stays as it is.")
    elif agents_md is not False:
        _agents(root, ask=agents_md is None)
    return 0


def _config(own: Paths) -> None:
    from aar.config.describe import commented_config

    file = own.user_config
    if file.exists():
        click.echo(f"{file} is there already; it stays as it is.")
        return
    ensure(file.parent)
    _write(file, commented_config(), 0o600)
    click.echo(f"{file} is written: every setting, with its meaning and default.")


def _agents(root: Path, *, ask: bool) -> None:
    from aar.config.agents_draft import draft_agents
    from aar.tools.builtin.walk import walk

    if ask and not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo(f"There is no AGENTS.md in {root}; `aar init --agents-md` drafts one from its files.")
        return
    draft = draft_agents(root, list(itertools.islice(walk(root, Event()), _MAX_FILES)))
    if ask:
        click.echo(sanitize(draft))
        if not click.confirm(f"Write this to {root / 'AGENTS.md'}?"):
            return
    _write(root / "AGENTS.md", draft, 0o644)
    click.echo(
        f"{root / 'AGENTS.md'} is written: read it, and say what no file says. `aar trust` lets it act."
    )


def _write(file: Path, text: str, mode: int) -> None:
    import os

    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
        except OSError:
            file.unlink()  # half a file would count as one that is there already
            raise
    except OSError as error:
        raise StorageError(cannot_write(file, error)) from error
