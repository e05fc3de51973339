"""Language servers: what an edit broke, told at once.

A server is started with the first edit of a file that it is for. What it had to say of the file before the
edit is not told again: only new problems are, within a time that the settings bound.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from aar.config.schema import LspConfig
from aar.extensions.lsp_wire import ENDED, JsonDict, LspError, Wire
from aar.protocol.errors import AarError
from aar.protocol.ports import SpawnRequest
from aar.safety.sanitize import sanitize
from aar.safety.spawn import ProcessSpawner

MAX_FILE = 2_000_000
"""Bytes of a file that is shown to servers."""
_MOST_PROBLEMS = 20
_MAX_MESSAGE = 400
_MOST_OPEN = 50
_QUIET_S = 0.25
_LEVELS = {1: "error", 2: "warning", 3: "information", 4: "hint"}
_LANGUAGES = {
    "py": "python", "pyi": "python", "js": "javascript", "mjs": "javascript", "cjs": "javascript",
    "jsx": "javascriptreact", "ts": "typescript", "mts": "typescript", "tsx": "typescriptreact", "rs": "rust",
    "rb": "ruby", "cc": "cpp", "cxx": "cpp", "hpp": "cpp", "hh": "cpp", "h": "c", "cs": "csharp",
    "kt": "kotlin", "sh": "shellscript", "md": "markdown", "yml": "yaml", "hs": "haskell", "ex": "elixir",
    "exs": "elixir",
}  # fmt: skip

Problem = tuple[int, str, str]
"""Severity, code and message: what makes a problem the same one when lines move."""


@dataclass
class _Document:
    version: int = 1
    heard: int = 0
    """Version that the newest diagnostics are for."""
    known: Counter[Problem] = field(default_factory=Counter[Problem])
    items: list[JsonDict] = field(default_factory=list[JsonDict])
    news: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class LanguageServer:
    """One language server in one workspace.

    Attributes:
        name: As the settings call it.
        config: Its settings.
        spawner: Starts it.
        workspace: Root of the project.
        failed: Why it is not used any more; ``None``: it is.
    """

    name: str
    config: LspConfig
    spawner: ProcessSpawner
    workspace: Path
    failed: str | None = None
    _wire: Wire | None = None
    _pulls: bool = False
    _documents: dict[str, _Document] = field(default_factory=dict[str, _Document])

    def takes(self, path: Path) -> bool:
        """Tell whether it is for a file of this name."""
        return path.suffix.lower() in self.config.extensions or path.name in self.config.extensions

    def knows(self, path: Path) -> bool:
        """Tell whether it has seen the file already."""
        return path.as_uri() in self._documents

    async def start(self) -> None:
        """Start it, if it does not run.

        Raises:
            LspError: It does not speak the protocol, or ended.
            SandboxError: The wall could not be raised.
            OSError: It cannot be executed.
        """
        if self._wire is not None and self._wire.ended is None:
            return
        if self._wire is not None:
            raise LspError(self._wire.ended or "it ended")
        config = self.config
        if not config.command:
            raise LspError("it has no command")
        wire = self._wire = Wire(self._heard, self._answer)
        request = SpawnRequest(
            config.command,
            self.workspace,
            env=config.env,
            kind="tool" if config.sandbox else "helper",
            network=config.network,
            read_only=not config.writes,
        )
        await wire.start(self.spawner, request)
        async with asyncio.timeout(config.startup_timeout):
            found = cast("JsonDict", await wire.ask("initialize", self._hello()) or {})
        offers = cast("JsonDict", found.get("capabilities") or {}).get("diagnosticProvider")
        self._pulls = offers not in (None, False)
        wire.notify("initialized", {})
        wire.notify("workspace/didChangeConfiguration", {"settings": config.settings})

    def _hello(self) -> JsonDict:
        uri = self.workspace.as_uri()
        return {
            "processId": None,
            "clientInfo": {"name": "aar"},
            "rootUri": uri,
            "rootPath": str(self.workspace),
            "workspaceFolders": [{"uri": uri, "name": self.workspace.name}],
            "initializationOptions": self.config.init_options,
            "capabilities": {
                "general": {"positionEncodings": ["utf-16"]},
                "workspace": {"configuration": True, "workspaceFolders": True},
                "textDocument": {
                    "synchronization": {"didSave": True},
                    "publishDiagnostics": {"versionSupport": True},
                    "diagnostic": {"dynamicRegistration": False},
                },
            },
        }

    async def look(self, path: Path, text: str) -> None:
        """Show the file as it is, and take what the server says of it.

        Raises:
            LspError: The server is gone.
            TimeoutError: It says nothing in time.
        """
        assert self._wire is not None
        uri, document = path.as_uri(), self._documents.get(path.as_uri())
        if document is None:
            self._make_room()
            document = self._documents[uri] = _Document()
            language = _LANGUAGES.get(path.suffix[1:].lower(), path.suffix[1:].lower() or path.name.lower())
            item = {"uri": uri, "languageId": self.config.language or language, "version": 1, "text": text}
            self._wire.notify("textDocument/didOpen", {"textDocument": item})
        else:
            document.version += 1
            named = {"uri": uri, "version": document.version}
            change = {"textDocument": named, "contentChanges": [{"text": text}]}
            self._wire.notify("textDocument/didChange", change)
        self._wire.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
        if self._pulls:
            asked = {"textDocument": {"uri": uri}}
            found = cast("JsonDict", await self._wire.ask("textDocument/diagnostic", asked) or {})
            if found.get("kind") != "unchanged":
                document.items = _items(found.get("items"))
            return
        await self._quiet(document)

    def _make_room(self) -> None:
        """Close the document that was looked at first when many are open."""
        assert self._wire is not None
        if len(self._documents) >= _MOST_OPEN:
            uri = next(iter(self._documents))
            del self._documents[uri]
            self._wire.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    async def _quiet(self, document: _Document) -> None:
        """Wait for diagnostics of this version, and until no more come: some servers send them in parts."""
        assert self._wire is not None
        while document.heard < document.version:
            document.news.clear()
            if self._wire.ended is not None:
                raise LspError(self._wire.ended)
            await document.news.wait()
        while True:
            document.news.clear()
            try:
                async with asyncio.timeout(_QUIET_S):
                    await document.news.wait()
            except TimeoutError:
                return

    def take_known(self, path: Path) -> None:
        """Take what the server says now as known."""
        document = self._documents[path.as_uri()]
        document.known = Counter(_problem(item) for item in document.items)

    def fresh(self, path: Path) -> list[JsonDict]:
        """Return what is new since the last time, and take it as known."""
        document = self._documents[path.as_uri()]
        left, found = Counter(document.known), list[JsonDict]()
        for item in sorted(document.items, key=_severity):
            problem = _problem(item)
            if left[problem] > 0:
                left[problem] -= 1
            elif _severity(item) <= (1 if self.config.level == "error" else 2):
                found.append(item)
        self.take_known(path)
        return found

    async def aclose(self) -> None:
        """End it."""
        if self._wire is not None:
            await self._wire.aclose()
        self._wire, self._documents = None, {}

    def _heard(self, method: str, params: JsonDict) -> None:
        if method == ENDED:
            for waiting in self._documents.values():
                waiting.news.set()
        if method != "textDocument/publishDiagnostics":
            return
        document = self._documents.get(str(params.get("uri")))
        if document is None:
            return
        version = params.get("version")
        if isinstance(version, int) and version < document.version:
            return
        document.items, document.heard = _items(params.get("diagnostics")), document.version
        document.news.set()

    def _answer(self, method: str, params: JsonDict) -> Any:
        if method == "workspace/configuration":
            wanted = cast("list[JsonDict]", params.get("items") or [])
            return [_section(self.config.settings, str(item.get("section") or "")) for item in wanted]
        if method == "workspace/workspaceFolders":
            return [{"uri": self.workspace.as_uri(), "name": self.workspace.name}]
        known = ("client/registerCapability", "client/unregisterCapability", "window/workDoneProgress/create")
        if method in (*known, "workspace/diagnostic/refresh"):
            return None
        return NotImplemented


@dataclass(eq=False)
class LanguageServers:
    """All language servers of a session.

    Args:
        servers: They, not started.
        workspace: Root of the project.
        tell: Tells the user, once, that a server is not used.
    """

    servers: Sequence[LanguageServer]
    workspace: Path
    tell: Callable[[str], None]
    _before: dict[Path, str] = field(default_factory=dict[Path, str])
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    def for_file(self, path: Path) -> list[LanguageServer]:
        """Return the servers that are for a file and work."""
        return [server for server in self.servers if server.failed is None and server.takes(path)]

    def remember(self, path: Path) -> None:
        """Keep a file as it is before an edit, where a server has not seen it yet."""
        if any(not server.knows(path) for server in self.for_file(path)):
            self._before.setdefault(path, _text(path) or "")

    async def changed(self, paths: Sequence[Path]) -> list[str]:
        """Return what is newly wrong in files that were just edited, a text for each server and file."""
        async with self._one:  # one talk at a time: agents may edit side by side
            work = [(path, server) for path in paths for server in self.for_file(path)]
            found = await asyncio.gather(*(self._check(server, path) for path, server in work))
            for path in paths:
                self._before.pop(path, None)
            return [text for text in found if text]

    async def _check(self, server: LanguageServer, path: Path) -> str:
        text = await asyncio.to_thread(_text, path)
        if text is None:
            return ""
        try:
            await server.start()
            if not server.knows(path):
                async with asyncio.timeout(server.config.startup_timeout):
                    await server.look(path, self._before.get(path, ""))
                server.take_known(path)
            async with asyncio.timeout(server.config.timeout):
                await server.look(path, text)
        except TimeoutError:
            return ""  # what it says later is told with the next edit of the file
        except (AarError, OSError) as error:
            await self._give_up(server, error)
            return ""
        return _report(server.name, path, self.workspace, server.fresh(path))

    async def _give_up(self, server: LanguageServer, error: Exception) -> None:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        server.failed = sanitize(why)[:500]
        await server.aclose()
        self.tell(f"The language server {server.name} is not used any more: {server.failed}.")

    async def aclose(self) -> None:
        """End all servers."""
        await asyncio.gather(*(server.aclose() for server in self.servers))


def _report(name: str, path: Path, root: Path, items: Sequence[JsonDict]) -> str:
    if not items:
        return ""
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    lines = [f"{name} finds new problems in {shown} after this change:"]
    lines += [_line(str(shown), item) for item in items[:_MOST_PROBLEMS]]
    if len(items) > _MOST_PROBLEMS:
        lines.append(f"… and {len(items) - _MOST_PROBLEMS} more.")
    return "\n".join(lines)


def _line(shown: str, item: Mapping[str, Any]) -> str:
    start = cast("JsonDict", cast("JsonDict", item.get("range") or {}).get("start") or {})
    place = f"{int(start.get('line') or 0) + 1}:{int(start.get('character') or 0) + 1}"
    message = " ".join(sanitize(str(item.get("message") or "")).split())[:_MAX_MESSAGE]
    code = f" ({sanitize(str(item['code']))[:60]})" if item.get("code") not in (None, "") else ""
    return f"{shown}:{place}: {_LEVELS[_severity(item)]}: {message}{code}"


def _items(found: Any) -> list[JsonDict]:
    listed = cast("list[Any]", found) if isinstance(found, list) else []
    return [cast("JsonDict", item) for item in listed if isinstance(item, dict)]


def _severity(item: Mapping[str, Any]) -> int:
    found = item.get("severity")
    return found if isinstance(found, int) and found in _LEVELS else 1


def _problem(item: Mapping[str, Any]) -> Problem:
    return _severity(item), str(item.get("code")), str(item.get("message"))


def _section(settings: Mapping[str, Any], dotted: str) -> Any:
    """Return the part of the settings that a server asks for."""
    found: Any = settings
    for key in dotted.split(".") if dotted else ():
        found = cast("JsonDict", found).get(key) if isinstance(found, dict) else None
    return found


def _text(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE:
            return None
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
