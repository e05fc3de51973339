"""What is around the transcript, as far as the app does it: theme, layout, window title, calls."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.css.query import NoMatches
from textual.events import Resize
from textual.timer import Timer

from aar.protocol.errors import ConfigurationError
from aar.transports.tui.activity import ActivityLine
from aar.transports.tui.footer import FooterBar
from aar.transports.tui.header import HeaderBar
from aar.transports.tui.keys import KeyAction, bindings, flat, keymap, shown_key
from aar.transports.tui.layout import NARROW, Look
from aar.transports.tui.side_panel import SidePanel
from aar.transports.tui.terminal import (
    RESTORE_TITLE,
    SAVE_TITLE,
    call_sequence,
    colour_depth,
    slants_are_lost,
    title_sequence,
)
from aar.transports.tui.textual_private import (
    QuietFocus,
    give_up_soon,
    watch_resume,
    without_italics,
    without_lines,
    write_sequence,
)
from aar.transports.tui.theme_loader import ANSI_THEMES, ansi_theme, choose_auto, load_theme, to_textual
from aar.transports.tui.transcript import Transcript
from aar.transports.tui.transcript.welcome import welcome

if TYPE_CHECKING:
    from aar.transports.tui.connection import Connection
    from aar.transports.tui.ending import Ending
    from aar.transports.tui.presenter import Presenter
    from aar.transports.tui.status import Status
    from aar.transports.tui.status_line import StatusCommand

Rgb = tuple[int, int, int]

_SETTLED_S = 0.2
_WELCOME_KEYS = (
    ("app.cycle_mode", "shift+tab", "changes the mode"),
    ("app.show_sessions", "f3", "earlier sessions"),
    ("app.show_keys", "f1", "all keys"),
)
_OF_MAIN_SCREEN = frozenset(
    {
        "toggle_panel",
        "cycle_mode",
        "interrupt",
        "to_background",
        "answer",
        "read",
        "scroll",
        "show_layout",
        "voice",
    }
)


class Chrome(QuietFocus):
    """The part of the app that dresses the screen.

    Args:
        look: How the screen is to be, as far as it is known before the config is read.
        user_themes: Folder of the user's themes.
        background: Of the terminal, where it told.

    Attributes:
        connection: The session; ``None`` until it was opened.
        ending: Takes signals; ``None`` where the screen shall not.
        look: See above.
    """

    TITLE = "aar"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "aar.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings("app")

    def __init__(
        self, look: Look | None = None, user_themes: Path | None = None, background: Rgb | None = None
    ) -> None:
        # Without colours the terminal's own grounds stay; Textual alone would send greys.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        if slants_are_lost(os.environ):
            without_italics(self)
        self.connection: Connection | None = None
        self.ending: Ending | None = None
        self.look = look or Look()
        self.user_themes = user_themes
        self._background = background
        self._panel_wanted: bool | None = None
        self._window_title = ""
        self._title_given_back = False
        self._was_working = False
        self._was_pending = 0
        self._status_command: StatusCommand | None = None
        self._status_timer: Timer | None = None
        self._problems: list[str] = []
        self._settling: Timer | None = None
        self._welcomed: tuple[str, ...] = ()
        self._dress()

    # --- look --------------------------------------------------------------------------------------------

    def get_css_variables(self) -> dict[str, str]:
        """Return the colours for the style sheets.

        Textual asks for those of its own theme before ours is chosen: 3 ms for what would be thrown away.
        """
        return super().get_css_variables() if hasattr(self, "look") else {}

    def refresh_css(self, animate: bool = True) -> None:
        """Style everything anew, in other colours.

        At the start there is nothing to style: rules are read, in the right colours, when widgets come. To
        read those of all parts here too takes 9 ms of the first frame.
        """
        if self.screen_stack:
            super().refresh_css(animate)

    def _dress(self) -> None:
        """Take theme, animation and keys of the look; what cannot be had is told when there is a session."""
        try:
            self.use_theme(self.look.theme)
        except ConfigurationError as error:
            self._problems.append(str(error))
            self.use_theme("auto")
        without_lines(self, self.look.screen_reader)
        if self.look.screen_reader:
            self.animation_level = "none"
            self.add_class("-plain")
        chosen, problems = keymap(flat(self.look.keys), self.key_actions()) if self.look.keys else ({}, [])
        self._problems += problems
        self.set_keymap(chosen)

    def key_actions(self) -> list[KeyAction]:
        """Return the table of all actions."""
        from aar.transports.tui.key_table import key_table

        return key_table()

    def use_theme(self, name: str) -> None:
        """Change the colours at once.

        Raises:
            ConfigurationError: There is no such theme, or its file is wrong.
        """
        depth = 16 if self.no_color else colour_depth(os.environ)
        if name == "auto":
            name = choose_auto(self._background, depth)
        if name not in ANSI_THEMES:
            theme = load_theme(name, self.user_themes)
            # Its colours would become whichever of the sixteen are nearest, on grounds that are not theirs.
            name = choose_auto(self._background, depth, dark=theme.dark) if depth <= 16 else name
            if name not in ANSI_THEMES:
                self.register_theme(to_textual(theme, depth))
        if name in ANSI_THEMES:
            self.register_theme(ansi_theme(name))
        self.theme = name
        if not self.screen_stack:
            self.stylesheet.set_variables(self.get_css_variables())

    def apply_look(self, look: Look) -> None:
        """Take the look of the whole config, and of changed settings."""
        before, self.look = self.look, look
        if (look.theme, look.keys, look.screen_reader) != (before.theme, before.keys, before.screen_reader):
            self.set_class(look.screen_reader, "-plain")
            self._dress()
        self.apply_layout()

    def settled(self, look: Look) -> None:
        """Take the look of the whole config once there is a session, and tell what of it cannot be had."""
        self.apply_look(look)
        for problem in self.take_problems():
            self.tell(problem, "warning")
        self.start_status_command()

    def take_problems(self) -> list[str]:
        """Return sentences about the look that wait to be told."""
        problems, self._problems = list(dict.fromkeys(self._problems)), []
        return problems

    def apply_layout(self, columns: int | None = None) -> None:
        """Show the parts that the look wants, as the terminal has room for them.

        Args:
            columns: Width of the terminal, where it is not yet that of the app.
        """
        base = self.screen_stack[0] if self.screen_stack else None
        if base is None:
            return
        layout, plain, columns = self.look.layout, self.look.screen_reader, columns or self.size.width
        try:
            header, activity = base.query_one(HeaderBar), base.query_one(ActivityLine)
            footer, panel = base.query_one(FooterBar), base.query_one(SidePanel)
            transcript = base.query_one("Transcript")
        except NoMatches:
            return
        header.plain = activity.plain = panel.plain = plain
        activity.stop_key = self._shown_key("app.interrupt", "escape")
        activity.background_key = self._shown_key("app.to_background", "ctrl+b")
        for widget, shown in ((header, layout.header), (activity, layout.activity), (footer, layout.footer)):
            widget.set_class(not shown, "-gone")
        opened, alone = layout.has_panel(columns, self._panel_wanted), columns < NARROW
        panel.styles.width = "1fr" if alone else layout.panel_width
        panel.set_class(alone, "-alone")
        panel.display = opened
        panel.set_sections(layout.sections)
        transcript.set_class(opened and alone, "-gone")
        if opened:
            panel.draw()

    def _shown_key(self, name: str, default: str) -> str:
        keys = flat(self.look.keys).get(name, default)
        return shown_key(keys.split(",")[0].strip() or default)

    def on_resize(self, event: Resize) -> None:
        """Fit the parts to the new size, which the app itself takes after this."""
        self.apply_layout(event.size.width)
        # A terminal that changes its size while it is written to shows a mixture: draw all once it is quiet.
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(_SETTLED_S, self._draw_all)

    def _draw_all(self) -> None:
        self._settling = None
        if self.screen_stack:
            self.screen.refresh(layout=True)

    # --- what happens ------------------------------------------------------------------------------------

    def show_surroundings(self, presenter: Presenter) -> None:
        """Draw what is around the transcript, and call the user where they are needed elsewhere."""
        base, status = self.screen_stack[0], presenter.status
        base.query_one(HeaderBar).show(status)
        activity = base.query_one(ActivityLine)
        activity.can_leave = self.connection is not None and self.connection.can_send_back
        activity.show(status)
        base.query_one(SidePanel).show(presenter)
        self._welcome(status)
        self._show_title(status)
        self._call(status)
        if status.working != self._was_working:
            base.query_one(FooterBar).set_working(status.working)
            self.run_status_command()
        self._was_working, self._was_pending = status.working, len(status.pending)

    def _welcome(self, status: Status) -> None:
        """Tell in an empty transcript what may happen here and which keys help."""
        told = (status.mode, status.wall, *(self._shown_key(name, key) for name, key, _ in _WELCOME_KEYS))
        if told == self._welcomed:
            return
        self._welcomed = told
        mode, wall, *shown = told
        keys = [(key, what) for key, (_, _, what) in zip(shown, _WELCOME_KEYS, strict=True)]
        self.screen_stack[0].query_one(Transcript).show_when_empty(partial(welcome, mode, wall, keys))

    def _show_title(self, status: Status) -> None:
        sign = "? " if status.pending else "* " if status.working else ""
        title = f"{sign}{status.title or status.project or 'aar'} - aar"
        if title != self._window_title:
            first = SAVE_TITLE if not self._window_title else ""
            self._window_title = title
            write_sequence(self, first + title_sequence(title))

    def _call(self, status: Status) -> None:
        if self.app_focus:
            return
        message = ""
        if len(status.pending) > self._was_pending:
            message = f"aar asks: {status.pending[-1].tool_name}"
        elif self._was_working and not status.working:
            message = f"aar is done: {status.title or status.project}"
        if message:
            write_sequence(self, call_sequence(self.look.notify, message, os.environ))

    def give_title_back(self) -> None:
        """Let the window have the title that it had before."""
        if self._window_title:
            write_sequence(self, RESTORE_TITLE)

    def watch_signals(self) -> None:
        """Let SIGTERM, SIGHUP and SIGINT from outside close the session as leaving does."""
        if self.is_headless:
            return
        watch_resume(self, self._came_back)
        loop = asyncio.get_running_loop()

        def asked(number: int) -> None:
            give_up_soon(self)
            # The loop may be closed already.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._end, number)

        if self.ending is not None:
            self.ending.watch(asked)

    def _came_back(self) -> None:
        """Draw everything: the shell wrote on the terminal meanwhile."""
        if self._window_title:
            again = SAVE_TITLE if self._title_given_back else ""
            self._title_given_back = False
            write_sequence(self, again + title_sequence(self._window_title))
        self.screen.refresh(layout=True)

    def terminal_gone(self) -> None:
        """Close the session: nobody sees it any more."""
        if self.ending is not None:
            self.ending.begin(signal.SIGHUP)
        self._end(signal.SIGHUP)

    def _end(self, number: int) -> None:
        first = number if self.ending is None else self.ending.number or number
        self.exit(return_code=128 + first)

    # --- the user's status line --------------------------------------------------------------------------

    def start_status_command(self) -> None:
        """Begin to call ``[tui] status_command``, if there is one."""
        if self.connection is None or not self.look.status_command:
            return
        from aar.transports.tui.status_line import StatusCommand

        runtime = self.connection.conversation.runtime
        show: Callable[[str], None] = self.screen_stack[0].query_one(FooterBar).set_status
        self._status_command = StatusCommand(
            self.look.status_command, runtime.spawner, runtime.workspace, show
        )
        self._status_timer = self.set_interval(self.look.status_interval, self.run_status_command)
        self.run_status_command()

    def run_status_command(self) -> None:
        """Call the command now."""
        if self._status_command is None or self.connection is None:
            return
        from aar.transports.tui.status_line import told

        conversation, status = self.connection.conversation, self.connection.presenter.status
        facts = told(status, conversation.session.session_id, conversation.runtime.workspace)
        self._status_command.run(facts)

    async def stop_status_command(self) -> None:
        """End it."""
        if self._status_timer is not None:
            self._status_timer.stop()
        if self._status_command is not None:
            await self._status_command.stop()

    # --- keys --------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let keys of the main screen rest while another screen covers it."""
        if len(self.screen_stack) > 1 and (action.startswith("show_") or action in _OF_MAIN_SCREEN):
            return False
        return super().check_action(action, parameters)

    def action_toggle_panel(self) -> None:
        """Open or close the side panel."""
        opened = self.look.layout.has_panel(self.size.width, self._panel_wanted)
        self._panel_wanted = not opened
        self.apply_layout()

    def action_suspend(self) -> None:
        """Go back to the shell that started aar."""
        if os.getsid(0) == os.getpgrp():
            self.tell("No shell waits behind aar in this window.")
            return
        self.give_title_back()
        self._title_given_back = True
        self.action_suspend_process()

    def tell(self, text: str, level: str = "info") -> None:
        """Show a line in the transcript that is no event, as soon as there is a session."""
        if self.connection is None:
            self._problems.append(text)
            return
        self.connection.presenter.add_local_notice(text, level)
        self.connection.wake()
