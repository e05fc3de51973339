"""``aar mcp serve``: aar's reading tools, and an agent, as an MCP server on standard input and output.

The reading tools go through the same executor and policy (mode ``plan``) as for aar's own model. The agent
runs as ``aar run`` does: without a person, behind the wall, each call a session of its own that is kept.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any, cast

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from aar import __version__
from aar.protocol.errors import AarError
from aar.protocol.events import Event, ToolCall
from aar.protocol.ids import new_id
from aar.protocol.messages import ImageBlock
from aar.protocol.ports import ToolContext
from aar.protocol.tool import SideEffect, ToolOutcome, ToolSpec
from aar.runtime import Runtime, open_base, open_runtime
from aar.runtime.base import Base, base_arguments
from aar.runtime.policy import make_policy
from aar.safety.environment import secret_values
from aar.safety.files import WorkspaceFiles
from aar.safety.redact import Redactor
from aar.safety.spawn import ProcessSpawner
from aar.tools.executor import ToolExecutor
from aar.tools.output_store import OutputStore
from aar.tools.registry import ToolRegistry
from aar.transports.lost import tell_lost

AGENT = "agent"
_OFFERED = frozenset({SideEffect.READ})
_OF_A_SESSION = frozenset({"bash_output", "read_output"})
_AGENT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "The task, with all that is needed to do it."},
        "session": {"type": "string", "description": "Id of an earlier call's session to go on with."},
    },
    "required": ["prompt"],
    "additionalProperties": False,
}


class _NoSession:
    """Takes the events of reading tools, which belong to no session."""

    def append(self, *events: Event) -> tuple[Event, ...]:
        return events

    def publish(self, event: Event) -> None:
        """Nobody watches."""


class AarServer:
    """What the server offers, over one workspace.

    Args:
        options: As for `aar.runtime.open_runtime`.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        # Trust is for what is there now, not for what is there when an agent is first asked for.
        self._options = {key: value for key, value in options.items() if key != "trust"}
        self.base: Base = open_base(**base_arguments(options))
        self.spawner = ProcessSpawner(
            self.base.workspace, self.base.config.sandbox, own=self.base.own_folders
        )
        self._executor = self._make_executor()
        self._runtime: Runtime | None = None
        self._one = asyncio.Lock()

    def tools(self) -> list[ToolSpec]:
        """Return the reading tools."""
        return list(self._executor.registry)

    def _make_executor(self) -> ToolExecutor:
        from aar.tools.builtin.catalogue import builtin_tools

        specs = [
            spec
            for spec in builtin_tools()
            if spec.side_effects == _OFFERED and spec.name not in _OF_A_SESSION
        ]
        config = self.base.config
        files = WorkspaceFiles(
            self.base.workspace,
            readable=config.sandbox.readable,
            secrets=config.sandbox.secrets,
            protected=config.sandbox.protected,
        )
        outputs = OutputStore(self.base.paths.outputs / f"mcp-serve-{os.getpid()}")

        async def ask(question: str, options: Sequence[str]) -> str | None:
            return None

        def make_context(call: ToolCall, emit: object) -> ToolContext:
            return ToolContext(
                call_id=call.call_id,
                workspace=self.base.workspace,
                files=files,
                spawner=self.spawner,
                outputs=outputs,
                progress=lambda text: None,
                ask=ask,
                plan=(),
                set_plan=lambda items: None,
                read_only=True,
                max_output_chars=config.tools.max_output_chars,
            )

        return ToolExecutor(
            ToolRegistry(specs),
            make_policy(self.base, "plan", self.spawner.wall, headless=True),
            None,
            make_context,
            max_output_chars=config.tools.max_output_chars,
            redact=Redactor(secret_values(os.environ)).redact_known,
        )

    async def read(self, name: str, arguments: dict[str, Any]) -> ToolOutcome:
        """Run a reading tool through executor and policy."""
        call = ToolCall(call_id=new_id(), tool_name=name, arguments=arguments)
        result = (await self._executor.execute([call], _NoSession())).results[0]
        images = tuple(block for block in result.content if isinstance(block, ImageBlock))
        return ToolOutcome(output=result.output, images=images, is_error=result.is_error)

    async def run_agent(self, prompt: str, session_id: str | None) -> dict[str, Any]:
        """Let an agent do ``prompt`` to its end; return the fields of its result.

        Raises:
            AarError: It could not start.
        """
        async with self._one:
            if self._runtime is None:
                self._runtime = open_runtime(
                    **self._options, interactive=False, goes_on={"session_id": session_id}
                )
            runtime = self._runtime
            session = runtime.open_session(session_id=session_id)
            try:
                result = await runtime.agent(session).run(prompt, session)
            finally:
                await session.aclose()
                tell_lost(session)
        return {
            "session": result.session_id,
            "text": result.text,
            "stop_reason": str(result.stop_reason),
            "exit_code": int(result.exit_code),
            "steps": result.steps,
            "cost_usd": result.cost_usd,
            "changed_files": [change.path for change in result.file_changes],
            "error": result.error,
        }

    async def aclose(self) -> None:
        """End what runs."""
        if self._runtime is not None:
            await self._runtime.aclose()
        self.spawner.close()


def _listed(server: AarServer) -> list[types.Tool]:
    reading = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    tools = [
        types.Tool(
            name=spec.name,
            description=spec.description,
            input_schema=spec.input_schema,
            annotations=reading,
        )
        for spec in server.tools()
    ]
    return [
        *tools,
        types.Tool(
            name=AGENT,
            description=(
                f"Let aar work on a task in {server.base.workspace} until it is done: it reads, edits and "
                "runs commands behind its sandbox, within the user's settings. Returns its last words, why "
                "it stopped, the files that it changed and its session, which a later call can go on."
            ),
            input_schema=_AGENT_SCHEMA,
            annotations=types.ToolAnnotations(read_only_hint=False, destructive_hint=True),
        ),
    ]


async def _agent_result(server: AarServer, arguments: dict[str, Any]) -> types.CallToolResult:
    prompt, session = arguments.get("prompt"), arguments.get("session")
    if not isinstance(prompt, str) or not isinstance(session, str | None):
        return _failed("agent takes prompt (text) and session (text, optional).")
    try:
        result = await server.run_agent(prompt, session)
    except AarError as error:
        return _failed(str(error))
    error = cast("dict[str, Any]", result["error"] or {})
    text = str(result["text"] or error.get("message") or "It ended without a word.")
    told = {key: value for key, value in result.items() if key != "text" and value is not None}
    return types.CallToolResult(
        content=[
            types.TextContent(type="text", text=text),
            types.TextContent(type="text", text=json.dumps(told, ensure_ascii=False)),
        ],
        structured_content=result,
        is_error=result["exit_code"] != 0,
    )


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def make_server(server: AarServer) -> Server[Any]:
    """Return the protocol's side of ``server``."""

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_listed(server))

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        arguments = params.arguments or {}
        if params.name == AGENT:
            return await _agent_result(server, arguments)
        outcome = await server.read(params.name, arguments)
        images = [
            types.ImageContent(type="image", data=image.data, mime_type=image.media_type)
            for image in outcome.images
        ]
        text = types.TextContent(type="text", text=outcome.output)
        return types.CallToolResult(content=[text, *images], is_error=outcome.is_error)

    return Server("aar", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio(options: dict[str, Any]) -> int:
    """Serve until standard input ends.

    Args:
        options: As for `aar.runtime.open_runtime`.

    Raises:
        ConfigurationError: A setting is wrong.
    """
    offered = AarServer(options)
    try:
        protocol = make_server(offered)
        async with stdio_server() as (incoming, outgoing):
            await protocol.run(incoming, outgoing, protocol.create_initialization_options())
    finally:
        await offered.aclose()
    return 0
