"""The transcript on a screen: every kind of block, every key, the mouse, and what it tells the app."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.message import Message
from textual.pilot import Pilot
from textual.strip import Strip

from aar.protocol.errors import UsageError
from aar.protocol.events import PlanItem
from aar.safety.spawn import ProcessSpawner
from aar.transports.tui.blocks import (
    AnswerBlock,
    AnyBlock,
    ErrorBlock,
    MarkBlock,
    NoticeBlock,
    PlanBlock,
    SubagentBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
)
from aar.transports.tui.presenter import Changes
from aar.transports.tui.transcript import Transcript, stream
from aar.transports.tui.transcript.document import KEPT_LINES
from aar.transports.tui.transcript.outside import editor_argv, open_link
from aar.transports.tui.transcript.spans import Link
from tests.tui.screens import assert_screen, screen_text, until

DIFF = """--- a/src/a.py
+++ b/src/a.py
@@ -10,2 +10,3 @@
 def f(x):
-    return x + 1
+    return x + 2
+    # 日本語 👍
"""
ANSWER = "Fixed in `src/a.py:11`:\n\n```python\ndef f(x):\n    return x + 2\n```\n\n- one\n- [x] two\n"
HOSTILE = "[bold]not markup[/] \x1b[31mred\x1b]52;c;aGk=\x07 a\u202eb é e\u0301 日本語 👍🏽"


def answer(key: int, text: str, **more: Any) -> AnswerBlock:
    block = AnswerBlock(key, **more)
    block.add(text)
    return block


def thought(key: int, text: str, **more: Any) -> ThinkingBlock:
    block = ThinkingBlock(key, **more)
    block.add(text)
    return block


def every_kind() -> list[AnyBlock]:
    return [
        UserBlock(1, text="Fix the failing test\nin src/a.py", attachments=("shot.png",)),
        thought(2, "The sum is off by one.", seconds=3.24),
        answer(3, "OK"),
        ToolBlock(4, name="read_file", arguments={"path": "src/a.py", "start_line": 10, "end_line": 40},
                  status="done", output="a\nb\nc", duration_ms=12),
        ToolBlock(5, name="bash", arguments={"command": "pytest -q"}, status="done", exit_code=1,
                  output="\n".join(f"line {n}" for n in range(9)), duration_ms=2300),
        ToolBlock(6, name="edit_file", arguments={"path": "src/a.py"}, status="done", diff=DIFF),
        PlanBlock(7, items=(PlanItem(id="1", title="one", status="done"),
                            PlanItem(id="2", title="two", status="in_progress"), PlanItem(id="3", title="three"))),
        SubagentBlock(8, profile="explore", task="Look for callers", live=True, activity="grep", steps=3),
        NoticeBlock(9, level="warning", message="No wall holds here", count=2),
        ErrorBlock(10, kind="auth", message="The key was refused", advice="Set the key with /model."),
        MarkBlock(11, kind="compaction", label="Compacted: 100 → 20 tokens", detail="what was said"),
        answer(12, ANSWER),
        ToolBlock(13, name="mcp__x__y", arguments={"q": HOSTILE}, status="denied", feedback="not now"),
        UserBlock(14, text=HOSTILE),
    ]  # fmt: skip


class Screen(App[None]):
    def __init__(self, blocks: list[AnyBlock]) -> None:
        super().__init__()
        self.blocks = blocks
        self.told: list[Message] = []

    def compose(self) -> ComposeResult:
        yield Transcript()

    @property
    def view(self) -> Transcript:
        return self.query_one(Transcript)

    def on_mount(self) -> None:
        self.view.focus()
        self.call_after_refresh(lambda: self.view.apply(Changes(reset=True), self.blocks))

    def add(self, *blocks: AnyBlock) -> None:
        self.blocks.extend(blocks)
        self.view.apply(Changes(appended=list(blocks)), self.blocks)

    def on_transcript_copy_wanted(self, message: Transcript.CopyWanted) -> None:
        self.told.append(message)

    def on_transcript_link_opened(self, message: Transcript.LinkOpened) -> None:
        self.told.append(message)

    def on_transcript_older_wanted(self, message: Transcript.OlderWanted) -> None:
        self.told.append(message)

    def on_transcript_left(self, message: Transcript.Left) -> None:
        self.told.append(message)


def rows(app: Screen) -> list[str]:
    """Return all rows of the screen without the cursor's bar and the thumb."""
    return [strip.text[1:-1].rstrip() for strip in app.screen._compositor.render_strips()]


Body = Callable[[Screen, Pilot[None]], Awaitable[None]]


async def on_screen(blocks: list[AnyBlock], body: Body, size: tuple[int, int] = (80, 24)) -> None:
    app = Screen(blocks)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await body(app, pilot)


def many(count: int, first: int = 1) -> list[AnyBlock]:
    return [
        UserBlock(n, text=f"prompt {n}") if n % 10 == 1 else answer(n, f"answer {n}\n\nmore of {n}")
        for n in range(first, first + count)
    ]


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (200, 50)])
async def test_every_kind_of_block_is_drawn(size: tuple[int, int]) -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        assert_screen(app, f"transcript_end_{size[0]}x{size[1]}")
        await pilot.press("g")
        await pilot.pause()
        assert_screen(app, f"transcript_top_{size[0]}x{size[1]}")

    await on_screen(every_kind(), body, size)


async def test_everything_unfolds_and_folds_again() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("F", "g")
        await pilot.pause()
        assert_screen(app, "transcript_unfolded")
        await pilot.press("F")
        assert app.view.document.fold_of(1) == "folded"

    await on_screen(every_kind(), body, (100, 60))


async def test_a_one_word_reply_costs_two_rows() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        before = app.view.document.total
        app.add(answer(3, "OK"))
        assert app.view.document.total == before + 2

    await on_screen([UserBlock(1, text="Go"), answer(2, "Well")], body)


async def test_hostile_text_reaches_the_screen_as_visible_escapes() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        shown = screen_text(app)
        assert "[bold]not markup[/]" in shown
        assert "␛[31mred␛]52;c;aGk=\\x07" in shown
        assert "\\u202e" in shown
        assert not set(shown) & set("\x1b\x07\u202e")

    await on_screen([UserBlock(1, text=HOSTILE)], body)


async def test_the_view_follows_the_end_only_while_the_user_is_there() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        app.add(answer(101, "newest"))
        await pilot.pause()
        assert "newest" in screen_text(app)
        await pilot.press("up", "up", "up")
        shown = rows(app)
        app.add(answer(102, "hidden"), answer(103, "hidden too"))
        await pilot.pause()
        after = screen_text(app)
        assert "2 new ↓" in after
        assert rows(app)[:-1] == shown[:-1]
        await pilot.press("end")
        assert "hidden too" in screen_text(app)
        assert "new ↓" not in screen_text(app)

    await on_screen(many(100), body)


async def test_a_growing_answer_below_does_not_move_what_is_read() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        live = answer(101, "start\n\n", live=True)
        app.add(live)
        await pilot.press("pageup", "pageup")
        top = rows(app)
        for n in range(40):
            live.add(f"line {n}\n\n")
            app.view.apply(Changes(changed={101}), app.blocks)
        await pilot.pause()
        assert rows(app) == top
        await pilot.press("end")
        await until(pilot, lambda: "line 39" in screen_text(app))

    await on_screen(many(100), body)


async def test_scrolling_up_over_blocks_never_drawn_does_not_jump() -> None:
    blocks: list[AnyBlock] = [answer(n, f"# head {n}\n\n" + "word " * (n * 7 % 90)) for n in range(1, 200)]

    async def body(app: Screen, pilot: Pilot[None]) -> None:
        before = rows(app)
        for _ in range(200):
            app.view.scroll_lines(-1)
            await pilot.pause(0)
            after = rows(app)
            assert after[1:] == before[:-1]
            before = after

    await on_screen(blocks, body, (60, 20))


async def test_the_top_stays_when_the_width_changes() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("pageup", "pageup", "pageup")
        place = app.view.document.find(app.view.viewport.top)[0]
        await pilot.resize_terminal(50, 24)
        await pilot.pause()
        assert app.view.document.find(app.view.viewport.top)[0] == place
        await pilot.press("end")
        await pilot.resize_terminal(70, 30)
        await pilot.pause()
        assert app.view.viewport.sticks
        assert "more of 100" in screen_text(app)

    await on_screen(many(100), body)


async def test_at_the_top_older_blocks_are_asked_for_once_and_come_without_a_jump() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("home", "up", "up")
        await pilot.pause()
        assert [type(message) for message in app.told] == [Transcript.OlderWanted]
        first = rows(app)[:-2]
        app.blocks[:0] = many(30, first=-29)
        app.view.apply(Changes(status=True), app.blocks)
        await pilot.pause()
        assert rows(app)[-len(first) :] == first or rows(app)[: len(first)] == first
        await pilot.press("home")
        await pilot.pause()
        assert "-29" in screen_text(app).splitlines()[0] or "-28" in screen_text(app)
        assert len(app.told) == 2

    await on_screen(many(60), body)


async def test_keys_move_between_blocks_and_prompts() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        assert app.view.cursor == 100
        await pilot.press("k", "k", "k")
        assert app.view.cursor == 97
        await pilot.press("j")
        assert app.view.cursor == 98
        await pilot.press("left_square_bracket")
        assert app.view.cursor == 91
        assert "prompt 91" in screen_text(app).splitlines()[0] + screen_text(app).splitlines()[1]
        await pilot.press("left_square_bracket", "right_square_bracket")
        assert app.view.cursor == 91
        assert "▎" in screen_text(app)

    await on_screen(many(100), body)


async def test_the_bar_stands_where_keys_act_also_after_the_view_has_moved() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        def bars() -> list[str]:
            shown = app.screen._compositor.render_strips()
            return [strip.text[1:-1].strip() for strip in shown if strip.text.startswith("▎")]

        assert bars()[-1] == "more of 100"
        await pilot.press("pageup", "pageup")
        await pilot.pause()
        lowest = screen_text(app).splitlines()[-1].strip("▎▐ ")
        assert lowest in bars()
        assert app.view.cursor == int(lowest.split()[-1])
        await pilot.press("home", "end")
        await pilot.pause()
        assert bars()[-1] == "more of 100"
        app.add(answer(101, "word\n\n" * 30))
        await pilot.pause()
        assert app.view.cursor == 101
        assert bars()

    await on_screen(many(100), body)


async def test_enter_folds_one_block_and_f_its_kind() -> None:
    def commands() -> list[AnyBlock]:
        return [
            ToolBlock(n, name="bash", arguments={"command": f"run {n}"}, status="done", output=f"out {n}")
            for n in range(1, 4)
        ]

    async def body(app: Screen, pilot: Pilot[None]) -> None:
        assert "out" not in screen_text(app)
        await pilot.press("enter")
        assert "out 3" in screen_text(app)
        assert "out 2" not in screen_text(app)
        await pilot.press("space")
        assert "out" not in screen_text(app)
        await pilot.press("f")
        assert "out 1" in screen_text(app)
        await pilot.press("f")
        assert "out" not in screen_text(app)

    await on_screen(commands(), body)


async def test_search_marks_unfolds_and_steps() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        app.add(
            ToolBlock(101, name="bash", arguments={"command": "x"}, status="done", output="a needle here")
        )
        await pilot.press("slash", *"needle")
        assert "/needle▏ block 1 of 1" in screen_text(app)
        assert "Enter keeps it, Esc ends" in screen_text(app)
        assert "a needle here" in screen_text(app)
        await pilot.press("backspace", "ctrl+u", *"of 5", "enter")
        assert app.view.finder.count == 10 - 1 + 1
        first = app.view.cursor
        assert "/of 5 block" in screen_text(app).splitlines()[0]
        await pilot.press("n")
        assert app.view.cursor != first
        await pilot.press("N")
        assert app.view.cursor == first
        await pilot.press("escape")
        assert app.view.finder.query == ""
        assert not app.told
        await pilot.press("slash", *"nowhere")
        assert "nothing found" in screen_text(app)
        app.set_focus(None)
        await pilot.pause()
        assert "nowhere▏" not in screen_text(app)
        app.view.focus()
        await pilot.press("slash", *"nowhere")
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert isinstance(app.told[-1], Transcript.Left)

    await on_screen(many(100), body)


async def test_what_is_found_is_marked_also_in_an_answer_that_still_comes() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        live = answer(2, "a needle\n\n", live=True)
        app.add(live)
        await pilot.press("slash", *"needle", "enter")
        live.add("another needle\n\n")
        app.view.apply(Changes(changed={2}), app.blocks)
        await pilot.pause()
        place = app.view.document.place_of(2)
        assert place is not None
        await until(pilot, lambda: len(app.view.finder.spans(place)) == 2)
        strips = app.screen._compositor.render_strips()
        marked = [s for strip in strips for s in strip if s.text == "needle"]
        assert len(marked) == 2
        assert len({str(s.style) for s in marked}) == 2

    await on_screen([UserBlock(1, text="look")], body)


async def test_a_block_its_code_or_a_selection_is_copied() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("y", "c")
        await pilot.press("v", "right", "left", "down", "up", "down", "y")
        await pilot.press("v", "escape")
        await pilot.pause()
        texts = [m.text for m in app.told if isinstance(m, Transcript.CopyWanted)]
        assert texts[0] == ANSWER
        assert texts[1] == "def f(x):\n    return x + 2"
        assert texts[2] == "Fixed in src/a.py:11:\n"
        assert app.view.selected_text == ""

    await on_screen([answer(1, ANSWER)], body)


async def test_o_opens_the_first_link_and_a_click_the_one_under_it() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.press("o")
        row = next(n for n, line in enumerate(screen_text(app).splitlines()) if "src/a.py:11" in line)
        await pilot.click(Transcript, offset=(screen_text(app).splitlines()[row].index("a.py"), row))
        await pilot.pause()
        links = [m.link for m in app.told if isinstance(m, Transcript.LinkOpened)]
        assert [(link.path, link.line) for link in links] == [("src/a.py", 11)] * 2

    await on_screen([answer(1, ANSWER)], body)


async def test_the_mouse_selects_scrolls_and_unfolds() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        await pilot.mouse_down(Transcript, offset=(3, 0))
        await pilot.hover(Transcript, offset=(8, 0))
        await pilot.mouse_up(Transcript, offset=(8, 0))
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert [m.text for m in app.told if isinstance(m, Transcript.CopyWanted)] == ["alpha"]
        await pilot.click(Transcript, offset=(5, 2))
        await pilot.pause()
        assert "hidden output" in screen_text(app)

    blocks = [answer(1, "alpha beta"), ToolBlock(2, name="bash", status="done", output="hidden output")]
    await on_screen(blocks, body)


async def test_a_running_command_shows_the_end_of_its_output() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        block = ToolBlock(1, name="bash", arguments={"command": "make"}, status="running", live=True)
        app.add(block)
        for n in range(30):
            block.add_progress(f"step {n}\n")
        app.view.apply(Changes(changed={1}), app.blocks)
        await pilot.pause()
        shown = screen_text(app)
        assert "Running make" in shown
        assert "step 29" in shown
        assert "step 24" not in shown
        block.status, block.live, block.output, block.duration_ms = "done", False, "all", 61_000
        app.view.apply(Changes(changed={1}), app.blocks)
        await pilot.pause()
        assert "Ran make · 1 min 01 s" in screen_text(app)

    await on_screen([], body)


async def test_a_pasted_megabyte_shows_its_beginning_until_it_is_unfolded() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        shown = screen_text(app)
        assert "pasted line 0" in shown
        assert "(Enter shows all)" in shown
        assert app.view.document.total < 20
        await pilot.press("enter")
        assert app.view.document.total > 40_000
        await pilot.press("end")
        assert "pasted line 49999" in screen_text(app)

    text = "\n".join(f"pasted line {n}" for n in range(50_000))
    await on_screen([UserBlock(1, text=text)], body)


async def test_another_theme_is_drawn_at_once() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        def looks() -> set[str]:
            strips = app.screen._compositor.render_strips()
            return {str(segment.style) for strip in strips for segment in strip if "OK" in segment.text}

        before = looks()
        app.theme = "textual-light"
        await pilot.pause()
        assert looks().isdisjoint(before)
        assert "OK" in screen_text(app)

    await on_screen([answer(1, "OK")], body)


async def test_blocks_that_went_away_are_gone_from_the_screen() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        app.add(answer(11, "gone", live=True), answer(12, "kept"))
        del app.blocks[10]
        app.view.apply(Changes(removed={11}), app.blocks)
        await pilot.pause()
        assert "gone" not in screen_text(app)
        assert "kept" in screen_text(app)

    await on_screen(many(10), body)


async def test_an_answer_streams_fast_beside_five_thousand_blocks_and_memory_is_bounded() -> None:
    async def body(app: Screen, pilot: Pilot[None]) -> None:
        view, source = app.view, (ANSWER + "\nSome text that follows.\n\n") * 300
        live = answer(6_000, "", live=True)
        app.add(live)
        started, slowest = time.process_time(), 0.0
        for end in range(0, len(source), 1_500):
            live.add(source[end : end + 1_500])
            frame = time.process_time()
            view.apply(Changes(changed={6_000}), app.blocks)
            slowest = max(slowest, time.process_time() - frame)
        live.settle(source * 3, 1)
        view.apply(Changes(changed={6_000}), app.blocks)
        frames = 0
        while view.document.unfinished:
            view.settle()
            frame = time.process_time()
            view.render_lines(view.region.reset_offset)
            # Looking at an answer that is not drawn whole yet draws none of it.
            slowest, frames = max(slowest, time.process_time() - frame), frames + 1
        assert frames > 3
        assert time.process_time() - started < 40
        assert slowest < 2
        appended = time.process_time()
        app.add(answer(6_001, "done"))
        assert time.process_time() - appended < 2
        for _ in range(300):
            view.scroll_lines(-40)
        assert view.document.kept_lines <= 2 * KEPT_LINES

    await on_screen(many(5_000), body, (120, 40))


@pytest.mark.parametrize(
    ("editor", "argv"),
    [
        ("vim", ("vim", "+7", "/w/a.py")),
        ("code", ("code", "--goto", "/w/a.py:7")),
        ("hx", ("hx", "/w/a.py:7")),
        ("strange", ("strange", "/w/a.py")),
    ],
)
def test_each_editor_is_told_the_line_in_its_own_way(editor: str, argv: tuple[str, ...]) -> None:
    assert editor_argv((editor,), Path("/w/a.py"), 7) == argv
    assert editor_argv((editor,), Path("/w/a.py"), None) == (editor, "/w/a.py")


async def test_a_link_to_a_file_opens_the_editor_and_one_to_nothing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "vim"
    editor.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/told\n')
    editor.chmod(0o755)
    (tmp_path / "a.py").write_text("x\n")
    monkeypatch.setenv("VISUAL", str(editor))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    spawner = ProcessSpawner(tmp_path)
    try:
        told = await open_link(Link(path="a.py", line=3), spawner, tmp_path, nullcontext)
        assert told == ""
        assert (tmp_path / "told").read_text() == f"+3 {tmp_path}/a.py\n"
        with pytest.raises(UsageError, match=r"There is no file gone\.py"):
            await open_link(Link(path="gone.py"), spawner, tmp_path, nullcontext)
        with pytest.raises(UsageError, match="No browser"):
            await open_link(Link(url="https://x.org"), spawner, tmp_path, nullcontext)
    finally:
        spawner.close()


async def test_a_slow_stream_draws_only_the_rows_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_BUDGET_S", 60)  # nothing is dear, however busy the machine
    blocks: list[AnyBlock] = [UserBlock(key, text=f"prompt {key}") for key in range(1, 5)]
    live = AnswerBlock(9, live=True)
    live.add("It begins")
    app = Screen([*blocks, live])
    async with app.run_test(size=(60, 30)) as pilot:
        await pilot.pause()
        await pilot.pause()
        assert "It begins" in screen_text(app)
        drawn: list[int] = []
        draw: Callable[..., Strip] = app.view.render_row
        monkeypatch.setattr(app.view, "render_row", lambda y, *look: drawn.append(y) or draw(y, *look))
        live.add(" and goes on")
        for _ in range(2):
            app.view.apply(Changes(changed={9}), app.blocks)
            assert "It begins and goes on" in screen_text(app)
            assert len(drawn) == 1
