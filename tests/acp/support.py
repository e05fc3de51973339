"""An editor: raw JSON-RPC over pipes, to a server in this process or to a real process of aar."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from aar.transports.acp.server import Server
from aar.transports.acp.wire import Wire
from tests.acp import oracle
from tests.cli.support import start

FULL: dict[str, Any] = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": False,
    "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}},
    "elicitation": {"form": {}},
}
Answer = Callable[[dict[str, Any]], Any]


class RefusedError(Exception):
    """What an editor answers instead of a result."""


class Editor:
    """Sends what it is told to, judges and keeps all that comes.

    Attributes:
        log: Every message of the agent, in order.
        updates: Params of every ``session/update``.
        asked: Every request of the agent.
        answers: What it answers, by method; `RefusedError` becomes an error, ``None`` from a missing one no answer.
    """

    def __init__(self, *, judged: bool = True) -> None:
        self.log: list[dict[str, Any]] = []
        self.updates: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[str, Answer] = {"session/request_permission": choose("allow_once")}
        self.process: subprocess.Popen[bytes] | None = None
        self.server: Server | None = None
        self.garbage: list[bytes] = []
        self._judged = judged
        self._waiting: dict[Any, tuple[str, asyncio.Future[dict[str, Any]]]] = {}
        self._next_id = 0
        self._problems: list[BaseException] = []
        self._moved = asyncio.Event()
        self.ended = asyncio.Event()

    # --- connecting --------------------------------------------------------------------------------------

    @classmethod
    def inside(cls, **options: Any) -> Editor:
        """Return an editor of a server in this process; ``options`` as for `open_runtime`."""
        editor = cls()
        (there_in, here_out), (here_in, there_out) = os.pipe(), os.pipe()
        wire = Wire(there_in, there_out)
        editor.server = Server(wire, options)
        editor._wire, editor._ends = wire, (there_in, there_out)
        editor.server.connection.listen(wire.lines())
        editor._connect(here_in, here_out)
        return editor

    @classmethod
    def outside(cls, *args: str | Path, cwd: Path, **popen: Any) -> Editor:
        """Return an editor of a process of aar."""
        editor = cls()
        editor.process = start("acp", *args, cwd=cwd, stdin=subprocess.PIPE, **popen)
        assert editor.process.stdin is not None
        assert editor.process.stdout is not None
        editor._connect(editor.process.stdout.fileno(), os.dup(editor.process.stdin.fileno()))
        editor.process.stdin.close()
        return editor

    def _connect(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        loop = asyncio.get_running_loop()

        def read() -> None:
            for line in Wire(source, -1).lines():
                loop.call_soon_threadsafe(self._take, line)
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self.ended.set)

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()

    async def __aenter__(self) -> Editor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def hang_up(self) -> None:
        """Close the agent's standard input."""
        if self._sink >= 0:
            os.close(self._sink)
            self._sink = -1

    async def aclose(self) -> None:
        """Hang up, wait for the agent's end, and fail for what was wrong with its messages."""
        self.hang_up()
        if self.server is not None:
            await asyncio.wait_for(self.server.connection.closed.wait(), 60)
            await self.server.aclose()
            self._wire.close(5)
            os.close(self._ends[1])
            await asyncio.wait_for(self.ended.wait(), 60)
            for descriptor in (self._ends[0], self._source):
                os.close(descriptor)
        if self.process is not None:
            try:
                await asyncio.to_thread(self.process.wait, 20)
                await asyncio.wait_for(self.ended.wait(), 60)
            finally:
                self.process.kill()
                self.process.wait()
                for stream in (self.process.stdout, self.process.stderr):
                    if stream is not None:
                        stream.close()
        if self._problems:
            raise self._problems[0]

    # --- what comes --------------------------------------------------------------------------------------

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            self.garbage.append(line)
            return
        try:
            self._understand(message)
        except BaseException as error:
            self._problems.append(error)
            for _, future in self._waiting.values():
                if not future.done():
                    future.set_exception(error)
        self._moved.set()

    def _understand(self, message: dict[str, Any]) -> None:
        self.log.append(message)
        if "method" not in message:
            method, future = self._waiting.pop(message["id"], ("", None))
            if future is not None:
                oracle.judge_answer(method, message) if self._judged and method in oracle._RESULTS else None
                future.set_result(message)
            return
        if self._judged:
            oracle.judge_sent(message)
        if message["method"] == "session/update":
            self.updates.append(message["params"])
        elif "id" in message:
            self.asked.append(message)
            self._answer(message)

    def _answer(self, message: dict[str, Any]) -> None:
        answer = self.answers.get(message["method"])
        if answer is None:
            return
        try:
            result = answer(message["params"])
        except RefusedError as error:
            told = {"code": -32000, "message": str(error)}
            self.send({"jsonrpc": "2.0", "id": message["id"], "error": told})
            return
        if result is not None:
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    # --- what is sent ------------------------------------------------------------------------------------

    def send_raw(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._sink, view) :]

    def send(self, message: dict[str, Any]) -> None:
        self.send_raw(json.dumps(message).encode() + b"\n")

    def start(self, method: str, params: Any = None) -> asyncio.Future[dict[str, Any]]:
        """Send a request; the future is the whole answer."""
        self._next_id += 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[self._next_id] = (method, future)
        self.send({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params or {}})
        return future

    async def call(self, method: str, **params: Any) -> Any:
        """Send a request and return its result."""
        message = await asyncio.wait_for(self.start(method, params), 60)
        assert "result" in message, message
        return message["result"]

    async def fail(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its error."""
        message = await asyncio.wait_for(self.start(method, params), 60)
        assert "error" in message, message
        return message["error"]

    def tell(self, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def greet(self, capabilities: dict[str, Any] | None = None, version: int = 1) -> Any:
        return await self.call("initialize", protocolVersion=version, clientCapabilities=capabilities or {})

    async def new(self, cwd: Path, **more: Any) -> str:
        result = await self.call("session/new", cwd=str(cwd), mcpServers=[], **more)
        return result["sessionId"]

    def prompt(self, session: str, *content: str | dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        blocks = [{"type": "text", "text": item} if isinstance(item, str) else item for item in content]
        return self.start("session/prompt", {"sessionId": session, "prompt": blocks})

    async def say(self, session: str, *content: str | dict[str, Any]) -> str:
        """Send a prompt and return why it stopped."""
        message = await asyncio.wait_for(self.prompt(session, *content), 60)
        assert "result" in message, message
        return message["result"]["stopReason"]

    async def until(self, true: Callable[[], Any], seconds: float = 60) -> Any:
        """Wait until something is true of what came."""
        async with asyncio.timeout(seconds):
            while not (found := true()):
                self._moved.clear()
                await self._moved.wait()
        return found

    # --- what was told -----------------------------------------------------------------------------------

    def told(self, *kinds: str, session: str | None = None) -> list[dict[str, Any]]:
        """Return the updates of these kinds."""
        return [
            told["update"]
            for told in self.updates
            if (not kinds or told["update"]["sessionUpdate"] in kinds)
            and session in (None, told["sessionId"])
        ]

    def text(self, kind: str = "agent_message_chunk", session: str | None = None) -> str:
        return "".join(update["content"].get("text", "") for update in self.told(kind, session=session))

    def requests(self, method: str) -> list[dict[str, Any]]:
        return [message["params"] for message in self.asked if message["method"] == method]

    def calls(self, session: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the tool calls as an editor holds them in the end."""
        held: dict[str, dict[str, Any]] = {}
        for update in self.told("tool_call", "tool_call_update", session=session):
            fields = {name: value for name, value in update.items() if name != "sessionUpdate"}
            if update["sessionUpdate"] == "tool_call":
                assert update["toolCallId"] not in held, "a call is announced once"
                held[update["toolCallId"]] = fields
            else:
                held[update["toolCallId"]].update(fields)
        return held


def choose(*kinds: str) -> Answer:
    """Answer permission requests with the first option of these kinds, in turn; the last one repeats."""
    left = list(kinds)

    def answer(params: dict[str, Any]) -> Any:
        kind = left.pop(0) if len(left) > 1 else left[0]
        option = next(item for item in params["options"] if item["kind"] == kind)
        return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}

    return answer


def never(_params: dict[str, Any]) -> None:
    """Answer nothing."""


def buffers(texts: dict[str, str]) -> dict[str, Answer]:
    """Return answers of an editor that holds ``texts`` by absolute path; writing changes and saves them."""

    def read(params: dict[str, Any]) -> Any:
        if params["path"] not in texts:
            raise RefusedError("not open")
        return {"content": texts[params["path"]]}

    def write(params: dict[str, Any]) -> Any:
        texts[params["path"]] = params["content"]
        Path(params["path"]).write_text(params["content"])
        return {}

    return {"fs/read_text_file": read, "fs/write_text_file": write}


def steps(*told: dict[str, Any] | str) -> Sequence[dict[str, Any]]:
    return [{"text": step} if isinstance(step, str) else step for step in told]
