"""The user's own commands on the screen: one at a time, each with a block of the transcript."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aar.transports.tui.connection import Connection


class ShellRunner:
    """Runs ``!cmd``.

    Args:
        tell: Shows a sentence below the prompt.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether a command runs."""
        return self._task is not None

    def start(self, connection: Connection, command: str, *, private: bool) -> None:
        """Run ``command``; ``private``: the model does not get to see it."""
        self._task = asyncio.ensure_future(self._run(connection, command, private=private))

    def cancel(self) -> None:
        """End the command that runs."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, connection: Connection, command: str, *, private: bool) -> None:
        from aar.protocol.errors import AarError
        from aar.runtime.user_shell import run_user_command

        presenter = connection.presenter
        block = presenter.own_commands.begin(command)
        connection.wake()

        def show(text: str) -> None:
            block.add_progress(text)
            presenter.own_commands.touch(block)
            connection.wake()

        try:
            result = await run_user_command(connection.conversation, command, private=private, on_output=show)
        except asyncio.CancelledError:
            presenter.own_commands.end(block, "cancelled", block.tail)
        except (AarError, OSError) as error:
            presenter.own_commands.end(block, "failed", str(error), is_error=True)
        else:
            failed = result.timed_out or result.exit_code != 0
            presenter.own_commands.end(
                block,
                "failed" if failed else "done",
                result.output,
                is_error=failed,
                exit_code=result.exit_code,
                duration_ms=result.seconds * 1000,
                wall=result.wall,
            )
            if private:
                self._tell("The model does not see this output.")
        finally:
            self._task = None
            connection.wake()
