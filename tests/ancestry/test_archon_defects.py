"""What was wrong in the Archon text, and would be wrong in a coding assistant, is not wrong here."""

from __future__ import annotations

import enum
import importlib
import json
import logging
import pkgutil
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

import aar.protocol
from aar.core.context_parts import context_breakdown
from aar.observability.diagnostics_log import close_logging, setup_logging, tail
from aar.protocol.events import PlanItem, ToolCall, ToolResult
from aar.protocol.tool import SideEffect
from aar.providers.dialects.base import make_resolver
from aar.providers.dialects.text_calls import TextCallParser
from aar.tools.builtin.catalogue import builtin_tools
from aar.tools.builtin.planning_graph import ready, with_completed
from aar.tools.registry import ToolRegistry
from tests.dialects.support import ALIASES, TOOLS, plain, run
from tests.support.docs import FOLDER
from tests.support.fakes import Turn, World, call, done, tool

RESOLVE = make_resolver(TOOLS, ALIASES.get)


def written(content: str) -> str:
    """Return a call of write_file as a model types it."""
    return json.dumps({"name": "write_file", "arguments": {"path": "a.md", "content": content}})


@pytest.mark.parametrize(
    "content",
    [
        "Final Answer: 42\nmore",
        "Action: bash\nAction Input: {}",
        '{"s": "}"}',
        '}{ ```json\n{ ``` \\" }',
    ],
)
@pytest.mark.parametrize("before", ["", "Thought: I write it.\n"])
def test_a_call_at_the_very_end_is_found_whatever_its_content_looks_like(content: str, before: str) -> None:
    _, parsed = run(TextCallParser(RESOLVE), [before + written(content)])
    assert plain(parsed.calls) == [("write_file", {"path": "a.md", "content": content})]


def test_an_answer_that_only_speaks_of_a_final_answer_is_kept_whole() -> None:
    text = "I thought of Action: and of Thought:.\nFinal Answer: 45"
    _, parsed = run(TextCallParser(RESOLVE), [text])
    assert (parsed.prose, parsed.calls, parsed.problem) == (text, (), None)


def test_a_step_may_start_as_soon_as_what_it_needs_is_done_and_no_sooner() -> None:
    second = PlanItem(id="b", title="B", depends_on=("a",))
    for status, free in (("failed", []), ("executing", []), ("completed", ["b"])):
        items = [PlanItem(id="a", title="A", status=status), second]
        assert [item.id for item in ready(items)] == free, status


def test_what_was_stored_cannot_be_changed_and_a_new_plan_changes_no_old_one() -> None:
    item = PlanItem(id="a", title="A", status="completed")
    result = ToolResult(call_id="c", tool_name="bash", output="x")
    for record, field in ((item, "status"), (result, "output")):
        with pytest.raises(ValidationError):
            setattr(record, field, "other")
    before = [item, PlanItem(id="b", title="B")]
    assert with_completed(before, [PlanItem(id="c", title="C")])[0] is item
    assert [each.id for each in before] == ["a", "b"]


def test_every_word_of_the_protocol_has_one_spelling_and_is_plain_json() -> None:
    names = [module.name for module in pkgutil.iter_modules(aar.protocol.__path__)]
    modules = [importlib.import_module(f"aar.protocol.{name}") for name in names]
    kinds = {
        thing
        for module in modules
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, enum.Enum) and thing.__module__ == module.__name__
    }
    words = [member for kind in kinds for member in kind]
    assert len(words) > 60
    for word in words:
        assert json.loads(json.dumps(word)) == word.value
        assert isinstance(word.value, int) or re.fullmatch(r"[a-z]+(_[a-z]+)*", word.value), word
    sources = [path.read_text(encoding="utf-8") for path in (FOLDER.parent / "aar").rglob("*.py")]
    assert sum(len(re.findall(r"^class AgentState\b", text, re.MULTILINE)) for text in sources) == 1


def test_setting_up_the_log_again_writes_each_line_once_and_changes_no_record(tmp_path: Path) -> None:
    settings = SimpleNamespace(level="info", trace=())
    try:
        for _ in range(3):
            setup_logging(settings, tmp_path / "logs", str)
        record = logging.LogRecord("aar.x", logging.WARNING, "f", 1, "once %s", ("only",), None)
        before = dict(vars(record))
        logging.getLogger("aar.x").handle(record)
        assert {name: vars(record)[name] for name in before} == before
        assert [line.count("once only") for line in tail(tmp_path / "logs", 9)] == [1]
    finally:
        close_logging()


def test_an_agent_is_put_together_without_an_event_loop(tmp_path: Path) -> None:
    assert World(tmp_path / "w", ["Hi."]).agent is not None


def test_two_registries_share_no_tool() -> None:
    first, second = ToolRegistry(builtin_tools()), ToolRegistry(builtin_tools())
    first.register(tool("mine", lambda args, context: done()))
    assert "mine" in first
    assert "mine" not in second


async def test_a_tool_that_changes_things_is_never_tried_again_by_itself(tmp_path: Path) -> None:
    ran: list[Any] = []

    async def fails(args: dict[str, Any], context: Any) -> Any:
        ran.append(args)
        raise TimeoutError("nobody knows whether it was sent")

    flaky = tool("send", fails, SideEffect.WRITE)
    world = World(tmp_path / "w", [Turn(calls=[call("send")]), "It failed."], tools=[flaky], mode="unsafe")
    await world.run()
    assert len(ran) == 1
    assert [result.is_error for result in world.results] == [True]


async def test_a_traceback_is_for_the_log_and_the_model_hears_a_sentence(tmp_path: Path) -> None:
    async def broken(args: dict[str, Any], context: Any) -> Any:
        return {}["no such key"]

    world = World(tmp_path / "w", [Turn(calls=[call("broken")]), "Well."], tools=[tool("broken", broken)])
    await world.run()
    [result] = world.results
    assert result.output.startswith("Error [exception]:")
    assert "Traceback" not in result.output
    assert 'File "' not in result.output
    assert any(isinstance(error, KeyError) for error in world.logged)


async def test_the_same_question_is_asked_again_and_the_same_file_read_again(tmp_path: Path) -> None:
    reads = Turn(calls=[call("read_file", path="a.txt")])
    world = World(tmp_path / "w", [reads, "One.", reads, "Two."])
    for content in ("one\n", "two\n"):
        (world.root / "a.txt").write_text(content)
        await world.run("What does a.txt say?")
    assert world.provider.streams == 4
    assert ["one" in world.results[0].output, "two" in world.results[1].output] == [True, True]


async def test_what_is_left_of_a_window_is_never_less_than_nothing(tmp_path: Path) -> None:
    world = World(tmp_path / "w", ["word " * 3000], capabilities={"context_window": 1000})
    await world.run("word " * 3000)
    parts = context_breakdown(world.session, world.agent.view_of(world.session))
    assert parts
    assert all(part.tokens >= 0 for part in parts)


async def test_refused_wrong_unknown_and_failed_calls_are_told_apart(tmp_path: Path) -> None:
    calls = [
        call("no_such_tool"),
        call("read_file"),
        call("read_file", path="no.txt"),
        call("bash", command="rm -rf /"),
    ]
    world = World(tmp_path / "w", [Turn(calls=calls), "So be it."], mode="plan")
    await world.run()
    assert [result.category for result in world.results] == [
        "unknown_tool",
        "invalid_arguments",
        "not_found",
        "blocked",
    ]
    assert [type(event) for event in world.of("tool_call")] == [ToolCall] * 4
