"""A server of the official SDK, on stdio or on loopback HTTP (``http PORT_FILE``)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.mcpserver import Context, Image, MCPServer
from pydantic import BaseModel

server = MCPServer("bench", instructions="Add numbers.")
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)


class Sum(BaseModel):
    total: int


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@server.tool()
def touch(path: str) -> str:
    """Write a file."""
    Path(path).write_text("touched")
    return "done"


@server.tool()
def picture() -> Image:
    """Return a picture."""
    return Image(data=PIXEL, format="png")


@server.tool()
async def slow(ctx: Context, seconds: float) -> str:
    """Work for some time, telling how far it is."""
    import anyio

    steps = max(1, int(seconds / 0.1))
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
        await anyio.sleep(0.1)
    return "finished"


@server.tool()
async def wish(ctx: Context) -> str:
    """Ask the user for a colour."""

    class Wish(BaseModel):
        colour: str

    answer = await ctx.elicit("Which colour?", Wish)
    return f"{answer.action} {getattr(getattr(answer, 'data', None), 'colour', None)}"


@server.tool()
async def ponder(ctx: Context) -> str:
    """Ask the client's model."""
    said = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Say a word"))
    answer = await ctx.session.create_message([said], max_tokens=50)
    return str(getattr(answer.content, "text", answer.content))


@server.resource("note://greeting")
def greeting() -> str:
    """A greeting."""
    return "Hello from the server"


@server.prompt()
def review(path: str) -> str:
    """Review a file."""
    return f"Review {path} with care."


def main() -> Any:
    if sys.argv[1:2] == ["http"]:
        import asyncio
        import socket

        import uvicorn

        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        app = server.sse_app() if sys.argv[3:4] == ["sse"] else server.streamable_http_app()
        running = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        file = Path(sys.argv[2])
        sock.listen()
        file.with_suffix(".new").write_text(str(sock.getsockname()[1]))
        file.with_suffix(".new").replace(file)
        return asyncio.run(running.serve(sockets=[sock]))
    return server.run("stdio")


if __name__ == "__main__":
    main()
