"""Thousands of odd tool outputs and model texts: the app lives, the screen shows them sanitised, nothing leaks."""

from __future__ import annotations

import io
import random
import re

import pytest
from textual.app import App, ComposeResult
from textual.strip import Strip

from aar.safety.sanitize import sanitize, sanitize_prose
from aar.transports.tui.blocks import AnswerBlock, AnyBlock, ToolBlock, UserBlock
from aar.transports.tui.presenter import Changes
from aar.transports.tui.transcript import Transcript
from aar.transports.tui.transcript.text import joined_text

PIECES = [
    "\x1b[31mred\x1b[0m", "\x1b]52;c;aGVsbG8=\x07", "\x1b]8;;http://evil\x1b\\x\x1b]8;;\x1b\\", "\x1bP+q\x1b\\", "\x9b2J", "\x1bc",
    "\r", "\r\n", "\n", "\t", "\b\b", "\x00", "\x7f", "\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\U000e0041", "\u2028",
    "[bold red]", "[/]", "[@click=app.quit]x[/]", "{{x}}", "$(rm)", "```", "```py\n", "| a | b |\n|--|--|\n", "# ", "- ", "> ", "1. ",
    "**", "_", "`", "[l](javascript:x)", "[l](http://a.b)", "![i](x)", "<b>", "&#27;", "---\n", "日本語", "한국어", "👍🏽", "👩‍👩‍👧", "é", "e\u0301\u0302\u0303",
    "שלום", "العربية", "a" * 300, " " * 50, "@@ -1 +1 @@\n", "+x\n", "-y\n", "word ", "word ", "word ", "\ud800", "❤️", "🇩🇪", "\u3000", "ﷺ",
]  # fmt: skip
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
    # A joiner may stand between two emoji.
    "|(?<![\ufe0f\u2600-\u27bf\U0001f300-\U0001faff])\u200d|\u200d(?![\u2600-\u27bf\U0001f300-\U0001faff])"
)


def odd_text(chance: random.Random) -> str:
    return "".join(chance.choices(PIECES, k=chance.randint(0, 30)))


def odd_block(key: int, chance: random.Random) -> AnyBlock:
    text = odd_text(chance)
    kind = chance.randrange(4)
    if kind == 0:
        block = AnswerBlock(key)
        block.add(text)
        return block
    if kind == 1:
        return UserBlock(key, text=text)
    name = chance.choice(["bash", "read_file", "grep", "mcp__a__b", odd_text(chance)])
    arguments = {"command": odd_text(chance), "path": odd_text(chance), "pattern": odd_text(chance)}
    diff = odd_text(chance) if chance.random() < 0.2 else None
    status = chance.choice(["done", "failed", "denied"])
    return ToolBlock(key, name=name, arguments=arguments, status=status, output=text, diff=diff)


class Screen(App[None]):
    def compose(self) -> ComposeResult:
        yield Transcript()


def output_of(view: Transcript, place: int) -> str:
    lines = view.document.lines(place)
    return joined_text([line for line in lines if line.code is not None])


def shown_of(text: str) -> str:
    text = sanitize(text).expandtabs(4)
    return text[:-1] if text.endswith("\n") else text


async def throw_at(count: int, seed: int) -> int:
    """Show ``count`` odd blocks, look at each, and return how many there were."""
    chance = random.Random(seed)
    app = Screen()
    width, height = chance.choice([(60, 20), (80, 24), (120, 40)])
    async with app.run_test(size=(width, height)) as pilot:
        view = app.query_one(Transcript)
        view.document.folds.set_all("full")
        blocks: list[AnyBlock] = []
        while len(blocks) < count:
            new = [odd_block(len(blocks) + n, chance) for n in range(20)]
            blocks.extend(new)
            view.apply(Changes(appended=new), blocks)
            await pilot.pause(0)
            check_screen(app)
            for place in range(len(blocks) - 20, len(blocks)):
                check_block(view, place, blocks[place])
            view.scroll_lines(-chance.randrange(60))
            check_screen(app)
            view.action_end()
        await pilot.press("f", "F", "g", "G", "slash", "w", "enter", "n", "N", "y", "j", "k", "enter")
        assert app.is_running
    return len(blocks)


def check_screen(app: Screen) -> None:
    """Look at the very bytes that would be written."""
    for strip in app.screen._compositor.render_strips():
        assert strip.cell_length == app.size.width
        assert CONTROL.search(strip.text) is None
        written = io.StringIO(Strip(strip).render(app.console)).getvalue()
        assert CONTROL.search(re.sub(r"\x1b\[[\d;]*m", "", written)) is None


def check_block(view: Transcript, place: int, block: AnyBlock) -> None:
    lines = view.document.lines(place)
    assert all(CONTROL.search(line.text) is None and "\n" not in line.text for line in lines)
    if isinstance(block, UserBlock):
        assert joined_text(lines).split() == sanitize_prose(block.text).split()
    elif isinstance(block, ToolBlock) and block.output and not block.diff:
        assert output_of(view, place) == shown_of(block.output)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_odd_texts_are_shown_sanitised(seed: int) -> None:
    assert await throw_at(100, seed) == 100


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(100, 150))
async def test_ten_thousand_odd_texts_are_shown_sanitised(seed: int) -> None:
    assert await throw_at(200, seed) == 200
