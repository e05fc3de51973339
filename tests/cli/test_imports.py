"""What each command imports, by name: the reason why aar starts fast."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

from tests.cli.support import environment
from tests.support.model_server import Reply, model_server

PROBE = """
import sys
sys.argv = ["aar", *{args!r}]
from aar.__main__ import main
try:
    main()
except SystemExit as ended:
    code = ended.code
else:
    code = 0
print("\\x00" + " ".join(sys.modules), file=sys.stderr)
sys.exit(code)
"""
FIRST = """
import os, sys
here = {where!r}
def kept(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple) and not os.path.exists(here):
        with open(here, "x") as file:
            file.write(" ".join(list(sys.modules)))
sys.addaudithook(kept)
sys.argv = ["aar", *{args!r}]
from aar.__main__ import main
main()
"""
FRAME = """
import os, sys
from textual.drivers.linux_driver import LinuxDriver
write = LinuxDriver.write
def written(self, data):
    write(self, data)
    if {word!r} in data:
        names = " ".join(list(sys.modules))
        with open({where!r}, "w") as file:
            file.write(names)
LinuxDriver.write = written
sys.argv = ["aar", *{args!r}]
from aar.__main__ import main
main()
"""
HEAVY = {
    "anthropic", "google.genai", "openai", "mcp", "textual", "rich", "prompt_toolkit", "tree_sitter",
    "tree_sitter_bash", "tomlkit", "tomli_w", "genai_prices", "platformdirs", "xllamacpp", "huggingface_hub",
    "aar.providers.local.provider", "aar.providers.scripted",
}  # fmt: skip
AFTER_THE_FIRST_REQUEST = {
    "aar.commands", "aar.core.compaction.writer", "aar.core.coaching.files_coach", "aar.core.coaching.text_coach",
    "aar.extensions.api", "aar.extensions.contrib", "aar.extensions.loader", "aar.extensions.lsp",
    "aar.extensions.mcp", "aar.extensions.mcp_link", "aar.extensions.worker", "aar.memory.export_items",
    "aar.memory.notes", "aar.memory.session_index", "aar.observability.otel_export", "aar.orchestration.critic",
    "aar.orchestration.plan_run", "aar.orchestration.review", "aar.orchestration.router",
    "aar.orchestration.schedule", "aar.providers.dialects", "aar.providers.text_tools",
    "aar.runtime.conversation", "aar.runtime.lsp", "aar.runtime.notes", "aar.runtime.plan", "aar.runtime.undo",
    "aar.safety.shell_grammar", "aar.safety.spawn_server.serve", "aar.tools.builtin.rest",
    "aar.transports.acp", "aar.transports.chat", "aar.transports.serve", "aar.transports.tui", "sqlite3",
}  # fmt: skip
AFTER_THE_FIRST_FRAME = {
    "aar.commands", "aar.config.load", "aar.config.schema", "aar.core", "aar.extensions", "aar.memory",
    "aar.orchestration", "aar.protocol.events", "aar.providers", "aar.runtime", "aar.safety.redact",
    "aar.safety.spawn", "aar.tools", "aar.transports.tui.presenter", "aar.transports.tui.screens", "httpx2",
    "pydantic", "sqlite3",
}  # fmt: skip


def under(found: set[str], *roots: str) -> set[str]:
    """Return those of ``found`` that are, or lie below, one of ``roots``."""
    return {name for name in found if any(name == root or name.startswith(f"{root}.") for root in roots)}


def imported(*args: str, cwd: Path) -> set[str]:
    """Run aar in a fresh interpreter; return the names of all modules it had imported at its end."""
    # Not measured: coverage would be among the imports.
    env = environment(COVERAGE_PROCESS_CONFIG=None)
    ended = subprocess.run(
        [sys.executable, "-c", PROBE.format(args=list(args))],
        cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return set(ended.stderr.rpartition("\x00")[2].split())


def test_the_version_needs_next_to_nothing(project: Path) -> None:
    found = imported("--version", cwd=project)
    assert not found & {"click", "pydantic", "asyncio", "typing", "re", "dataclasses", "logging"}
    assert {name for name in found if name.startswith("aar.")} == {"aar.__main__"}


def test_the_list_of_commands_needs_no_models_of_data_and_no_event_loop(project: Path) -> None:
    found = imported("--help", cwd=project)
    assert "click" in found
    assert not found & {"pydantic", "asyncio", "aar.runtime", "aar.protocol.events", "logging", "dataclasses"}


def test_a_run_imports_nothing_that_its_provider_does_not_need(project: Path) -> None:
    with model_server([Reply(text="Hello.")]) as server:
        args = ["--model", "openai-compatible/m", "--base-url", server.base_url]
        found = imported("run", "-q", *args, "hi", cwd=project)
    assert "httpx2" in found
    assert not found & HEAVY


def test_a_scripted_run_needs_no_http(project: Path, hello: str) -> None:
    assert not imported("run", "-q", "--model", hello, "hi", cwd=project) & {"httpx2", "anyio", "certifi"}


def test_before_its_first_request_a_run_imports_only_what_makes_it(project: Path) -> None:
    where = project.parent / "modules"
    with model_server([Reply(text="Hello.")]) as server:
        args = ["run", "-q", "--model", "openai-compatible/m", "--base-url", server.base_url, "hi"]
        code = FIRST.format(where=str(where), args=args)
        ended = subprocess.run(
            [sys.executable, "-c", code],
            cwd=project, env=environment(COVERAGE_PROCESS_CONFIG=None), stdin=subprocess.DEVNULL,
            capture_output=True, text=True,
        )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found = set(where.read_text().split())
    assert {"httpx2", "aar.core.agent"} <= found
    assert not under(found, *HEAVY, *AFTER_THE_FIRST_REQUEST)


def test_before_its_first_frame_the_screen_imports_neither_settings_nor_what_works(project: Path) -> None:
    scenario, where = project.parent / "s.json", project.parent / "modules"
    scenario.write_text('{"steps": [{"text": "hi"}]}')
    args = ["tui", "--model", f"scripted/{scenario}"]
    code = FRAME.format(where=str(where), args=args, word="ype a task")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=project, env=environment(COVERAGE_PROCESS_CONFIG=None, TERM="xterm-256color"),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        while not where.exists() or not where.read_text():
            assert select.select([ours], [], [], 30)[0]
            os.read(ours, 65536)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    found = set(where.read_text().split())
    assert {"textual", "aar.transports.tui.app"} <= found
    assert not under(found, *AFTER_THE_FIRST_FRAME)
