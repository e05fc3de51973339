"""Open questions on the screen: what is shown, which keys decide, and that no key decides too early."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual import events
from textual.app import App, ComposeResult
from textual.widgets import Static

from aar.protocol.events import ApprovalRequest
from aar.safety.sanitize import sanitize
from aar.transports.tui.approvals import ApprovalPanel, panel, view
from aar.transports.tui.approvals.input import AnswerInput
from aar.transports.tui.approvals.lines import LinesView, fold
from aar.transports.tui.prompt import PromptArea
from tests.tui.screens import until

ALL = ("once", "session", "project", "user")


def asked(tool: str = "bash", request_id: str = "r1", **fields: Any) -> ApprovalRequest:
    arguments = fields.pop("arguments", {"command": "rm -r build"})
    defaults: dict[str, Any] = {
        "wall": "bubblewrap",
        "why": {"rule": None, "reasons": ["rm is not plainly read-only"]},
        "proposed_rule": "bash(rm -r build)",
        "scopes": ("once", "session"),
    }
    return ApprovalRequest(
        request_id=request_id,
        call_id=f"call-{request_id}",
        tool_name=tool,
        arguments=arguments,
        **{**defaults, **fields},
    )


def question(options: list[str], request_id: str = "q1") -> ApprovalRequest:
    arguments = {"question": "Which colour?", "options": options}
    return asked("ask_user", request_id, arguments=arguments, proposed_rule=None, scopes=("once",))


# --- what is told ----------------------------------------------------------------------------------------


def told(request: ApprovalRequest) -> str:
    return "\n".join(line.text for line in view.lines(request))


def test_a_command_is_told_line_by_line_with_every_other_argument() -> None:
    request = asked(arguments={"command": "echo a\nrm b", "timeout_s": 5})
    assert told(request) == "$ echo a\n  rm b\ntimeout_s: 5"


def test_an_edit_is_told_as_what_goes_and_what_comes() -> None:
    arguments = {"path": "a.py", "old_text": "x\ny", "new_text": "x\nz", "replace_all": False}
    request = asked("edit_file", arguments=arguments)
    assert view.headline(request) == "Edit a file (edit_file): a.py"
    assert told(request) == "  x\n- y\n+ z"
    assert [line.kind for line in view.lines(request)] == ["text", "remove", "add"]


def test_an_argument_is_left_out_only_where_it_says_nothing() -> None:
    arguments = {"path": "a.py", "old_text": "x", "new_text": "y", "replace_all": True}
    assert told(asked("edit_file", arguments=arguments)) == "replace_all: true\n- x\n+ y"
    assert told(asked(arguments={"command": "ls", "background": False})) == "$ ls"
    assert told(asked(arguments={"command": "ls", "background": True})) == "$ ls\nbackground: true"
    assert told(asked(arguments={"command": "ls", "background": 0})) == "$ ls\nbackground: 0"
    assert told(asked("mcp__x", arguments={"background": False})) == "background: false"


def test_the_end_of_a_file_is_told_and_is_no_line() -> None:
    def written(content: str) -> str:
        return told(asked("write_file", arguments={"path": "a", "content": content, "allow_shrink": False}))

    assert written("1\n2\n") == "+ 1\n+ 2"
    assert written("1\n\n") == "+ 1\n+ "
    assert written("1") == "+ 1\nno line end after the last line"
    assert written("") == "an empty file"
    edit = {"path": "a", "old_text": "1\n", "new_text": "2\n"}
    assert told(asked("edit_file", arguments=edit)) == "- 1\n+ 2"
    assert told(asked("edit_file", arguments={**edit, "new_text": "1"})) == "  1\n- "


@example("aaa \u200d\u200daa世世", 5)
@given(st.text(alphabet="ab 世\u0301\u200d", max_size=200), st.integers(4, 30))
def test_folded_rows_fit_and_nothing_is_lost(text: str, width: int) -> None:
    rows = fold(text, width)
    assert "".join(rows) == text
    assert all(cell_len(row) <= width for row in rows)


def test_rows_break_between_words() -> None:
    assert fold("git commit --message words", 14) == ["git commit ", "--message ", "words"]
    assert fold("x" * 30, 14) == ["x" * 14, "x" * 14, "xx"]


def test_a_patch_a_file_and_an_unknown_tool_are_told_whole() -> None:
    patch = "*** Update File: a\n@@\n-b\n+c\n d"
    assert told(asked("apply_patch", arguments={"patch": patch})) == patch
    assert told(asked("write_file", arguments={"path": "a", "content": "1\n2\n"})) == "+ 1\n+ 2"
    assert told(asked("mcp__x", arguments={"a": [1, "ü"], "b": "1\n2"})) == 'a: [1, "ü"]\nb:\n  1\n  2'
    assert told(asked("mcp__x", arguments={})) == "no arguments"
    assert told(asked("mcp__x", arguments={}, diff="--- a\n+++ b")).endswith("--- a\n+++ b")


@given(
    st.dictionaries(st.text(max_size=9), st.text(max_size=60), max_size=4),
    st.sampled_from(["bash", "edit_file", "write_file", "apply_patch", "other"]),
)
def test_nothing_of_an_argument_is_left_out_and_nothing_reaches_the_terminal(
    arguments: dict[str, str], tool: str
) -> None:
    names = {"bash": "command", "edit_file": "new_text", "write_file": "content", "apply_patch": "patch"}
    arguments |= {"old_text": "a\nb"} if tool == "edit_file" else {}
    arguments |= {names[tool]: "".join(arguments.values())} if tool in names else {}
    request = asked(tool, arguments=arguments)
    text = f"{view.headline(request)}\n{told(request)}"
    assert sanitize(text) == text
    for value in arguments.values():
        for line in value.split("\n"):
            assert sanitize(line, keep_newlines=False).expandtabs(4) in text


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=60) | st.integers() | st.booleans(), max_size=4))
def test_arguments_that_are_not_changed_while_edited_stay_the_same(arguments: dict[str, Any]) -> None:
    for tool in ("bash", "other"):
        request = asked(tool, arguments=arguments)
        text = view.editable(request)
        assert sanitize(text) == text
        if text.strip():
            assert view.edited(request, text) == request.arguments


def test_reasons_name_the_rule_with_its_layer() -> None:
    why = {"rule": {"text": "bash(rm *)", "layer": "user"}, "reasons": ["rule bash(rm *)", "it \x1b removes"]}
    assert view.reasons(asked(why=why)) == "rule bash(rm *) (user); it ␛ removes"
    many = {"rule": None, "reasons": [f"reason {number}" for number in range(9)]}
    assert view.reasons(asked(why=many)) == "reason 0; reason 1; reason 2; and 6 reasons more"
    assert view.wall(asked(wall="none")).startswith("no wall")
    assert "bubblewrap" in view.wall(asked())


# --- keys ------------------------------------------------------------------------------------------------


class Desk(App[None]):
    """A panel above a prompt."""

    CSS = "PromptArea { height: 3; border: none; }"

    def __init__(self) -> None:
        super().__init__()
        self.panel, self.area = ApprovalPanel(), PromptArea()
        self.panel.last_key = lambda: self.area.last_key
        self.panel.may_take_focus = lambda: self.focused is self.area
        self.answers: list[tuple[str, str, dict[str, Any]]] = []

    def compose(self) -> ComposeResult:
        yield self.panel
        yield self.area

    def on_mount(self) -> None:
        self.area.focus()

    def on_approval_panel_answered(self, message: ApprovalPanel.Answered) -> None:
        self.answers.append((message.request_id, message.decision, message.details))

    def on_approval_panel_left(self) -> None:
        self.area.focus()


async def show(pilot: Any, *requests: ApprovalRequest, focus: bool = True) -> None:
    pilot.app.panel.show(requests)
    await pilot.pause()
    await pilot.pause()
    if focus:
        pilot.app.panel.focus()
        await pilot.pause()


def shown(app: Desk, part: str) -> str:
    return str(app.panel.query_one(f"#approval-{part}", Static).content)


@pytest.mark.parametrize(
    ("key", "decision", "details"),
    [
        ("y", "allow", {"scope": "once"}),
        ("s", "allow", {"scope": "session", "rule": "bash(rm -r build)"}),
        ("a", "allow", {"scope": "project", "rule": "bash(rm -r build)"}),
        ("u", "allow", {"scope": "user", "rule": "bash(rm -r build)"}),
        ("n", "reject", {}),
    ],
)
async def test_one_key_decides(key: str, decision: str, details: dict[str, Any]) -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await show(pilot, asked(scopes=ALL))
        await pilot.press(key)
        await pilot.pause()
        assert app.answers == [("r1", decision, details)]


async def test_always_is_taken_only_where_it_is_offered() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await show(pilot, asked())
        assert "everywhere" not in shown(app, "keys")
        await pilot.press("a")
        await pilot.pause()
        assert app.answers == []
        assert "Nothing wider can be allowed for this call: y once or s session." in shown(app, "keys")
        app.panel.show([])
        await show(pilot, asked(request_id="r2", scopes=("once", "user")))
        await pilot.press("a")
        await pilot.pause()
        assert app.answers == [("r2", "allow", {"scope": "user", "rule": "bash(rm -r build)"})]


async def test_keys_go_to_the_draft_until_nothing_was_typed_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(panel, "STILL_S", 600)
    app = Desk()
    async with app.run_test() as pilot:
        await show(pilot, asked(), focus=False)
        for _ in range(5):
            await pilot.press("y")
            await pilot.pause(0.02)
        assert app.answers == []
        assert app.area.text == "yyyyy"
        monkeypatch.setattr(panel, "STILL_S", 0.1)
        app.panel._wait_for_stillness()
        await until(pilot, lambda: app.panel.has_focus)
        await pilot.press("y")
        await pilot.pause()
        assert app.answers == [("r1", "allow", {"scope": "once"})]
        assert app.area.text == "yyyyy"


async def test_yes_is_not_taken_before_the_whole_text_was_on_the_screen() -> None:
    app = Desk()
    async with app.run_test(size=(60, 20)) as pilot:
        content = "\n".join(f"line {number}" for number in range(100))
        await show(pilot, asked("write_file", arguments={"path": "a", "content": content}))
        assert "more lines" in shown(app, "head")
        await pilot.press("y", "s")
        await pilot.pause()
        assert app.answers == []
        assert "Read to the end first" in shown(app, "keys")
        for _ in range(60):
            if app.panel.query_one(LinesView).seen:
                break
            await pilot.press("space")
            await pilot.pause()
        assert "more lines" not in shown(app, "head")
        await pilot.press("y")
        await pilot.pause()
        assert app.answers == [("r1", "allow", {"scope": "once"})]


async def test_having_seen_a_short_question_is_not_having_seen_the_long_one_after_it() -> None:
    app = Desk()
    async with app.run_test(size=(60, 20)) as pilot:
        long = asked(request_id="r2", arguments={"command": "x\n" * 100})
        await show(pilot, asked(), long)
        await pilot.press("tab", "y", "s")
        await pilot.pause()
        await pilot.press("y")
        await pilot.pause()
        assert app.answers == []
        await pilot.press("tab", "y")
        await pilot.pause()
        assert [answer[0] for answer in app.answers] == ["r1"]
        await show(pilot, long)
        await pilot.press("tab", "y", "end")
        await pilot.pause()
        await pilot.press("y")
        await pilot.pause()
        assert [answer[0] for answer in app.answers] == ["r1", "r2"]


async def test_no_can_be_said_before_all_was_read() -> None:
    app = Desk()
    async with app.run_test(size=(60, 20)) as pilot:
        await show(pilot, asked(arguments={"command": "x\n" * 100}))
        await pilot.press("n")
        await pilot.pause()
        assert app.answers == [("r1", "reject", {})]


async def test_a_long_line_is_wrapped_and_never_cut() -> None:
    app = Desk()
    async with app.run_test(size=(40, 30)) as pilot:
        await show(pilot, asked(arguments={"command": "echo " + "世" * 60 + " END"}))
        lines = app.panel.query_one(LinesView)
        text = "".join(lines.render_line(row).text.rstrip() for row in range(lines.size.height))
        assert text.count("世") == 60
        assert text.endswith("END")


async def test_each_of_several_answers_reaches_its_own_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel, "STILL_S", 0)
    app = Desk()
    requests = [asked(request_id=f"r{number}") for number in range(3)]
    async with app.run_test() as pilot:
        await show(pilot, *requests)
        assert "1 of 3" in shown(app, "head")
        await pilot.press("tab", "n")
        await pilot.pause()
        assert app.answers == [("r1", "reject", {})]
        await show(pilot, requests[0], requests[2])
        await pilot.press("tab", "y")
        await show(pilot, *[one for one in requests[::2] if one.request_id != app.answers[-1][0]])
        await pilot.press("n")
        await pilot.pause()
        assert sorted(answer[0] for answer in app.answers) == ["r0", "r1", "r2"]
        app.panel.show([])
        await pilot.pause()
        assert not app.panel.display
        assert app.area.has_focus


async def test_a_key_pressed_twice_does_not_answer_the_question_that_comes_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(panel, "STILL_S", 600)
    app = Desk()
    first, second = asked(request_id="r1"), asked(request_id="r2")
    async with app.run_test() as pilot:
        await show(pilot, first, second)
        await pilot.press("y")
        await show(pilot, second)
        await pilot.press("y", "n", "s", "f", "e")
        await pilot.pause()
        assert [answer[0] for answer in app.answers] == ["r1"]
        assert app.panel.has_focus
        await pilot.press("tab", "y")
        await pilot.pause()
        assert [answer[0] for answer in app.answers] == ["r1", "r2"]


async def test_what_is_typed_into_the_box_of_a_question_that_was_withdrawn_answers_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(panel, "STILL_S", 600)
    app = Desk()
    async with app.run_test() as pilot:
        await show(pilot, asked(request_id="r1"), asked(request_id="r2"))
        await pilot.press("f", *"wh")
        await show(pilot, asked(request_id="r2"), focus=False)
        await until(pilot, lambda: app.panel.has_focus)
        await pilot.press(*"y not")
        await pilot.pause()
        assert app.answers == []
        await pilot.press("tab", "y")
        await pilot.pause()
        assert [answer[0] for answer in app.answers] == ["r2"]


async def test_another_question_does_not_take_the_place_of_the_one_that_is_read() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        first, second = asked(request_id="r1"), asked(request_id="r2")
        await show(pilot, second)
        await show(pilot, first, second)
        assert app.panel.current is second


async def test_no_with_a_reason_sends_the_reason() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await show(pilot, asked())
        await pilot.press("f", *"use yarn", "enter")
        await pilot.pause()
        assert app.answers == [("r1", "reject", {"feedback": "use yarn"})]


async def test_a_command_is_edited_as_it_is_and_runs_so() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await show(pilot, asked(arguments={"command": "ls", "timeout_s": 5}))
        await pilot.press("e", *" -l", "enter")
        await pilot.pause()
        edited = {"command": "ls -l", "timeout_s": 5}
        assert app.answers == [("r1", "allow", {"edited_arguments": edited})]


async def test_arguments_that_are_no_json_are_told_and_nothing_typed_is_lost() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await show(pilot, asked("web_fetch", arguments={"url": "http://a"}))
        await pilot.press("e", "x", "enter")
        await pilot.pause()
        assert app.answers == []
        assert "not JSON" in shown(app, "keys")
        await pilot.press("escape", "e")
        box = app.panel.query_one(AnswerInput)
        assert box.text.endswith("x")
        await pilot.press("backspace", "enter")
        await pilot.pause()
        assert app.answers == [("r1", "allow", {"edited_arguments": {"url": "http://a"}})]


async def test_the_rule_can_be_changed_and_an_error_of_it_is_shown() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await show(pilot, asked())
        await pilot.press("r", "ctrl+u", *"bash(", "enter", "s")
        await pilot.pause()
        assert app.answers == [("r1", "allow", {"scope": "session", "rule": "bash("})]
        app.panel.show_error("r1", "bash( is no rule.")
        assert "bash( is no rule." in shown(app, "keys")
        assert "s also allows later: bash(" in shown(app, "why")
        await pilot.press("r", *"ls)", "enter", "s")
        await pilot.pause()
        assert app.answers[-1] == ("r1", "allow", {"scope": "session", "rule": "bash(ls)"})


async def test_i_goes_back_to_the_prompt_and_the_question_stays() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        for key in ("i", "ctrl+down"):
            await show(pilot, asked())
            await pilot.press(key)
            await pilot.pause()
            assert app.area.has_focus
            assert app.panel.display
        assert app.answers == []


async def test_what_is_typed_behind_i_is_text_for_the_prompt_and_no_answer() -> None:
    app = Desk()
    app.panel.go_back = lambda: app.screen.set_focus(app.area)
    async with app.run_test() as pilot:
        await show(pilot, asked())
        for letter in "iyes":
            app.post_message(events.Key(letter, letter))
        await until(pilot, lambda: app.area.text == "yes")
        assert app.answers == []


async def test_tab_pressed_a_moment_after_the_question_took_the_keys_does_not_lose_the_answer() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await show(pilot, asked())
        await pilot.press("tab", "y")
        await pilot.pause()
        assert app.answers == [("r1", "allow", {"scope": "once"})]
        assert app.area.text == ""


async def test_the_keys_stand_in_two_rows_of_yes_and_no_where_one_is_too_short() -> None:
    app = Desk()
    async with app.run_test(size=(80, 24)) as pilot:
        await show(pilot, asked(scopes=ALL))
        rows = shown(app, "keys").split("\n")
        assert rows == [
            "y once · s session · a project · u everywhere · r rule",
            "e edit · n no · f no, because · i prompt",
        ]
        assert "s, a, u also allow later: bash(rm -r build)" in shown(app, "why")


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["2"], "green"),
        (["down", "down", "enter"], "blue"),
        (["enter"], "red"),
        (["t", *"teal", "enter"], "teal"),
    ],
)
async def test_a_question_of_the_model_is_answered_with_an_option_or_in_words(
    keys: list[str], answer: str
) -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await show(pilot, question(["red", "green", "blue"]))
        await pilot.press(*keys)
        await pilot.pause()
        assert app.answers == [("q1", "allow", {"feedback": answer})]


async def test_a_question_without_options_opens_the_box_and_y_does_not_answer_it() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await show(pilot, question([]))
        await pilot.press("y")
        await pilot.press("escape")
        await pilot.pause()
        assert "t type an answer" in shown(app, "keys")
        await pilot.press("y", "s", "e", "enter", *"es", "enter")
        await pilot.pause()
        assert app.answers == [("q1", "allow", {"feedback": "yes"})]


@pytest.mark.parametrize(
    ("request_", "key"),
    [
        (asked(arguments={"command": json.dumps(list(range(2000)))}), ""),
        (asked(why={"rule": None, "reasons": ["x" * 500 + " is not plainly read-only"] * 9}), ""),
        (asked(proposed_rule="bash(" + "rule " * 200 + ")", scopes=ALL), ""),
        (asked("web_fetch", arguments={"url": "https://example.org/" + "a/" * 400}, scopes=ALL), ""),
        (asked("write_file", arguments={"path": "a", "content": "line\n" * 300}, scopes=ALL), "e"),
        (asked(proposed_rule="bash(" + "rule " * 200 + ")", scopes=ALL), "r"),
    ],
    ids=["command", "reasons", "rule", "address", "edit", "edit-rule"],
)
async def test_the_panel_leaves_room_on_a_small_screen(request_: ApprovalRequest, key: str) -> None:
    app = Desk()
    async with app.run_test(size=(60, 20)) as pilot:
        await show(pilot, request_)
        await pilot.press(*([key] if key else []))
        await pilot.pause()
        await pilot.pause()
        keys = app.panel.query_one("#approval-keys", Static)
        assert app.panel.query_one(LinesView).size.height >= 1
        assert keys.region.bottom <= app.panel.region.bottom <= app.area.region.y
        assert app.area.region.bottom <= 20
        assert app.panel.size.height <= 15


async def test_what_is_too_long_to_tell_beside_the_text_says_where_all_of_it_is() -> None:
    app = Desk()
    async with app.run_test(size=(60, 20)) as pilot:
        many = [f"reason {number} of which there is a lot to tell here" for number in range(4)]
        rule = "bash(" + "rule " * 200 + ")"
        await show(pilot, asked(why={"rule": None, "reasons": many}, proposed_rule=rule, scopes=ALL))
        rows = shown(app, "why").split("\n")
        assert rows[0].startswith("inside the wall")
        assert any(row.endswith("… /why") for row in rows)
        assert rows[-1].endswith("… r shows it")
        address = "https://example.org/" + "a/" * 40
        await show(pilot, asked("web_fetch", request_id="r2", arguments={"url": address}))
        await pilot.pause()
        assert address in "".join(line.text for line in view.lines(app.panel._requests[-1]))


@pytest.mark.parametrize("tool", ["write_file", "edit_file", "apply_patch"])
def test_the_new_text_of_a_file_is_edited_as_it_is(tool: str) -> None:
    name = {"write_file": "content", "edit_file": "new_text", "apply_patch": "patch"}[tool]
    request = asked(tool, arguments={"path": "a.go", "old_text": "b", name: "\tone\n\ttwo\n"})
    assert view.editable(request) == "\tone\n\ttwo\n"
    assert view.edited(request, "three") == {**request.arguments, name: "three"}
    hidden = asked(tool, arguments={"path": "a", name: "one\x1btwo"})
    assert "\x1b" not in view.editable(hidden)
    assert view.edited(hidden, view.editable(hidden)) == hidden.arguments
