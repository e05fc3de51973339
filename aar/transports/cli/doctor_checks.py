"""The checks of ``aar doctor``. Nothing is sent, and nothing is written that stays."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from aar import __version__
from aar.config.load import MANAGED_FILE, PROJECT_FILE, validate_file
from aar.config.paths import Paths, paths
from aar.protocol.errors import AarError

if TYPE_CHECKING:
    from aar.runtime import Base

_MIN_FREE = 100_000_000
_LARGE = 5_000_000_000
_NEWEST = 20
_SIZE_S = 2.0
"""Seconds that adding up the data folder may take."""


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


def examine(options: dict[str, Any]) -> Iterator[Check]:
    """Yield all checks.

    Args:
        options: For `aar.runtime.open_base`.
    """
    yield Check("aar", "ok", f"{__version__} at {Path(__file__).parents[2]}")
    yield Check("python", "ok", f"{platform.python_version()} at {sys.executable} on {platform.platform()}")
    own = paths()
    for name in ("data", "config", "cache", "runtime"):
        yield _guarded(f"{name} folder", lambda name=name: _folder(name, getattr(own, name)))
    yield _guarded("data size", lambda: _size(own))
    base, problem = load(options)
    if base is None:
        yield from _config_problems(own, options, problem)
    else:
        yield Check("config", "ok", _config_files(own, base))
        for notice in base.loaded.notices:
            yield Check("config", "warn", notice, "take the key out, or set it in your own config")
        yield _guarded("trust", lambda: _trust(base))
        yield _guarded("model", lambda: _model(base))
        yield _guarded("keys", lambda: _keys(base))
        yield _guarded("wall", lambda: _wall(base))
        yield _guarded("mcp servers", lambda: _servers(base))
        if (base.workspace / ".git" / "worktrees").is_dir():
            yield _guarded("work trees", lambda: _work_trees(base))
        if (base.paths.data / "schedules").is_dir():
            yield _guarded("schedules", lambda: _schedules(base))
    yield from _programs()
    yield _terminal()
    yield _guarded("sessions", lambda: _sessions(own))


def _guarded(name: str, look: Callable[[], Check]) -> Check:
    """Return the check; one that cannot even be made has failed."""
    try:
        return look()
    except AarError as error:
        return Check(name, "fail", *split(error))
    except Exception as error:
        return Check(name, "fail", f"{type(error).__name__}: {error}")


def split(error: AarError, fix: str = "") -> tuple[str, str]:
    """Return what is wrong, and what to do about it: messages of aar say both, in this order."""
    wrong, stop, rest = str(error).partition(". ")
    return (f"{wrong}.", rest) if stop else (str(error), fix)


def load(options: dict[str, Any]) -> tuple[Base | None, str]:
    """Return settings and folders, or ``None`` and why they cannot be had."""
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


def _size(own: Paths) -> Check:
    """Add up what lies in the data folder, as far as that is quick."""
    total, files, until = 0, 0, time.monotonic() + _SIZE_S
    waiting = [own.data]
    while waiting and time.monotonic() < until:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry))
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
                        files += 1
        except OSError:
            continue
    least = "at least " if waiting else ""
    detail = f"{least}{files:,} files, {total / 1e6:,.1f} MB in {own.data}"
    if total < _LARGE:
        return Check("data size", "ok", detail)
    fix = "`aar checkpoints gc` and `aar sessions delete ID` make room"
    return Check("data size", "warn", detail, fix)


def _config_problems(own: Paths, options: dict[str, Any], problem: str) -> Iterator[Check]:
    """Tell all that is wrong with the files; where they are right, what else keeps aar from starting."""
    fix = "repair the line; `aar config validate FILE` checks a file"
    told: list[str] = []
    named = options.get("config_file")
    for file in dict.fromkeys(file for file in (own.user_config, named, MANAGED_FILE) if file is not None):
        if not file.exists() and file is not named:
            continue
        try:
            told += validate_file(file)
        except AarError as error:
            told.append(str(error))
    for sentence in told:
        yield Check("config", "fail", sentence, fix)
    if not told:
        # No file of the user's is wrong: the sentence itself says what to do.
        yield Check("config" if _here_exists(options) else "folder", "fail", problem)


def _here_exists(options: dict[str, Any]) -> bool:
    try:
        return (options.get("cwd") or Path.cwd()).expanduser().is_dir()
    except (OSError, RuntimeError):
        return False


def _config_files(own: Paths, base: Base) -> str:
    files = [str(own.user_config)] if own.user_config.exists() else []
    files += [str(origin.file) for origin in base.loaded.origins.values() if origin.file is not None]
    return "valid: " + (", ".join(dict.fromkeys(files)) or "built-in settings only")


def _trust(base: Base) -> Check:
    """Tell what this folder brings along, and whether it acts."""
    from aar.runtime.trust import describe

    question = describe(base)
    if not question.items:
        return Check("trust", "ok", f"{base.workspace} brings nothing along that would act")
    count = len(question.items)
    what = f"{count} file{'s' if count > 1 else ''} of {base.workspace}"
    idle = "do not act" if count > 1 else "does not act"
    if base.trusted:
        own = base.workspace / PROJECT_FILE
        detail = f"{what} may act" + (f", with the settings of {own}" if own.exists() else "")
        return Check("trust", "ok", detail)
    if not question.possible:
        return Check("trust", "warn", f"{what} {idle}: there is too much to look at", "move some away")
    changed = ": changed since it was trusted" if question.changed else ""
    fix = "`aar trust --show` lists them, `aar trust` lets them act"
    return Check("trust", "warn", f"{what} {idle}{changed}", fix)


def _servers(base: Base) -> Check:
    """Tell which MCP servers are set up, and whether their programs are there; none is started."""
    on = {name: server for name, server in base.config.mcp.servers.items() if server.enabled}
    missing = [
        f"{name} ({server.command})"
        for name, server in on.items()
        if server.command is not None and "${" not in server.command and shutil.which(server.command) is None
    ]
    if missing:
        fix = "install the program, write its path, or set enabled = false"
        return Check("mcp servers", "warn", f"no program for {', '.join(missing)}", fix)
    return Check("mcp servers", "ok", ", ".join(on) or "none is set up")


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
    for name, settings in base.config.providers.items():
        if name not in PRESETS and settings.api_key_env is not None:
            state = "set" if os.environ.get(settings.api_key_env) else "not set"
            found.append(f"{name} ({settings.api_key_env} is {state})")
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


def _work_trees(base: Base) -> Check:
    """Look for what agents did that is in no project."""
    from aar.runtime.work_trees import kept_trees

    found = [shlex.quote(str(tree)) for tree in kept_trees(base.workspace)]
    if not found:
        return Check("work trees", "ok", "none of an agent is kept")
    fix = f"see it with `git -C {found[0]} status`, remove it with `git worktree remove --force {found[0]}`"
    return Check("work trees", "warn", f"work of agents that is not in the project: {', '.join(found)}", fix)


def _schedules(base: Base) -> Check:
    """Look whether what calls aar at certain times calls it as it would be called now."""
    import asyncio

    from aar.orchestration.schedule import Schedules
    from aar.orchestration.schedule_keepers import not_current
    from aar.safety.spawn import ProcessSpawner

    found = Schedules(base.paths.data).all()
    spawner = ProcessSpawner(base.workspace, base.config.sandbox, own=base.own_folders)
    try:
        wrong = asyncio.run(not_current(found, spawner, os.environ))
    finally:
        spawner.close()
    if not wrong:
        return Check("schedules", "ok", f"{len(found)}, all as this aar writes them")
    told = "; ".join(f"{item.name}: {problem}" for item, problem in wrong)
    return Check("schedules", "warn", told, f"aar schedule renew {' '.join(item.name for item, _ in wrong)}")


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
    # The full screen puts something in the place of `sys.stdout` that is no file.
    output = sys.__stdout__ or sys.stdout
    if not output.isatty():
        return Check("terminal", "ok", f"standard output is no terminal ({term})")
    encoding = (output.encoding or "").lower()
    if encoding not in ("utf-8", "utf8"):
        fix = "set LANG to a UTF-8 locale, such as C.UTF-8"
        return Check("terminal", "warn", f"{term}, {size.columns}x{size.lines}, {encoding}", fix)
    return Check("terminal", "ok", f"{term}, {size.columns}x{size.lines}, UTF-8")


def _sessions(own: Paths) -> Check:
    """Look at the names, sizes and last bytes of all files, and into the ends of the newest."""
    from aar.memory.session_store import SessionStore

    if own.sessions.is_dir() and not os.access(own.sessions, os.R_OK | os.W_OK | os.X_OK):
        fix = f"run: chmod u+rwx {own.sessions}"
        return Check("sessions", "warn", f"{own.sessions} cannot be read or written: no session is kept", fix)
    files = [path for path in own.sessions.glob("*/*.jsonl") if path.is_file()]
    total = sum(path.stat().st_size for path in files)
    newest = sorted(files, key=lambda path: path.stat().st_mtime_ns, reverse=True)[:_NEWEST]
    store = SessionStore(own.sessions)
    bad = [path for path in newest if not _has_events(store, path)]
    torn = [path for path in files if path not in bad and _is_torn(path)]
    summary = f"{len(files):,} sessions, {total / 1e6:,.1f} MB"
    if bad:
        fix = "aar leaves them alone; move them away if you do not need them"
        return Check("sessions", "warn", f"{summary}; {len(bad)} cannot be read: {bad[0]}", fix)
    if torn:
        fix = f"nothing is lost: `aar run --session {torn[0].stem}` puts the cut line aside and goes on"
        return Check("sessions", "warn", f"{summary}; {len(torn)} need repair of the last line", fix)
    return Check("sessions", "ok", summary)


def _has_events(store: Any, path: Path) -> bool:
    try:
        return bool(store.tail(path.stem, 1))
    except (AarError, OSError):
        return False


def _is_torn(path: Path) -> bool:
    """Tell whether a crash cut off the last line, which the next opening puts aside."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:
        return False
