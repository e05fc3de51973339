"""Operations of a service on the loopback as tools: what is sent, what is refused, what comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.errors import ConfigurationError, ToolFailure
from aar.protocol.tool import SideEffect, ToolSpec
from aar.safety.sandbox.domains import is_public
from aar.tools.builtin.rest import Service, check_service, make_tools, operations, read_document
from aar.tools.builtin.web_fetch import resolve

DOCUMENT = """
openapi: 3.1.0
info: {title: Issues, version: "1"}
servers: [{url: "https://attacker.example"}]
paths:
  /issues/{id}:
    parameters: [{$ref: "#/components/parameters/Id"}]
    get: {operationId: getIssue, summary: Read an issue., parameters: [{name: deep, in: query, schema: {type: boolean}}]}
    delete: {operationId: deleteIssue}
  /issues:
    post:
      operationId: addIssue
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Issue"}}}}
components:
  parameters: {Id: {name: id, in: path, required: true, schema: {type: string}}}
  schemas:
    Issue: {type: object, properties: {title: {type: string}, parent: {$ref: "#/components/schemas/Issue"}}}
"""


@asynccontextmanager
async def service(
    reply: bytes = b'{"ok": true}', status: str = "200 OK"
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Yield address and requests of a server that always answers the same."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        length = int(lines[0].split(b":")[1]) if lines else 0
        seen.append(head + await reader.readexactly(length))
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Length: {len(reply)}\r\nConnection: close\r\n\r\n".encode() + reply
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://localhost:{server.sockets[0].getsockname()[1]}/api", seen


def tools_of(tmp_path: Path, base_url: str, **more: Any) -> dict[str, ToolSpec]:
    file = tmp_path / "issues.yaml"
    file.write_text(DOCUMENT)
    one = Service("issues", base_url, lambda: {"Authorization": "Bearer key"}, **more)
    return {spec.name: spec for spec in make_tools(one, read_document(file), resolve, is_public)}


async def use(spec: ToolSpec, **arguments: Any) -> Any:
    assert spec.handler is not None
    return await spec.handler(arguments, None)  # type: ignore[arg-type]


async def test_an_operation_sends_its_arguments_where_the_document_says(tmp_path: Path) -> None:
    async with service() as (url, seen):
        tools = tools_of(tmp_path, url, private=True)
        assert set(tools) == {"rest__issues__getIssue", "rest__issues__deleteIssue", "rest__issues__addIssue"}
        assert tools["rest__issues__getIssue"].side_effects == {SideEffect.NETWORK}
        assert tools["rest__issues__deleteIssue"].side_effects == {SideEffect.EXTERNAL}
        read = await use(tools["rest__issues__getIssue"], id="a/../b", deep=True)
        assert "HTTP 200 OK" in read.output
        assert "information from outside" in read.output
        await use(tools["rest__issues__addIssue"], body={"title": "one"})
        assert seen[0].startswith(b"GET /api/issues/a%2F..%2Fb?deep=true HTTP/1.1")
        assert b"authorization: bearer key" in seen[0].lower()
        assert b"host: localhost:" in seen[0].lower()
        assert seen[1].startswith(b"POST /api/issues HTTP/1.1")
        assert json.loads(seen[1].partition(b"\r\n\r\n")[2]) == {"title": "one"}
        with pytest.raises(ToolFailure, match="cannot be"):
            await use(tools["rest__issues__deleteIssue"], id="..")


async def test_private_addresses_are_refused_unless_the_settings_open_them(tmp_path: Path) -> None:
    async with service() as (url, seen):
        tools = tools_of(tmp_path, url)
        with pytest.raises(ToolFailure, match="private = true"):
            await use(tools["rest__issues__getIssue"], id="1")
        assert seen == []


async def test_errors_redirects_and_long_answers_are_told(tmp_path: Path) -> None:
    async with service(b"no such issue", "404 Not Found") as (url, _):
        missing = await use(tools_of(tmp_path, url, private=True)["rest__issues__getIssue"], id="1")
        assert missing.is_error
        assert "HTTP 404 Not Found" in missing.output
    async with service(b"", "302 Found\r\nLocation: http://169.254.169.254/") as (url, seen):
        moved = await use(tools_of(tmp_path, url, private=True)["rest__issues__getIssue"], id="1")
        assert "not followed" in moved.output
        assert len(seen) == 1
    async with service(b"x" * 50_000) as (url, _):
        spec = tools_of(tmp_path, url, private=True, max_bytes=1000)["rest__issues__getIssue"]
        long = await use(spec, id="1")
        assert long.truncated
        assert len(long.output) < 2000


def test_only_what_is_allowed_becomes_a_tool_and_references_are_put_in_place(tmp_path: Path) -> None:
    tools = tools_of(tmp_path, "https://api.example", allow=("get*",))
    assert list(tools) == ["rest__issues__getIssue"]
    add = next(
        item for item in operations(read_document(tmp_path / "issues.yaml")) if item.name == "addIssue"
    )
    issue = add.schema["properties"]["body"]
    assert issue["properties"]["title"] == {"type": "string"}
    assert "$ref" not in json.dumps(add.schema)  # it names itself, and ends


@pytest.mark.parametrize("text", ["", "[1]", "openapi: 2.0", "openapi: 3.0.0", "a: [", '{"openapi": "3.0.0"'])
def test_what_is_no_document_is_told_in_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_document(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["ftp://a.example", "https://user:pw@a.example", "a.example", "https://a.example?x=1"]
)
def test_an_address_that_cannot_be_meant_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="base_url"):
        check_service("issues", url)
