"""What line mode writes: any text, cut anywhere, harmless and the same."""

from __future__ import annotations

import io
import re
import unicodedata
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from aar.commands.base import Choice, ChoiceItem, Table
from aar.protocol.events import (
    AssistantMessage,
    Compaction,
    ErrorEvent,
    ModelSwitch,
    Notice,
    PlanEvent,
    PlanItem,
    Reasoning,
    Retry,
    StreamChunk,
    Subagent,
    ToolCall,
    ToolResult,
)
from aar.protocol.tool import FileChange
from aar.safety.sanitize import sanitize
from aar.transports.chat.drawing import draw_choice, draw_table
from aar.transports.chat.paper import MarkdownPaper, Paper, wants_colour
from aar.transports.chat.printer import ChatPrinter

ODD = st.text(alphabet=st.sampled_from("ab #`>-\n\r\x1b\x9b\u202e\u200d[]m7🙂é中*"), max_size=80)


def written(*pieces: str, colour: bool = False) -> str:
    """Return what streamed Markdown looks like."""
    out = io.StringIO()
    page = MarkdownPaper(Paper(out, colour=colour))
    for piece in pieces:
        page.feed(piece)
    page.end()
    return out.getvalue()


@settings(max_examples=200, deadline=None)
@given(ODD, st.lists(st.integers(0, 80), max_size=6))
def test_streamed_text_is_the_sanitised_text_however_it_is_cut(text: str, cuts: list[int]) -> None:
    text = re.sub(r"\r+\n", "\n", text)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(places)]
    expected = "\n".join(sanitize(line) for line in text.split("\n"))
    shown = written(*pieces)
    assert shown.rstrip("\n") == expected.rstrip("\n")
    assert all(char == "\n" or unicodedata.category(char) != "Cc" for char in shown)
    coloured = written(*pieces, colour=True)
    for code in ("0", "1", "2", "36"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured == shown


def test_a_line_end_that_is_cut_in_two_is_one_line_end() -> None:
    assert written("one\r", "\ntwo") == "one\ntwo\n"


def test_headings_code_and_quotes_are_set_off_where_there_is_colour() -> None:
    shown = written("# Head\ntext\n```py\nx = 1\n```\n> said\n", colour=True)
    assert "\x1b[1m# Head\x1b[0m\ntext\n" in shown
    assert "\x1b[36mx = 1\x1b[0m" in shown
    assert "\x1b[2m> said" in shown


def test_colour_is_for_terminals_that_want_it() -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert wants_colour({"TERM": "xterm"}, Screen())
    assert not wants_colour({"TERM": "xterm", "NO_COLOR": "1"}, Screen())
    assert not wants_colour({"TERM": "dumb"}, Screen())
    assert not wants_colour({}, Screen())
    assert not wants_colour({"TERM": "xterm"}, io.StringIO())


def printed(*events: object) -> str:
    """Return what is written of events."""
    out = io.StringIO()
    times = iter(range(1000))
    printer = ChatPrinter(Paper(out, colour=False), clock=lambda: float(next(times)))
    for event in events:
        printer.event(event)  # pyright: ignore
    printer.end_answer()
    return out.getvalue()


def test_an_answer_that_was_not_streamed_is_written_once_and_a_streamed_one_too() -> None:
    assert printed(AssistantMessage(content="Hello.")) == "Hello.\n"
    assert printed(StreamChunk(text="Hel"), StreamChunk(text="lo."), AssistantMessage(content="Hello.")) == (
        "Hello.\n"
    )


def test_thinking_is_one_line_and_a_void_answer_is_called_so() -> None:
    told = printed(
        StreamChunk(reasoning_text="hm"), Reasoning(content="hm"), AssistantMessage(content="Yes.")
    )
    assert told == "(thought for 1 s)\nYes.\n"
    retry = Retry(attempt=1, delay_s=2, error_kind="network", message="It broke off.", discard=True)
    told = printed(
        StreamChunk(text="half"), retry, StreamChunk(text="whole"), AssistantMessage(content="whole")
    )
    assert (
        "half\n! It broke off. Asking again in 2.0 s. What was shown of this answer is void.\nwhole\n" in told
    )


def test_results_are_a_line_with_what_matters_below_it() -> None:
    call = ToolCall(call_id="1", tool_name="bash", arguments={"command": "pytest -q"})
    output = "\n".join(f"line {number}" for number in range(30))
    told = printed(
        call, ToolResult(call_id="1", tool_name="bash", output=output, duration_ms=2300, exit_code=1)
    )
    assert told.startswith("* $ pytest -q (exit 1, 2.3 s)\n    ... 22 lines before\n    line 22\n")
    change = FileChange(path="a.py", action="modify", added=1, removed=1)
    edit = ToolResult(
        call_id="2", tool_name="edit_file", output="ok", diff="@@ -1 +1 @@\n-a\n+b\n", file_changes=(change,)
    )
    assert "(+1 -1)\n    @@ -1 +1 @@\n    -a\n    +b\n" in printed(edit)
    quiet = ToolResult(call_id="3", tool_name="read_file", output="secret lines", duration_ms=5)
    assert "secret lines" not in printed(quiet)
    refused = ToolResult(
        call_id="4", tool_name="bash", output="Error [blocked]: no", is_error=True, category="blocked"
    )
    assert "(refused)\n    Error [blocked]: no\n" in printed(refused)


def test_everything_else_has_its_line() -> None:
    plan = PlanEvent(items=(PlanItem(id="1", title="Read", status="done"), PlanItem(id="2", title="Write")))
    assert printed(plan, plan) == "Plan:\n  [x] Read\n  [ ] Write\n"
    assert "aar auth" in printed(ErrorEvent(kind="auth", message="No key."))
    assert "Going on with b/y" in printed(ModelSwitch(from_model="a/x", to_model="b/y", reason="Down."))
    assert "9,000 tokens became 900" in printed(
        Compaction(summary="s", first_kept_seq=2, tokens_before=9000, tokens_after=900)
    )
    assert printed(Notice(message="Loading", code="provider_progress")) == ""
    other = Subagent(action="start", profile="explore", task="look", agent_id="x")
    assert "* Agent explore: look" in printed(other)
    assert printed(AssistantMessage(content="inner", agent_id="x")) == ""


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(ODD, min_size=2, max_size=2), max_size=4), st.booleans(), st.integers(1, 100))
def test_tables_and_choices_of_any_text_are_harmless(rows: list[list[str]], headed: bool, width: int) -> None:
    out = io.StringIO()
    paper = Paper(out, colour=False)
    cells = tuple((row[0], row[1]) for row in rows)
    draw_table(paper, Table("t", ("a", "b") if headed else (), cells, "note"), width)
    draw_choice(paper, Choice("c", tuple(ChoiceItem(row[0], "/x", row[1]) for row in rows)))
    shown = out.getvalue()
    assert sanitize(shown) == shown
    assert shown.count("t\n") >= 1
