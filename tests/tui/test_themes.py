"""Themes: every file can be read and is easy to read; wrong files are told with file and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.color import Color
from textual.css.stylesheet import Stylesheet

from aar.protocol.errors import ConfigurationError
from aar.transports.tui.layout import Look
from aar.transports.tui.theme_loader import (
    COLOURS,
    GROUNDS,
    MIN_CONTRAST,
    choose_auto,
    contrast,
    hard_to_read,
    load_theme,
    own_folder,
    read_theme,
    theme_files,
    theme_names,
    to_textual,
)
from tests.tui.screens import until
from tests.tui.test_screens import opened, project

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
        assert contrast(variables["text-disabled"], theme.colours[ground]) >= 3
    marked = variables["block-cursor-foreground"], variables["block-cursor-background"]
    assert contrast(*marked) >= MIN_CONTRAST


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


@given(st.integers(0, 0xFFFFFF), st.integers(0, 0xFFFFFF))
def test_contrast_is_the_same_both_ways_and_between_one_and_twenty_one(one: int, other: int) -> None:
    first, second = f"#{one:06x}", f"#{other:06x}"
    assert contrast(first, second) == contrast(second, first)
    assert 1 <= contrast(first, second) <= 21.0001
    assert abs(Color.parse(first).get_contrast_text(1).brightness - 0.5) <= 0.5


async def test_the_first_frame_has_the_colours_of_its_theme_although_nothing_is_styled_twice(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
