"""Measures ``aar acp``: start to greeting, new session, first piece, and what each update costs.

``python -m tests.benchmarks.acp [ROUNDS]``. With it runs a minimal agent of the standard library, which does nothing
but answer: what is left is the machine's own time for starting Python and passing lines.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PIECES = 2000
OTHERS = {
    "spawn to initialize": "codex-acp 260, claude-agent-acp 430, opencode 2,200, gemini 3,200, vibe 3,800",
    "session/new": "codex-acp 60, gemini 60, claude-agent-acp 960, opencode 1,200, vibe 2,400",
    "end of input to exit": "gemini 70, opencode 80, claude-agent-acp 100, vibe 900, codex-acp 2,000",
}
"""Milliseconds of other agents, measured on an idle machine of the same size in November 2026."""
BARE = """
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    r = {"protocolVersion": 1, "agentCapabilities": {}}
    if m["method"] == "session/new": r = {"sessionId": "s"}
    if m["method"] == "session/prompt":
        for _ in range(%d):
            u = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "word "}}
            p = {"sessionId": "s", "update": u}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": p}) + "\\n")
            sys.stdout.flush()
        r = {"stopReason": "end_turn"}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}) + "\\n")
    sys.stdout.flush()
"""


async def exchange(argv: list[str], cwd: Path, pause_s: float) -> dict[str, float]:
    """Run one agent through greeting, session and prompt; return milliseconds."""
    spawned = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=cwd, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 26
    )
    assert process.stdin is not None
    assert process.stdout is not None
    first: list[float] = []
    pieces = 0

    async def call(number: int, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], float]:
        nonlocal pieces
        started = time.perf_counter()
        line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"
        process.stdin.write(line.encode())  # type: ignore[union-attr]
        while True:
            message = json.loads(await process.stdout.readline())  # type: ignore[union-attr]
            if message.get("id") == number:
                return message.get("result") or message, (time.perf_counter() - started) * 1000
            if message["params"]["update"]["sessionUpdate"] == "agent_message_chunk":
                pieces += 1
                if not first:
                    first.append((time.perf_counter() - started) * 1000)

    await call(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    greeted = (time.perf_counter() - spawned) * 1000
    await asyncio.sleep(pause_s)
    session, opened = await call(2, "session/new", {"cwd": str(cwd), "mcpServers": []})
    prompt = [{"type": "text", "text": "Speak."}]
    _, spoke = await call(3, "session/prompt", {"sessionId": session["sessionId"], "prompt": prompt})
    process.stdin.close()
    hung_up = time.perf_counter()
    await process.wait()
    return {
        "spawn to initialize": greeted,
        "session/new": opened,
        "prompt to first piece": first[0],
        "each piece": (spoke - first[0]) / max(pieces - 1, 1),
        "end of input to exit": (time.perf_counter() - hung_up) * 1000,
    }


async def main(rounds: int) -> None:
    """Measure and print medians."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "project"
        (folder / ".git").mkdir(parents=True)
        os.environ["AAR_HOME"] = str(Path(place) / "home")
        # As installed: modules are compiled once, not at each start.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(place) / "compiled")
        scenario = Path(place) / "scenario.json"
        step = {"text": "word " * PIECES, "chunk_chars": 5}
        scenario.write_text(json.dumps({"after": "last", "steps": [step]}))
        aar = [sys.executable, "-m", "aar", "acp", "--model", f"scripted/{scenario}"]
        agents = {
            "aar": (aar, 0.0),
            "aar, a second between": (aar, 1.0),
            "bare": ([sys.executable, "-c", BARE % PIECES], 0.0),
        }
        await exchange(aar, folder, 0.0)
        rows: dict[str, list[dict[str, float]]] = {name: [] for name in agents}
        for _ in range(rounds):
            for name, (argv, pause_s) in agents.items():
                rows[name].append(await exchange(argv, folder, pause_s))
        print(f"{'median of ' + str(rounds) + ', ms':28}" + "".join(f"{name:>24}" for name in agents))
        for what in rows["bare"][0]:
            medians = (statistics.median(row[what] for row in rows[name]) for name in agents)
            print(f"{what:28}" + "".join(f"{value:24.3f}" for value in medians))
        for what, told in OTHERS.items():
            print(f"others, {what}: {told}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 7))
