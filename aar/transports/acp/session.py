"""One session of an editor: a conversation, its turns, and what the editor is told and asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from aar.commands.base import Context, Failure, Submit, UiAction
from aar.commands.from_files import registry_for
from aar.commands.registry import is_command_line
from aar.core.agent import RunResult
from aar.protocol.errors import AarError, ErrorKind
from aar.protocol.events import Approval, ApprovalRequest, Event
from aar.protocol.ids import new_id, now
from aar.protocol.messages import ContentBlock, TextBlock
from aar.protocol.panel import Panel
from aar.protocol.state import StopReason
from aar.runtime.base import log_failure
from aar.runtime.conversation import Conversation
from aar.runtime.parts import Runtime
from aar.transports.acp import options as session_options
from aar.transports.acp.content import prompt_content
from aar.transports.acp.drawing import draw
from aar.transports.acp.editor_calls import EditorCalls
from aar.transports.acp.greeting import ClientCapabilities
from aar.transports.acp.messages import AUTH_REQUIRED, INTERNAL_ERROR, RpcError, invalid_params
from aar.transports.acp.questions import Questions
from aar.transports.acp.rpc import Connection
from aar.transports.acp.translate import Translator, Update, still_told
from aar.transports.lost import tell_lost

_NOT_HERE = frozenset({"clear", "sessions", "fork"})
"""Commands that open another session: the editor has its own list of sessions."""
_INTERRUPT_AGAIN_S = 0.05
_PAGE = 500
_STOP_REASONS = {
    StopReason.MAX_STEPS: "max_turn_requests",
    StopReason.TIMEOUT: "max_turn_requests",
    StopReason.BUDGET: "max_turn_requests",
    StopReason.REPETITION: "max_turn_requests",
    StopReason.MAX_TOKENS: "max_tokens",
    StopReason.REFUSAL: "refusal",
    StopReason.CANCELLED: "cancelled",
}
_REMARKS = {
    StopReason.MAX_STEPS: "Stopped at the limit of steps.",
    StopReason.TIMEOUT: "Stopped: the time was over.",
    StopReason.BUDGET: "Stopped at the budget.",
    StopReason.REPETITION: "Stopped: the model repeated itself without progress.",
    StopReason.MAX_TOKENS: "Stopped: the answer was cut at the model's output limit.",
    StopReason.EMPTY: "Stopped: the model gave empty answers.",
}


class Turn:
    """A prompt between its request and its answer. Made when the line is read, so that no cancel is lost."""

    def __init__(self) -> None:
        self.cancelled = False
        self.work: asyncio.Task[Any] | None = None


class EditorSession:
    """A session as an editor holds it.

    Args:
        connection: To the editor.
        client: What it can do.
        conversation: The open session with its agent.
        calls: Its files in the editor.

    Attributes:
        session_id: Of the protocol and of the stored session alike.
        conversation: See above.
        root: The workspace.
    """

    def __init__(
        self,
        connection: Connection,
        client: ClientCapabilities,
        conversation: Conversation,
        calls: EditorCalls,
    ) -> None:
        self.conversation = conversation
        self.session_id = conversation.session.session_id
        self.root: Path = conversation.runtime.workspace
        self._connection = connection
        self._client = client
        self._calls = calls
        self._registry = registry_for(conversation)
        self._context = Context(conversation, self._registry)
        self._translator = Translator(self, self._update, client)
        self._questions = Questions(conversation, self._translator, client, self.ask, self.cancel)
        self._turns: list[Turn] = []
        # The event loop alone would let a task go before it is done.
        self._interrupting: set[asyncio.Task[None]] = set()
        self._one_turn = asyncio.Lock()
        self._models: list[str] = [conversation.runtime.active.name]
        self._next_model: str | None = None
        self._told_start = False
        self._opening = conversation.runtime.opening_notices(conversation.session)
        self._told_options: list[dict[str, Any]] = []
        self._told_panels: tuple[Panel, ...] = ()
        self._result: RunResult | None = None
        self._closed = False
        conversation.watch(self._take, on_result=self._take_result)

    # --- what happens ------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        self._translator.take(event)
        if isinstance(event, ApprovalRequest):
            self._questions.put(event)
        elif isinstance(event, Approval):
            self._questions.settled(event)

    def _take_result(self, result: RunResult) -> None:
        self._result = result

    def _update(self, update: Update) -> None:
        if not self._closed:
            self._connection.notify("session/update", {"sessionId": self.session_id, "update": update})

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request of this session to the editor."""
        return await self._connection.request(method, {"sessionId": self.session_id, **params})

    def show_terminal(self, call_id: str, terminal_id: str) -> bool:
        """Show a terminal of the editor in a tool call; tell whether there is such a call."""
        return self._translator.show_terminal(call_id, terminal_id)

    # Facts of the translator

    def window(self) -> int:
        """Return the tokens that the model's window holds."""
        return self.conversation.runtime.active.capabilities.context_window

    def cost(self) -> float | None:
        """Return the cost so far, where all prices are known."""
        totals = self.conversation.session.totals
        return totals.cost_usd if totals.cost_known else None

    def title(self) -> str:
        """Return the session's title."""
        return self.conversation.session.title

    def peek(self, path: str) -> bytes:
        """Return a file's content within the limits of tools."""
        return self.conversation.runtime.files().peek_bytes(path)

    def options_changed(self) -> None:
        """Tell the editor of mode, model and thinking, unless it knows."""
        if self.config_options() != self._told_options:
            told = self._told_options = self.config_options()
            self._update({"sessionUpdate": "config_option_update", "configOptions": told})

    # --- opening -----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return ``modes`` and ``configOptions`` for the answer that opens the session."""
        self._told_options = self.config_options()
        return {"modes": session_options.modes(self.conversation), "configOptions": self._told_options}

    def config_options(self) -> list[dict[str, Any]]:
        """Return the complete list of config options."""
        model = self._next_model or self.conversation.runtime.active.name
        return session_options.config_options(self.conversation, self._models, model)

    async def look_around(self) -> None:
        """Find out which models there are."""
        self._models = await asyncio.to_thread(session_options.known_models, self.conversation.runtime)

    def greet(self) -> None:
        """Tell what the editor wants to know once it has the session's id."""
        extensions = self.conversation.runtime.extras.extensions
        if self._tell_commands not in extensions.on_loaded:
            extensions.on_loaded.append(self._tell_commands)
            extensions.on_panels.append(self._tell_panels)
        self._tell_commands()
        self._tell_panels()
        if not self._closed:
            self.conversation.runtime.servers.start()

    def _tell_commands(self) -> None:
        self._update({"sessionUpdate": "available_commands_update", "availableCommands": self._commands()})

    def _tell_panels(self) -> None:
        """Send the panels of extensions as data; editors that know nothing of them pass them over."""
        conversation = self.conversation
        panels = conversation.runtime.extras.extensions.panels(conversation.session)
        if panels != self._told_panels:
            self._told_panels = panels
            data = [panel.to_dict() for panel in panels]
            self._update({"sessionUpdate": "session_info_update", "_meta": {"aar.panels": data}})

    def _commands(self) -> list[dict[str, Any]]:
        return [
            {
                "name": command.name,
                "description": command.summary,
                **({"input": {"hint": command.usage}} if command.usage else {}),
            }
            for command in self._registry.all(self._context)
            if command.name not in _NOT_HERE
        ]

    async def replay(self) -> None:
        """Send the whole conversation."""
        self._opening = []
        session = self.conversation.session
        teller = Translator(self, self._update, self._client, replay=True)
        # Page by page: a long session has more events than memory should hold, and others go on meanwhile.
        told = still_told(session.events(), await asyncio.to_thread(session.rewinds))
        while page := await asyncio.to_thread(lambda: list(islice(told, _PAGE))):
            for event in page:
                teller.take(event)
        title = self.title()
        if title:
            self._update({"sessionUpdate": "session_info_update", "title": title, "updatedAt": now()})

    # --- turns -------------------------------------------------------------------------------------------

    def begin_turn(self) -> Turn:
        """Note a turn; to be called while the request is read."""
        turn = Turn()
        self._turns.append(turn)
        return turn

    async def prompt(self, turn: Turn, blocks: object) -> dict[str, Any]:
        """Run a prompt to its end and return the response of ``session/prompt``.

        Raises:
            RpcError: The prompt cannot be taken, or the model cannot be reached.
        """
        try:
            content = prompt_content(blocks, self.root)
            async with self._one_turn:
                if turn.cancelled:
                    return {"stopReason": "cancelled"}
                turn.work = asyncio.ensure_future(self._work(turn, content))
                try:
                    await asyncio.wait({turn.work})
                except asyncio.CancelledError:
                    turn.work.cancel()
                    await self.conversation.stop()
                    raise
                if turn.cancelled or turn.work.cancelled():
                    return {"stopReason": "cancelled"}
                return turn.work.result()
        finally:
            self._turns.remove(turn)
            self._questions.take_back()
            self._take_up_model()

    async def _work(self, turn: Turn, content: tuple[ContentBlock, ...]) -> dict[str, Any]:
        self._result = None
        if not self._told_start:
            self._told_start = True
            for notice in self.conversation.runtime.notices:
                self._translator.notice("warning", notice, "start")
            for event in self._opening:
                self._translator.notice(event.level, event.message, event.id)
        line = next((block.text for block in content if isinstance(block, TextBlock)), "").strip()
        if is_command_line(line):
            return await self._command(turn, line, content)
        return await self._run(turn, content)

    async def _run(self, turn: Turn, content: tuple[ContentBlock, ...]) -> dict[str, Any]:
        self.conversation.submit(content)
        return await self._follow(turn)

    async def _follow(self, turn: Turn) -> dict[str, Any]:
        """Wait for the end of what runs and tell how it ended."""
        if turn.cancelled:
            self.cancel()
        try:
            await self.conversation.wait()
        except AarError as error:
            raise invalid_params(str(error)) from None
        result = self._result
        if result is None:
            return {"stopReason": "cancelled" if turn.cancelled else "end_turn"}
        if result.stop_reason is StopReason.ERROR and not turn.cancelled:
            raise _failed(result)
        if (remark := _REMARKS.get(result.stop_reason)) is not None:
            offer = f" {result.way_on}" if result.way_on else ""
            self._translator.say(f"\n\n{remark}{offer}", f"{result.run_id}.end")
        usage = self.conversation.session.totals.usage  # of the whole session, as the protocol wants it
        return {
            "stopReason": _STOP_REASONS.get(result.stop_reason, "end_turn"),
            "usage": {
                "inputTokens": usage.input,
                "outputTokens": usage.output,
                "cachedReadTokens": usage.cache_read,
                "cachedWriteTokens": usage.cache_write,
                "thoughtTokens": usage.reasoning,
                "totalTokens": usage.total,
            },
        }

    async def _command(self, turn: Turn, line: str, content: tuple[ContentBlock, ...]) -> dict[str, Any]:
        """Run a slash command and show what it answers."""
        command = self._registry.find(line.split(maxsplit=1)[0])
        if command is not None and command.name in _NOT_HERE:
            result: Any = Failure(f"/{command.name} is done by your editor's own list of sessions.")
        else:
            result = await self._registry.run_line(self._context, line)
        if isinstance(result, Submit):
            if result.note:
                self._translator.think(f"{result.note}\n", new_id())
            attached = tuple(block for block in content if not isinstance(block, TextBlock))
            return await self._run(turn, (*attached, *result.content()))
        if not isinstance(result, UiAction):
            self._translator.say(draw(result), new_id())
        if self.conversation.running:  # the command started a run, such as /queue go
            return await self._follow(turn)
        return {"stopReason": "end_turn"}

    def cancel(self) -> None:
        """End all turns as the user wished; each is answered with ``cancelled``."""
        for turn in self._turns:
            turn.cancelled = True
        self._questions.take_back()
        self._calls.give_up()
        if self._turns:
            task = asyncio.get_running_loop().create_task(self._interrupt(tuple(self._turns)))
            self._interrupting.add(task)
            task.add_done_callback(self._interrupting.discard)

    async def _interrupt(self, turns: tuple[Turn, ...]) -> None:
        """Interrupt until it is over: a run that is only about to begin takes no notice of the first time."""
        works = {turn.work for turn in turns if turn.work is not None and not turn.work.done()}
        while works and any(turn in self._turns for turn in turns):
            if self.conversation.running:
                self.conversation.interrupt()
            else:
                for work in works:
                    work.cancel()
            await asyncio.wait(works, timeout=_INTERRUPT_AGAIN_S)
            works = {work for work in works if not work.done()}

    # --- settings ----------------------------------------------------------------------------------------

    def set_mode(self, mode: object) -> None:
        """Change the permission mode.

        Raises:
            RpcError: There is no such mode, or it cannot be had here.
        """
        if mode not in session_options.mode_ids(self.conversation):
            raise invalid_params(f"there is no mode {str(mode)[:40]!r} here")
        try:
            self.conversation.set_mode(str(mode))
        except AarError as error:
            raise invalid_params(str(error)) from None

    def set_option(self, option: object, value: object) -> list[dict[str, Any]]:
        """Change a config option and return the complete list.

        Raises:
            RpcError: There is no such option or value.
        """
        known = {
            item["id"]: {choice["value"] for choice in item["options"]} for item in self.config_options()
        }
        if not isinstance(option, str) or option not in known:
            raise invalid_params(f"there is no config option {str(option)[:40]!r}")
        named = isinstance(value, str) and option == session_options.MODEL and "/" in value
        if not isinstance(value, str) or (value not in known[option] and not named):
            raise invalid_params(f"{option} has no value {str(value)[:80]!r}")
        try:
            self._set(option, value)
        except AarError as error:
            raise invalid_params(str(error)) from None
        self._told_options = self.config_options()
        return self._told_options

    def _set(self, option: str, value: str) -> None:
        if option == session_options.MODE:
            self.conversation.set_mode(value)
        elif option == session_options.THINKING:
            self.conversation.set_reasoning(None if value == session_options.DEFAULT else value)
        elif self._turns:
            self._next_model = value
        elif value != self.conversation.runtime.active.name:
            self.conversation.set_model(value)

    def _take_up_model(self) -> None:
        """Take the model that was chosen while a turn ran."""
        name = self._next_model
        if name is None or self._turns or self._closed:
            return
        self._next_model = None
        try:
            if name != self.conversation.runtime.active.name:
                self.conversation.set_model(name)
        except AarError as error:
            self._translator.notice("warning", str(error), new_id())
        self.options_changed()

    # --- the end -----------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End the turn, answer it, close the session with all its processes."""
        self.cancel()
        works = {turn.work for turn in self._turns if turn.work is not None}
        if works:
            await asyncio.wait(works, timeout=5)
        await asyncio.sleep(0)
        self._closed = True
        try:
            await self.conversation.aclose()
            tell_lost(self.conversation.session)
        except Exception as error:
            log_failure("a session could not be closed", error)


def _failed(result: RunResult) -> RpcError:
    """Return the error of a run that could not go on."""
    error = result.error or {}
    kind = str(error.get("kind", ErrorKind.INTERNAL))
    code = AUTH_REQUIRED if kind == ErrorKind.AUTH else INTERNAL_ERROR
    message = str(error.get("message", "The run failed; `aar logs` has the details."))
    return RpcError(code, message, {"kind": kind})


async def attach(
    connection: Connection,
    client: ClientCapabilities,
    runtime: Runtime,
    which: Mapping[str, Any],
    options: Mapping[str, Any],
) -> EditorSession:
    """Open a session in a runtime and connect it with the editor.

    Raises:
        AarError: There is no such session, or it cannot be opened.
    """
    calls = EditorCalls(connection)
    make_files = calls.make_files(client)
    if make_files is not None:
        runtime.make_files = make_files
    session = await asyncio.to_thread(lambda: runtime.open_session(**which))
    calls.session_id = session.session_id
    opened = EditorSession(connection, client, Conversation(runtime, session), calls)
    if client.terminal:
        from aar.transports.acp.terminals import EditorTerminals

        terminals = EditorTerminals(runtime, dict(options), opened.ask, opened.show_terminal)
        runtime.spawn_for = terminals.spawner
    return opened
