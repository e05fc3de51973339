"""Keys of the prompt, in a small app that notes what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.message import Message

from aar.transports.tui.prompt import messages
from aar.transports.tui.prompt.area import PromptArea
from aar.transports.tui.prompt.chips import PastedImage
from aar.transports.tui.prompt.completion import Suggestion
from aar.transports.tui.prompt.popup import CompletionPopup
from tests.tui.test_prompt_parts import PNG

_NOTED = tuple(
    value for value in vars(messages).values() if isinstance(value, type) and issubclass(value, Message)
)


class Desk(App[None]):
    """A prompt and its suggestions."""

    def __init__(self) -> None:
        super().__init__()
        self.area = PromptArea()
        self.said: list[Message] = []

    def compose(self) -> ComposeResult:
        popup = CompletionPopup()
        self.area.attach(popup)
        yield popup
        yield self.area

    def on_mount(self) -> None:
        self.area.focus()

    async def _on_message(self, message: Message) -> None:
        if isinstance(message, _NOTED) and message not in self.said:
            self.said.append(message)
        await super()._on_message(message)

    def of(self, kind: type[Any]) -> list[Any]:
        """What was said of one kind."""
        return [message for message in self.said if isinstance(message, kind)]


async def paste(pilot: Any, text: str) -> None:
    pilot.app.area.post_message(events.Paste(text))
    await pilot.pause()


async def test_enter_sends_and_empties_the_box() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await pilot.press(*"fix it", "enter")
        await pilot.pause()
        assert [(sent.text, sent.how) for sent in app.of(messages.Submitted)] == [("fix it", "send")]
        assert app.area.text == ""


@pytest.mark.parametrize("key", ["alt+enter", "ctrl+s"])
async def test_the_queue_keys_let_a_prompt_wait(key: str) -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await pilot.press(*"later", key)
        await pilot.pause()
        assert [(sent.text, sent.how) for sent in app.of(messages.Submitted)] == [("later", "queue")]


@pytest.mark.parametrize("keys", [["ctrl+j"], ["shift+enter"], ["backslash", "enter"], ["shift+\r"]])
async def test_a_new_line_can_be_begun_in_every_terminal(keys: list[str]) -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await pilot.press("a", *keys, "b")
        assert app.area.text == "a\nb"
        assert app.of(messages.Submitted) == []


async def test_the_box_grows_to_a_third_of_the_screen() -> None:
    class Tall(Desk):
        CSS = "PromptArea { height: auto; max-height: 33vh; border: none; }"

    app = Tall()
    async with app.run_test(size=(60, 30)) as pilot:
        heights = []
        for _ in range(14):
            await pilot.press("ctrl+j")
            await pilot.pause()
            heights.append(app.area.size.height)
        assert heights[2] == 4
        assert heights[-1] == 9


async def test_a_paste_of_a_megabyte_is_a_chip_and_is_sent_whole() -> None:
    app = Desk()
    text = "".join(f"line {number} of a long paste\n" for number in range(40_000))
    assert len(text) > 1_000_000
    async with app.run_test() as pilot:
        await pilot.press(*"see ")
        await paste(pilot, text)
        assert app.area.text == "see [pasted 40,000 lines]"
        await pilot.press("enter")
        await pilot.pause()
        (sent,) = app.of(messages.Submitted)
        assert sent.text == "see " + text
        assert sent.typed == "see [pasted 40,000 lines]"


async def test_a_chip_is_one_thing_for_the_caret_and_for_deleting() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await paste(pilot, "x\n" * 30)
        await pilot.press("b", "left", "left")
        assert app.area.cursor_location == (0, 0)
        await pilot.press("right")
        assert app.area.cursor_location == (0, len("[pasted 30 lines]"))
        await pilot.press("backspace")
        assert app.area.text == "b"
        await pilot.press("ctrl+underscore")
        assert app.area.text == "[pasted 30 lines]b"
        await pilot.press("home", "delete")
        assert app.area.text == "b"


async def test_a_chip_unfolds_where_it_stands() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await paste(pilot, "x\n" * 30)
        await pilot.press("ctrl+o")
        assert app.area.text == "x\n" * 30


async def test_what_would_steer_the_terminal_stays_in_its_chip() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await paste(pilot, "red \x1b[31m text")
        assert app.area.text == "[pasted 14 characters]"
        await pilot.press("ctrl+o")
        await pilot.pause()
        assert "\x1b" not in app.area.text
        await pilot.press("enter")
        await pilot.pause()
        assert app.of(messages.Submitted)[0].text == "red \x1b[31m text"


async def test_dragged_files_are_told_to_the_app(tmp_path: Path) -> None:
    file = tmp_path / "shot.png"
    file.write_bytes(PNG)
    app = Desk()
    async with app.run_test() as pilot:
        await paste(pilot, str(file))
        assert [drop.paths for drop in app.of(messages.FilesDropped)] == [(file,)]
        app.area.add_chip(PastedImage("shot.png", "image/png", "AAAA"))
        await pilot.press(*"what is it", "enter")
        await pilot.pause()
        (sent,) = app.of(messages.Submitted)
        assert sent.text == "[image shot.png] what is it"
        assert [image.name for image in sent.images] == ["shot.png"]


async def test_mentions_are_completed_by_tab_and_never_by_enter() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await pilot.press(*"see @ap")
        await pilot.pause()
        assert app.of(messages.FilesWanted)
        app.area.set_files(["src/app.py", "b.py"])
        await pilot.press("tab")
        assert app.area.text == "see @src/app.py "
        await pilot.press(*"@ap", "enter")
        await pilot.pause()
        assert app.of(messages.Submitted)[0].text == "see @src/app.py @ap"


async def test_enter_takes_a_file_that_was_chosen_with_an_arrow() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        app.area.set_files(["aa.py", "ab.py"])
        await pilot.press(*"@a", "down", "enter")
        assert app.area.text == "@ab.py "
        await pilot.press(*"@", "escape", "enter")
        await pilot.pause()
        assert app.of(messages.Submitted)[0].text == "@ab.py @"


async def test_a_folder_is_completed_and_goes_on_to_its_files() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        app.area.set_files(["src/a.py", "src/b.py"])
        await pilot.press(*"@sr", "tab")
        assert app.area.text == "@src/"
        await pilot.press("b", "tab")
        assert app.area.text == "@src/b.py "


async def test_a_command_is_completed_with_its_help_in_sight() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        app.area.set_commands(
            [Suggestion("/model ", "/model", "Choose the model"), Suggestion("/mode ", "/mode")],
            lambda line: [Suggestion("/model gpt", "gpt")] if line.startswith("/model ") else [],
        )
        await pilot.press(*"/mod")
        popup = app.query_one(CompletionPopup)
        assert popup.is_open
        await pilot.press("down", "enter")
        assert app.area.text == "/model "
        await pilot.press("tab")
        assert app.area.text == "/model gpt"
        await pilot.press("ctrl+c", *"/mode", "enter")
        await pilot.pause()
        assert app.of(messages.Submitted)[0].text == "/mode"


async def test_going_back_through_prompts_keeps_to_what_was_typed() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        app.area.recall.set(["fix a\nb", "test", "fix c"])
        await pilot.press(*"fix", "up")
        assert app.area.text == "fix c"
        await pilot.press("up")
        assert app.area.text == "fix a\nb"
        await pilot.press("down", "down")
        assert app.area.text == "fix"


async def test_up_on_an_empty_prompt_asks_for_the_queue_first() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await pilot.press("up")
        await pilot.pause()
        assert len(app.of(messages.TakeBackWanted)) == 1


async def test_up_moves_inside_wrapped_text_before_it_goes_back() -> None:
    app = Desk()
    async with app.run_test(size=(20, 10)) as pilot:
        app.area.recall.set(["word"])
        await pilot.press(*("word " * 8))
        await pilot.press("up")
        assert app.area.text == "word " * 8


@pytest.mark.parametrize(
    ("typed", "command", "private"), [("!ls -la", "ls -la", False), ("!! env", "env", True)]
)
async def test_a_bang_runs_a_command(typed: str, command: str, private: bool) -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await pilot.press(*typed)
        assert app.area.has_class("-shell")
        await pilot.press("enter")
        await pilot.pause()
        (wanted,) = app.of(messages.ShellWanted)
        assert (wanted.command, wanted.private) == (command, private)
        assert app.of(messages.Submitted) == []


async def test_ctrl_c_copies_then_clears_then_stops() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await pilot.press(*"abc", "shift+left", "ctrl+c")
        await pilot.pause()
        assert [copy.text for copy in app.of(messages.CopyWanted)] == ["c"]
        assert app.area.text == "abc"
        app.area.selected_elsewhere = lambda: "from the transcript"
        await pilot.press("right", "ctrl+c")
        await pilot.pause()
        assert app.of(messages.CopyWanted)[-1].text == "from the transcript"
        assert app.area.text == "abc"
        app.area.selected_elsewhere = str
        await pilot.press("right", "ctrl+c")
        assert app.area.text == ""
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert len(app.of(messages.StopWanted)) == 1
        await pilot.press("ctrl+underscore")
        assert app.area.text == "abc"


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("ctrl+r", messages.HistoryWanted),
        ("ctrl+g", messages.EditorWanted),
        ("ctrl+v", messages.ClipboardWanted),
        ("ctrl+x", messages.CancelWanted),
        ("ctrl+d", messages.QuitWanted),
        ("alt+q", messages.QueueFocusWanted),
        ("tab", messages.AnswerWanted),
        ("ctrl+up", messages.QueueFocusWanted),
        ("enter", messages.GoOnWanted),
    ],
)
async def test_every_other_key_says_what_it_is_for(key: str, kind: type[Message]) -> None:
    app = Desk()
    async with app.run_test() as pilot:
        await pilot.press(key)
        await pilot.pause()
        assert len(app.of(kind)) == 1


@pytest.mark.parametrize(
    ("keys", "text", "caret"),
    [
        (["ctrl+w"], "one two ", 8),
        (["ctrl+left", "ctrl+k"], "one two ", 8),
        (["ctrl+u"], "", 0),
        (["alt+b", "alt+b", "alt+d"], "one  three", 4),
        (["ctrl+a", "ctrl+d"], "ne two three", 0),
        (["home", "ctrl+right", "ctrl+e", "backspace"], "one two thre", 12),
        (["ctrl+u", "ctrl+underscore"], "one two three", 13),
    ],
)
async def test_editing_keys(keys: list[str], text: str, caret: int) -> None:
    app = Desk()
    async with app.run_test() as pilot:
        app.area.set_text("one two three")
        await pilot.press(*keys)
        assert (app.area.text, app.area.cursor_location[1]) == (text, caret)


async def test_the_cursor_of_the_terminal_stands_at_the_caret_also_behind_wide_characters() -> None:
    app = Desk()
    async with app.run_test(size=(40, 10)) as pilot:
        app.area.set_text("a世界é")
        await pilot.pause()
        left = app.area.content_region.x
        assert app.cursor_position.x == left + 1 + 4 + 1
        await pilot.press("left", "left")
        assert app.cursor_position.x == left + 1 + 2
        await pilot.press("ctrl+j")
        await pilot.pause()
        await pilot.pause()
        assert app.cursor_position == app.area.cursor_screen_offset


@pytest.mark.parametrize(
    ("start", "keys", "text"),
    [
        ("one two", "escape b x i Z", "one Zwo"),
        ("one two three", "escape 0 d w", "two three"),
        ("one two three", "escape 0 2 d w", "three"),
        ("one two", "escape 0 c w N escape", "N two"),
        ("one two", "escape 0 w D", "one "),
        ("a\nb\nc", "escape g g d d p", "b\na\nc"),
        ("a\nb\nc", "escape g g y y G p", "a\nb\nc\na"),
        ("a\nb", "escape g g J", "a b"),
        ("a\nb", "escape g g o x escape", "a\nx\nb"),
        ("ab", "escape 0 x u", "ab"),
        ("ab", "escape A c", "abc"),
        ("one two", "escape 0 d $", ""),
        ("one.two", "escape 0 d e", ".two"),
        ("one two", "escape 0 C z", "z"),
        ("a\nb\nc", "escape k d G", "a"),
        ("one two", "alt+d d", ""),
        ("one two", "alt+shift+i X", "Xone two"),
    ],
)
async def test_vim_keys(start: str, keys: str, text: str) -> None:
    app = Desk()
    async with app.run_test() as pilot:
        app.area.use_vim(True)
        app.area.set_text(start)
        names = {"$": "dollar_sign", ".": "full_stop"}
        await pilot.press(*(names.get(key, key) for key in keys.split()))
        assert app.area.text == text


async def test_enter_sends_in_both_modes_of_vim() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        app.area.use_vim(True)
        await pilot.press(*"abc", "escape", "enter")
        await pilot.pause()
        assert [sent.text for sent in app.of(messages.Submitted)] == ["abc"]
        assert app.area.vim_mode == "INSERT"
        assert [changed.mode for changed in app.of(messages.ModeChanged)] == ["INSERT", "NORMAL"]


async def test_what_is_typed_behind_a_key_waits_for_what_the_key_does() -> None:
    app = Desk()
    async with app.run_test() as pilot:
        for key in (*"one", "enter", *"to", "left", "w", "enter", "x"):
            character = "\r" if key == "enter" else key if len(key) == 1 else None
            app.post_message(events.Key(key, character))
        await pilot.pause()
        assert [sent.text for sent in app.of(messages.Submitted)] == ["one", "two"]
        assert app.area.text == "x"
