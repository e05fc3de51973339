"""``aar doctor``: one line for each thing that aar needs, with what to do about it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from aar import __version__
from aar.config.paths import Paths, paths
from aar.protocol.errors import AarError
from aar.protocol.state import ExitCode
from aar.safety.sanitize import sanitize
from aar.transports.cli.console import Console, Style
from aar.transports.cli.options import base_options, take_runtime_options

if TYPE_CHECKING:
    from aar.runtime import Base

_MIN_FREE = 100_000_000
_NEWEST = 20
_STYLES: dict[str, Style] = {"ok": "green", "warn": "yellow", "fail": "red"}


@dataclass(frozen=True, slots=True)
class Check:
    """One line.

    Attributes:
        name: What was looked at.
        status: ``ok``; ``warn``: works, but less well; ``fail``: aar is not usable.
        detail: What was found.
        fix: What to do; empty when nothing need be done.
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    fix: str = ""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@base_options
def doctor(as_json: bool, **values: Any) -> int:
    """Check this installation; the exit code is 0 when aar is usable, else 3."""
    checks = list(examine(take_runtime_options(values)))
    usable = all(check.status != "fail" for check in checks)
    if as_json:
        fields = {"usable": usable, "version": __version__, "checks": [asdict(check) for check in checks]}
        click.echo(json.dumps(fields, ensure_ascii=False))
    else:
        _tell(checks, usable)
    return ExitCode.OK if usable else ExitCode.CONFIGURATION


def _tell(checks: list[Check], usable: bool) -> None:
    console = Console(sanitize)
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = console.styled(f"{check.status:4}", _STYLES[check.status], sys.stdout)
        fix = f" -> {check.fix}" if check.fix else ""
        line = sanitize(f"{check.name:{width}}  {check.detail}{fix}", keep_newlines=False)
        console.raw(f"{mark}  {line}\n")
    console.out("aar is usable." if usable else "aar is not usable yet: see the lines that begin with fail.")


def examine(options: dict[str, Any]) -> Iterator[Check]:
    """Yield all checks. Nothing is sent, and nothing is written that stays.

    Args:
        options: For `aar.runtime.open_base`.
    """
    yield Check("aar", "ok", f"{__version__} at {Path(__file__).parents[2]}")
    yield Check("python", "ok", f"{platform.python_version()} at {sys.executable} on {platform.platform()}")
    own = paths()
    for name in ("data", "config", "cache", "runtime"):
        yield _guarded(f"{name} folder", lambda name=name: _folder(name, getattr(own, name)))
    base, problem = _load(options)
    if base is None:
        yield Check("config", "fail", problem, "repair the file, or move it away")
    else:
        yield Check("config", "ok", _config_files(own, base))
        for notice in base.notices:
            yield Check("config", "warn", notice)
        yield _guarded("model", lambda: _model(base))
        yield _guarded("keys", lambda: _keys(base))
        yield _guarded("wall", lambda: _wall(base))
    yield from _programs()
    yield _terminal()
    yield _guarded("sessions", lambda: _sessions(own))


def _guarded(name: str, look: Callable[[], Check]) -> Check:
    """Return the check; one that cannot even be made has failed."""
    try:
        return look()
    except AarError as error:
        return Check(name, "fail", str(error))
    except Exception as error:
        return Check(name, "fail", f"{type(error).__name__}: {error}")


def _load(options: dict[str, Any]) -> tuple[Base | None, str]:
    from aar.runtime import open_base

    try:
        return open_base(**options), ""
    except AarError as error:
        return None, str(error)


def _folder(name: str, folder: Path) -> Check:
    title = f"{name} folder"
    nearest = folder
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        problem = "is not a folder" if not nearest.is_dir() else "cannot be written"
        fix = "make it a folder that you can write, or set AAR_HOME to one"
        return Check(title, "fail", f"{folder}: {nearest} {problem}", fix)
    free = shutil.disk_usage(nearest).free
    if free < _MIN_FREE:
        return Check(title, "warn", f"{folder} ({free / 1e6:.0f} MB free)", "make room on this disk")
    state = "writable" if nearest == folder else "made when needed"
    return Check(title, "ok", f"{folder} ({state}, {free / 1e9:.0f} GB free)")


def _config_files(own: Paths, base: Base) -> str:
    files = [str(own.user_config)] if own.user_config.exists() else []
    files += [str(origin.file) for origin in base.loaded.origins.values() if origin.file is not None]
    return "valid: " + (", ".join(dict.fromkeys(files)) or "built-in settings only")


def _model(base: Base) -> Check:
    from aar.runtime import make_active_model

    active, why = make_active_model(base)
    chosen = f"{active.name} ({why or 'configured'})"
    from aar.transports.cli.models import server_state

    usable, state = server_state(base, active.name)
    if usable:
        return Check("model", "ok", f"{chosen}: {state}")
    if active.name.startswith("local/"):
        return Check("model", "fail", f"{chosen}: {state}")
    return Check("model", "warn", f"{chosen}: {state}", "set the key if this server wants one")


def _keys(base: Base) -> Check:
    """Tell for which vendors keys are there, and from where; none is shown."""
    from aar.providers.keys import locate_key, provider_settings
    from aar.providers.presets import PRESETS

    found: list[str] = []
    for preset in PRESETS.values():
        if not preset.hosts:
            continue
        if provider_settings(preset.name, base.config).api_key_command is not None:
            found.append(f"{preset.name} (api_key_command)")
            continue
        try:
            key = locate_key(preset.name, preset.hosts[0], base.config)
        except AarError as error:
            return Check("keys", "warn", str(error), "set the variable, or correct api_key_env")
        if key is not None:
            found.append(f"{preset.name} ({key.source})")
    return Check("keys", "ok", "; ".join(found) or "none of a vendor; `aar auth set PROVIDER` keeps one")


def _wall(base: Base) -> Check:
    from aar.safety.spawn import ProcessSpawner

    spawner = ProcessSpawner(base.workspace, base.config.sandbox, own=base.own_folders)
    try:
        found = spawner.status()
    finally:
        spawner.close()
    reasons = " ".join(found.reasons)
    if found.enforced:
        return Check("wall", "ok", f"{found.name} holds. {reasons}".strip())
    fix = "`aar run` denies what would need a question; `aar sandbox status` tells more"
    return Check("wall", "warn", f"no wall around commands. {reasons}", fix)


def _programs() -> Iterator[Check]:
    for name, without in (
        ("git", "install git: without it there are no diffs of the repository"),
        ("rg", "install ripgrep: without it searches are slower"),
        ("bwrap", ""),
    ):
        found = shutil.which(name)
        if found is not None:
            yield Check(name, "ok", found)
        elif without:
            yield Check(name, "warn", "not found", without)
        else:
            yield Check(name, "ok", "not found; Landlock is used")


def _terminal() -> Check:
    size = shutil.get_terminal_size()
    term = os.environ.get("TERM", "unknown")
    if not sys.stdout.isatty():
        return Check("terminal", "ok", f"standard output is no terminal ({term})")
    encoding = (sys.stdout.encoding or "").lower()
    if encoding not in ("utf-8", "utf8"):
        fix = "set LANG to a UTF-8 locale, such as C.UTF-8"
        return Check("terminal", "warn", f"{term}, {size.columns}x{size.lines}, {encoding}", fix)
    return Check("terminal", "ok", f"{term}, {size.columns}x{size.lines}, UTF-8")


def _sessions(own: Paths) -> Check:
    """Look at all names and sizes, and at the ends of the newest files."""
    from aar.memory.session_store import SessionStore

    files = [path for path in own.sessions.glob("*/*.jsonl") if path.is_file()]
    total = sum(path.stat().st_size for path in files)
    newest = sorted(files, key=lambda path: path.stat().st_mtime_ns, reverse=True)[:_NEWEST]
    store = SessionStore(own.sessions)
    bad = [path for path in newest if not _has_events(store, path)]
    summary = f"{len(files):,} sessions, {total / 1e6:,.1f} MB"
    if not bad:
        return Check("sessions", "ok", summary)
    fix = "aar leaves them alone; move them away if you do not need them"
    return Check("sessions", "warn", f"{summary}; {len(bad)} cannot be read: {bad[0]}", fix)


def _has_events(store: Any, path: Path) -> bool:
    try:
        return bool(store.tail(path.stem, 1))
    except (AarError, OSError):
        return False
