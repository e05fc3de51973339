"""Slash commands on the screen: from the prompt and the palette to what they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aar.protocol.errors import AarError

if TYPE_CHECKING:
    from aar.commands.base import Context, HealthCheck, Result, UiAction
    from aar.commands.registry import Registry
    from aar.transports.tui.app import AarApp
    from aar.transports.tui.connection import Connection
    from aar.transports.tui.screens.picker import Taken

_PATIENCE_S = 0.4
"""Seconds after which the screen says that a command still works."""
_SCREENS = {
    "sessions": "show_sessions",
    "resume": "show_sessions",
    "model": "show_models",
    "models": "show_models",
    "diff": "show_changes",
    "log": "show_log",
    "logs": "show_log",
    "theme": "show_themes",
    "keys": "show_keys",
}
"""Commands that open a screen of their own when nothing stands behind them: action of the app."""


class CommandController:
    """Runs commands for the app and shows what they answer.

    Args:
        app: Whose.
        options: With which the runtime was opened, for `/doctor`.
    """

    def __init__(self, app: AarApp, options: dict[str, Any]) -> None:
        self._app = app
        self._options = options
        self._context: Context | None = None
        self._waiting: list[str] = []
        self._palette_wanted = False

    def connected(self, connection: Connection) -> None:
        """Take the open session; what was typed meanwhile runs now."""
        from aar.commands.base import Context
        from aar.commands.from_files import registry_for

        registry = registry_for(connection.conversation)
        self._context = Context(connection.conversation, registry, frozenset(self._actions), self._examine)
        self.refresh_suggestions()
        connection.conversation.runtime.extras.extensions.on_loaded.append(self.refresh_suggestions)
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self.run(line)
        if self._palette_wanted:
            self.open_palette()

    @property
    def registry(self) -> Registry | None:
        """All commands (`refresh_suggestions` offers added ones); ``None`` before the session stands."""
        return None if self._context is None else self._context.registry

    def refresh_suggestions(self) -> None:
        """Offer the commands as they are now in the prompt."""
        context = self._context
        if context is None:
            return
        from aar.transports.tui.palette import argument_suggestions, suggestions

        self._app.prompting.area.set_commands(
            suggestions(context, context.registry),
            lambda line: argument_suggestions(context, context.registry, line),
        )

    @property
    def ready(self) -> bool:
        """Whether the session stands, so that commands run."""
        return self._context is not None

    def take(self, text: str) -> bool:
        """Run ``text`` if it is a command; tell whether it is one."""
        if not text.startswith("/"):
            return False
        from aar.commands.registry import is_command_line

        if not is_command_line(text):
            return False
        if self._context is None:
            self._waiting.append(text)
        else:
            self._app.prompting.remember(text)
            self.run(text)
        return True

    def run(self, line: str) -> None:
        """Run a command line beside everything else, once the session stands."""
        if self._context is None:
            self._waiting.append(line)
            return
        self._app.run_worker(self._run(line), group="command", exit_on_error=False)

    async def _run(self, line: str) -> None:
        context = self._context
        if context is None:
            return
        word, _, argument = line.strip().partition(" ")
        screen = _SCREENS.get(word.removeprefix("/").lower())
        if screen is not None and not argument and await self._app.run_action(f"app.{screen}"):
            return
        voice = word.lower() == "/voice"
        if voice:
            context.conversation.voice.on_listening = self._listening
        prompt = self._prompt_at(argument) if word.lower() == "/rewind" else None
        work = asyncio.ensure_future(context.registry.run_line(context, line))
        if not (await asyncio.wait({work}, timeout=_PATIENCE_S))[0] and not voice:
            self._app.prompting.hint.tell(f"{word} …")
        await self._show(line, await work)
        if prompt is not None and self._prompt_at(argument) is None:
            self._app.prompting.area.put_back(prompt)

    def _listening(self, listening: bool) -> None:
        hint = self._app.prompting.hint
        if listening:
            hint.tell("Listening. Esc ends it, once more drops what was said.", stay=True)
        else:
            hint.clear()

    def _prompt_at(self, argument: str) -> str | None:
        """Return the shown prompt of the event that ``argument`` begins with: it can be sent again."""
        connection, number = self._app.connection, argument.partition(" ")[0]
        if connection is None or not number.isdigit():
            return None
        prompts = connection.presenter.prompts()
        return next((block.text for block in prompts if block.seq == int(number)), None)

    # --- what was answered -------------------------------------------------------------------------------

    async def _show(self, line: str, result: Result) -> None:
        from aar.commands.base import Choice, Failure, Submit, Table, Text
        from aar.transports.tui import results

        match result:
            case Failure():
                self._tell(results.passing_text(result.sentence), bad=True)
                if "\n" in line:  # a plan that was edited, to be mended
                    self._app.prompting.area.put_back(line)
            case Text() if results.passes_by(result.markdown):
                self._tell(results.passing_text(result.markdown))
            case Text() | Table():
                self._app.push_screen(results.ResultView(results.title_of(result, line), result))
            case Choice():
                self._choose(result)
            case Submit():
                assert self._context is not None
                conversation = self._context.conversation
                waits = " It waits until this run is over." if conversation.running else ""
                if result.note or waits:
                    self._tell(results.passing_text(f"{result.note}{waits}".strip()))
                (conversation.enqueue if waits else conversation.submit)(result.content())
            case _:
                await self._act(result)
        self._refresh()

    def _refresh(self) -> None:
        """Show a changed mode, model or queue at once."""
        connection = self._app.connection
        if connection is not None:
            connection.refresh_facts()
            connection.wake()

    def _tell(self, text: str, *, bad: bool = False) -> None:
        self._app.tell(text, "error" if bad else "info")

    def _choose(self, choice: Any) -> None:
        from aar.transports.tui.results import rows_of
        from aar.transports.tui.screens.picker import Picker

        def taken(choice: Taken | None) -> None:
            if choice is not None:
                self.run(choice.key)

        self._app.push_screen(Picker(choice.title, rows_of(choice), hint=choice.note), taken)

    def open_palette(self) -> None:
        """Show all commands to choose from, once the session stands."""
        context = self._context
        self._palette_wanted = context is None
        if context is None:
            return
        from aar.transports.tui.palette import Palette, needs_words

        def taken(choice: Taken | None) -> None:
            command = context.registry.find(choice.key) if choice is not None else None
            if command is None:
                return
            if needs_words(command):
                self._app.prompting.area.insert(f"/{command.name} ", (0, 0))
                self._app.prompting.area.focus()
            else:
                self.run(f"/{command.name}")

        self._app.push_screen(Palette(context.registry.all(context)), taken)

    # --- what only a screen can do -----------------------------------------------------------------------

    @property
    def _actions(self) -> dict[str, Callable[[str], Any]]:
        return {
            "quit": lambda words: self._app.prompting.quit(),
            "attach": lambda path: self._app.prompting.area.insert(f"@{path} "),
            "insert": self._app.prompting.area.insert_words,
            "fill": self._app.prompting.area.set_text,
            "theme": lambda name: self._app.action_show_themes(name),
            "keys": lambda words: self._app.action_show_keys(),
            "settings": lambda words: self._app.action_show_settings(),
            "layout": lambda part: self._app.action_show_layout(part),
        }

    async def _act(self, action: UiAction) -> None:
        arguments = action.arguments
        try:
            self._actions[action.name](str(arguments.get("path", arguments.get("argument", ""))))
        except AarError as error:
            self._tell(str(error), bad=True)

    def _examine(self) -> Sequence[HealthCheck]:
        from aar.commands.base import HealthCheck
        from aar.runtime.base import base_arguments
        from aar.transports.cli.doctor import examine

        found = examine(base_arguments(self._options))
        return [HealthCheck(item.name, item.status, item.detail, item.fix) for item in found]
