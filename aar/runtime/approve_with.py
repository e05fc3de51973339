"""``--approve-with CMD``: a program answers approval requests (DESIGN 9)."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aar.core.approvals import SaveRule
from aar.protocol.errors import AarError, ConfigurationError
from aar.protocol.events import Approval, ApprovalRequest
from aar.protocol.ports import Spawner, SpawnRequest

TIMEOUT_S = 60.0
_MAX_ANSWER = 1_000_000


class Answer(BaseModel):
    """What the program writes: one JSON object."""

    model_config = ConfigDict(extra="forbid")

    decision: Literal["allow", "reject"]
    scope: Literal["once", "session", "project", "user"] = "once"
    rule: str | None = None
    edited_arguments: dict[str, Any] | None = None
    feedback: Annotated[str | None, Field(max_length=10_000)] = None


class ProgramApprover:
    """Asks a program: the request as JSON on its standard input, its answer as JSON on its standard output.

    A program that fails, says nothing sound or takes too long means no, with the reason.

    Args:
        command: Words of a program, as a shell would split them; no shell runs it.
        spawner: Starts it as a helper, outside the wall, without aar's keys.
        cwd: Where it runs.
        save_rule: Keeps rules that it asks for.
        timeout_s: Seconds after which the answer is no.

    Raises:
        ConfigurationError: The command has no words, or its program is not there.
    """

    def __init__(
        self, command: str, spawner: Spawner, cwd: Path, save_rule: SaveRule, timeout_s: float = TIMEOUT_S
    ) -> None:
        try:
            self._argv = tuple(shlex.split(command))
        except ValueError as error:
            raise ConfigurationError(f"--approve-with {command!r} cannot be read: {error}.") from error
        if not self._argv:
            raise ConfigurationError("--approve-with names no program.")
        if not _can_run(self._argv[0], cwd):
            raise ConfigurationError(f"--approve-with {self._argv[0]}: there is no such program.")
        self._spawner, self._cwd, self._save_rule, self._timeout = spawner, cwd, save_rule, timeout_s

    async def decide(self, request: ApprovalRequest) -> Approval:
        """Return the program's answer to ``request``."""
        try:
            answer = await self._ask(request)
            if answer.scope not in request.scopes:
                raise _NoAnswerError(f"scope {answer.scope} was not offered")
            kept = answer.rule or request.proposed_rule if answer.scope != "once" else None
            if kept is not None and answer.decision == "allow":
                self._save_rule(kept, answer.scope)
        except (_NoAnswerError, AarError, OSError) as error:
            feedback = f"The program that approves gave no usable answer ({error})."
            return Approval(
                request_id=request.request_id, call_id=request.call_id, decision="reject", by="hook",
                feedback=feedback,
            )  # fmt: skip
        return Approval(
            request_id=request.request_id,
            call_id=request.call_id,
            decision=answer.decision,
            scope=answer.scope,
            by="hook",
            rule=kept,
            edited_arguments=answer.edited_arguments,
            feedback=answer.feedback,
        )

    async def _ask(self, request: ApprovalRequest) -> Answer:
        text = json.dumps(request.model_dump(mode="json"), ensure_ascii=True)
        ended = await self._spawner.run(
            SpawnRequest(
                self._argv,
                self._cwd,
                kind="helper",
                timeout_s=self._timeout,
                stdin=text.encode() + b"\n",
                max_output=_MAX_ANSWER,
                merge_stderr=False,
            )
        )
        if ended.timed_out:
            raise _NoAnswerError(f"none within {self._timeout:g} s")
        if ended.exit_code != 0:
            raise _NoAnswerError(f"exit code {ended.exit_code}")
        try:
            return Answer.model_validate_json(ended.output)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise _NoAnswerError(f"{where or 'the answer'}: {first['msg']}") from error


class _NoAnswerError(Exception):
    """The program did not answer as it should."""


def _can_run(program: str, cwd: Path) -> bool:
    if "/" not in program:
        return shutil.which(program) is not None
    file = cwd / program
    return file.is_file() and os.access(file, os.X_OK)
