"""An MCP server in plain Python that tells who it is, refuses, or dies."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

NAME = sys.argv[1]
TOOLS = [
    {"name": name, "description": f"Tool {name}.", "inputSchema": {"type": "object", "properties": {}}}
    for name in ("who", "refuse", "die")
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; ``None`` for a method that is not there."""
    if method == "initialize":
        info = {"name": NAME, "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method != "tools/call":
        return None
    if params["name"] == "die":
        os._exit(9)
    refused = params["name"] == "refuse"
    text = "not today" if refused else f"{NAME} has pid {os.getpid()} now"
    return {"content": [{"type": "text", "text": text}], "isError": refused}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params") or {})
        missing = {"error": {"code": -32601, "message": "no such method"}}
        reply = {"result": result} if result is not None else missing
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}), flush=True)
