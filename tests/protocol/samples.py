"""One full sample of every event type."""

from __future__ import annotations

from aar.protocol import events as ev
from aar.protocol.errors import ErrorKind, ToolCategory
from aar.protocol.messages import ImageBlock, ResourceBlock, TextBlock
from aar.protocol.state import AgentState, StopReason
from aar.protocol.tool import FileChange
from aar.protocol.usage import Usage

TEXT = (TextBlock(text="héllo 👋 \x1b[31m"),)
CHANGE = FileChange(path="a.py", action="rename", old_path="b.py", added=1, removed=2, after="blob")

SAMPLES: list[ev.Event] = [
    ev.SessionEvent(
        action="fork", schema_version=1, cwd="/w", model="a/b", title="t",
        forked_from=ev.ForkOrigin(session_id="x", seq=3),
    ),
    ev.PromptEvent(
        layers=(ev.PromptLayer(name="identity", source="built-in", text="You"),),
        tools={"names": ["bash"], "sha256": "00"}, sha256="11",
    ),
    ev.Setting(key="mode", from_="ask", to="auto", by="user"),
    ev.UserMessage(
        content=(*TEXT, ImageBlock(media_type="image/png", data="aGk="), ResourceBlock(uri="a", text="b"))
    ),
    ev.ContextEvent(source="verify", label="check", content=TEXT, trusted=False),
    ev.Reasoning(content="hm", signature="sig", data="opaque", redacted=True),
    ev.AssistantMessage(content="answer", partial=True, refusal=True),
    ev.ToolCall(call_id="1", tool_name="bash", arguments={"command": "ls", "n": [1, None, 2.5]}, raw_arguments="{"),
    ev.ProviderMeta(
        provider="p", model="m", usage=Usage(input=1, output=2, cache_read=3, cache_write=4, reasoning=1),
        cost_usd=0.25, duration_ms=1.5, first_token_ms=0.5, stop_reason_raw="stop", attempts=2, request_id="r",
    ),
    ev.ApprovalRequest(
        request_id="q", call_id="1", tool_name="bash", arguments={"command": "ls"}, diff="-a\n+b", wall="none",
        why={"rule": None, "reasons": ["x"]}, proposed_rule="bash(ls *)", scopes=("once", "session"),
    ),
    ev.Approval(
        request_id="q", call_id="1", decision="allow", scope="session", by="hook", rule="bash(ls *)",
        edited_arguments={"command": "ls -l"}, feedback="ok",
    ),
    ev.CheckpointEvent(checkpoint_id="c", kind="manual", paths=("a", "b")),
    ev.ToolResult(
        call_id="1", tool_name="bash", output="out", content=TEXT, is_error=True,
        category=ToolCategory.TIMEOUT, duration_ms=3, exit_code=-9, truncated=True, output_ref="out_1",
        file_changes=(CHANGE,), diff="d", sandbox="landlock",
    ),
    ev.Retry(attempt=1, delay_s=0.5, error_kind=ErrorKind.RATE_LIMIT, message="slow down", discard=True),
    ev.ModelSwitch(from_model="a/b", to_model="c/d", reason="failed"),
    ev.Compaction(summary="s", first_kept_seq=9, tokens_before=10, tokens_after=5, trigger="auto"),
    ev.Rewind(to_seq=4, scope="both"),
    ev.PlanEvent(items=(ev.PlanItem(id="1", title="t", depends_on=("0",), done_when="true"),), revision=2),
    ev.Subagent(action="end", profile="explore", task="t", result="r", stop_reason=StopReason.END_TURN),
    ev.StateEvent(state=AgentState.TIMED_OUT, stop_reason=StopReason.TIMEOUT, detail="d"),
    ev.Notice(level="warning", message="m", code="budget_warning"),
    ev.ErrorEvent(kind=ErrorKind.AUTH, stage="model", message="m", retryable=False, detail="d"),
    ev.StreamChunk(text="a", reasoning_text="b", tool_call_fragment={"index": 0}, finished=True),
    ev.ToolProgress(call_id="1", text="…"),
]  # fmt: skip
