"""The line that the user types: history, completion, several lines, single keys, all by prompt-toolkit."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.output.plain_text import PlainTextOutput

from aar.transports.tui.prompt.completion import FileList, find_request

_SETTLE_S = 0.3
"""Seconds in which what is still being typed is kept from answering a question."""

CompleteLine = Callable[[str], Sequence[str]]
"""Returns the command lines that a line which begins with a slash may become."""


class LineCompleter(Completer):
    """Completes commands after a slash and files after an at sign."""

    def __init__(self) -> None:
        self.files = FileList()
        self.commands: CompleteLine = lambda line: ()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what may stand in place of the words before the caret."""
        before = document.text_before_cursor
        request = find_request(before, document.text_after_cursor)
        if request is None:
            return
        if request.kind == "file":
            for found in self.files.search(request.query):
                yield Completion(
                    found.insert, request.start - len(before), display=found.label or found.insert
                )
            return
        for line in self.commands(before):
            yield Completion(line, -len(before))


class StoredHistory(History):
    """Earlier prompts from where all doors keep them.

    Args:
        load: Returns them, oldest first.
        store: Keeps one more.
    """

    def __init__(self, load: Callable[[], Sequence[str]], store: Callable[[str], None]) -> None:
        super().__init__()
        self._load, self._store = load, store

    def load_history_strings(self) -> Iterable[str]:
        """Return the prompts, newest first."""
        return reversed(self._load())

    def store_string(self, string: str) -> None:
        """Keep a prompt; a disk that refuses does not end the session."""
        try:
            self._store(string)
        except OSError:
            return


class LineReader:
    """Reads prompts, answers and keys.

    Args:
        history: Earlier prompts.
        plain: Whether nothing is shown beside the line, for screen readers.
        hint: Told when Ctrl-C is pressed on an empty line.
        terminal_input: Instead of the terminal, for tests.
        terminal_output: Instead of the terminal, for tests.

    Attributes:
        completer: What completes the line.
        draft: Put into the next prompt.
    """

    def __init__(
        self,
        history: History | None = None,
        *,
        plain: bool = False,
        hint: Callable[[], None] = lambda: None,
        terminal_input: Input | None = None,
        terminal_output: Output | None = None,
    ) -> None:
        self.completer = LineCompleter()
        self.draft = ""
        self._hint = hint
        self._streams: dict[str, Any] = {"input": terminal_input, "output": terminal_output}
        self._lines: PromptSession[str] = PromptSession(
            history=history or InMemoryHistory(),
            multiline=True,
            completer=self.completer,
            complete_while_typing=not plain,
            reserve_space_for_menu=0 if plain else 6,
            prompt_continuation=". ",
            key_bindings=self._keys_of_prompts(),
            enable_open_in_editor=False,
            enable_suspend=True,
            **self._streams,
        )

    async def prompt(self, message: str = "> ") -> str | None:
        """Return what the user wants to say; ``None``: they leave (Ctrl-D on an empty line)."""
        draft, self.draft = self.draft, ""
        try:
            return await self._lines.prompt_async(message, default=draft, handle_sigint=False)
        except EOFError:
            return None

    async def text(self, prompt: str, default: str = "") -> str | None:
        """Return one line; ``None`` when it is taken back (Ctrl-C, Ctrl-D)."""
        session: PromptSession[str | None] = PromptSession(key_bindings=_keys_of_lines(), **self._streams)
        return await session.prompt_async(prompt, default=default, handle_sigint=False)

    async def key(self, prompt: str, keys: str) -> str:
        """Return one of ``keys`` as soon as it is pressed; nothing for Ctrl-C and Ctrl-D.

        What was typed before the question could be read answers nothing: it comes back in the next prompt.
        """
        await self._put_aside()
        session: PromptSession[str] = PromptSession(key_bindings=_keys_of_questions(keys), **self._streams)
        return await session.prompt_async(prompt, handle_sigint=False)

    async def _put_aside(self) -> None:
        source = self._lines.input
        with source.raw_mode():
            await asyncio.sleep(_SETTLE_S)
            pressed = [*get_typeahead(source), *source.read_keys(), *source.flush_keys()]
        typed = "".join(press.data for press in pressed if press.data.isprintable() or press.data in "\r\n")
        # Many press Enter after a key that has answered already: alone it is nothing to say.
        self.draft = (self.draft + typed.replace("\r", "\n")).lstrip("\n")

    def _keys_of_prompts(self) -> KeyBindings:
        bindings = KeyBindings()

        @bindings.add("enter")
        @bindings.add("c-j")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            before = buffer.document.text_before_cursor
            if (len(before) - len(before.rstrip("\\"))) % 2:
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @bindings.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @bindings.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self._hint()

        @bindings.add("c-d")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.delete()
            else:
                event.app.exit(exception=EOFError)

        return bindings


def _keys_of_lines() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("c-c")
    @bindings.add("c-d")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=None)

    return bindings


def _keys_of_questions(keys: str) -> KeyBindings:
    bindings = KeyBindings()

    def answer(key: str) -> Callable[[KeyPressEvent], None]:
        def take(event: KeyPressEvent) -> None:
            event.current_buffer.text = key
            event.app.exit(result=key)

        return take

    for key in keys:
        bindings.add(key, eager=True)(answer(key))

    @bindings.add("c-c", eager=True)
    @bindings.add("c-d", eager=True)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result="")

    @bindings.add("enter")
    @bindings.add("c-j")
    @bindings.add("<any>")
    def _(event: KeyPressEvent) -> None:
        """Any other key answers nothing."""

    return bindings


@contextmanager
def plain_output() -> Generator[None]:
    """Let prompts be written without a single escape sequence, for a terminal that knows none."""
    with create_app_session(output=PlainTextOutput(sys.stdout)):
        yield


def is_dumb() -> bool:
    """Tell whether the terminal can do nothing but print."""
    return os.environ.get("TERM", "dumb").lower() in ("dumb", "unknown")
