"""Use of Textual's private parts, with `textual_driver`: what to look at when its version changes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import Enum
from typing import Any, cast

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual._context import active_message_pump
from textual.app import App, ScreenStackError
from textual.color import Color
from textual.css.query import NoMatches
from textual.driver import Driver
from textual.filter import LineFilter
from textual.message import Message
from textual.screen import Screen
from textual.signal import Signal
from textual.widget import Widget
from textual.worker import WorkerFailed

from aar.protocol.late import late_pattern

_LATE_ANSWER = late_pattern(r"\]11;rgba?:[0-9a-fA-F/]*(?:\x07|\x1b\\)?")


class QuietFocus(App[int]):
    """An app that restyles nothing when its window gets or loses the focus, and forgives what comes late.

    Textual walks all widgets for each change, and takes the focus from the one that has it. Aar's look is the
    same with and without focus; ``app_focus`` still tells.
    """

    failure: BaseException | None = None
    """Why the app ended, where that was no wish of the user: for the command line to tell."""

    def _handle_exception(self, error: Exception) -> None:
        if _came_late(self, error):
            return
        if self.failure is None:
            self.failure = error.error if isinstance(error, WorkerFailed) else error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        # Textual's own report shows the values of variables, and those may be secrets.
        self._close_messages_no_wait()

    def _print_error_renderables(self) -> None:
        self._exit_renderables.clear()

    def _watch_app_focus(self, focus: bool) -> None:
        pass

    @contextmanager
    def suspend(self) -> Generator[None]:
        """Give the terminal to another program, and take it back whatever happens meanwhile.

        Textual does not take it back when an error ends the block.
        """
        failure: BaseException | None = None
        with super().suspend():
            try:
                yield
            except BaseException as error:
                failure = error
        if failure is not None:
            raise failure

    def terminal_gone(self) -> None:
        """End: the terminal does not exist any more."""
        self.exit()


def _came_late(app: App[Any], error: Exception) -> bool:
    """Tell whether a handler, timer or worker missed a widget only because its screen is gone."""
    cause = error.error if isinstance(error, WorkerFailed) else error
    if not isinstance(cause, NoMatches | ScreenStackError):
        return False
    if not app.is_running or app._exit or not app._screen_stacks[app._current_mode]:  # pyright: ignore[reportPrivateUsage]
        return True
    pump = active_message_pump.get(None)
    if isinstance(pump, Screen):
        return pump not in app.screen_stack
    if not isinstance(pump, Widget):
        return False
    return not pump.is_attached or pump._closing or pump._pruning  # pyright: ignore[reportPrivateUsage]


def write_sequence(app: App[Any], sequence: str) -> None:
    """Write ``sequence`` to the terminal, in order with what Textual writes; nothing where there is none."""
    driver: Driver | None = app._driver  # pyright: ignore[reportPrivateUsage]
    if sequence and driver is not None and not driver.is_headless:
        driver.write(sequence)
        driver.flush()


def give_up_soon(app: App[Any]) -> None:
    """Wait no longer for a terminal that stands still; from a signal handler too."""
    from aar.transports.tui.textual_driver import TerminalDriver

    driver: Driver | None = app._driver  # pyright: ignore[reportPrivateUsage]
    if isinstance(driver, TerminalDriver):
        driver.give_up_soon()


def feed_typed(app: App[Any], data: bytes) -> None:
    """Hand on keys that were typed before the screen stood."""
    text = _LATE_ANSWER.sub("", data.decode("utf-8", "replace"))
    if not text:
        return
    from textual._xterm_parser import XTermParser

    parser = XTermParser()
    messages = [*parser.feed(text), *parser.feed("")]
    for message in messages:
        _hand_on(app, no_letter(message))


def no_letter(message: Message) -> Message:
    """Return ``message``, where it is a letter with Alt as a key that writes no letter.

    Terminals without Kitty's protocol send Esc and the letter, and Textual would write it into a text box.
    """
    if isinstance(message, events.Key) and message.key.startswith("alt+"):
        message.character = None
    return message


def _hand_on(app: App[Any], message: Message) -> None:
    if isinstance(message, events.Key | events.Paste):
        app.post_message(message)


def watch_bindings(widget: Widget, changed: Callable[[], None]) -> None:
    """Call ``changed`` when other keys work on the screen of ``widget`` than before."""
    signal = cast("Signal[Any]", widget.screen.bindings_updated_signal)  # pyright: ignore[reportUnknownMemberType]
    signal.subscribe(widget, lambda _: changed())


def app_of(widget: Widget) -> App[Any]:
    """Return the app of ``widget``, whose kind Textual does not tell."""
    return cast("App[Any]", widget.app)  # pyright: ignore[reportUnknownMemberType]


def watch_layout(widget: Widget, changed: Callable[[], None]) -> None:
    """Call ``changed`` after parts of the screen of ``widget`` got other sizes."""
    signal = cast("Signal[Any]", widget.screen.screen_layout_refresh_signal)  # pyright: ignore[reportUnknownMemberType]
    signal.subscribe(widget, lambda _: changed())


async def run_own_key(widget: Widget, event: events.Key, *, letters: bool = False) -> bool:
    """Do at once what a key is bound to in ``widget`` itself; return whether it was.

    Args:
        widget: Has the focus.
        event: The key.
        letters: Whether letters are keys too, and no text.

    Textual does it after the key has risen to the app; letters that were typed behind it have come in by
    then, and a prompt would be sent with the beginning of the next one.
    """
    if event.is_printable and not letters:
        return False
    app = app_of(widget)
    own = widget._bindings.copy()  # pyright: ignore[reportPrivateUsage]
    if app._keymap:  # pyright: ignore[reportPrivateUsage]
        own.apply_keymap(app._keymap)  # pyright: ignore[reportPrivateUsage]
    for binding in own.key_to_bindings.get(event.key, ()):
        if not binding.priority and await app.run_action(binding.action, widget):
            event.stop()
            event.prevent_default()
            return True
    return False


def hand_on_key(widget: Widget, event: events.Key) -> bool:
    """Hand a key on that was on its way to ``widget`` when another got the focus; return whether it was."""
    focused = widget.screen.focused
    if focused is None or focused is widget:
        return False
    event.stop()
    event.prevent_default()
    focused.post_message(events.Key(event.key, event.character))
    return True


class _Upright(LineFilter):
    """Takes the slant away."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments without italics."""
        return [
            Segment(text, style + _UPRIGHT if style is not None and style.italic else style, control)
            for text, style, control in segments
        ]


_UPRIGHT = Style(italic=False)


def without_italics(app: App[Any]) -> None:
    """Write no italics: GNU screen shows them as black on white."""
    app._filters.append(_Upright())  # pyright: ignore[reportPrivateUsage]


class _WithoutLines(LineFilter):
    """Takes away what is drawn, which a screen reader would read out; a prompt of the user keeps a sign."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments with spaces where something was drawn."""
        return [
            segment if segment.text.isascii() else Segment(segment.text.translate(_NOT_DRAWN), *segment[1:])
            for segment in segments
        ]


_NOT_DRAWN = {**dict.fromkeys(range(0x2500, 0x25A0), " "), ord("▌"): ">", ord("−"): "-"}


def without_lines(app: App[Any], on: bool) -> None:
    """Draw no lines from now on, or draw them again."""
    kept = [one for one in app._filters if not isinstance(one, _WithoutLines)]  # pyright: ignore[reportPrivateUsage]
    app._filters = [*kept, _WithoutLines()] if on else kept  # pyright: ignore[reportPrivateUsage]


class _MoreKeys(Enum):
    ALT_ENTER = "alt+enter"


def teach_alt_enter() -> None:
    """Tell Alt+Enter from Enter in terminals that send it as Esc and Enter (all without Kitty's protocol)."""
    from textual._ansi_sequences import ANSI_SEQUENCES_KEYS

    known = cast("dict[str, Any]", ANSI_SEQUENCES_KEYS)
    for sequence in ("\x1b\r", "\x1b\n"):
        known.setdefault(sequence, (_MoreKeys.ALT_ENTER,))


def watch_resume(app: App[Any], came_back: Callable[[], None]) -> None:
    """Call ``came_back`` when the process goes on after it was suspended."""
    signal = cast("Signal[Any]", app.app_resume_signal)  # pyright: ignore[reportUnknownMemberType]
    signal.subscribe(app, lambda _: came_back())
