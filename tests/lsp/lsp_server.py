"""A small language server: each line that holds BAD is a problem. Modes: pull, push, silent, garbage, dies."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def send(message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    sys.stdout.buffer.flush()


def read() -> dict[str, Any] | None:
    length = 0
    while (line := sys.stdin.buffer.readline().strip()) or not length:
        if not line:
            return None
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return json.loads(sys.stdin.buffer.read(length))


def problems(text: str) -> list[dict[str, Any]]:
    return [
        {
            "range": {"start": {"line": number, "character": line.index("BAD")}, "end": {}},
            "severity": 2 if "BADISH" in line else 1,
            "code": "bad",
            "message": f"\x1b[31mbad: {line.strip()}",
        }
        for number, line in enumerate(text.splitlines())
        if "BAD" in line
    ]


def main() -> None:
    mode, texts = sys.argv[1], dict[str, str]()
    while (message := read()) is not None:
        method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method == "initialize":
            if mode == "garbage":
                sys.stdout.write("Hello, I am no language server.\n" * 300)
                sys.stdout.flush()
            offers = {"diagnosticProvider": {}} if mode == "pull" else {}
            send({"id": number, "result": {"capabilities": offers}})
        elif method == "shutdown":
            send({"id": number, "result": None})
        elif method == "exit":
            return
        elif method in ("textDocument/didOpen", "textDocument/didChange"):
            document = params["textDocument"]
            text = document["text"] if "text" in document else params["contentChanges"][0]["text"]
            uri = document["uri"]
            texts[uri] = text
            if mode == "dies" and "BAD" in text:
                sys.stderr.write("I saw something bad\n")
                os._exit(1)
            if mode == "silent" and "BAD" in text:
                continue
            if mode != "pull":
                told = {"uri": uri, "version": document["version"], "diagnostics": problems(text)}
                send({"method": "textDocument/publishDiagnostics", "params": told})
        elif method == "textDocument/diagnostic":
            items = problems(texts[params["textDocument"]["uri"]])
            send({"id": number, "result": {"kind": "full", "items": items}})


if __name__ == "__main__":
    main()
