"""A final answer that must be one JSON document of a given schema (``--output-schema``).

The schema holds for the final answer only. Where the vendor can enforce it beside tools, every request has
it; else the model is told, its answer is checked, and one more request without tools repairs what is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aar.protocol.errors import NotThereError
from aar.protocol.late import late_pattern
from aar.protocol.messages import ContentBlock, TextBlock
from aar.protocol.state import ExitCode, StopReason
from aar.providers.base import ProviderCapabilities

if TYPE_CHECKING:
    from aar.core.agent import Agent, RunResult
    from aar.core.session import Session
    from aar.core.view import SessionView

_FENCE = late_pattern(r"\A\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_MOST_PROBLEMS = 8
_DONE = (StopReason.END_TURN, StopReason.VERIFIED)
RunPrompt = Callable[[Sequence[ContentBlock]], Awaitable["RunResult"]]


@dataclass
class OutputSchema:
    """The schema of one run.

    Attributes:
        schema: JSON Schema; its root is an object.
        closing: Whether the model is to give its final answer now, without tools.
    """

    schema: Mapping[str, Any]
    closing: bool = False

    def for_request(self, capabilities: ProviderCapabilities) -> Mapping[str, Any] | None:
        """Return what the request carries: the schema, where this model's server enforces it."""
        mode = capabilities.output_schema
        return self.schema if mode == "with_tools" or (mode == "alone" and self.closing) else None

    def adjust(self, view: SessionView) -> SessionView:
        """Return the view with the schema in its requests where it belongs, and at the end without tools."""
        enforced = self.for_request(view.active.capabilities)
        if enforced is not None:
            view = replace(view, settings={**view.settings, "output_schema": enforced})
        return replace(view, tools=()) if self.closing else view

    def instruction(self) -> str:
        """Return what tells a model of the schema."""
        text = json.dumps(self.schema, ensure_ascii=False)
        return (
            "Your final answer, after all work is done, must be nothing but one JSON document, without words "
            f"before or after it, that is valid for this JSON Schema:\n{text}"
        )

    def document(self, text: str) -> str:
        """Return the answer without a code fence around it."""
        fenced = _FENCE.match(text)
        return (fenced.group(1) if fenced else text).strip()

    def problems(self, text: str) -> list[str]:
        """Return what is wrong with an answer, in sentences; empty: it is valid."""
        try:
            value = json.loads(self.document(text))
        except ValueError as error:
            return [f"It is not one JSON document: {error}."]
        from jsonschema.validators import validator_for

        validator = validator_for(self.schema)(self.schema)
        found: list[str] = []
        for error in cast("Any", validator).iter_errors(value):
            found.append(f"At {error.json_path}: {str(error.message)[:300]}.")
            if len(found) == _MOST_PROBLEMS:
                break
        return found


def load_schema(path: Path) -> OutputSchema:
    """Read a schema.

    Raises:
        NotThereError: The file cannot be read, or it is no JSON Schema of an object.
    """
    try:
        schema = json.loads(path.read_bytes())
    except OSError as error:
        raise NotThereError(f"--output-schema {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise NotThereError(f"--output-schema {path} is not JSON: {error}.") from error
    if not isinstance(schema, dict):
        raise NotThereError(f"--output-schema {path}: a JSON Schema is an object.")
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    fields = cast("dict[str, Any]", schema)
    try:
        validator_for(fields).check_schema(fields)
    except SchemaError as error:
        raise NotThereError(f"--output-schema {path} is no JSON Schema: {error.message}.") from None
    return OutputSchema(fields)


async def run_with_schema(
    run: RunPrompt,
    content: Sequence[ContentBlock],
    schema: OutputSchema,
    *,
    told: bool,
    may_repair: Callable[[RunResult], bool],
) -> tuple[RunResult, list[str]]:
    """Run a prompt whose final answer must be of ``schema``; one round repairs an answer that is not.

    Args:
        run: Runs a prompt.
        content: The prompt.
        schema: What the answer must be.
        told: Whether the model must be told of the schema, since its server does not enforce it beside tools.
        may_repair: Whether limits leave room for one more request.

    Returns:
        The result, whose text is the document alone and whose numbers are those of both rounds; and what is
        still wrong with it.
    """
    prompt = [*content, TextBlock(text=schema.instruction())] if told else list(content)
    result = await run(prompt)
    if result.stop_reason not in _DONE:
        return result, []
    problems = schema.problems(result.text)
    if problems and may_repair(result):
        schema.closing = True
        words = "\n".join(problems)
        again = await run([TextBlock(text=f"Your answer is not valid:\n{words}\n\n{schema.instruction()}")])
        result = _joined(result, again)
        if again.stop_reason not in _DONE:
            return result, []
        problems = schema.problems(result.text)
    if not problems:
        return replace(result, text=schema.document(result.text)), []
    return replace(result, exit_code=ExitCode.UNFINISHED), problems


async def run_in_limits(
    agent: Agent, session: Session, content: Sequence[ContentBlock], schema: OutputSchema
) -> tuple[RunResult, list[str]]:
    """Run a prompt with an agent, as `run_with_schema` does; both rounds keep the limits of one run."""
    limits = agent.config.limits

    async def run(prompt: Sequence[ContentBlock]) -> RunResult:
        return await agent.run(prompt, session, source="continue" if schema.closing else "prompt")

    def may_repair(result: RunResult) -> bool:
        steps, seconds = limits.steps - result.steps, limits.seconds - result.duration_ms / 1000
        tokens, usd = limits.tokens - result.usage.total, limits.usd - (result.cost_usd or 0)
        if (
            steps < 1
            or (limits.seconds and seconds <= 0)
            or (limits.tokens and tokens < 1)
            or (limits.usd and usd <= 0)
        ):
            return False
        left = {
            "steps": steps,
            "seconds": seconds if limits.seconds else 0,
            "tokens": tokens if limits.tokens else 0,
            "usd": usd if limits.usd else 0,
        }
        agent.config = replace(agent.config, limits=limits.model_copy(update=left))
        return True

    agent.adjust_view = schema.adjust
    told = agent.runner.home.capabilities.output_schema != "with_tools"
    try:
        return await run_with_schema(run, content, schema, told=told, may_repair=may_repair)
    finally:
        agent.config = replace(agent.config, limits=limits)


def _joined(first: RunResult, second: RunResult) -> RunResult:
    known = first.cost_usd is not None and second.cost_usd is not None
    paths = {change.path for change in second.file_changes}
    return replace(
        second,
        usage=first.usage + second.usage,
        cost_usd=(first.cost_usd or 0) + (second.cost_usd or 0) if known else None,
        steps=first.steps + second.steps,
        duration_ms=first.duration_ms + second.duration_ms,
        file_changes=(*(item for item in first.file_changes if item.path not in paths), *second.file_changes),
        diffs=(*first.diffs, *second.diffs),
    )
