"""Themes: every file can be read and is easy to read; wrong files are told with file and key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from textual.color import Color
from textual.css.stylesheet import Stylesheet
from textual.filter import NoColor
from textual.theme import Theme

from aar.protocol.errors import ConfigurationError
from aar.transports.tui.app import AarApp
from aar.transports.tui.approvals import ApprovalPanel
from aar.transports.tui.layout import Look
from aar.transports.tui.theme_loader import (
    ANSI_THEMES,
    COLOURS,
    GROUNDS,
    MIN_CONTRAST,
    ansi_theme,
    choose_auto,
    contrast,
    hard_to_read,
    least_contrast,
    load_theme,
    own_folder,
    read_theme,
    theme_files,
    theme_names,
    to_textual,
)
from aar.transports.tui.transcript import Transcript
from aar.transports.tui.transcript.palette import ROLES, Palette
from tests.tui.screens import until
from tests.tui.test_screens import opened, project, say

__all__ = ["project"]

OWN = sorted(own_folder().glob("*.toml"))


def write(folder: Path, stem: str = "mine", /, **changes: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, object] = {"name": stem, "dark": True, **read_theme(OWN[0]).colours, **changes}
    lines = [
        f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
        for key, value in values.items()
        if value is not None
    ]
    path = folder / f"{stem}.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_text_of_a_built_in_theme_is_easy_to_read(path: Path) -> None:
    theme = read_theme(path)
    assert hard_to_read(theme) == []
    variables = to_textual(theme).variables
    for ground in GROUNDS:
        assert contrast(variables["text-muted"], theme.colours[ground]) >= MIN_CONTRAST
    assert contrast(variables["text-disabled"], theme.colours["background"]) >= MIN_CONTRAST
    marked = variables["block-cursor-foreground"], variables["block-cursor-background"]
    assert contrast(*marked) >= MIN_CONTRAST


def shown_roles() -> list[str]:
    """Every role alone, and everything that stands on the grounds of code and of diffs."""
    inner = ["", "add", "del", "faint", "output", *(name for name in ROLES if name.startswith("syn."))]
    grounds = [name for name in ROLES if name == "code" or name.startswith("diff.")]
    return [*ROLES, *(f"{name} {ground}".strip() for ground in grounds for name in inner)]


def palette_of(theme: Theme) -> Palette:
    variables = {**theme.to_color_system().generate(), **theme.variables}
    return Palette(variables, Color.parse(variables["background"]))


@pytest.mark.parametrize("depth", [256, 1 << 24])
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_code_diffs_marks_and_all_other_text_of_the_transcript_are_easy_to_read(
    path: Path, depth: int
) -> None:
    theme = read_theme(path)
    palette = palette_of(to_textual(theme, depth))
    least = 7 if theme.name.startswith("high-contrast") else MIN_CONTRAST
    assert least == least_contrast(theme.colours["foreground"], theme.colours["background"])
    for role in shown_roles():
        style = palette[role]
        assert style.color is not None
        assert style.bgcolor is not None
        text, ground = style.color.get_truecolor().hex, style.bgcolor.get_truecolor().hex
        assert contrast(text, ground) >= least, role


@pytest.mark.parametrize("dark", [True, False])
def test_added_and_removed_lines_differ_among_256_colours(dark: bool) -> None:
    theme = next(theme for theme in map(read_theme, OWN) if theme.dark is dark)
    palette = palette_of(to_textual(theme, 256))
    grounds = [
        palette[role].bgcolor.downgrade(ColorSystem.EIGHT_BIT)  # type: ignore[union-attr]
        for role in ("", "diff.add", "diff.del", "diff.add.word", "diff.del.word")
    ]
    assert len(set(grounds)) == len(grounds)


@pytest.mark.parametrize("name", ANSI_THEMES)
def test_with_sixteen_colours_no_text_stands_on_a_colour_of_unknown_brightness(name: str) -> None:
    palette = palette_of(ansi_theme(name))
    for role in shown_roles():
        assert palette[role].bgcolor is not None
        assert palette[role].bgcolor.is_default, role  # type: ignore[union-attr]
    for role in ("found", "found.here", "selected"):
        assert palette[role].reverse
    assert palette["syn.keyword diff.add"].color != palette["syn.keyword diff.del"].color
    assert palette["diff.add.word"].underline


def unreadable(app: AarApp, least: float) -> list[str]:
    """Return all text of the screen that is hard to read."""
    found: list[str] = []
    for strip in app.screen._compositor.render_strips():
        for text, style, _ in strip:
            if not re.search(r"\w", text) or style is None:
                continue
            assert style.color is not None
            assert style.bgcolor is not None
            ink, ground = style.color.get_truecolor().hex, style.bgcolor.get_truecolor().hex
            if contrast(ink, ground) < least:
                found.append(f"{text!r}: {ink} on {ground}")
    return found


async def test_all_text_of_the_screen_is_easy_to_read_in_every_theme(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    (project / "a.py").write_text("def f(x):\n    return x + 1  # 'one'\n")
    edit = {"path": "a.py", "old_text": "x + 1", "new_text": "y + 2"}
    steps: list[dict[str, Any]] = [
        {"text": "", "tool_calls": [{"name": "edit_file", "arguments": edit}]},
        {"text": "# Done\n\nSee `a.py`, [a link](http://a.b):\n\n```python\nraise X('a', 1)\n```\n"},
        {"reasoning": "I push.", "text": "", "tool_calls": [{"name": "bash", "arguments": {"command": "git push"}}]},
    ]  # fmt: skip
    async with opened(project, *steps) as (app, pilot):
        await say(app, pilot, "go")
        app.prompting.area.set_text("push")
        await pilot.press("enter")
        await until(pilot, lambda: app.query_one(ApprovalPanel).display)
        await pilot.press(*"draft", "shift+left", "shift+left")
        app.query_one(Transcript).focus()
        await pilot.press("F", "slash", "r", "enter", "k", "v", "up", "up")
        for name in (path.stem for path in OWN):
            app.use_theme(name)
            await pilot.pause()
            least = 7 if name.startswith("high-contrast") else MIN_CONTRAST
            assert (name, unreadable(app, least)) == (name, [])
        await pilot.press("escape", "escape", "f6")
        await until(pilot, lambda: len(app.screen_stack) > 1)
        for name in ("default", "sand"):
            app.use_theme(name)
            await pilot.pause()
            assert (name, unreadable(app, MIN_CONTRAST)) == (name, [])
        await pilot.press("escape")


@pytest.mark.parametrize("name", ["high-contrast-dark", "high-contrast-light"])
def test_a_theme_of_high_contrast_keeps_seven_to_one_for_all_text(name: str) -> None:
    theme = load_theme(name)
    variables = to_textual(theme).variables
    shown = [theme.colours[colour] for colour in COLOURS[3:]] + [variables["text-muted"]]
    assert min(contrast(colour, theme.colours["background"]) for colour in shown) >= 7


def test_there_are_enough_themes_of_each_kind() -> None:
    themes = [read_theme(path) for path in OWN]
    assert len(themes) >= 8
    assert sum(not theme.dark for theme in themes) >= 2
    assert sum(theme.name.startswith("high-contrast") for theme in themes) >= 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"accent": "#12345"}, "accent is '#12345', which is no colour"),
        ({"accent": None}, "accent is missing"),
        ({"acent": "#ffffff"}, "acent is no field of a theme; did you mean accent?"),
        ({"dark": 1}, "dark must be true or false"),
        ({"name": "other"}, "name must be the file's name"),
        ({"variables": "no"}, "variables must be a table"),
    ],
)
def test_a_wrong_theme_is_told_with_file_and_key(
    tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(ConfigurationError) as caught:
        read_theme(path)
    assert str(path) in str(caught.value)
    assert told in str(caught.value)


def test_a_wrong_variable_and_a_file_that_is_no_toml_are_told(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text() + "\n[variables]\nboost = 'blurple'\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"variables\.boost is 'blurple'"):
        read_theme(path)
    path.write_bytes(b"\xff = [")
    with pytest.raises(ConfigurationError, match="is not TOML"):
        read_theme(path)


def test_a_theme_of_the_user_wins_over_one_of_the_same_name(tmp_path: Path) -> None:
    write(tmp_path, "default", foreground="#ffffff")
    assert load_theme("default", tmp_path).colours["foreground"] == "#ffffff"
    assert not load_theme("default", tmp_path).own
    assert load_theme("default").own
    write(tmp_path, "mine")
    assert "mine" in theme_names(tmp_path)
    assert set(theme_files()) < set(theme_files(tmp_path))


def test_an_unknown_theme_is_told_with_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'ocean'"):
        load_theme("ocaen")


def test_a_theme_that_is_hard_to_read_is_told(tmp_path: Path) -> None:
    theme = read_theme(write(tmp_path, foreground="#777777", background="#666666"))
    assert any("foreground on background" in sentence for sentence in hard_to_read(theme))


def test_auto_follows_background_and_depth() -> None:
    assert choose_auto(None, 256) == choose_auto((0, 0, 0), 1 << 24) == "default"
    assert choose_auto((250, 250, 245), 256) == "daylight"
    assert choose_auto((255, 255, 255), 16) == "ansi-light"
    assert choose_auto(None, 16) == "ansi-dark"
    assert choose_auto(None, 16, dark=False) == "ansi-light"
    assert choose_auto((0, 0, 0), 16, dark=False) == "ansi-dark"


async def test_without_colours_none_is_written_whatever_the_theme(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(project, sets=('tui.theme="ocean"',)) as (app, pilot):
        await say(app, pilot, "hello")
        assert app.theme == "ansi-dark"
        for strip in app.screen._compositor.render_strips():
            written = strip.apply_filter(NoColor(), Color(0, 0, 0)).render(app.console)
            assert not re.search(r"\x1b\[[\d;]*\b[345]8;", written)


async def test_a_theme_of_many_colours_gives_way_to_the_sixteen_of_the_terminal(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM", raising=False)
    async with opened(project, sets=('tui.theme="sand"',)) as (app, _):
        assert app.theme == "ansi-light"
        app.use_theme("ocean")
        assert app.theme == "ansi-dark"
        with pytest.raises(ConfigurationError, match="There is no theme"):
            app.use_theme("oceans")


@given(st.integers(0, 0xFFFFFF), st.integers(0, 0xFFFFFF))
def test_contrast_is_the_same_both_ways_and_between_one_and_twenty_one(one: int, other: int) -> None:
    first, second = f"#{one:06x}", f"#{other:06x}"
    assert contrast(first, second) == contrast(second, first)
    assert 1 <= contrast(first, second) <= 21.0001
    assert abs(Color.parse(first).get_contrast_text(1).brightness - 0.5) <= 0.5


async def test_the_first_frame_has_the_colours_of_its_theme_although_nothing_is_styled_twice(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    read: list[Stylesheet] = []
    reparse = Stylesheet.reparse
    monkeypatch.setattr(Stylesheet, "reparse", lambda self: (read.append(self), reparse(self))[1])
    dark, light = load_theme("ocean").colours, load_theme("daylight").colours
    async with opened(project, look=Look(theme="ocean"), sets=("tui.theme=ocean",)) as (app, pilot):
        assert not read
        assert app.focused is app.prompting.area
        assert app.screen.styles.background == Color.parse(dark["background"])
        app.use_theme("daylight")
        await until(pilot, lambda: app.screen.styles.background == Color.parse(light["background"]))
        assert read
