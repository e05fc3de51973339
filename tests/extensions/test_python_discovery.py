"""Which Python extensions count, and what one that is wrong costs."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from aar.extensions import worker
from aar.extensions.discovery import Source, discover, in_packages
from aar.extensions.manager import ExtensionManager, Settings

TOOL = """
from aar.extensions.api import *

def register(api):
    @api.tool(side_effects=[])
    def {name}() -> str:
        "Say where it is from."
        return "{text}"
"""


def manager(tmp_path: Path, **more: Any) -> ExtensionManager:
    values: dict[str, Any] = {
        "user_folder": tmp_path / "user",
        "project": lambda: None,
        "workspace": tmp_path,
        "data": tmp_path / "data",
        "packages": (),
        "load_s": 30.0,
    }
    return ExtensionManager(Settings(**{**values, **more}))


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def loaded(made: ExtensionManager) -> dict[str, str]:
    """Load all; return what went wrong, by extension, and what did not."""
    made.wait()
    try:
        return {item.name: item.failure for item in made.extensions}
    finally:
        made.close()


def package(site: Path, name: str, target: str) -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text(
        f"[console_scripts]\nx = y:z\n[aar.extensions]\n{name} = {target}\n"
    )


def test_later_places_win_and_the_others_are_told(tmp_path: Path) -> None:
    site, user, project = tmp_path / "site", tmp_path / "user", tmp_path / "project"
    package(site, "one", "pack.one")
    package(site, "three", "pack.three:begin")
    write(user, "one.py", "'''Mine.'''")
    write(user, "two/__init__.py", "")
    write(project / ".aar/extensions", "two.py", "")
    write(user, "_hidden.py", "")
    write(user, "companion.py", "")
    found = discover(user, project, use=["companion", "nope"], disabled=["three"], packages=[site])
    assert {(item.name, item.tier) for item in found.chosen} == {
        ("one", "user"),
        ("two", "project"),
        ("companion", "user"),
    }
    assert {(item.name, item.tier) for item in found.overridden} == {
        ("one", "package"),
        ("two", "user"),
        ("companion", "built-in"),
    }
    assert [(item.name, item.target) for item in found.disabled] == [("three", "pack.three:begin")]
    assert any("'nope'" in problem for problem in found.problems)
    assert next(item for item in found.chosen if item.name == "one").describe() == "Mine."


def test_a_project_counts_only_when_it_is_given_and_cannot_lead_out(tmp_path: Path) -> None:
    project = tmp_path / "project"
    write(project / ".aar/extensions", "inside.py", "")
    outside = write(tmp_path, "outside.py", "")
    (project / ".aar/extensions/link.py").symlink_to(outside)
    assert discover(tmp_path / "user", None, packages=()).chosen == ()
    found = discover(tmp_path / "user", project, packages=())
    assert [item.name for item in found.chosen] == ["inside"]
    assert "leads out of the project" in found.problems[0]


def test_metadata_that_is_broken_is_passed_over(tmp_path: Path) -> None:
    package(tmp_path, "good", "pack")
    for number, text in enumerate(
        ("[aar.extensions]\n[aar.extensions\n=", "\0", "[aar.extensions]\nBad Name = x\n")
    ):
        info = tmp_path / f"bad{number}.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_text(text)
    assert [item.name for item in in_packages([tmp_path, tmp_path / "absent"])] == ["good"]


def test_an_installed_package_brings_one_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    package(site, "packed", "aar_test_packed_extension:begin")
    write(
        site,
        "aar_test_packed_extension.py",
        TOOL.format(name="packed", text="x").replace("register", "begin"),
    )
    monkeypatch.syspath_prepend(str(site))
    made = manager(tmp_path, packages=[site])
    made.wait()
    assert [tool.name for item in made.loaded for tool in item.registered.tools] == ["packed"]
    made.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (bad.py, line 1)"),
        ("def register(api)\n", "SyntaxError"),
        ("x = 1", "it has no function register(api)"),
        ("def register(): ...", "register must take one argument"),
        ("import sys; sys.exit(3)", "it tried to end aar (SystemExit)"),
        ("AAR_API = '2.0'\ndef register(api): ...", "it needs version 2.0 of the API and this aar has 1.0"),
        ("AAR_API = '1.7'\ndef register(api): ...", "needs version 1.7"),
        ("AAR_API = 'new'\ndef register(api): ...", "write it as in '1.0'"),
        ("def register(api):\n  @api.on('nothing')\n  def f(e, c): ...", "there is no event 'nothing'"),
        (
            "def register(api):\n  @api.on('stop')\n  def f(e): ...",
            "the hook on stop must take (event, context)",
        ),
        ("def register(api):\n  @api.tool\n  def f(): ...", "the tool f needs a docstring"),
        (
            "def register(api):\n  @api.tool\n  def f(x):\n    'Do.'",
            "the parameter x of the tool f needs a type hint",
        ),
        (
            "def register(api):\n  @api.tool(side_effects=['fly'])\n  def f():\n    'Do.'",
            "side effects of f may be read",
        ),
        ("def register(api):\n  api.replace_planner(object())", "this is no Planner"),
        ("answer = input('name? ')\ndef register(api): ...", "EOFError"),
    ],
)
def test_what_is_wrong_with_one_is_told_in_a_sentence_and_the_others_load(
    tmp_path: Path, text: str, said: str
) -> None:
    write(tmp_path / "user", "bad.py", text)
    write(tmp_path / "user", "good.py", TOOL.format(name="good", text="x"))
    made = manager(tmp_path)
    failures = loaded(made)
    assert failures["good"] == ""
    assert said in failures["bad"]
    assert [problem for problem in made.problems if "bad" in problem] == made.problems
    assert len(made.problems) == 1


@pytest.mark.parametrize(
    "text",
    [
        "while True: pass",
        "import time\ntime.sleep(1)",
        "async def register(api):\n  import asyncio\n  await asyncio.sleep(60)",
    ],
)
def test_one_that_hangs_is_left_out_in_time_and_its_thread_ends(tmp_path: Path, text: str) -> None:
    write(tmp_path / "user", "slow.py", text)
    made = manager(tmp_path, load_s=0.2)
    made.wait()
    assert made.extensions[0].failure == "it took longer than 0.2 s"
    made.close()
    for thread in threading.enumerate():
        if thread.name == "aar-extension-slow":
            thread.join(30)
            assert not thread.is_alive()


def test_what_one_prints_is_told_once_and_reaches_no_stream(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        tmp_path / "user",
        "loud.py",
        "import sys\nprint('hello')\nprint('oops', file=sys.stderr)\ndef register(api): print('again')",
    )
    made = manager(tmp_path)
    before = sys.stdout
    assert loaded(made) == {"loud": ""}
    assert made.problems == ["The extension loud printed while it was loaded: hello oops again"]
    print("mine")
    assert capsys.readouterr() == ("mine\n", "")
    assert sys.stdout is before


def test_loading_writes_nothing_beside_the_files_so_that_trust_stays(tmp_path: Path) -> None:
    folder = tmp_path / "project/.aar/extensions"
    write(
        folder,
        "whole/__init__.py",
        "from .part import VALUE\ndef register(api):\n  api.append_system_prompt(VALUE)",
    )
    write(folder, "whole/part.py", "VALUE = 'from a part'")
    made = manager(tmp_path, project=lambda: tmp_path / "project")
    made.wait()
    assert made.loaded[0].registered.prompts == [("whole", "from a part")]
    assert sorted(path.name for path in folder.rglob("*")) == ["__init__.py", "part.py", "whole"]
    made.close()


def test_names_belong_to_the_first_and_providers_of_aar_to_aar(tmp_path: Path) -> None:
    write(tmp_path / "user", "a.py", TOOL.format(name="same", text="a"))
    write(tmp_path / "user", "b.py", TOOL.format(name="same", text="b"))
    write(
        tmp_path / "user",
        "c.py",
        "def register(api):\n  api.provider('openai')(lambda model, settings: None)",
    )
    made = manager(tmp_path, taken_providers=frozenset({"openai"}))
    made.wait()
    assert [len(item.registered.tools) for item in made.loaded] == [1, 0, 0]
    assert made.provider("openai") is None
    assert len(made.problems) == 2
    made.close()


def test_nothing_is_imported_and_no_thread_stays_where_there_are_none(tmp_path: Path) -> None:
    made = manager(tmp_path)
    made.wait()
    made.close()
    assert made.extensions == ()
    assert not isinstance(sys.stdout, worker._Door)


def test_each_extension_has_a_source_that_tells_whether_it_is_the_users_own() -> None:
    tiers = {
        tier: Source("x", tier, Path("x.py")).trusted for tier in ("built-in", "package", "user", "project")
    }
    assert tiers == {"built-in": True, "package": True, "user": True, "project": False}
