"""What is around the transcript: header, activity line, footer, side panel, and what of them is shown."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.binding import ActiveBinding, BindingsMap
from textual.content import Content
from textual.dom import DOMNode
from textual.widget import Widget

from aar.protocol.events import PlanItem
from aar.transports.tui.activity import activity_line, elapsed, tokens
from aar.transports.tui.branch import branch_of
from aar.transports.tui.footer import footer_line, shown_bindings
from aar.transports.tui.header import header_line, money, short_model
from aar.transports.tui.layout import SECTIONS, Layout, Look, early_look
from aar.transports.tui.panel_lines import PanelFacts, panel_lines
from aar.transports.tui.prompt.area import PromptArea
from aar.transports.tui.status import ChangedFile, Status
from aar.transports.tui.terminal import (
    call_sequence,
    colour_depth,
    from_environment,
    parse_colour,
    title_sequence,
)

HOSTILE = "\x1b[2J[bold]x[/] \u202eevil\u200b\x07 漢字 👩‍💻"


def full_status() -> Status:
    return Status(
        model="anthropic/claude-sonnet-4-6",
        mode="ask",
        project="aar",
        branch="main",
        wall="bubblewrap",
        reasoning="high",
        context_tokens=50_000,
        context_window=200_000,
        cost_usd=0.4213,
        tokens=120_000,
    )


def test_a_wide_header_tells_everything() -> None:
    line = header_line(full_status(), 110).plain
    for part in ("aar", "main", "claude-sonnet-4-6", "thinks high", "ask", "bubblewrap", "25%", "$0.42"):
        assert part in line
    assert line.endswith("$0.42")
    assert Content(line).cell_length == 110


def test_a_narrow_header_drops_what_matters_least() -> None:
    line = header_line(full_status(), 60).plain
    assert "thinks" not in line
    assert "claude-sonnet-4-6" in line
    assert "ask" in line
    assert "25%" in line
    assert header_line(full_status(), 12).plain.strip() == "ask"


def test_unsafe_and_a_missing_wall_stand_out() -> None:
    status = full_status()
    status.mode, status.wall = "unsafe", "none"
    line = header_line(status, 80)
    styles = {line.plain[span.start : span.end]: str(span.style) for span in line.spans}
    assert "$error" in styles[" unsafe "]
    assert "$error" in styles["no wall"]


@given(st.text(max_size=200), st.text(max_size=60), st.integers(1, 220))
def test_a_header_fits_and_shows_no_control_character(text: str, branch: str, width: int) -> None:
    status = full_status()
    status.project, status.model, status.branch = text, f"x/{text}", branch
    line = header_line(status, width)
    assert line.cell_length <= width
    assert not {unicodedata.category(char) for char in line.plain} & {"Cc", "Cs"}


def test_costs_are_told_truthfully() -> None:
    assert money(0) == ""
    assert money(0, known=False) == "cost not known"
    assert money(1.5) == "$1.50"
    assert money(0.0012, known=False) == "≥ $0.0012"
    assert short_model("scripted//tmp/a/s.json") == "s.json"
    assert short_model("ollama/qwen3-coder") == "ollama/qwen3-coder"


def test_the_activity_line_tells_what_how_long_and_how_to_stop() -> None:
    status = Status(activity="Running pytest", since=100.0, run_since=90.0, run_tokens=12_345, step=3)
    assert activity_line(status, 107.0, 100).plain == (
        "Running pytest 7 s · Esc interrupts · 12.3k tokens · step 3, 17 s in all"
    )
    assert activity_line(status, 107.0, 40).plain == "Running pytest 7 s · Esc interrupts"
    told = activity_line(status, 107.0, 80, keys=["Esc interrupts", "Ctrl+B lets it run on"]).plain
    assert told.startswith("Running pytest 7 s · Esc interrupts · Ctrl+B lets it run on · 12.3k")


@given(st.text(max_size=100), st.integers(1, 200))
def test_the_activity_line_fits(activity: str, width: int) -> None:
    line = activity_line(Status(activity=activity, run_since=0.0), 5.0, width, "⠋")
    assert line.cell_length <= width
    assert "\n" not in line.plain
    assert "\x1b" not in line.plain


def test_durations_and_tokens_are_short() -> None:
    assert [elapsed(seconds) for seconds in (0.4, 65, 3723)] == ["0 s", "1:05", "1:02:03"]
    assert [tokens(count) for count in (950, 12_345, 999_949, 999_950, 1_234_567)] == [
        "950",
        "12.3k",
        "999.9k",
        "1.0M",
        "1.2M",
    ]


def test_the_footer_shows_as_many_keys_as_fit_beside_the_users_status() -> None:
    items = [("Enter", "send"), ("F1", "keys"), ("F2", "panel")]
    assert footer_line(items, "", 60).plain == "Enter send   F1 keys   F2 panel"
    assert footer_line(items, "", 22).plain == "Enter send   F1 keys"
    assert footer_line(items, "", 40, "NORMAL").plain == "NORMAL   Enter send   F1 keys   F2 panel"
    line = footer_line(items, HOSTILE, 60)
    assert line.cell_length == 60
    assert "\x1b" not in line.plain
    assert "[bold]" in line.plain


def test_the_footer_says_what_keys_of_the_prompt_do_while_a_run_is_under_way() -> None:
    area: DOMNode = Widget()
    bindings = {
        binding.key: ActiveBinding(area, binding, True, "")
        for binding in BindingsMap(PromptArea.BINDINGS).key_to_bindings["enter"]
        + BindingsMap(PromptArea.BINDINGS).key_to_bindings["alt+enter"]
    }
    assert shown_bindings(bindings, working=False) == [("Enter", "send")]
    assert shown_bindings(bindings, working=True) == [("Enter", "say now"), ("Alt+Enter", "queue")]


def panel(status: Status, facts: PanelFacts, *sections: str, plain: bool = False) -> list[str]:
    lines = panel_lines(status, facts, 29, sections or SECTIONS, plain=plain)
    assert all(cell_len(line.text) <= 29 for line in lines)
    return [line.text for line in lines]


def test_the_panel_tells_all_it_knows_in_lines_that_hang_below_their_signs() -> None:
    status = full_status()
    status.plan = (
        PlanItem(id="1", title="Read", status="completed"),
        PlanItem(id="2", title="Write a test that is too long for a line", status="in_progress"),
    )
    status.files = {
        "a.py": ChangedFile("a.py", "modify", 3, 1),
        "b.py": ChangedFile("b.py", "delete"),
        "new": ChangedFile("new", "create", 8),
        "deep": ChangedFile("a/very/deep/folder/with/a_file.py", "modify", 0, 12),
    }
    thoughts = "**On the sum**\n\n- it is `total` that\n  is **wrong** by one, as 2 ** 3 ** 4 shows"
    facts = PanelFacts(
        thoughts, [("reviewer", "reads a.py and all that belongs to it")], [("error", "It failed")]
    )
    assert panel(status, facts) == [
        "Thinking", "On the sum", "", "• it is total that", "  is wrong by one, as 2 ** 3",
        "** 4 shows", "",
        "Plan", "☑ Read", "▸ Write a test that is too", "  long for a line", "",
        "Changed files", "a.py +3 −1", "b.py deleted", "new +8", "…/folder/with/a_file.py −12", "",
        "Agents", "reviewer reads a.py and all", "  that belongs to it", "",
        "Context", "50.0k of 200.0k tokens, 25%", "120.0k tokens in all, $0.42", "",
        "Notices", "✗ It failed",
    ]  # fmt: skip
    assert panel(status, facts, "plan", plain=True)[1:3] == ["done: Read", "now: Write a test that is too"]


def test_the_panel_shows_the_end_of_long_thoughts_and_nothing_that_steers() -> None:
    status = Status(plan=(PlanItem(id="1", title=HOSTILE),))
    long = "first\n" * 200 + "\x1b[31m" + HOSTILE
    shown = "\n".join(panel(status, PanelFacts(long, (), [("error", HOSTILE)])))
    assert not {"\x1b", "\u202e", "\u200b", "\x07"} & set(shown)
    assert "👩‍💻" in shown
    assert 20 < shown.count("first") < 120


def test_an_empty_panel_says_what_will_stand_there() -> None:
    assert "will stand" in " ".join(panel(Status(), PanelFacts()))


def test_the_panel_opens_where_there_is_room_and_by_key() -> None:
    layout = Layout()
    assert layout.has_panel(120, None)
    assert not layout.has_panel(119, None)
    assert layout.has_panel(60, True)
    assert not layout.has_panel(200, False)
    assert not Layout(panel=False).has_panel(200, None)


def test_the_first_frame_knows_file_environment_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        "[tui]\ntheme = 'ocean'\nmouse = false\n[tui.layout]\nheader = false\npanel = 'nonsense'\n"
        "panel_width = 40\nsections = ['plan', 'x']\n"
    )
    look = early_look(
        file, {"AAR_TUI__SCREEN_READER": "true", "AAR_TUI__THEME": ""}, {}, ["tui.layout.footer=false"]
    )
    assert look == Look(
        theme="ocean",
        mouse=False,
        screen_reader=True,
        layout=Layout(header=False, footer=False, panel_width=40, sections=("plan",)),
    )
    assert early_look(file, {}, {"tui.theme": "sand"}, []).theme == "sand"
    file.write_text("not toml = [")
    assert early_look(file, {}, {}, []) == Look()
    assert early_look(tmp_path / "none.toml", {}, {}, []) == Look()


def test_the_branch_is_read_from_files_alone(tmp_path: Path) -> None:
    assert branch_of(tmp_path) == ""
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/feature/x\n")
    assert branch_of(tmp_path) == "feature/x"
    (git / "HEAD").write_text("a" * 40 + "\n")
    assert branch_of(tmp_path) == "a" * 8
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {git}\n")
    assert branch_of(tree) == "a" * 8
    (git / "HEAD").write_bytes(b"\xff\x00")
    assert branch_of(tmp_path) == ""


@pytest.mark.parametrize(
    ("environ", "depth"),
    [
        ({"TERM": "xterm-256color"}, 256),
        ({"TERM": "screen"}, 16),
        ({"TERM": "xterm-kitty"}, 256),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, 1 << 24),
        ({}, 16),
    ],
)
def test_the_depth_of_colours_is_told_by_the_environment(environ: dict[str, str], depth: int) -> None:
    assert colour_depth(environ) == depth


def test_what_terminals_answer_is_read() -> None:
    assert parse_colour("ffff/8080/0000") == (255, 128, 0)
    assert parse_colour("f/0/f") == (255, 0, 255)
    assert parse_colour("ff/00") is None
    assert parse_colour("gg/00/00") is None
    assert from_environment({"COLORFGBG": "0;15"}) == (255, 255, 255)
    assert from_environment({"COLORFGBG": "15;0"}) == (0, 0, 0)
    assert from_environment({}) is None


@given(st.text(max_size=300))
def test_no_title_or_notice_can_leave_its_sequence(text: str) -> None:
    for sequence in (title_sequence(text), call_sequence("osc9", text, {})):
        assert sequence.count("\x1b") == 1
        assert sequence.count("\x07") == 1
        assert sequence.endswith("\x07")
        assert all(ord(char) >= 32 for char in sequence[1:-1])


def test_a_call_fits_the_terminal() -> None:
    assert call_sequence("auto", "x", {"TERM": "xterm-256color"}) == "\x07"
    assert call_sequence("auto", "x", {"TERM": "xterm-kitty"}).startswith("\x1b]9;")
    assert call_sequence("auto", "x", {"TERM": "xterm-kitty", "TMUX": "1"}) == "\x07"
    assert call_sequence("off", "x", {}) == ""
