"""The conversation in line mode: read a line, run it, show what happens, ask what must be asked."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from aar.commands.base import Choice, Context, Failure, HealthCheck, Result, Submit, Table, Text, UiAction
from aar.commands.from_files import registry_for
from aar.commands.registry import is_command_line
from aar.core.agent import RunResult
from aar.protocol.errors import AarError
from aar.protocol.events import Approval, ApprovalRequest, Event
from aar.protocol.messages import ContentBlock
from aar.runtime.conversation import Conversation
from aar.transports.chat import questions
from aar.transports.chat.drawing import draw_choice, draw_table
from aar.transports.chat.line_input import LineCompleter
from aar.transports.chat.paper import MarkdownPaper, Paper
from aar.transports.chat.printer import ChatPrinter

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_SETTLING_S = 0.05
ACTIONS = frozenset({"quit", "attach", "insert", "fill"})
"""What of the commands' actions this door can do."""


class Reader(questions.Asker, Protocol):
    """Reads what the user types."""

    draft: str
    completer: LineCompleter

    async def prompt(self, message: str = "> ") -> str | None:
        """Return a prompt; ``None``: the user leaves."""
        ...


class Talk:
    """A conversation at a terminal.

    Args:
        conversation: The open session with its agent.
        reader: Where lines come from.
        paper: Where lines go.
        doctor: For `/doctor`.

    Attributes:
        ended_by: Number of the signal that ended it, if one did.
    """

    def __init__(
        self,
        conversation: Conversation,
        reader: Reader,
        paper: Paper,
        doctor: Any = None,
    ) -> None:
        self.conversation = conversation
        self.ended_by: int | None = None
        self._reader, self._paper = reader, paper
        self._printer = ChatPrinter(paper)
        registry = registry_for(conversation)
        self._context = Context(conversation, registry, ACTIONS, doctor)
        reader.completer.commands = lambda line: registry.complete(self._context, line)
        self._questions: asyncio.Queue[ApprovalRequest] = asyncio.Queue()
        self._settled: set[str] = set()
        self._held: list[Event | RunResult] | None = None
        self._command: asyncio.Future[Any] | None = None
        self._leaving = False
        conversation.watch(self._take, on_result=self._take)
        if conversation.runtime.config.voice.speak:
            conversation.voice.reads_answers = True

    # --- what happens ------------------------------------------------------------------------------------

    def _take(self, event: Event | RunResult) -> None:
        """Write an event; while a question is open it waits, so that it does not write into the answer."""
        if isinstance(event, ApprovalRequest):
            self._questions.put_nowait(event)
        elif isinstance(event, Approval) and event.request_id is not None:
            self._settled.add(event.request_id)
        if self._held is not None:
            self._held.append(event)
        else:
            self._print(event)

    def _print(self, event: Event | RunResult) -> None:
        if isinstance(event, RunResult):
            self._printer.result(event)
        else:
            self._printer.event(event)

    # --- the loop ----------------------------------------------------------------------------------------

    async def run(self, first: str | None = None) -> int:
        """Talk until the user leaves; return the exit code."""
        self._watch_signals()
        try:
            line = first
            while not self._leaving and not self._paper.lost:
                if line is None:
                    line = await self._read()
                    if line is None:
                        break
                await self._handle(line)
                line = None
        except asyncio.CancelledError:
            if self.ended_by is None:
                raise
        finally:
            self._forget_signals()
        return 128 + self.ended_by if self.ended_by is not None else 0

    async def _read(self) -> str | None:
        refresh = asyncio.ensure_future(self._list_files())
        try:
            self._paper.line()
            mode = self.conversation.mode
            return await self._reader.prompt("> " if mode == "ask" else f"{mode}> ")
        finally:
            refresh.cancel()

    async def _list_files(self) -> None:
        with suppress(OSError, AarError):
            runtime = self.conversation.runtime
            self._reader.completer.files.set(await runtime.survey(), runtime.servers.resources())

    async def _handle(self, line: str) -> None:
        text = line.strip()
        if not text:
            if self.conversation.agent.queue.prompts and self.conversation.go_on():
                await self._follow()
        elif is_command_line(text):
            await self._run_command(text)
        else:
            await self._send(line.strip("\n"))

    async def _send(self, prompt: str | Sequence[ContentBlock]) -> None:
        try:
            self.conversation.submit(prompt)
        except AarError as error:
            self._fail(str(error))
            return
        await self._follow()

    async def _follow(self) -> None:
        """Show the run until nothing runs any more, and ask what it asks."""
        while self.conversation.running:
            ended = asyncio.ensure_future(self.conversation.wait())
            asked = asyncio.ensure_future(self._questions.get())
            done, _ = await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
            if asked in done:
                ended.cancel()
                await self._answer(asked.result())
                continue
            asked.cancel()
            try:
                await ended
            except AarError as error:
                self._fail(str(error))

    def _fail(self, sentence: str) -> None:
        self._printer.end_answer()
        self._paper.line(f"! {sentence}", "red")

    # --- questions ---------------------------------------------------------------------------------------

    async def _answer(self, request: ApprovalRequest) -> None:
        """Put a question until it is answered, here or by a rule that another answer kept."""
        self._printer.end_answer()
        self._held = []
        try:
            # A rule that the answer before kept may settle this question too; that takes a moment.
            await asyncio.sleep(_SETTLING_S)
            while self._is_open(request):
                decision = await questions.ask(request, self._paper, self._reader)
                if decision.decision == "cancelled":
                    self.conversation.interrupt()
                    return
                try:
                    self.conversation.answer(request.request_id, decision.decision, **decision.details)
                    return
                except AarError as error:
                    self._fail(str(error))
        finally:
            held, self._held = self._held, None
            for event in held:
                self._print(event)

    def _is_open(self, request: ApprovalRequest) -> bool:
        if request.request_id in self._settled or not self.conversation.running:
            return False
        open_now = self.conversation.agent.approvals.pending
        return any(other.request_id == request.request_id for other in open_now)

    # --- commands ----------------------------------------------------------------------------------------

    def _listening(self, listening: bool) -> None:
        if listening:
            self._paper.line("Listening. Ctrl-C ends it, once more drops what was said.", "dim")

    async def _run_command(self, line: str) -> None:
        if line.lower().startswith("/voice"):
            self.conversation.voice.on_listening = self._listening
        self._command = asyncio.ensure_future(self._context.registry.run_line(self._context, line))
        try:
            result: Result = await self._command
        except asyncio.CancelledError:
            if self.ended_by is not None:
                raise
            self._fail("Interrupted.")
            return
        finally:
            self._command = None
        await self._show(result)
        if isinstance(result, Failure) and "\n" in line:  # a plan that was edited, to be mended
            self._reader.draft = line
        if self.conversation.running:
            await self._follow()

    async def _show(self, result: Result) -> None:
        match result:
            case Failure():
                self._fail(result.sentence)
            case Text():
                page = MarkdownPaper(self._paper)
                page.feed(result.markdown)
                page.end()
            case Table():
                draw_table(self._paper, result, shutil.get_terminal_size().columns)
            case Choice():
                await self._choose(result)
            case Submit():
                if result.note:
                    self._paper.line(result.note, "dim")
                await self._send(result.content())
            case UiAction():
                self._act(result)

    async def _choose(self, choice: Choice) -> None:
        draw_choice(self._paper, choice)
        said = await self._reader.text("Number, or Enter to leave it: ")
        if not said or not said.strip():
            return
        number = said.strip()
        if number.isdigit() and 1 <= int(number) <= len(choice.items):
            await self._run_command(choice.items[int(number) - 1].command)
        else:
            self._fail(f"There is no {number!r}; the numbers go from 1 to {len(choice.items)}.")

    def _act(self, action: UiAction) -> None:
        if action.name == "quit":
            self._leaving = True
        elif action.name == "attach":
            self._reader.draft += f"@{action.arguments.get('path', '')} "
        elif action.name == "insert":
            self._reader.draft = f"{self._reader.draft} {action.arguments.get('argument', '')}".lstrip()
        elif action.name == "fill":
            self._reader.draft = str(action.arguments.get("argument", ""))

    # --- signals -----------------------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        """Let Ctrl-C end what runs; SIGTERM and SIGHUP end the talk cleanly."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        with suppress(RuntimeError, ValueError):  # not in the main thread
            loop.add_signal_handler(signal.SIGINT, self.interrupt)
            for number in _ENDING:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, self._end, number, task)

    def _forget_signals(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(RuntimeError, ValueError):
            for number in (signal.SIGINT, *_ENDING):
                loop.remove_signal_handler(number)

    def interrupt(self) -> None:
        """End the run or the command that is under way; what was shown is kept."""
        if self.conversation.stop_voice():
            return
        if self._command is not None:
            self._command.cancel()
        self.conversation.interrupt()

    def _end(self, number: int, task: asyncio.Task[Any] | None) -> None:
        self.ended_by = number
        self.conversation.interrupt()
        if task is not None:
            task.cancel()


def examine(options: dict[str, Any]) -> Sequence[HealthCheck]:
    """Return what the doctor finds, for options of `aar.runtime.open_base`."""
    from aar.transports.cli.doctor import examine as look

    return [HealthCheck(item.name, item.status, item.detail, item.fix) for item in look(options)]
