"""The file of a batch: one task a line, as JSON."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from aar.protocol.errors import NotThereError

MAX_BYTES: Final = 200_000_000


def _many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class BatchTask(BaseModel):
    """One task.

    Attributes:
        id: Its name in results, and of its patch; by default made from what the task says.
        prompt: What is to be done.
        title: For the table of results; by default the first line of the prompt.
        cwd: Folder in the project where the work begins.
        model: As ``--model`` of ``aar run``; also the next ones are as the flags of that name.
        mode: Permission mode.
        agent: Who works.
        verify: Commands that must pass.
        max_steps: Model requests at most.
        max_cost: US dollars at most.
        timeout: Seconds at most.
        settings: More settings (``--set``): key, value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    id: str = Field("", pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,63})?$")
    prompt: str = Field(min_length=1)
    title: str = ""
    cwd: str = ""
    model: str | None = None
    mode: Literal["plan", "ask", "edit", "auto", "unsafe"] | None = None
    agent: str | None = None
    verify: Annotated[tuple[str, ...], BeforeValidator(_many)] = ()
    max_steps: int | None = Field(None, ge=1)
    max_cost: float | None = Field(None, gt=0)
    timeout: float | None = Field(None, gt=0)
    settings: Mapping[str, Any] = Field(default_factory=dict[str, Any], alias="set")

    @property
    def digest(self) -> str:
        """Hash of what the task says: a task that was changed is another one."""
        said = self.model_dump(mode="json", exclude={"id", "title"}, exclude_defaults=True)
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """A few words that tell what it is about."""
        first = self.title or next((line for line in self.prompt.splitlines() if line.strip()), "")
        return " ".join(first.split())[:80]


def read_tasks(file: Path) -> list[BatchTask]:
    """Return the tasks of a file.

    A line is a JSON object with the fields of `BatchTask`, or a JSON string, which is a prompt. Empty lines
    and lines that begin with ``#`` are left out.

    Raises:
        NotThereError: The file cannot be read, or a line is wrong.
    """
    try:
        if file.stat().st_size > MAX_BYTES:
            raise NotThereError(f"{file} is larger than {MAX_BYTES // 1_000_000} MB; split it.")
        lines = file.read_bytes().decode("utf-8-sig").splitlines()
    except OSError as error:
        raise NotThereError(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise NotThereError(f"{file} is not UTF-8 text.") from error
    tasks: list[BatchTask] = []
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        task = _named(_task(line, f"{file.name}, line {number}"), numbers)
        if task.id in numbers:
            raise NotThereError(
                f"{file.name}: lines {numbers[task.id]} and {number} have the same id '{task.id}'."
            )
        numbers[task.id] = number
        tasks.append(task)
    if not tasks:
        raise NotThereError(
            f'{file} has no tasks; write lines such as {{"prompt": "Fix the typo in README"}}.'
        )
    return tasks


def _task(line: str, where: str) -> BatchTask:
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise NotThereError(f"{where} is not JSON ({reason}); a line is one object or one string.") from error
    if isinstance(data, str):
        data = {"prompt": data}
    if not isinstance(data, dict):
        raise NotThereError(f'{where}: a task is an object with a "prompt", or a string.')
    try:
        task = BatchTask.model_validate(data)
    except ValidationError as error:
        raise NotThereError(f"{where}: {_problem(cast('dict[str, Any]', data), error)}") from error
    folder = Path(task.cwd)
    if folder.is_absolute() or ".." in folder.parts:
        raise NotThereError(f"{where}: cwd is a folder in the project, such as 'packages/api'.")
    if not task.prompt.strip():
        raise NotThereError(f"{where}: the prompt is empty.")
    return task


def _problem(data: Mapping[str, Any], error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = str(first["loc"][0]) if first["loc"] else "task"
    if first["type"] == "extra_forbidden":
        known = [field.alias or name for name, field in BatchTask.model_fields.items()]
        near: Sequence[str] = difflib.get_close_matches(key, known, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}."
        return f"a task has no '{key}'; {hint}"
    if key == "id" and "pattern" in first["type"]:
        return f"the id {data.get('id')!r} may have letters, digits, '.', '_' and '-', at most 64."
    return f"'{key}': {first['msg'][:1].lower()}{first['msg'][1:]}."


def _named(task: BatchTask, taken: Mapping[str, int]) -> BatchTask:
    """Give a task without an id one that stays the same when lines are added or moved."""
    if task.id:
        return task
    base = f"task-{task.digest[:8]}"
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}-{count}"
    return task.model_copy(update={"id": name})
