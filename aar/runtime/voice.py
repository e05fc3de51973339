"""Voice by the user's own programs: one prints what it hears, one speaks what it reads.

What was heard becomes text of the prompt and is never sent by itself. The commands are the user's, like an
editor: they run outside of the wall, started by `ProcessSpawner`, and no project can name them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from typing import TYPE_CHECKING, Final

from aar.protocol.errors import AarError, StorageError, UsageError
from aar.protocol.events import Notice
from aar.protocol.ports import SpawnRequest
from aar.safety.sanitize import sanitize
from aar.tools.builtin.terminal_text import plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aar.config.schema import VoiceConfig
    from aar.core.agent import RunResult
    from aar.protocol.ports import Process, SpawnResult
    from aar.runtime.conversation import Conversation

_MAX_HEARD: Final = 20_000
_MAX_SPOKEN: Final = 20_000
_SECONDS_TO_SPEAK: Final = 1800.0
_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.M | re.S)
_LINK: Final = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
_LINE_MARKS: Final = re.compile(r"^[ \t]*(?:#{1,6}|>+|[-*+]|\d+[.)])[ \t]+", re.M)
_TABLE_RULE: Final = re.compile(r"^[ \t]*\|?(?:[ \t]*:?-{2,}:?[ \t]*\|?)+[ \t]*$\n?", re.M)
_EDGES: Final = re.compile(r"^[ \t]*\|?[ \t]*|[ \t]*\|?[ \t]*$", re.M)
_STRONG: Final = re.compile(r"(\*{1,3}|_{2,3}|~~)(?=\S)(.+?)(?<=\S)\1")


class Voice:
    """Dictation and reading aloud in one conversation.

    Args:
        conversation: The conversation; its answers are read aloud while `reads_answers`.

    Attributes:
        reads_answers: Whether each answer is read aloud.
        on_listening: Told when a recording begins and ends; must be short.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.reads_answers = False
        self.on_listening: Callable[[bool], None] = lambda listening: None
        self._hearing: Process | None = None
        self._stops: int | None = None
        self._reading: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()
        conversation.watch(lambda event: None, on_result=self._answered)

    # --- hearing -----------------------------------------------------------------------------------------

    @property
    def listening(self) -> bool:
        """Whether a recording is under way."""
        return self._stops is not None

    async def listen(self) -> str:
        """Run ``stt_command`` until it ends or `stop` ends it; return what was heard, on one line.

        Raises:
            UsageError: There is no such command, it listens already, or the command failed.
        """
        command = self._command("stt_command", "prints what it hears")
        if self.listening:
            raise UsageError("It listens already; /voice ends that.")
        self._quiet()
        self._stops = 0
        self.on_listening(True)
        try:
            ended = await self._run(command, self._settings.seconds, hears=True)
            stops = self._stops
        finally:
            self._stops = None
            self.on_listening(False)
        if stops > 1:
            return ""
        text = " ".join(sanitize(plain_text(ended.output)).split())[:_MAX_HEARD]
        if ended.timed_out:
            raise UsageError(f"stt_command was ended after {self._settings.seconds:g} s ([voice] seconds).")
        if ended.exit_code != 0 and not (stops and text):
            hint = " It gets SIGINT when the recording is to end." if stops else ""
            raise UsageError(f"stt_command `{command}` failed ({_why(ended)}).{hint}")
        return text

    def stop(self) -> bool:
        """End the recording (a second call drops it), or the reading; tell whether there was anything."""
        if self._stops is None:
            return self._quiet()
        self._stops += 1
        self._pass_on_stop()
        return True

    def _pass_on_stop(self) -> None:
        """Give the recording program what `stop` has asked for so far."""
        process = self._hearing
        if process is None or not process.running or not self._stops:
            return
        if self._stops > 1:
            self._begin(process.kill())
        elif process.pid:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGINT)

    # --- speaking ----------------------------------------------------------------------------------------

    @property
    def reading(self) -> bool:
        """Whether something is read aloud."""
        return self._reading is not None

    def read_last(self) -> None:
        """Read the last answer aloud, in the background.

        Raises:
            UsageError: There is no answer, or no ``tts_command``.
        """
        self.check_reading()
        messages = reversed(self._conversation.session.messages())
        answers = (message.text for message in messages if message.role == "assistant")
        text = next(filter(str.strip, answers), None)
        if text is None:
            raise UsageError("There is no answer yet that could be read aloud.")
        self._read(text)

    def check_reading(self) -> None:
        """Make sure that something can be read aloud.

        Raises:
            UsageError: There is no ``tts_command``.
        """
        self._command("tts_command", "speaks what it reads from standard input")

    def _answered(self, result: RunResult) -> None:
        if self.reads_answers and result.text.strip() and not self.listening:
            self._read(result.text)

    def _read(self, text: str) -> None:
        self._quiet()
        self._reading = self._begin(self._speak(spoken(text)))

    async def _speak(self, text: str) -> None:
        task = asyncio.current_task()
        try:
            command = self._command("tts_command", "speaks what it reads from standard input")
            ended = await self._run(command, _SECONDS_TO_SPEAK, text.encode())
            if ended.exit_code != 0 and not ended.timed_out:
                raise UsageError(f"tts_command `{command}` failed ({_why(ended)}).")
        except (AarError, OSError) as error:
            self._failed(str(error))
        finally:
            if self._reading is task:
                self._reading = None

    def _failed(self, sentence: str) -> None:
        more = " Answers are not read aloud any more." if self.reads_answers else ""
        self.reads_answers = False
        with contextlib.suppress(StorageError):
            self._conversation.session.append(
                Notice(level="warning", code="voice", message=f"{sentence}{more}")
            )

    def _quiet(self) -> bool:
        """Read no further; tell whether something was read."""
        task, self._reading = self._reading, None
        if task is None:
            return False
        task.cancel()
        return True

    # --- programs ----------------------------------------------------------------------------------------

    @property
    def _settings(self) -> VoiceConfig:
        return self._conversation.runtime.config.voice

    def _command(self, name: str, does: str) -> str:
        command: str | None = getattr(self._settings, name)
        if command is None or not command.strip():
            raise UsageError(
                f"There is no program for this: set [voice] {name} in your config file to one that {does}."
            )
        return command

    async def _run(
        self, command: str, seconds: float, stdin: bytes | None = None, *, hears: bool = False
    ) -> SpawnResult:
        """Run a command of the user's to its end; cancelling ends it with all its children.

        Raises:
            UsageError: It could not be started.
        """
        base = self._conversation.runtime.base
        request = SpawnRequest(
            argv=("/bin/sh", "-c", command),
            # Not in the project, which a relative path would run something of.
            cwd=base.paths.config if base.paths.config.is_dir() else base.paths.data,
            env=dict(os.environ),
            kind="helper",
            timeout_s=seconds,
            network=True,
            stdin=stdin,
            max_output=8 * _MAX_HEARD,
            merge_stderr=False,
        )
        try:
            process = await self._conversation.runtime.spawner.start(request)
        except OSError as error:
            raise UsageError(f"`{command}` could not be started: {error.strerror or error}.") from error
        if hears:
            self._hearing = process
            self._pass_on_stop()
        try:
            return await process.wait()
        finally:
            if hears:
                self._hearing = None

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def aclose(self) -> None:
        """End what is heard and read."""
        self._quiet()
        if self._hearing is not None:
            self._stops = 2
            await self._hearing.kill()
        if self._beside:
            await asyncio.wait(self._beside, timeout=2)


def spoken(markdown: str) -> str:
    """Return an answer as it is read aloud: no marks, no code, nothing that moves a cursor."""

    def code(match: re.Match[str]) -> str:
        lines = max(0, match[0].count("\n") - 1)
        return f"(Code, {lines} {'line' if lines == 1 else 'lines'}.)"

    text = _FENCE.sub(code, markdown)
    text = _TABLE_RULE.sub("", _LINK.sub(r"\1", text))
    text = _STRONG.sub(r"\2", _LINE_MARKS.sub("", text)).replace("`", "").replace(" | ", ", ")
    text = _EDGES.sub("", text)
    text = re.sub(r"\n{3,}", "\n\n", plain_text(text.encode("utf-8", "replace"))).strip()
    return sanitize(text)[:_MAX_SPOKEN] + "\n"


def _why(ended: SpawnResult) -> str:
    lines = sanitize(plain_text(ended.stderr)).split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")[:200]
    code = "it was killed" if ended.exit_code is None else f"exit code {ended.exit_code}"
    return f"{code}: {said}" if said else code
