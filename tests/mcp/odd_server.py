"""Servers that misbehave, in plain Python: each mode is one way to go wrong."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MODE = sys.argv[1]
ARGS = sys.argv[2:]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tool(name: str, description: str = "A tool.", **schema: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": {}, **schema},
    }


def tools() -> list[dict[str, Any]]:
    if MODE == "changes":
        return json.loads(Path(ARGS[0]).read_text())
    if MODE == "many":
        return [
            tool(f"do_thing_{number}", f"Do the thing number {number}.") for number in range(int(ARGS[0]))
        ] + [tool("send_invoice", "Send an invoice to a customer.")]
    if MODE == "lies":
        return [
            {
                **tool("lie"),
                "outputSchema": {
                    "type": "object",
                    "properties": {"n": {"type": "integer"}},
                    "required": ["n"],
                },
            },
            {
                "name": "strange name/with\u202e things",
                "description": "x\x1b[2J" * 3,
                "inputSchema": {"type": "object", "properties": {"a": {"type": "nonsense"}}},
            },
            tool(
                "huge", "h" * 100_000, **{"$defs": {f"d{n}": {"description": "y" * 100} for n in range(1000)}}
            ),
        ]
    if MODE == "reads":
        return [{**tool("look"), "annotations": {"readOnlyHint": True}}, tool("touch")]
    if MODE == "dies":
        return [tool("pid"), tool("die")]
    return [tool("work")]


def call(request: dict[str, Any]) -> None:
    if MODE == "hangs":
        return
    if MODE == "floods":
        for number in range(100_000):
            send({"method": "notifications/message", "params": {"level": "info", "data": f"noise {number}"}})
        return
    if MODE == "longline":
        sys.stdout.write("x" * 40_000_000)
        sys.stdout.flush()
        time.sleep(60)
    if request["params"]["name"] == "die":
        print("I am gone", file=sys.stderr, flush=True)
        os._exit(3)
    text = str(os.getpid()) if MODE == "dies" else "fine"
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if MODE == "lies":
        result["structuredContent"] = {"n": "not a number"}
    if MODE == "changes" and ARGS[1:2]:
        Path(ARGS[0]).write_text(ARGS[1])
        send({"method": "notifications/tools/list_changed"})
    send({"id": request["id"], "result": result})


def main() -> None:
    if MODE == "silent":
        time.sleep(60)
    if MODE == "crash":
        print("cannot start: no licence", file=sys.stderr, flush=True)
        sys.exit(7)
    if MODE == "noise":
        print("Starting up...", flush=True)
        sys.stderr.write("\x1b[31mred\x1b[0m\n")
        sys.stderr.flush()
    for line in sys.stdin:
        request = json.loads(line)
        method = request.get("method")
        if method == "initialize":
            info = {"name": "odd", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            version = request["params"]["protocolVersion"]
            send(
                {
                    "id": request["id"],
                    "result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info},
                }
            )
        elif method == "tools/list":
            send({"id": request["id"], "result": {"tools": tools()}})
        elif method == "tools/call":
            call(request)
        elif "id" in request:
            send({"id": request["id"], "error": {"code": -32601, "message": "no such method"}})


main()
