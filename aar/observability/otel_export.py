"""A session's tree as OpenTelemetry spans, by the semantic conventions for generative AI (extra ``otel``).

Attribute names: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/. Texts of prompts, answers
and tools are not exported: the conventions make them opt-in, and they may be private.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from aar.observability.trace import Operation, moment
from aar.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

_PROVIDERS = {
    "anthropic": "anthropic",
    "openai": "openai",
    "azure": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "mistral": "mistral_ai",
    "deepseek": "deepseek",
    "groq": "groq",
    "xai": "x_ai",
}
_OPERATIONS = {"model": "chat", "tool": "execute_tool", "agent": "invoke_agent", "run": "invoke_agent"}
_MISSING = "OpenTelemetry is not installed; install it in aar's folder with: pip install -e '.[otel]'."
_BAD = frozenset({"error", "open", "timeout", "budget", "cancelled", "denied", "repetition", "refusal"})


def export_tree(root: Operation, exporter: SpanExporter) -> int:
    """Send a session's tree to ``exporter`` and return how many spans it has.

    Raises:
        ConfigurationError: The extra is not installed, or the spans could not be sent.
    """
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
    except ImportError:
        raise ConfigurationError(_MISSING) from None
    provider = TracerProvider(resource=Resource.create({"service.name": "aar"}), shutdown_on_exit=False)
    failed = False
    send = exporter.export

    def export(spans: Sequence[ReadableSpan]) -> SpanExportResult:
        nonlocal failed
        result = send(spans)
        failed = failed or result is not SpanExportResult.SUCCESS
        return result

    # The processor swallows what an exporter answers.
    exporter.export = export
    # All spans are made at once; none may fall out of the queue.
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=1 << 20))
    try:
        count = _emit(provider.get_tracer("aar"), root, None)
        provider.force_flush()
    finally:
        provider.shutdown()
    if failed:
        raise ConfigurationError(
            "The spans could not be sent. Start the collector, or say with --endpoint where it is."
        )
    return count


def otlp_exporter(endpoint: str | None = None) -> SpanExporter:
    """Return an exporter over OTLP/HTTP.

    Args:
        endpoint: Address, such as ``http://localhost:4318/v1/traces``; ``None``: what the variables
            ``OTEL_EXPORTER_OTLP_*`` tell.

    Raises:
        ConfigurationError: The extra is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise ConfigurationError(_MISSING) from None
    return OTLPSpanExporter(endpoint=endpoint)


def _emit(tracer: Any, operation: Operation, parent: Any) -> int:
    from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

    start = _nanoseconds(operation.start)
    span = tracer.start_span(
        _name(operation),
        context=set_span_in_context(parent) if parent is not None else None,
        kind=SpanKind.CLIENT if operation.kind == "model" else SpanKind.INTERNAL,
        attributes=_attributes(operation),
        start_time=start,
    )
    if operation.status in _BAD:
        span.set_status(Status(StatusCode.ERROR, operation.status))
    count = 1 + sum(_emit(tracer, child, span) for child in operation.children)
    span.end(max(start or 0, _nanoseconds(operation.end) or 0) or None)
    return count


def _name(operation: Operation) -> str:
    if operation.kind == "model":
        return f"chat {operation.facts.get('model', operation.name)}"
    if operation.kind == "tool":
        return f"execute_tool {operation.name}"
    if operation.kind == "run":
        return "invoke_agent aar"
    if operation.kind == "agent":
        return f"invoke_agent {operation.name}"
    return operation.kind


def _attributes(operation: Operation) -> dict[str, Any]:
    usage, facts = operation.usage, operation.facts
    found: dict[str, Any] = {
        "aar.kind": operation.kind,
        "aar.seq": operation.seq,
        "gen_ai.operation.name": _OPERATIONS.get(operation.kind),
        "gen_ai.conversation.id": operation.id if operation.kind == "session" else None,
        "aar.cost_usd": operation.cost_usd if operation.cost_known else None,
        "error.type": facts.get("category", operation.status) if operation.status in _BAD else None,
    }
    if operation.kind in ("model", "run", "agent"):
        found["gen_ai.usage.input_tokens"] = usage.prompt
        found["gen_ai.usage.output_tokens"] = usage.output
        found["gen_ai.usage.cache_read.input_tokens"] = usage.cache_read
        found["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write
    if operation.kind == "model":
        provider = str(facts.get("provider", ""))
        found["gen_ai.provider.name"] = _PROVIDERS.get(provider, provider)
        found["gen_ai.request.model"] = facts.get("model")
        found["gen_ai.response.id"] = facts.get("request_id")
        reason = facts.get("stop_reason")
        found["gen_ai.response.finish_reasons"] = [reason] if reason else None
        found["aar.attempts"] = facts.get("attempts")
    elif operation.kind == "tool":
        found["gen_ai.tool.name"] = operation.name
        found["gen_ai.tool.call.id"] = facts.get("call_id")
        found["gen_ai.tool.type"] = "function"
    elif operation.kind in ("run", "agent"):
        found["gen_ai.agent.name"] = "aar" if operation.kind == "run" else operation.name
    return {name: value for name, value in found.items() if value is not None}


def _nanoseconds(stamp: str) -> int | None:
    at: datetime | None = moment(stamp)
    return None if at is None else int(at.timestamp() * 1000) * 1_000_000
