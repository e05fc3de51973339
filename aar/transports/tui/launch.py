"""Starts the full screen and gives the terminal back, however it ends."""

from __future__ import annotations

import os
import select
import sys
import termios
from collections.abc import Mapping
from typing import Any

from aar.config.paths import paths
from aar.transports.lost import tell_lost
from aar.transports.tui.ending import Ending
from aar.transports.tui.layout import early_look
from aar.transports.tui.terminal import RESET, BackgroundQuestion, colour_depth, from_environment, screen_fd


def launch(options: Mapping[str, Any], which: Mapping[str, Any], prompt: str | None) -> int:
    """Show the full screen until the user leaves, and return the exit code.

    The terminal is asked for its background before Textual is imported, and answers meanwhile.

    Args:
        options: For `aar.runtime.open_runtime`.
        which: For `Runtime.open_session`.
        prompt: First prompt.

    Raises:
        Exception: What the session could not be opened for.
    """
    own = paths()
    look = early_look(own.user_config, os.environ, options.get("flags") or {}, options.get("sets") or ())
    before = _attributes()
    question = BackgroundQuestion(sys.stdin.fileno(), screen_fd())
    background = None
    if look.theme == "auto" or "NO_COLOR" in os.environ or colour_depth(os.environ) <= 16:
        question.ask(os.environ)
    try:
        from aar.transports.tui.app import AarApp
        from aar.transports.tui.textual_driver import TerminalDriver
    finally:
        background = question.answer() or from_environment(os.environ)
    app = AarApp(
        options, which, prompt, look=look, user_themes=own.config / "themes", background=background,
        typed=question.typed,
    )  # fmt: skip
    app.driver_class = TerminalDriver
    app.ending = ending = Ending(lambda: _give_back(before))
    clean = False
    try:
        app.run(mouse=look.mouse)
        clean = app.failure is None and app.return_code in (0, None)
    except OSError:
        # Textual shows an error that it met at the end, on a terminal that is gone.
        if ending.number is None:
            raise
    finally:
        ending.release()
        if not clean:
            _give_back(before)
    if app.connection is not None:
        tell_lost(app.connection.conversation.session)
    if ending.number is not None:
        return 128 + ending.number
    if app.failure is not None:
        if app.connection is not None:
            sys.stderr.write("The session is kept: `aar tui --continue` goes on with it.\n")
        raise app.failure
    return app.return_code or 0


def _attributes() -> list[Any] | None:
    try:
        return termios.tcgetattr(sys.stdin.fileno())
    except (OSError, termios.error):
        return None


def _give_back(before: list[Any] | None) -> None:
    """Set the terminal to what it was; after a clean end Textual has done so."""
    try:
        if before is not None:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)
        # A terminal that stands still takes nothing.
        if select.select([], [screen_fd()], [], 0)[1]:
            os.write(screen_fd(), RESET.encode())
    except (OSError, termios.error):
        # The terminal is gone (SIGHUP).
        return
