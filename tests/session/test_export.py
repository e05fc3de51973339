"""Sessions as documents: nothing missing, nothing secret, nothing that runs."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given, settings

from aar.memory.export_html import to_html
from aar.memory.export_items import heading, items
from aar.memory.export_scenario import to_scenario
from aar.memory.export_text import to_json_document, to_markdown
from aar.protocol.events import (
    AssistantMessage,
    ErrorEvent,
    Event,
    ProviderMeta,
    Reasoning,
    SessionEvent,
    StateEvent,
    ToolCall,
    ToolResult,
    UserMessage,
)
from aar.protocol.messages import ImageBlock, TextBlock
from aar.protocol.state import AgentState, StopReason
from aar.protocol.usage import Usage
from aar.providers.scenario import load_script
from aar.safety.redact import Redactor
from tests.session.sequences import chaos, real_history

KEY = "sk-ant-" + "api03-" + "Zq8Lw2Xv5Nn1Rt7Yp4Bk9Hd3Fs6Gj0Mc"
HOSTILE = "<script>alert(1)</script> [x](javascript:alert(2)) ![i](https://evil.example/p.png) <img src=x onerror=y>"


def history() -> list[Event]:
    events: list[Event] = [
        SessionEvent(action="start", session_id="S", cwd="/p", model="p/m", schema_version=1),
        UserMessage(
            content=(
                TextBlock(text=f"fix it {HOSTILE} {KEY}"),
                ImageBlock(media_type="image/png", data="aGk="),
            ),
            run_id="R",
        ),
        Reasoning(content="I think </details><b>", run_id="R", step=1),
        AssistantMessage(content=f"**Bold** {{braces}} {HOSTILE}", run_id="R", step=1),
        ToolCall(
            call_id="c1",
            tool_name="bash",
            arguments={"command": "echo ```` {x}", "token": KEY},
            run_id="R",
            step=1,
        ),
        ToolCall(call_id="c2", tool_name="edit_file", arguments={"path": "a.py"}, run_id="R", step=1),
        ProviderMeta(
            provider="p", model="m", usage=Usage(input=10, output=2), cost_usd=0.5, run_id="R", step=1
        ),
        ToolResult(
            call_id="c1",
            tool_name="bash",
            output=f"out ```` \x1b[31mred\x1b[0m {KEY} </pre>",
            exit_code=3,
            is_error=True,
            run_id="R",
            step=1,
        ),
        ToolResult(
            call_id="c2",
            tool_name="edit_file",
            output="ok",
            diff="--- a\n+++ b\n-old\n+new <i>",
            run_id="R",
            step=1,
        ),
        ToolCall(call_id="c3", tool_name="grep", arguments={"pattern": "never"}, run_id="R", step=2),
        ErrorEvent(kind="overloaded", message="too busy", retryable=True, run_id="R", step=2),
        StateEvent(state=AgentState.ERROR, stop_reason=StopReason.ERROR, run_id="R"),
    ]
    stamp = "2026-11-22T01:02:03.000Z"
    return [e.model_copy(update={"seq": n, "ts": stamp, "session_id": "S"}) for n, e in enumerate(events, 1)]


class Tags(HTMLParser):
    """Collects tags and their attributes; fails when they do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page(events: list[Event]) -> str:
    redact = Redactor().redact
    return "".join(to_html(heading(events, redact, "A <title>"), items(events, redact)))


def test_the_page_holds_no_script_no_foreign_address_and_no_key() -> None:
    text = page(history())
    parser = Tags()
    parser.feed(text)
    assert parser.open == []
    names = {tag for tag, _ in parser.tags}
    assert not names & {"script", "iframe", "object", "embed", "link", "form", "base", "svg"}
    for tag, attributes in parser.tags:
        assert not any(name.startswith("on") for name in attributes)
        if tag == "img":
            assert str(attributes["src"]).startswith("data:image/")
        if tag == "a":
            assert not str(attributes.get("href")).lower().startswith(("javascript:", "data:"))
    assert KEY not in text
    assert "[redacted]" in text
    policy = next(a["content"] for t, a in parser.tags if t == "meta" and "http-equiv" in a)
    assert "default-src 'none'" in str(policy)


def test_the_page_is_for_phones_too_and_folds_what_is_long() -> None:
    text = page(history())
    assert 'name="viewport" content="width=device-width' in text
    assert text.count("<details>") == 4
    assert "<strong>Bold</strong>" in text
    assert '<span class="add">+new &lt;i&gt;</span>' in text
    assert "no result" in text
    assert "\x1b" not in text


def test_markdown_keeps_fences_apart_from_what_they_hold() -> None:
    redact = Redactor().redact
    events = history()
    text = "".join(to_markdown(heading(events, redact, "T"), items(events, redact)))
    assert "`````\nout ```` red" in text
    assert text.count("<details>") == text.count("</details>") - text.count("I think </details>")
    assert KEY not in text
    assert "- Cost: $0.5000" in text
    assert "exit 3" in text


def test_json_is_one_object_with_all_events() -> None:
    redactor = Redactor()
    events = history()
    text = "".join(to_json_document(heading(events, redactor.redact), events, redactor.redact_json))
    data = json.loads(text)
    assert [event["type"] for event in data["events"]] == [event.type for event in events]
    assert data["session"]["tokens"] == 12
    assert KEY not in text


def test_a_scenario_is_what_the_model_said(tmp_path: Path) -> None:
    scenario = to_scenario(history())
    file = tmp_path / "s.json"
    file.write_text(json.dumps(scenario))
    script = load_script(file)
    first = script.step(0, {"x": "WRONG"})
    assert first.text.startswith("**Bold** {braces}")
    assert [call.name for call in first.tool_calls] == ["bash", "edit_file"]
    assert first.tool_calls[0].arguments["command"] == "echo ```` {x}"
    assert script.step(1, {}).status == 529
    assert len(scenario["prompts"]) == 1
    assert scenario["recorded"]["stop_reason"] == "error"


@given(chaos() | real_history())
@settings(max_examples=60, deadline=None)
def test_any_history_can_be_exported(events: list[Event]) -> None:
    redact = Redactor().redact
    parser = Tags()
    parser.feed(page(events))
    assert parser.open == []
    shown = "".join(parser.text)
    for event in events:
        if isinstance(event, ToolCall):
            assert event.tool_name in shown
    assert "".join(to_markdown(heading(events, redact), items(events, redact)))
    scenario = to_scenario(events)
    assert len(scenario["steps"]) >= 1
    assert json.loads(json.dumps(scenario)) == scenario
