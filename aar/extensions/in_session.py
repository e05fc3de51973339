"""The extensions of one session: their hooks, their panels, and what they see of it."""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from aar.core.session import Session
from aar.extensions.api import HookEntry, PanelEntry
from aar.extensions.api_types import (
    AllowResult,
    BlockResult,
    ContextResult,
    ExtensionContext,
    HookEvent,
    RewriteResult,
    RunNumbers,
)
from aar.extensions.hooks import MAX_CHARS, Listener, joined
from aar.extensions.manager import Extension
from aar.extensions.worker import ExtensionStuckError, ExtensionTroubleError
from aar.protocol.errors import StorageError
from aar.protocol.events import Event, Notice
from aar.protocol.panel import MAX_CHARS as MAX_PANEL_CHARS
from aar.protocol.panel import MAX_LINES, Panel, PanelLine
from aar.protocol.ports import HookVerdict

_DRAW_S = 0.2
_DRAWN_AFTER = frozenset(
    {"state", "tool_result", "plan", "provider_meta", "user_message", "setting", "error"}
)
_BLOCKING = frozenset(
    {"before_tool", "prompt_submit", "stop", "subagent_stop", "after_tool", "approval_needed"}
)


@dataclass(frozen=True)
class Facts:
    """What a session's extensions may know of it.

    Attributes:
        session: The session.
        workspace: Root of the project.
        mode: Returns the permission mode.
        wall: Returns the name of the wall.
        model: Returns ``provider/model``.
        hook_s: Seconds for a hook.
        log: Gets tracebacks.
        changed: Told when panels changed.
    """

    session: Session
    workspace: Path
    mode: Callable[[], str]
    wall: Callable[[], str]
    model: Callable[[], str]
    hook_s: float
    log: Callable[[str, BaseException], None]
    changed: Callable[[], None]


class ExtensionsInSession:
    """Lets extensions take part in a session.

    Args:
        facts: See `Facts`.
        extensions: Those that were loaded.
    """

    def __init__(self, facts: Facts, extensions: Sequence[Extension]) -> None:
        self.facts = facts
        self.extensions = tuple(extensions)
        self._told: set[str] = set()
        self._off: set[int] = set()
        self._panels: dict[str, Panel] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._unwatch: Callable[[], None] = lambda: None
        self._closed = False
        if any(extension.registered.panels for extension in self.extensions):
            self._unwatch = facts.session.on_event(self._take)
            for extension in self.extensions:
                extension.api.on_refresh(self._refresh_from_there)
            self._soon()
        # Awaited last: hooks on the end of the session come before it.
        facts.session.before_close.insert(0, self.aclose)

    # --- what goes wrong ---------------------------------------------------------------------------------

    def tell(self, message: str) -> None:
        """Tell the user, each sentence once in a session."""
        if message in self._told or self._closed:
            return
        self._told.add(message)
        with suppress(StorageError):
            self.facts.session.append(Notice(level="warning", code="extension", message=message))

    def failed(
        self, extension: Extension, what: str, error: BaseException, then: str = "work goes on"
    ) -> None:
        """Tell that code of an extension failed."""
        if isinstance(error, ExtensionTroubleError):
            why = str(error)
        else:
            self.facts.log(f"{what} of the extension {extension.name} failed", error)
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
        self.tell(f"The extension {extension.name} failed ({what}: {why}); {then}.")

    async def call(
        self,
        extension: Extension,
        function: Callable[..., Any],
        *arguments: Any,
        seconds: float | None = None,
    ) -> Any:
        """Run code of an extension; see `Worker.call`."""
        limit = self.facts.hook_s if seconds is None else seconds
        return await extension.worker.call(function, *arguments, seconds=limit)

    # --- what they see -----------------------------------------------------------------------------------

    def context(self, extension: Extension, agent_id: str = "main") -> ExtensionContext:
        """Return the session as it is now, for an extension."""
        facts, totals = self.facts, self.facts.session.totals
        numbers = totals.all
        return ExtensionContext(
            extension=extension.name,
            session_id=facts.session.session_id,
            workspace=facts.workspace,
            data_folder=extension.data_folder,
            settings=extension.api.settings,
            model=facts.model(),
            mode=facts.mode(),
            wall=facts.wall(),
            agent_id=agent_id,
            state=str(totals.state("main")),
            title=totals.title,
            plan=totals.plan,
            numbers=RunNumbers(
                numbers.steps,
                numbers.tool_calls,
                numbers.tool_errors,
                numbers.usage.total,
                numbers.cost_usd,
                numbers.cost_known,
            ),
            read_events=functools.partial(_tail, facts.session),
        )

    # --- hooks -------------------------------------------------------------------------------------------

    def listeners(self) -> list[tuple[str, Listener]]:
        """Return the hooks of all extensions, with the event of each."""
        return [
            (entry.event, self._listener(extension, entry))
            for extension in self.extensions
            for entry in extension.registered.hooks
        ]

    def _listener(self, extension: Extension, entry: HookEntry) -> Listener:
        async def hear(event: str, data: Mapping[str, Any]) -> HookVerdict | None:
            tool = str(data.get("tool_name") or "")
            if self._closed or id(entry) in self._off:
                return None
            if entry.tools and not any(fnmatchcase(tool, part) for part in entry.tools.split("|")):
                return None
            told = HookEvent(event, copy.deepcopy(dict(data)))
            context = self.context(extension, str(data.get("agent_id") or "main"))
            try:
                said = await self.call(extension, entry.function, told, context, seconds=entry.timeout_s)
                return verdict_of(extension, said)
            except Exception as error:
                return self._no_answer(extension, entry, error)

        return hear

    def _no_answer(self, extension: Extension, entry: HookEntry, error: Exception) -> HookVerdict | None:
        """Say what holds where a hook has no answer: nothing, or no where it must agree."""
        if entry.fail == "closed" and entry.event in _BLOCKING:
            self.failed(extension, f"hook on {entry.event}", error, "what it must agree to does not go on")
            reason = f"the extension {extension.name}, which must agree, failed"
            return HookVerdict(refusal=reason, trusted=extension.source.trusted)
        if isinstance(error, ExtensionStuckError):
            return None  # the call that does not come back was told of
        if isinstance(error, ExtensionTroubleError):
            # One that takes too long is waited for once.
            self._off.add(id(entry))
            self.failed(extension, f"hook on {entry.event}", error, "it is off until /reload")
        else:
            self.failed(extension, f"hook on {entry.event}", error)
        return None

    # --- panels ------------------------------------------------------------------------------------------

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The panels that have something to show."""
        return tuple(panel for panel in self._panels.values() if panel.lines)

    def _take(self, event: Event) -> None:
        if event.type in _DRAWN_AFTER:
            self._soon()

    def _refresh_from_there(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._soon)

    def _soon(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(_DRAW_S, self._begin_drawing)

    def _begin_drawing(self) -> None:
        self._timer = None
        if not self._closed:
            self._begin(self.draw())

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def draw(self) -> None:
        """Ask all panels what they show now, and tell when something of it is new."""
        before = dict(self._panels)
        for extension in self.extensions:
            for entry in extension.registered.panels:
                await self._draw_one(extension, entry)
        if self._panels != before and not self._closed:
            self.facts.changed()

    async def _draw_one(self, extension: Extension, entry: PanelEntry) -> None:
        name = f"{extension.name}.{entry.name}"
        if id(entry) in self._off:
            return
        try:
            said = await self.call(extension, entry.function, self.context(extension))
            self._panels[name] = Panel(name, entry.title[:80], lines_of(said))
        except ExtensionStuckError:
            return  # what it showed last stays
        except Exception as error:
            self._off.add(id(entry))
            self._panels.pop(name, None)
            self.failed(extension, f"panel {entry.name}", error, "the panel is off until /reload")

    async def aclose(self) -> None:
        """Take no part any more."""
        if self._closed:
            return
        self._closed = True
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
        for task in tuple(self._work):
            task.cancel()
        if self._work:
            await asyncio.wait(self._work, timeout=1)


def verdict_of(extension: Extension, said: object) -> HookVerdict | None:
    """Return what a hook's result says.

    Raises:
        ExtensionTroubleError: It is no result of a hook.
    """
    trusted = extension.source.trusted
    results = cast("list[object]", said) if isinstance(said, list | tuple) else [said]
    verdicts: list[HookVerdict] = []
    for result in results:
        match result:
            case None:
                continue
            case str():
                verdicts.append(HookVerdict(context=(result[:MAX_CHARS],), trusted=trusted))
            case ContextResult():
                verdicts.append(HookVerdict(context=(result.text[:MAX_CHARS],), trusted=trusted))
            case BlockResult():
                reason = result.reason or f"the extension {extension.name} blocks it"
                verdicts.append(HookVerdict(refusal=reason[:MAX_CHARS], trusted=trusted))
            case RewriteResult():
                verdicts.append(HookVerdict(arguments=dict(result.arguments), trusted=trusted))
            case AllowResult():
                # What a project brings may make things stricter, never looser.
                verdicts.append(HookVerdict(allow=trusted, trusted=trusted))
            case _:
                raise ExtensionTroubleError(f"a hook cannot return {type(result).__name__}")
    return joined(verdicts) if verdicts else None


def lines_of(said: object) -> tuple[PanelLine, ...]:
    """Return the lines that a panel gave, cut to what there is room for.

    Raises:
        ExtensionTroubleError: They are no lines.
    """
    if said is None:
        return ()
    if isinstance(said, str):
        said = said.splitlines()
    if not isinstance(said, list | tuple):
        raise ExtensionTroubleError(f"a panel cannot return {type(said).__name__}")
    lines: list[PanelLine] = []
    for line in cast("Sequence[object]", said)[:MAX_LINES]:
        if isinstance(line, str):
            lines.append(PanelLine(line[:MAX_PANEL_CHARS]))
        elif isinstance(line, PanelLine):
            amount = None if line.amount is None else min(1.0, max(0.0, float(line.amount)))
            text, value = str(line.text)[:MAX_PANEL_CHARS], str(line.value)[:MAX_PANEL_CHARS]
            lines.append(PanelLine(text, line.kind, value, amount, line.tone))
        else:
            raise ExtensionTroubleError(f"a line of a panel cannot be {type(line).__name__}")
    return tuple(lines)


def _tail(session: Session, last: int) -> Sequence[Event]:
    return list(session.events(max(1, session.last_seq - last + 1)))
