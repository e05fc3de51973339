"""What each command imports, by name: the reason why aar starts fast."""

from __future__ import annotations

import subprocess
import sys
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
HEAVY = {
    "anthropic", "google.genai", "openai", "mcp", "textual", "rich", "prompt_toolkit", "tree_sitter",
    "tree_sitter_bash", "tomlkit", "tomli_w", "genai_prices", "platformdirs", "xllamacpp", "huggingface_hub",
    "aar.providers.local", "aar.providers.scripted",
}  # fmt: skip


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
