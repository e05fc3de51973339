"""A chat with a scripted model: what is typed goes in by a pipe, what is written is kept."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from aar.runtime.conversation import Conversation
from aar.transports.chat.line_input import LineReader
from aar.transports.chat.paper import Paper
from aar.transports.chat.talk import Talk
from tests.commands.support import desk
from tests.support.waiting import until

ENTER, ESCAPE, CTRL_C, CTRL_D, TAB = "\r", "\x1b", "\x03", "\x04", "\t"
DECIDE = "[y yes"
"""How the line begins on which a call is decided with one key."""


class Drawn(DummyOutput):
    """The terminal below the line that is typed; keeps what is drawn there."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, data: str) -> None:
        """Keep what is drawn."""
        self.text += data


class Chat:
    """A talk that goes on in the background.

    Attributes:
        code: Exit code, once it has ended.
    """

    def __init__(
        self, talk: Talk, reader: LineReader, keys: PipeInput, out: io.StringIO, drawn: Drawn
    ) -> None:
        self.talk, self.reader, self._keys, self._out, self._drawn = talk, reader, keys, out, drawn
        self._typed_at = 0
        self.code: int | None = None

    @property
    def conversation(self) -> Conversation:
        """The open session."""
        return self.talk.conversation

    @property
    def screen(self) -> str:
        """All that was written."""
        return self._out.getvalue()

    def type(self, text: str) -> None:
        """Press keys."""
        self._typed_at = len(self._drawn.text)
        self._keys.send_text(text)

    async def shows(self, *words: str) -> str:
        """Wait until all of ``words`` were written."""
        await until(lambda: all(word in self.screen for word in words), told=lambda: self.screen)
        return self.screen

    async def at(self, prompt: str, keys: str) -> None:
        """Press keys as soon as ``prompt`` was drawn, behind all that was drawn when keys were last pressed."""
        await until(lambda: prompt in self._drawn.text[self._typed_at :], told=lambda: self._drawn.text)
        self.type(keys)

    async def decide(self, key: str) -> None:
        """Answer the question whether a call may run, as soon as it takes an answer."""
        await self.at(DECIDE, key)

    async def say(self, line: str, *words: str) -> str:
        """Type a line and wait for words behind all that was written before."""
        start = len(self.screen)
        self.type(line + ENTER)
        await until(lambda: all(word in self.screen[start:] for word in words), told=lambda: self.screen)
        return self.screen[start:]


@asynccontextmanager
async def chatting(
    tmp_path: Path, *steps: dict[str, Any], mode: str = "ask", colour: bool = False, first: str | None = None
) -> AsyncIterator[Chat]:
    """Chat with a model that does ``steps``, until the end of the block."""
    async with desk(tmp_path, *steps, mode=mode) as at:
        out = io.StringIO()
        with create_pipe_input() as keys:
            paper, drawn = Paper(out, colour=colour), Drawn()
            reader = LineReader(hint=lambda: paper.line("(hint)"), terminal_input=keys, terminal_output=drawn)
            chat = Chat(Talk(at.talk, reader, paper), reader, keys, out, drawn)
            task = asyncio.ensure_future(chat.talk.run(first))
            try:
                yield chat
                if not task.done():
                    chat.talk.interrupt()
                    chat.type(CTRL_C + CTRL_C + CTRL_D)
                async with asyncio.timeout(60):
                    chat.code = await task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
