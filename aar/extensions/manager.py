"""Loads all extensions, each in a thread of its own and within a time; one that fails costs a notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aar.extensions.discovery import Discovery, Source, discover

if TYPE_CHECKING:
    from aar.extensions.api import ExtensionAPI, Registered
    from aar.extensions.api_parts import PartName
    from aar.extensions.worker import Worker

_MAX_SHOWN = 200
_UNLOAD_S = 1.0

LogFailure = Callable[[str, BaseException], None]


@dataclass(frozen=True)
class Settings:
    """What the manager needs to know.

    Attributes:
        user_folder: ``<config>/extensions``.
        project: Returns the project's root if the project is trusted as it is now.
        workspace: Root of the project.
        data: Folder for the extensions' own files.
        use: Names of those that come with aar which are wanted.
        disabled: Names of those that are not.
        settings: ``[extensions.settings]`` by name.
        load_s: Seconds for each to load.
        taken_providers: Names of providers that extensions cannot have.
        log: Gets tracebacks.
        packages: Folders of installed packages; ``None``: those of this Python.
        enabled: Whether there are any at all.
    """

    user_folder: Path
    project: Callable[[], Path | None]
    workspace: Path
    data: Path
    use: Sequence[str] = ()
    disabled: Sequence[str] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    load_s: float = 3.0
    taken_providers: frozenset[str] = frozenset()
    log: LogFailure = lambda what, error: None
    packages: Sequence[Path] | None = None
    enabled: bool = True


@dataclass
class Extension:
    """An extension that was loaded, or could not be.

    Attributes:
        source: Where it is.
        worker: Its thread.
        api: What it registered with.
        registered: What it registered.
        failure: Why it could not be loaded; empty: it was.
        seconds: That loading took.
    """

    source: Source
    worker: Worker
    api: ExtensionAPI
    registered: Registered
    failure: str = ""
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Name of the extension."""
        return self.source.name

    @property
    def data_folder(self) -> Path:
        """Folder of its own files; made when first asked for."""
        return self.api.data_folder


class ExtensionManager:
    """All extensions of one process and folder.

    Args:
        settings: Where they are, what they may take.
        only: The one that counts, where it is known already.
    """

    def __init__(self, settings: Settings, *, only: Source | None = None) -> None:
        self.settings = settings
        self._only = only
        self.discovery = Discovery()
        self.extensions: tuple[Extension, ...] = ()
        self.problems: list[str] = []
        self._done: Future[None] = Future()
        self._begun = False
        self._closed = False
        self._unguard: Callable[[], None] = lambda: None

    # --- loading -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to load beside everything else; more calls add nothing."""
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._load_all, name="aar-extensions", daemon=True).start()

    @property
    def done(self) -> Future[None]:
        """Done when everything is loaded that can be; never fails."""
        self.begin()
        return self._done

    def wait(self) -> None:
        """Wait until everything is loaded that can be."""
        self.done.result()

    def _load_all(self) -> None:
        try:
            given = self.settings
            if not given.enabled and self._only is None:
                return
            self.discovery = self._discover() if self._only is None else Discovery((self._only,))
            self.problems += self.discovery.problems
            if self.discovery.chosen:
                self._load(self.discovery.chosen)
        except Exception as error:
            self.settings.log("extensions could not be loaded", error)
            self.problems.append(f"Extensions could not be loaded ({type(error).__name__}: {error}).")
        finally:
            self._done.set_result(None)

    def _discover(self) -> Discovery:
        given = self.settings
        return discover(
            given.user_folder,
            given.project(),
            use=given.use,
            disabled=given.disabled,
            packages=given.packages,
        )

    def _load(self, sources: Sequence[Source]) -> None:
        from aar.extensions.worker import guard_streams

        self._unguard = guard_streams()
        begun = [self._begin_one(source) for source in sources]
        deadline = time.monotonic() + self.settings.load_s
        self.extensions = tuple(self._finish_one(extension, future, deadline) for extension, future in begun)
        self.problems += [told for extension in self.extensions if (told := _trouble(extension))]
        self._settle_names()

    def _begin_one(self, source: Source) -> tuple[Extension, Future[Any]]:
        from aar.extensions.api import ExtensionAPI, Registered
        from aar.extensions.loader import load
        from aar.extensions.worker import Worker

        given = self.settings
        folder = given.data / (source.name if source.trusted else f"{source.name}@{_key(given.workspace)}")
        settings = dict(given.settings.get(source.name, {}))
        api = ExtensionAPI(source.name, settings, given.workspace, folder)
        worker = Worker(source.name)
        extension = Extension(source, worker, api, Registered())
        return extension, worker.submit(load, source, api)

    def _finish_one(self, extension: Extension, future: Future[Any], deadline: float) -> Extension:
        started = deadline - self.settings.load_s
        try:
            extension.worker.wait_for(future, max(0.0, deadline - time.monotonic()), self.settings.load_s)
        except Exception as error:
            extension.failure = self._why(extension.source, error)
            extension.api.finish()
        else:
            extension.registered = extension.api.finish()
        extension.seconds = time.monotonic() - started
        return extension

    def _why(self, source: Source, error: BaseException) -> str:
        from aar.extensions.loader import where_it_failed
        from aar.extensions.worker import ExtensionTroubleError

        if isinstance(error, ExtensionTroubleError | FutureTimeout):
            return str(error)
        self.settings.log(f"the extension {source.name} could not be loaded", error)
        text = " ".join(str(error).split())[:_MAX_SHOWN]
        where = where_it_failed(error, source.path)
        return f"{type(error).__name__}{': ' + text if text else ''} ({source.path.name}{where})"

    # --- what they bring ---------------------------------------------------------------------------------

    @property
    def loaded(self) -> tuple[Extension, ...]:
        """Those that work."""
        return tuple(extension for extension in self.extensions if not extension.failure)

    def _settle_names(self) -> None:
        """Let each name belong to one extension; the first has it, and the user hears of the others."""
        seen: dict[tuple[str, str], str] = {}
        for extension in self.loaded:
            found = extension.registered
            found.tools[:] = [
                tool for tool in found.tools if self._first(seen, "tool", tool.name, extension.name)
            ]
            found.commands[:] = [
                item for item in found.commands if self._first(seen, "command", item.name, extension.name)
            ]
            for kind, table in (("provider", found.providers), ("theme", found.themes)):
                for name in list(table):
                    taken = kind == "provider" and name in self.settings.taken_providers
                    if taken:
                        why = f"cannot have the provider {name}: aar has one of that name"
                        self.problems.append(f"The extension {extension.name} {why}.")
                    if taken or not self._first(seen, kind, name, extension.name):
                        del table[name]

    def _first(self, seen: dict[tuple[str, str], str], kind: str, name: str, owner: str) -> bool:
        holder = seen.setdefault((kind, name), owner)
        if holder != owner:
            self.problems.append(
                f"The {kind} {name} of the extension {owner} is left out: {holder} has one of that name."
            )
        return holder == owner

    def provider(self, name: str) -> tuple[Extension, Callable[..., Any]] | None:
        """Return who makes the provider ``name``, and how."""
        for extension in self.loaded:
            if name in extension.registered.providers:
                return extension, extension.registered.providers[name]
        return None

    def part(self, name: PartName) -> tuple[Extension, Any] | None:
        """Return the last extension that replaces a part, and the part."""
        for extension in reversed(self.loaded):
            if name in extension.registered.parts:
                return extension, extension.registered.parts[name]
        return None

    def themes(self) -> dict[str, dict[str, Any]]:
        """Return all themes by name."""
        return {
            name: table for extension in self.loaded for name, table in extension.registered.themes.items()
        }

    # --- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Put all extensions away, those that are still being loaded too; takes at most a moment for each."""
        if self._closed:
            return
        self._closed = True
        if self._begun:
            self._done.result()
        for extension in self.extensions:
            if extension.registered.on_unload and not extension.worker.stuck:
                try:
                    for function in extension.registered.on_unload:
                        extension.worker.call_now(function, seconds=_UNLOAD_S)
                except Exception as error:
                    self.settings.log(f"the extension {extension.name} could not be put away", error)
            extension.worker.close()
        self._unguard()


def _trouble(extension: Extension) -> str:
    """Return the one sentence about what went wrong while an extension was loaded; empty: nothing did."""
    printed = " ".join(extension.worker.take_printed().split())[:_MAX_SHOWN]
    if extension.failure:
        more = f" It printed: {printed}" if printed else ""
        return f"The extension {extension.name} is not used: {extension.failure}.{more}"
    return f"The extension {extension.name} printed while it was loaded: {printed}" if printed else ""


def _key(workspace: Path) -> str:
    import hashlib

    return hashlib.sha256(str(workspace).encode()).hexdigest()[:12]
