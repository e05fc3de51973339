"""The project as a whole: public names, packages, floors, and pages that say what is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import click
import pytest

import aar
from aar.providers.presets import PRESETS
from aar.safety.policy import _TABLE
from aar.transports.cli.main import cli

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HEAVY = {
    "pydantic",
    "click",
    "asyncio",
    "typing",
    "httpx2",
    "tree_sitter",
    "tomlkit",
    "xllamacpp",
    "platformdirs",
}
THEME_COLOURS = {
    "background", "surface", "panel", "foreground", "primary", "secondary", "accent", "success", "warning", "error",
}  # fmt: skip


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def python(code: str, *arguments: str) -> str:
    """Run code in a fresh interpreter in the project's folder; return what it printed."""
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


# --- the package ---------------------------------------------------------------------------------------------


def test_every_public_name_is_there_and_in_order() -> None:
    *names, version = aar.__all__
    assert version == "__version__"
    assert names == sorted(set(names))
    for name in aar.__all__:
        assert getattr(aar, name) is not None
    assert dir(aar) == sorted(aar.__all__)


def test_a_public_name_is_what_its_home_calls_by_that_name() -> None:
    for name in aar.__all__[:-1]:
        value = getattr(aar, name)
        expected = "aar.protocol.events" if name == "events" else name
        assert value.__name__ == expected
    with pytest.raises(AttributeError, match="no attribute 'Agant'"):
        _ = aar.Agant


def test_importing_aar_imports_nothing_that_is_heavy() -> None:
    loaded = set(python("import sys, aar; print(*sys.modules)").split())
    assert "aar" in loaded
    # Not `typing`, which finders of editable installs and of coverage may import at start.
    bare = set(python("import sys; print(*sys.modules)").split())
    assert not (loaded - bare) & HEAVY
    assert {name for name in loaded - bare if name.startswith("aar.")} == set()


def test_the_version_is_told_in_one_way() -> None:
    assert PROJECT["project"]["version"] == aar.__version__
    assert python(
        "import runpy, sys; sys.argv = ['aar', '--version']; runpy.run_module('aar', run_name='__main__')"
    ) == (f"aar {aar.__version__}\n")


def test_a_wheel_holds_the_package_its_types_and_themes_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install -e '.[dev]'")
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    wheel = tmp_path / python(code, str(tmp_path)).split()[-1]
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"aar-{aar.__version__}.dist-info/METADATA").decode()
        themes = {name: archive.read(name) for name in names if name.startswith("aar/themes/")}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "aar").rglob("*.py")}
    assert sources <= names
    assert {"aar/py.typed", "aar/themes/default.toml"} <= names
    assert {f"aar/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "themes").glob("*.toml")} == set(
        themes
    )
    assert themes["aar/themes/default.toml"] == (ROOT / "themes/default.toml").read_bytes()
    assert all(name.startswith(("aar/", f"aar-{aar.__version__}.dist-info/")) for name in names)
    assert {"Provides-Extra: local", "Provides-Extra: dev", "License-Expression: Apache-2.0"} <= set(
        metadata.splitlines()
    )


def test_the_extra_local_names_every_weight_package_in_its_exact_version() -> None:
    from aar.providers.local.weights import DEFAULT_WEIGHTS

    local = PROJECT["project"]["optional-dependencies"]["local"]
    assert [line for line in local if "==" in line] == [f"{name}==0.2.0" for name in DEFAULT_WEIGHTS.packages]


def test_imports_go_down_only() -> None:
    pytest.importorskip("importlinter")
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    assert "0 broken" in python(code)


def test_the_script_of_ci_is_sound_and_can_be_called() -> None:
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    checked = subprocess.run(
        ["bash", "-n", str(script)], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (checked.returncode, checked.stderr) == (0, "")


# --- themes --------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb`` (WCAG 2.1)."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("path", sorted((ROOT / "themes").iterdir()), ids=lambda path: path.name)
def test_a_theme_has_every_colour_and_can_be_read(path: Path) -> None:
    theme = tomllib.loads(text(path))
    assert theme.pop("name") == path.stem
    dark = theme.pop("dark")
    assert set(theme) == THEME_COLOURS
    assert all(re.fullmatch(r"#[0-9a-f]{6}", colour) for colour in theme.values())
    assert dark is (luminance(theme["background"]) < luminance(theme["foreground"]))
    for ground in ("background", "surface", "panel"):
        assert contrast(theme["foreground"], theme[ground]) >= 4.5, ground
    for name in THEME_COLOURS - {"background", "surface", "panel"}:
        assert contrast(theme[name], theme["background"]) >= 4.5, name


# --- pages ---------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text(page)):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.is_file(), target
        assert not anchor or anchor in anchors(found), target


def test_the_readme_leads_to_every_page() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert f"(docs/{page.name})" in text(ROOT / "README.md")


def test_the_two_commands_of_the_readme_stand_there_to_the_letter() -> None:
    lines = text(ROOT / "README.md").splitlines()
    assert (
        'python -m pip install -e ".[local]" && aar run "…"        # the main job, with the embedded model: no key, no account'
        in lines
    )
    assert 'python -m pip install -e ".[dev]" && pytest               # the tests' in lines


def code_of(page: Path) -> list[str]:
    """Every line of a block and every span that is code."""
    blocks = re.findall(r"```\w*\n(.*?)```", text(page), re.DOTALL)
    prose = re.sub(r"```.*?```", "", text(page), flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", prose)


_WRONG_ON_PURPOSE = {'aar run --modle x "do it"', 'aar rum "do it"'}


def calls_of_aar(page: Path) -> list[str]:
    found = []
    for code in code_of(page):
        found += re.findall(r"(?:^|\$ |&& |; |\| )(aar (?!: )[a-z-].*?)(?=$| && |; | \| | -- |  #)", code)
    return [call for call in found if call not in _WRONG_ON_PURPOSE]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_on_a_page_exists(page: Path) -> None:
    for call in calls_of_aar(page):
        command: click.Command = cli
        for word in call.split()[1:]:
            context = click.Context(command)
            if not isinstance(command, click.Group) or word.startswith("-"):
                break
            following = command.get_command(context, word)
            assert following is not None, call
            command = following
        options = {
            name
            for param in command.get_params(click.Context(command))
            for name in (*param.opts, *param.secondary_opts)
        }
        without_strings = re.sub(r"\"[^\"]*\"|'[^']*'", "", call)
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", without_strings)) <= options, call


def test_commands_are_found_on_the_pages() -> None:
    assert {"README.md", "cli.md", "models.md", "safety.md", "sessions.md"} <= {
        page.name for page in PAGES if calls_of_aar(page)
    }


def test_the_table_of_modes_is_the_one_that_decides() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (.+) \|$", text(ROOT / "docs/safety.md").split("## Rules")[0], re.MULTILINE
    )
    assert {mode: cells.split(" | ") for mode, cells in rows} == {
        mode: list(answers.values()) for mode, answers in _TABLE.items()
    }


def test_every_server_known_by_name_is_in_the_table_with_its_key() -> None:
    table = text(ROOT / "docs/models.md").split("## Servers")[1].split("\n\n")[1]
    rows = {row.split("`")[1]: row for row in table.splitlines()[2:]}
    servers = {name: item for name, item in PRESETS.items() if item.kind not in {"local", "scripted"}}
    assert set(rows) == set(servers)
    for name, preset in servers.items():
        if preset.hosts and name != "ollama":  # which is asked on this machine unless told otherwise
            assert f"`{preset.key_names[0]}`" in rows[name]
            assert preset.hosts[0] in rows[name]


def test_the_page_on_the_architecture_names_every_module() -> None:
    page = text(ROOT / "docs/architecture.md")
    rooms = page.split("## What lives where")[1].split("## How to add")[0]
    names = set(re.findall(r"`([\w*/]+)`", rooms))
    untold = []
    for path in sorted((ROOT / "aar").glob("*/*.py")):
        room, stem = path.parent.name, path.stem
        if stem == "__init__" or room == "transports":
            continue
        assert f"**{room}**" in rooms, room
        if stem not in names and not any(name[-1] == "*" and stem.startswith(name[:-1]) for name in names):
            untold.append(f"{room}/{stem}.py")
    assert untold == [], "say in docs/architecture.md what they are for"


def test_every_file_that_the_page_on_the_architecture_names_exists() -> None:
    page = text(ROOT / "docs/architecture.md")
    named = set(re.findall(r"[\w/]+/[\w/]*\.py\b", page))
    assert len(named) > 10
    for name in named:
        assert any((base / name).is_file() for base in (ROOT, ROOT / "aar", ROOT / "aar/tools")), name
    benchmarks = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert benchmarks == {path.stem for path in (ROOT / "tests/benchmarks").glob("[!_]*.py")}


def test_the_changelog_has_a_place_for_what_comes() -> None:
    headings = re.findall(r"^## \[(.+?)\]", text(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert len(headings) == len(set(headings))
