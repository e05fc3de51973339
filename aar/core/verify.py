"""Checks that end a run: commands that must pass before the work counts as done."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aar.config.schema import VerifyConfig
from aar.protocol.ports import Spawner, SpawnRequest

_VOLATILE = re.compile(rb"\d+(\.\d+)?\s*(s|ms|seconds?)\b|0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How the checks went; ``command`` is the first that failed, or the last when all passed."""

    passed: bool
    command: str
    output: str
    exit_code: int | None

    @property
    def signature(self) -> str:
        """Equal for equal failures, whatever times and addresses the output names."""
        steady = _VOLATILE.sub(b"#", self.output.encode())
        return hashlib.sha256(self.command.encode() + steady).hexdigest()


_PYTEST_END = re.compile(r"^=*\s*\d+ (?:failed|errors?|passed)\b.* in [\d.]+s\b.*$", re.MULTILINE)
_WARNING = re.compile(r"site-packages/.*Warning: ")


def essential(output: str) -> str:
    """Return a check's output without what follows a test summary and without warnings of libraries."""
    ends = list(_PYTEST_END.finditer(output))
    if ends:
        output = output[: ends[-1].end()]
    kept: list[str] = []
    in_warning = False
    for line in (line.rstrip() for line in output.splitlines()):
        in_warning = bool(_WARNING.search(line)) or (in_warning and bool(line))
        noise = in_warning or line.lstrip().startswith("warnings.warn(")
        if not noise and (line or (kept and kept[-1])):
            kept.append(line)
    return "\n".join(kept).strip()


_ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}
# Python takes compiled code for fresh when a source has the same size and second: a quick fix of one
# character between two checks would not be seen. It also keeps the project free of litter.


class Verifier:
    """Runs check commands inside the wall.

    Args:
        commands: Shell commands; all must exit with 0.
        spawner: Starts them.
        workspace: Where they start.
        settings: Timeout and how much output is kept.
    """

    def __init__(
        self, commands: Sequence[str], spawner: Spawner, workspace: Path, settings: VerifyConfig
    ) -> None:
        self.commands = tuple(commands)
        self._spawner = spawner
        self._workspace = workspace
        self._settings = settings

    async def run(self) -> CheckResult:
        """Run the commands in order until one fails."""
        result = CheckResult(True, "", "", 0)
        for command in self.commands:
            result = await self._run_one(command)
            if not result.passed:
                return result
        return result

    async def _run_one(self, command: str) -> CheckResult:
        ended = await self._spawner.run(
            SpawnRequest(
                argv=("/bin/sh", "-c", command),
                cwd=self._workspace,
                env=_ENVIRONMENT,
                timeout_s=self._settings.timeout,
            )
        )
        text = essential(ended.output.decode("utf-8", "replace"))
        if ended.timed_out:
            text += f"\nThe check took longer than {self._settings.timeout:g} s and was stopped."
        limit = self._settings.max_output_chars
        if len(text) > limit:
            text = f"{text[: limit // 3]}\n…\n{text[-limit * 2 // 3 :]}"
        return CheckResult(ended.exit_code == 0 and not ended.timed_out, command, text, ended.exit_code)


def describe_failure(result: CheckResult) -> str:
    """Return what the model reads about a failed check."""
    return f"$ {result.command}\n{result.output}\n(exit code {result.exit_code})"
