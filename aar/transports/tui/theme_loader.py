"""Themes: colours of the screen from TOML files, aar's own and the user's (docs/themes.md)."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from textual.color import Color, ColorParseError
from textual.theme import Theme

from aar.config.paths import paths
from aar.protocol.errors import ConfigurationError
from aar.protocol.late import late_pattern

GROUNDS = ("background", "surface", "panel")
COLOURS = (*GROUNDS, "foreground", "primary", "secondary", "accent", "success", "warning", "error")
ANSI_THEMES = ("ansi-dark", "ansi-light")
"""Themes without colours of their own: they use the sixteen of the terminal."""

MIN_CONTRAST = 4.5
"""Of text on its ground: WCAG 2.1, level AA."""

_STRONG_CONTRAST = 7.0
_HIGH_CONTRAST = 18.0
_MAX_BYTES = 100_000
_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_VARIABLE = late_pattern(r"[a-z][a-z0-9-]*")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True, slots=True)
class ThemeFile:
    """A theme as its file tells it.

    Attributes:
        name: The file's name without ``.toml``.
        dark: Whether light text stands on a dark ground.
        colours: ``#rrggbb`` by name, see `COLOURS`.
        variables: More variables of the style sheets, by name.
        own: Whether it came with aar.
    """

    name: str
    dark: bool
    colours: dict[str, str]
    variables: dict[str, str] = field(default_factory=dict[str, str])
    own: bool = True


def own_folder() -> Path:
    """Return the folder of the themes that come with aar: in the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "themes"
    return inside if inside.is_dir() else package.parent / "themes"


def theme_files(user_folder: Path | None = None) -> dict[str, Path]:
    """Return the files of all themes by name; the user's own win over aar's."""
    found: dict[str, Path] = {}
    # Those of extensions lie in the cache, so that they are there before the extensions are.
    for folder in (own_folder(), paths().cache / "extension-themes", user_folder):
        if folder is not None:
            found |= {path.stem: path for path in sorted(folder.glob("*.toml"))}
    return found


def theme_names(user_folder: Path | None = None) -> list[str]:
    """Return what ``[tui] theme`` may be: ``auto`` first."""
    return ["auto", *sorted(theme_files(user_folder)), *ANSI_THEMES]


def read_theme(path: Path) -> ThemeFile:
    """Read and check one file.

    Raises:
        ConfigurationError: The sentence names the file and the key.
    """
    table = _table(path)
    known = {"name", "dark", "variables", *COLOURS}
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; keys are {', '.join(sorted(known))}."
            raise _bad(path, key, f"is no field of a theme{hint}")
    name = table.get("name", path.stem)
    if name != path.stem or not _NAME.fullmatch(path.stem):
        raise _bad(path, "name", f"must be the file's name without .toml ({path.stem!r}), of a-z, 0-9 and -.")
    if not isinstance(table.get("dark"), bool):
        raise _bad(path, "dark", "must be true or false.")
    colours = {key: _colour(path, table, key) for key in COLOURS}
    own = path.parent == own_folder()
    return ThemeFile(path.stem, table["dark"], colours, _variables(path, table.get("variables", {})), own)


def load_theme(name: str, user_folder: Path | None = None) -> ThemeFile:
    """Return the theme called ``name``.

    Raises:
        ConfigurationError: There is none, or its file is wrong.
    """
    files = theme_files(user_folder)
    path = files.get(name)
    if path is None:
        near = difflib.get_close_matches(name, theme_names(user_folder), 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigurationError(
            f"There is no theme {name!r}.{hint} Themes are {', '.join(theme_names(user_folder))}."
        )
    return read_theme(path)


def to_textual(theme: ThemeFile, depth: int = 1 << 24) -> Theme:
    """Return the theme for Textual, with all variables that aar's screens use.

    Args:
        theme: What the file says.
        depth: Colours that the terminal shows.
    """
    colours = theme.colours
    return Theme(
        name=theme.name,
        dark=theme.dark,
        primary=colours["primary"],
        secondary=colours["secondary"],
        warning=colours["warning"],
        error=colours["error"],
        success=colours["success"],
        accent=colours["accent"],
        foreground=colours["foreground"],
        background=colours["background"],
        surface=colours["surface"],
        panel=colours["panel"],
        boost=colours["surface"],
        variables={**_derived(theme), **_diff_grounds(theme, depth), **theme.variables},
    )


def _derived(theme: ThemeFile) -> dict[str, str]:
    """Return plain colours where Textual would blend some: so contrast is what the file says."""
    colours = theme.colours
    least = least_contrast(colours["foreground"], colours["background"])
    muted = faded(theme, least, GROUNDS)
    named = {f"text-{name}": colours[name] for name in COLOURS[4:]}
    return {
        **named,
        "text": colours["foreground"],
        "text-muted": muted,
        "text-disabled": faded(theme, least, GROUNDS[:1]),
        "foreground-muted": muted,
        "footer-background": colours["background"],
        "footer-foreground": muted,
        "footer-key-foreground": colours["primary"],
        "footer-description-foreground": muted,
        "block-cursor-background": colours["primary"],
        "block-cursor-foreground": colours["background"],
        "block-cursor-text-style": "none",
        "block-cursor-blurred-background": colours["panel"],
        "block-cursor-blurred-foreground": colours["foreground"],
        "block-cursor-blurred-text-style": "bold",
        "input-selection-background": f"{colours['primary']} 35%",
        "scrollbar": colours["panel"],
        "scrollbar-hover": colours["secondary"],
        "scrollbar-active": colours["primary"],
        "scrollbar-background": colours["background"],
        "scrollbar-background-hover": colours["background"],
        "scrollbar-background-active": colours["background"],
        "border": colours["primary"],
        "border-blurred": colours["panel"],
    }


def _diff_grounds(theme: ThemeFile, depth: int) -> dict[str, str]:
    """Return what stands behind lines of a diff and their changed words, and their text."""
    colours = theme.colours
    grounds: dict[str, str] = {}
    for name, colour, *of_256 in _DIFF:
        for place, (end, share) in enumerate((("", 0.16), ("-word", 0.34))):
            mixed = Color.parse(colours["background"]).blend(Color.parse(colours[colour]), share)
            # Among 256 colours a mixture is a grey: added and removed lines would look the same.
            grounds[f"{name}{end}"] = (
                of_256[place + 2 * (not theme.dark)] if depth <= 256 else mixed.hex.lower()
            )
        grounds[f"{name}-text"] = colours["foreground"]
    return grounds


_DIFF = (
    ("diff-add", "success", "#005f00", "#005f5f", "#d7ffd7", "#afffaf"),
    ("diff-remove", "error", "#5f0000", "#870000", "#ffd7d7", "#ffafaf"),
)
"""Variable, colour, and for 256 colours: row and word on a dark ground, row and word on a light one."""


def ansi_theme(name: str) -> Theme:
    """Return one of `ANSI_THEMES`, in colours that are readable in most terminals."""
    dark = name == ANSI_THEMES[0]
    plain = dict.fromkeys(("foreground", *GROUNDS, "boost"), "ansi_default")
    return Theme(
        name=name,
        dark=dark,
        ansi=True,
        # Blue on black and yellow on white cannot be read.
        primary="ansi_cyan" if dark else "ansi_blue",
        secondary="ansi_bright_blue" if dark else "ansi_cyan",
        accent="ansi_magenta",
        success="ansi_green",
        warning="ansi_yellow" if dark else "ansi_magenta",
        error="ansi_bright_red" if dark else "ansi_red",
        variables={
            "ansi-background": "ansi_black" if dark else "ansi_white",
            "ansi-foreground": "ansi_white" if dark else "ansi_black",
            "block-cursor-blurred-background": "ansi_default",
            "block-cursor-blurred-foreground": "ansi_default",
            "block-cursor-blurred-text-style": "reverse",
            "block-cursor-background": "ansi_default",
            "block-cursor-foreground": "ansi_default",
            "block-cursor-text-style": "reverse",
            "block-hover-background": "ansi_default",
            "border": "ansi_cyan" if dark else "ansi_blue",
            "border-blurred": "ansi_default",
            "input-cursor-background": "ansi_default",
            "input-cursor-foreground": "ansi_default",
            "input-cursor-text-style": "reverse",
            "input-selection-background": "ansi_default",
            "input-selection-foreground": "ansi_default",
            "diff-add": "ansi_default",
            "diff-add-text": "ansi_green",
            "diff-remove": "ansi_default",
            "diff-remove-text": "ansi_bright_red" if dark else "ansi_red",
        },
        **plain,
    )


def least_contrast(foreground: str, background: str) -> float:
    """Return the contrast that all text of a theme has: one of high contrast means it for quiet text too."""
    return _STRONG_CONTRAST if contrast(foreground, background) >= _HIGH_CONTRAST else MIN_CONTRAST


def readable(text: Color, ground: Color, strongest: Color, least: float) -> Color:
    """Return ``text``, as far towards ``strongest`` as ``least`` contrast on ``ground`` needs."""
    for percent in range(0, 100, 5):
        mixed = text.blend(strongest, percent / 100)
        if contrast(mixed.hex, ground.hex) >= least:
            return mixed
    return strongest


def faded(theme: ThemeFile, least: float, on: Sequence[str]) -> str:
    """Return the foreground, as near to the grounds as ``least`` contrast to each of ``on`` allows."""
    text = Color.parse(theme.colours["foreground"])
    grounds = [Color.parse(theme.colours[name]) for name in on]
    best = text
    for percent in range(2, 72, 2):
        mixed = text.blend(grounds[0], percent / 100)
        if min(contrast(mixed.hex, ground.hex) for ground in grounds) < least:
            break
        best = mixed
    return best.hex.lower()


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two ``#rrggbb`` colours, 1 to 21 (WCAG 2.1)."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def hard_to_read(theme: ThemeFile) -> list[str]:
    """Return a sentence for each pair of colours that is hard to read; empty for a good theme."""
    colours = theme.colours
    pairs = [("foreground", ground) for ground in GROUNDS]
    pairs += [(name, "background") for name in COLOURS[4:]]
    return [
        f"Theme {theme.name}: {name} on {ground} has a contrast of {ratio:.1f}; it needs {MIN_CONTRAST}."
        for name, ground in pairs
        if (ratio := contrast(colours[name], colours[ground])) < MIN_CONTRAST
    ]


def choose_auto(background: tuple[int, int, int] | None, depth: int, *, dark: bool = True) -> str:
    """Return the name of the theme that ``auto`` stands for.

    Args:
        background: Red, green and blue (0 to 255) of the terminal's background; ``None``: not known.
        depth: Colours that the terminal shows.
        dark: What counts where the background is not known.
    """
    light = not dark
    if background is not None:
        light = _luminance("#{:02x}{:02x}{:02x}".format(*background)) > 0.18
    if depth <= 16:
        return ANSI_THEMES[1] if light else ANSI_THEMES[0]
    return "daylight" if light else "default"


def _luminance(colour: str) -> float:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _table(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ConfigurationError(f"{path} is larger than {_MAX_BYTES:,} bytes; that is no theme.")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise ConfigurationError(f"The theme {path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"The theme {path} is not TOML: {error}. Correct it.") from error


def _colour(path: Path, table: dict[str, Any], key: str) -> str:
    value = table.get(key)
    if value is None:
        raise _bad(path, key, "is missing; give a colour as #rrggbb.")
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise _bad(path, key, f"is {value!r}, which is no colour; write it as #rrggbb.")
    return value.lower()


def _variables(path: Path, table: object) -> dict[str, str]:
    if not isinstance(table, dict):
        raise _bad(path, "variables", "must be a table: [variables].")
    found: dict[str, str] = {}
    for key, value in cast("dict[str, object]", table).items():
        try:
            if not _VARIABLE.fullmatch(key) or not isinstance(value, str):
                raise ColorParseError("")
            Color.parse(value.rpartition(" ")[0] if value.endswith("%") else value)
        except ColorParseError:
            raise _bad(
                path, f"variables.{key}", f"is {value!r}; write a colour, as in #rrggbb or #rrggbb 40%."
            ) from None
        found[key] = value
    return found


def _bad(path: Path, key: str, what: str) -> ConfigurationError:
    return ConfigurationError(f"Theme {path}: {key} {what}")
