"""The tree of operations, and its export as OpenTelemetry spans."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from aar.observability.trace import Operation, trace_tree
from aar.protocol.errors import ConfigurationError
from aar.protocol.events import (
    Event,
    ProviderMeta,
    SessionEvent,
    StateEvent,
    Subagent,
    ToolCall,
    ToolResult,
    UserMessage,
)
from aar.protocol.messages import TextBlock
from aar.protocol.state import AgentState, StopReason
from aar.protocol.usage import Usage


def meta(cost: float | None, agent: str = "main", step: int = 1, **more: object) -> ProviderMeta:
    usage = Usage(input=10, output=5, cache_read=100)
    return ProviderMeta(
        provider="anthropic",
        model="m",
        usage=usage,
        cost_usd=cost,
        duration_ms=400,
        run_id="R",
        step=step,
        agent_id=agent,
        **more,
    )


def history() -> list[Event]:
    events: list[Event] = [
        SessionEvent(action="start", title="The title"),
        UserMessage(content=(TextBlock(text="do it"),), run_id="R"),
        ToolCall(call_id="c1", tool_name="task", run_id="R", step=1),
        meta(0.5, stop_reason_raw="tool_use"),
        Subagent(action="start", profile="explore", run_id="R", agent_id="sub-1"),
        ToolCall(call_id="s1", tool_name="grep", run_id="R", step=1, agent_id="sub-1"),
        meta(0.25, "sub-1"),
        ToolResult(
            call_id="s1",
            tool_name="grep",
            output="x",
            is_error=True,
            category="timeout",
            duration_ms=10,
            run_id="R",
            step=1,
            agent_id="sub-1",
        ),
        Subagent(
            action="end", profile="explore", run_id="R", agent_id="sub-1", stop_reason=StopReason.END_TURN
        ),
        ToolResult(call_id="c1", tool_name="task", output="ok", duration_ms=3000, run_id="R", step=1),
        ToolCall(call_id="c2", tool_name="bash", run_id="R", step=2),
        meta(None, step=2),
        StateEvent(state=AgentState.CANCELLED, stop_reason=StopReason.CANCELLED, run_id="R"),
    ]
    return [
        event.model_copy(
            update={"seq": n, "id": f"E{n}", "session_id": "S", "ts": f"2026-11-22T01:00:{n:02d}.000Z"}
        )
        for n, event in enumerate(events, 1)
    ]


def outline(operation: Operation) -> list[object]:
    return [f"{operation.kind} {operation.name}".strip(), *[outline(child) for child in operation.children]]


def test_a_sub_agent_stands_below_the_call_that_started_it() -> None:
    root = trace_tree(history())
    assert outline(root) == [
        "session The title",
        [
            "run do it",
            [
                "step step 1",
                ["model anthropic/m"],
                ["tool task", ["agent explore", ["step step 1", ["model anthropic/m"], ["tool grep"]]]],
            ],
            ["step step 2", ["model anthropic/m"], ["tool bash"]],
        ],
    ]


def test_tokens_and_money_add_up_and_an_unknown_price_is_not_zero() -> None:
    root = trace_tree(history())
    (run,) = root.children
    assert (run.usage.input, run.usage.total) == (30, 345)
    assert (run.cost_usd, run.cost_known) == (0.75, False)
    assert run.children[0].cost_known
    assert root.to_dict()["cost_usd"] is None
    assert root.to_dict()["known_cost_usd"] == 0.75


def test_what_failed_or_never_ended_is_told() -> None:
    operations = {operation.name: operation for _, operation in trace_tree(history()).walk()}
    assert (operations["grep"].status, operations["grep"].facts["category"]) == ("error", "timeout")
    assert operations["bash"].status == "open"
    assert operations["do it"].status == "cancelled"
    assert operations["task"].duration_ms == 3000


def test_events_without_times_make_a_tree_too() -> None:
    root = trace_tree([event.model_copy(update={"ts": ""}) for event in history()])
    assert root.duration_ms == 0
    assert len([*root.walk()]) == 12


def test_spans_follow_the_conventions_for_generative_ai() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from aar.observability.otel_export import export_tree

    exporter = InMemorySpanExporter()
    assert export_tree(trace_tree(history()), exporter) == 12
    spans = exporter.get_finished_spans()
    assert len({span.context.trace_id for span in spans}) == 1
    chat = next(span for span in spans if span.name == "chat m")
    assert chat.attributes is not None
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    assert chat.attributes["gen_ai.provider.name"] == "anthropic"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 110
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("tool_use",)
    assert chat.end_time is not None
    assert chat.start_time is not None
    assert chat.end_time - chat.start_time == 400_000_000
    by_id = {span.context.span_id: span for span in spans}
    grep = next(span for span in spans if span.name == "execute_tool grep")
    assert grep.parent is not None
    assert by_id[grep.parent.span_id].name == "step"
    assert grep.attributes is not None
    assert grep.attributes["error.type"] == "timeout"
    assert not grep.status.is_ok


def test_spans_reach_a_collector_over_http() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from aar.observability.otel_export import export_tree, otlp_exporter

    got: list[tuple[str, bytes]] = []

    class Sink(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Sink)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/v1/traces"
        export_tree(trace_tree(history()), otlp_exporter(address))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert [path for path, _ in got] == ["/v1/traces"]
    assert b"execute_tool grep" in got[0][1]
    assert b"do it" not in got[0][1]


def test_sub_agents_side_by_side_stand_each_below_its_own_call() -> None:
    calls = [ToolCall(call_id=f"c{n}", tool_name="task", run_id="R", step=1, id=f"E{n}") for n in (1, 2)]
    starts = [
        Subagent(action="start", profile=f"p{n}", run_id="R", agent_id=f"sub-{n}", parent_id=f"E{n}")
        for n in (1, 2)
    ]
    names = {
        operation.id: [child.name for child in operation.children]
        for _, operation in trace_tree([*calls, *starts]).walk()
    }
    assert (names["E1"], names["E2"]) == (["p1"], ["p2"])


def test_spans_that_nobody_takes_are_told() -> None:
    pytest.importorskip("opentelemetry.sdk.trace.export")
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    from aar.observability.otel_export import export_tree

    class Refusing(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.FAILURE

    with pytest.raises(ConfigurationError, match="could not be sent"):
        export_tree(trace_tree(history()), Refusing())
