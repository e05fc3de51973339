"""What needs no model: folders, settings, trust, sessions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aar.config.load import LoadedConfig, load_config
from aar.config.paths import Paths, paths, project_root
from aar.config.schema import Config, PermissionMode
from aar.config.trust import TrustStore, fingerprint, untrusted_notice
from aar.memory.session_store import SessionStore
from aar.protocol.errors import ConfigurationError, StorageError

if TYPE_CHECKING:
    from aar.safety.policy import Scope
    from aar.safety.redact import Redactor


@dataclass(frozen=True)
class Base:
    """What needs no model: folders, settings, trust, sessions.

    Attributes:
        paths: aar's own folders.
        loaded: The configuration with its origins.
        cwd: Where aar was started, resolved.
        workspace: Root of the project.
        trusted: Whether the project's own settings act.
        notices: Sentences for the user.
        scopes: How long an answer of the user may hold.
        given: What of the arguments of `open_base` says which settings count.
        kept: What is made once for it, by name.
    """

    paths: Paths
    loaded: LoadedConfig
    cwd: Path
    workspace: Path
    trusted: bool
    notices: tuple[str, ...]
    scopes: tuple[Scope, ...] = ("once", "session", "project", "user")
    given: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)
    kept: dict[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)

    @property
    def config(self) -> Config:
        """All settings."""
        return self.loaded.config

    @property
    def own_folders(self) -> tuple[Path, ...]:
        """Folders of aar itself, which commands may not read."""
        return self.paths.data, self.paths.config, self.paths.cache, self.paths.runtime

    @property
    def writable(self) -> tuple[Path, ...]:
        """Folders besides the workspace that the settings let change."""
        return tuple(Path(path).expanduser() for path in self.config.sandbox.writable)

    @property
    def note_folders(self) -> tuple[Path, Path]:
        """Where notes lie: the user's, and the project's, whether it is trusted or not."""
        return self.paths.data / "memory", self.workspace / ".aar" / "memory"

    @property
    def may_have_notes(self) -> bool:
        """Whether there is a folder of notes, told without loading what reads them."""
        return any(folder.is_dir() for folder in self.note_folders)

    def store(self) -> SessionStore:
        """Return the store of sessions on disk."""
        return SessionStore(self.paths.sessions)

    def session_id(self, prefix: str | None) -> str:
        """Return the stored session whose id begins with ``prefix``; ``None``: the newest of the workspace.

        Raises:
            ConfigurationError: There is none, or more than one.
        """
        store = self.store()
        try:
            found = store.latest(self.workspace) if prefix is None else store.find(prefix)
        except StorageError as error:
            raise ConfigurationError(str(error)) from error
        if found is None:
            raise ConfigurationError(f"There is no session of {self.workspace}; name one by its id.")
        return found


def open_base(
    *,
    cwd: Path | None = None,
    config_file: Path | None = None,
    profile: str | None = None,
    sets: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    trust: bool = False,
    model: str | None = None,
    mode: PermissionMode | None = None,
    debug: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Base:
    """Read the configuration for ``cwd``.

    Raises:
        ConfigurationError: A setting, file or folder is wrong.
    """
    environ = os.environ if environ is None else environ
    here = _working_folder(cwd)
    own = paths(environ)
    workspace = project_root(here)
    found = fingerprint(workspace)
    store = TrustStore(own)
    if trust:
        store.record(workspace, found)
    trusted = bool(found.items) and store.is_trusted(workspace, found)
    given = {"model.name": model, "permissions.mode": mode, **(flags or {})}
    loaded = load_config(
        here,
        paths=own,
        trusted=trusted,
        config_file=config_file,
        profile=profile,
        flags={key: value for key, value in given.items() if value is not None},
        sets=sets,
        environ=environ,
    )
    untrusted = None if trusted else untrusted_notice(found)
    notices = (*loaded.notices, *((untrusted,) if untrusted else ()))
    start_log(loaded.config, own, debug=debug)
    said = {"config_file": config_file, "profile": profile, "sets": tuple(sets), "flags": dict(flags or {})}
    return Base(own, loaded, here, workspace, trusted, notices, given=said)


_ARGUMENTS = frozenset({"cwd", "config_file", "profile", "sets", "flags", "trust", "model", "mode", "debug"})


def base_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the arguments of `aar.runtime.open_runtime` that `open_base` takes."""
    return {name: value for name, value in options.items() if name in _ARGUMENTS}


def _working_folder(cwd: Path | None) -> Path:
    try:
        here = (cwd or Path.cwd()).expanduser()
        if here.is_dir():
            return here.resolve()
    except FileNotFoundError:
        raise ConfigurationError("The present folder was removed; change to one that exists.") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigurationError(f"The folder {cwd} cannot be used: {error}.") from error
    raise ConfigurationError(f"The folder {here} does not exist; --cwd names an existing one.")


def start_log(config: Config, own: Paths, *, debug: bool = False) -> None:
    """Send what the parts log into the redacted file below ``<data>/logs``."""
    from aar.observability.diagnostics_log import setup_logging

    redactor: list[Redactor] = []

    def redact(text: str) -> str:
        if not redactor:
            from aar.safety.redact import Redactor

            redactor.append(Redactor())
        return redactor[0].redact(text)

    setup_logging(config.log, own.logs, redact, debug=debug)


def log_failure(what: str, error: BaseException) -> None:
    """Write a defect with its traceback into the diagnostics log."""
    import logging

    logging.getLogger("aar").error(what, exc_info=error)
