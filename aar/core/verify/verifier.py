"""Checks that end a run: what must hold before the work counts as done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aar.config.schema import VerifyConfig
from aar.core.verify.checks import CheckResult, Checks, Evidence, Judge, Readable
from aar.core.verify.output import arranged, essential, failing
from aar.protocol.ports import Ask, Spawner, SpawnRequest
from aar.tools.criteria import Criterion, parse_criterion

__all__ = ["CheckResult", "Evidence", "Senses", "Verifier", "describe_failure", "essential"]

_ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}
# Python takes compiled code for fresh when a source has the same size and second: a quick fix of one
# character between two checks would not be seen. It also keeps the project free of litter.


@dataclass(frozen=True, slots=True)
class Senses:
    """What checks besides commands look at and ask.

    Attributes:
        files: Files within the limits.
        ask: Asks the user; ``None``: nobody is there.
        judge: Asks a model.
        evidence: Returns what came of the run so far.
    """

    files: Readable | None = None
    ask: Ask | None = None
    judge: Judge | None = None
    evidence: Callable[[], Evidence] = Evidence


class Verifier:
    """Runs checks, commands among them inside the wall.

    Args:
        commands: Criteria as `aar.tools.criteria` reads them: shell commands and others; all must hold.
        spawner: Starts processes.
        workspace: Where they start.
        settings: Timeout and how much output is kept.
        senses: For criteria that are no commands.

    Raises:
        UsageError: A criterion cannot be read.
    """

    def __init__(
        self,
        commands: Sequence[str],
        spawner: Spawner,
        workspace: Path,
        settings: VerifyConfig,
        senses: Senses | None = None,
    ) -> None:
        self.criteria: tuple[Criterion, ...] = tuple(parse_criterion(text) for text in commands)
        self.senses = senses or Senses()
        self._spawner = spawner
        self._workspace = workspace
        self._settings = settings
        self._failed_before: dict[str, tuple[str, ...]] = {}
        self._checks = Checks(self._run_one, self.senses.files, self.senses.ask, self.senses.judge)
        self._checks.begin(self.criteria)

    async def run(self) -> CheckResult:
        """Look at the criteria in order until one does not hold."""
        result = CheckResult(True, "", "", 0)
        for criterion in self.criteria:
            result = await self._checks.check(criterion, self.senses.evidence())
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
        before, now = self._failed_before.get(command), failing(text)
        self._failed_before[command] = now
        if ended.timed_out:
            text += f"\nThe check took longer than {self._settings.timeout:g} s and was stopped."
        text = arranged(text, now, before, self._settings.max_output_chars)
        return CheckResult(ended.exit_code == 0 and not ended.timed_out, command, text, ended.exit_code)


def describe_failure(result: CheckResult) -> str:
    """Return what the model reads about a failed check."""
    if result.exit_code is None and result.output and not result.output.endswith("was stopped."):
        return f"{result.command}\n{result.output}"
    return f"$ {result.command}\n{result.output}\n(exit code {result.exit_code})"
