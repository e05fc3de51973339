"""The public surface of extensions. What stands in ``__all__`` here is stable within a major version.

    from aar.extensions.api import BlockResult, ExtensionAPI, ExtensionContext, HookEvent

    def register(api: ExtensionAPI) -> None:
        @api.tool(side_effects=["read"])
        def word_count(path: str, context: CallContext) -> int:
            '''Count the words of a file.'''

        @api.on("before_tool", tools="bash")
        def no_sudo(event: HookEvent, context: ExtensionContext) -> BlockResult | None: ...

docs/extensions.md is the guide. ``API_VERSION`` is ``MAJOR.MINOR``: a minor version adds, a major one may
take away.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from aar.extensions.api_parts import (
    CallHandler,
    Guardrails,
    HandledCall,
    MakeGuardrails,
    Memory,
    Nudge,
    PartName,
    Planner,
    PromptBuilder,
    Recollection,
    Replanner,
)
from aar.extensions.api_tools import CallContext, CommandResult, ToolFunction, tool_function
from aar.extensions.api_types import (
    AllowResult,
    BlockResult,
    ContextResult,
    ExtensionContext,
    HookEvent,
    RewriteResult,
    Rows,
    RunNumbers,
    Send,
)
from aar.extensions.hooks_config import EVENTS
from aar.protocol.errors import ToolFailure
from aar.protocol.events import PlanItem, PromptLayer
from aar.protocol.panel import Panel, PanelLine
from aar.protocol.state import StopReason
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec

API_VERSION = "1.1"
"""Version of this surface."""

__all__ = [
    "API_VERSION",
    "EVENTS",
    "AllowResult",
    "BlockResult",
    "CallContext",
    "CallHandler",
    "CommandResult",
    "ContextResult",
    "ExtensionAPI",
    "ExtensionContext",
    "Guardrails",
    "HandledCall",
    "HookEvent",
    "Memory",
    "Nudge",
    "Panel",
    "PanelLine",
    "PlanItem",
    "Planner",
    "PromptBuilder",
    "PromptLayer",
    "Recollection",
    "Replanner",
    "RewriteResult",
    "Rows",
    "RunNumbers",
    "Send",
    "SideEffect",
    "StopReason",
    "ToolFailure",
    "ToolOutcome",
    "ToolSpec",
]

_COMMAND = re.compile(r"[a-z][a-z0-9-]{0,31}")
_PROVIDER = re.compile(r"[a-z][a-z0-9-]{0,31}")
_THEME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_MAX_PROMPT = 8000
_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class HookEntry:
    """A hook of an extension."""

    event: str
    function: Callable[..., Any]
    tools: str
    fail: Literal["open", "closed"]
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A slash command of an extension."""

    name: str
    function: Callable[..., Any]
    summary: str
    usage: str


@dataclass(frozen=True, slots=True)
class PanelEntry:
    """A panel of an extension."""

    name: str
    title: str
    function: Callable[..., Any]


@dataclass
class Registered:
    """What an extension registered."""

    tools: list[ToolFunction] = field(default_factory=list[ToolFunction])
    commands: list[CommandEntry] = field(default_factory=list[CommandEntry])
    hooks: list[HookEntry] = field(default_factory=list[HookEntry])
    prompts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    providers: dict[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
    themes: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    panels: list[PanelEntry] = field(default_factory=list[PanelEntry])
    parts: dict[PartName, Any] = field(default_factory=dict[PartName, Any])
    on_unload: list[Callable[[], Any]] = field(default_factory=list[Callable[[], Any]])


class ExtensionAPI:
    """What ``register(api)`` gets: everything an extension may add, by decorators.

    Registering ends when ``register`` returns; a mistake raises a `ValueError` that says what to do.

    Attributes:
        version: `API_VERSION` of this aar.
        name: Of the extension.
        settings: ``[extensions.settings.NAME]``.
        workspace: Root of the project.
        logger: Writes into aar's diagnostics log (``aar logs``).
    """

    version = API_VERSION

    def __init__(self, name: str, settings: Mapping[str, Any], workspace: Path, data_folder: Path) -> None:
        self.name = name
        self.settings = settings
        self.workspace = workspace
        self.logger = logging.getLogger(f"aar.extensions.{name}")
        self._data_folder = data_folder
        self._registered = Registered()
        self._over = False
        self._refresh: Callable[[], None] = lambda: None

    @property
    def data_folder(self) -> Path:
        """Where the extension may keep files of its own; made when first asked for, if it can be."""
        with suppress(OSError):
            self._data_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self._data_folder

    # --- tools and commands ------------------------------------------------------------------------------

    @overload
    def tool(self, function: _F) -> _F: ...
    @overload
    def tool(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        side_effects: Iterable[SideEffect | str] | None = None,
        timeout_s: float = 60.0,
    ) -> Callable[[_F], _F]: ...
    def tool(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        side_effects: Iterable[SideEffect | str] | None = None,
        timeout_s: float = 60.0,
    ) -> Any:
        """Add a tool for the model: a function with type hints and a docstring.

        Args:
            function: The function, where the decorator is used without brackets.
            name: Its name; the function's where none is given.
            description: For the model; the docstring where none is given.
            side_effects: ``read``, ``write``, ``execute``, ``network``; ``[]`` for one that touches nothing.
                A tool that does not say counts as one that may do anything.
            timeout_s: Seconds.
        """

        def add(what: _F) -> _F:
            tools = self._open().tools
            made = tool_function(
                what, name=name, description=description, side_effects=side_effects, timeout_s=timeout_s
            )
            _demand_new(made.name, [tool.name for tool in tools], "tool")
            tools.append(made)
            return what

        return add if function is None else add(function)

    def command(self, name: str, *, summary: str, usage: str = "") -> Callable[[_F], _F]:
        """Add the slash command ``/name``: ``function(argument: str, context) -> CommandResult``."""

        def add(function: _F) -> _F:
            commands = self._open().commands
            if not _COMMAND.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a command; use small letters, digits and '-'")
            if not summary.strip():
                raise ValueError(f"the command /{name} needs a summary: one line of help")
            _demand_new(name, [command.name for command in commands], "command")
            _demand_arguments(function, 2, f"the command /{name}", "(argument, context)")
            commands.append(CommandEntry(name, function, summary.strip(), usage))
            return function

        return add

    # --- hooks -------------------------------------------------------------------------------------------

    def on(
        self,
        event: str,
        *,
        tools: str = "",
        fail: Literal["open", "closed"] = "open",
        timeout_s: float | None = None,
    ) -> Callable[[_F], _F]:
        """Hear of an event: ``function(event: HookEvent, context) -> HookResult``; it may be ``async``.

        Args:
            event: One of `EVENTS`.
            tools: For events about calls: names of tools joined by ``|``, ``*`` for anything; empty: all.
            fail: ``closed``: what this hook cannot check, because it fails, may not go on.
            timeout_s: Seconds; ``None``: ``[extensions] hook_seconds``.
        """

        def add(function: _F) -> _F:
            if event not in EVENTS:
                raise ValueError(f"there is no event {event!r}; events are {', '.join(EVENTS)}")
            if fail not in ("open", "closed"):
                raise ValueError("fail must be 'open' or 'closed'")
            _demand_arguments(function, 2, f"the hook on {event}", "(event, context)")
            self._open().hooks.append(HookEntry(event, function, tools, fail, timeout_s))
            return function

        return add

    @staticmethod
    def block(reason: str) -> BlockResult:
        """Return what a hook returns to block."""
        return BlockResult(reason)

    # --- prompt, models, looks ---------------------------------------------------------------------------

    def append_system_prompt(self, text: str, *, name: str = "") -> None:
        """Add a layer to the system prompt; at most 8,000 characters."""
        if not text.strip() or len(text) > _MAX_PROMPT:
            raise ValueError(f"an addition to the prompt has 1 to {_MAX_PROMPT:,} characters")
        self._open().prompts.append((name or self.name, text.strip()))

    def provider(self, name: str) -> Callable[[_F], _F]:
        """Add a provider of models: ``factory(model: str, settings) -> Provider``; models are ``name/model``.

        The factory returns an `aar.providers.base.Provider`; ``settings`` is ``[providers.NAME]`` as a dict.
        """

        def add(factory: _F) -> _F:
            if not _PROVIDER.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a provider; use small letters, digits and '-'")
            _demand_new(name, list(self._open().providers), "provider")
            _demand_arguments(factory, 2, f"the provider {name}", "(model, settings)")
            self._registered.providers[name] = factory
            return factory

        return add

    def theme(
        self, name: str, *, dark: bool, variables: Mapping[str, str] | None = None, **colours: str
    ) -> None:
        """Add a theme of the screen; ``colours`` as in a theme file (docs/themes.md), as ``#rrggbb``."""
        if not _THEME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a theme; use small letters, digits and '-'")
        _demand_new(name, list(self._open().themes), "theme")
        table: dict[str, Any] = {"name": name, "dark": dark, **colours}
        self._registered.themes[name] = {**table, **({"variables": dict(variables)} if variables else {})}

    def panel(self, name: str, *, title: str) -> Callable[[_F], _F]:
        """Add a panel: ``function(context) -> Iterable[PanelLine | str]``.

        It is asked again when something happened in the session, and after `refresh_panels`; the full screen
        shows it in the side panel, editors get it as data, `/panels` shows it anywhere.
        """

        def add(function: _F) -> _F:
            panels = self._open().panels
            if not _COMMAND.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a panel; use small letters, digits and '-'")
            _demand_new(name, [panel.name for panel in panels], "panel")
            _demand_arguments(function, 1, f"the panel {name}", "(context)")
            panels.append(PanelEntry(name, title.strip() or name, function))
            return function

        return add

    def refresh_panels(self) -> None:
        """Have the panels of this extension drawn again."""
        self._refresh()

    # --- parts -------------------------------------------------------------------------------------------

    def replace_planner(self, planner: Planner) -> None:
        """Let ``planner`` plan tasks; a `Replanner` also changes plans whose steps failed."""
        self._replace("planner", planner, Planner)

    def replace_memory(self, memory: Memory) -> None:
        """Let ``memory`` remember over sessions."""
        self._replace("memory", memory, Memory)

    def replace_prompt_builder(self, builder: PromptBuilder) -> None:
        """Let ``builder`` build the system prompt."""
        self._replace("prompt_builder", builder, PromptBuilder)

    def replace_guardrails(self, make: MakeGuardrails) -> None:
        """Let what ``make(config)`` returns watch each run."""
        if not callable(make):
            raise ValueError("replace_guardrails takes a function that makes the guardrails of one run")
        self._open().parts["guardrails"] = make

    def replace_call_handler(self, handler: CallHandler) -> None:
        """Let ``handler`` surround every tool call, behind policy."""
        self._replace("call_handler", handler, CallHandler)

    def _replace(self, name: PartName, part: Any, protocol: type) -> None:
        if not isinstance(part, protocol):
            raise ValueError(f"this is no {protocol.__name__}: a method is missing (see docs/extensions.md)")
        self._open().parts[name] = part

    # --- its life ----------------------------------------------------------------------------------------

    def on_unload(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Call ``function`` when the extension is put away: at the end, and on ``/reload``."""
        self._open().on_unload.append(function)
        return function

    def _open(self) -> Registered:
        if self._over:
            raise ValueError("registering is over: call this inside register(api)")
        return self._registered

    def finish(self) -> Registered:
        """End registering; for aar itself."""
        self._over = True
        return self._registered

    def on_refresh(self, refresh: Callable[[], None]) -> None:
        """Have ``refresh`` called where panels shall be drawn again; for aar itself."""
        self._refresh = refresh


def _demand_new(name: str, known: Iterable[str], what: str) -> None:
    if name in known:
        raise ValueError(f"there are two {what}s named {name}; rename one")


def _demand_arguments(function: Callable[..., Any], count: int, what: str, shown: str) -> None:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        raise ValueError(f"{what} must take {shown}") from None
    except ValueError:  # a function of C, whose signature nobody knows
        return
