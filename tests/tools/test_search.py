"""grep and find_files: ripgrep and the search of our own give the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aar.protocol.errors import ToolFailure
from aar.tools.builtin.lists import _Names  # pyright: ignore[reportPrivateUsage]
from tests.support.tool_context import Bench

needs_rg = pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    files: dict[str, str | bytes] = {
        ".gitignore": "*.log\n/build/\n!keep.log\n# note\n",
        "src/.gitignore": "generated_*.py\n!a.log\n",
        "src/a.py": "import os\n\ndef find_me(x):\n    return x\n\n\nfind_me(1)\n",
        "src/a.log": "find_me\n",
        "src/deep/b.py": "find_me(2)\r\nFIND_ME\r\n",
        "src/generated_x.py": "find_me\n",
        "build/out.py": "find_me\n",
        "src/build/in.py": "find_me é\n",
        "trace.log": "find_me\n",
        "keep.log": "find_me\n",
        ".github/ci.yml": "run: find_me\n",
        ".git/config": "find_me\n",
        "-dash.txt": "find_me\n",
        "new\nline.txt": "find_me\n",
        ".env": "KEY=find_me\n",
        "data.bin": b"find_me\n\0\n",
        "wide.txt": b"\xff\xfe" + "find_me wide\n".encode("utf-16-le"),
        "latin.txt": b"find_me \xe9\n",
        "long.txt": "é" * 3000 + "find_me" + "z" * 3000 + "\n",
        "meta.txt": "a+b (c) [d] find.me\n",
    }
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (root / "link.py").symlink_to("src/a.py")
    return root


async def both(tree: Path, monkeypatch: pytest.MonkeyPatch, name: str, **arguments: object) -> str:
    with_rg = Bench(tree)
    first = (await with_rg.call(name, **arguments)).output
    assert with_rg.spawner.requests
    assert all(request.kind == "helper" for request in with_rg.spawner.requests)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        without = Bench(tree)
        second = (await without.call(name, **arguments)).output
        assert not without.spawner.requests
    assert first == second
    return first


@needs_rg
@pytest.mark.parametrize(
    "arguments",
    [
        {"pattern": "find_me"},
        {"pattern": "find_me", "context": 2},
        {"pattern": "FIND_ME", "ignore_case": True},
        {"pattern": "find_me", "glob": "*.py"},
        {"pattern": "find_me", "glob": "src/**/*.py"},
        {"pattern": "find_me", "glob": "*.{py,txt}"},
        {"pattern": "find_me", "path": "src"},
        {"pattern": "find_me", "path": "src/a.py", "context": 1},
        {"pattern": "find_me", "files_only": True},
        {"pattern": "find_me", "limit": 3, "offset": 2, "context": 1},
        {"pattern": "find_me", "offset": 100},
        {"pattern": r"^find_me\(\d\)$"},
        {"pattern": r"(?<=import )o\w"},
        {"pattern": "a+b (c) [d] find.me", "literal": True},
        {"pattern": "-dash"},
        {"pattern": "nothing here at all"},
    ],
)
async def test_both_searches_give_the_same(
    tree: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, object]
) -> None:
    output = await both(tree, monkeypatch, "grep", **arguments)
    assert "KEY=" not in output
    assert "\0" not in output
    for left_out in ("trace.log", "generated_x", "build/out.py", ".git/config", "data.bin"):
        assert left_out not in output


@needs_rg
@pytest.mark.parametrize(
    "arguments",
    [
        {"pattern": "*"},
        {"pattern": "*.py"},
        {"pattern": "**/*.py"},
        {"pattern": "src/*.py"},
        {"pattern": "src/**/*.py"},
        {"pattern": "*.{log,yml}"},
        {"pattern": "[!a].py", "path": "src"},
        {"pattern": "*", "limit": 3, "offset": 1},
        {"pattern": "nope*"},
    ],
)
async def test_both_finders_give_the_same(
    tree: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, object]
) -> None:
    with_rg = await Bench(tree).call("find_files", **arguments)
    monkeypatch.setenv("PATH", "/nowhere")
    without = await Bench(tree).call("find_files", **arguments)
    assert with_rg.output == without.output


def test_names_that_come_in_pieces_are_put_together() -> None:
    names = _Names("src/**/*.py")
    for piece in (b"src/a.py\0src/de", b"ep/", b"b.py\0src/c.ts\0oth", b"er/d.py\0"):
        names.take(piece)
    assert names.found == ["src/a.py", "src/deep/b.py"]


@needs_rg
async def test_matches_are_grouped_by_file_with_numbers_and_context(tree: Path) -> None:
    output = (await Bench(tree).call("grep", pattern="find_me", path="src/a.py", context=1)).output
    assert output.split("\n") == [
        "src/a.py", "     2- ", "     3: def find_me(x):", "     4-     return x", "  --", "     6- ", "     7: find_me(1)",
        "[2 matches in 1 file.]",
    ]  # fmt: skip


async def test_files_are_found_newest_first_when_asked(tree: Path) -> None:
    import os

    os.utime(tree / "src/deep/b.py", (2e9, 2e9))
    output = (await Bench(tree).call("find_files", pattern="*.py", sort="modified")).output
    assert output.split("\n")[0] == "src/deep/b.py"


@pytest.mark.parametrize("rg", [pytest.param(True, marks=needs_rg), False])
@pytest.mark.parametrize("pattern", ["(", "a\nb", r"a\nb"])
async def test_a_wrong_pattern_is_explained(
    tree: Path, monkeypatch: pytest.MonkeyPatch, rg: bool, pattern: str
) -> None:
    if not rg:
        monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolFailure, match=r"not a valid regular expression|newline"):
        await Bench(tree).call("grep", pattern=pattern)


async def test_ripgrep_that_the_workspace_brings_is_not_run(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tree / "bin/rg"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\ntouch pwned\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent))
    bench = Bench(tree)
    await bench.call("grep", pattern="find_me")
    assert bench.spawner.requests == []


async def test_flags_of_other_assistants_are_taken(tree: Path) -> None:
    output = (
        await Bench(tree).call("Grep", **{"pattern": "FIND_ME", "-i": True, "-C": 1, "include": "a.py"})
    ).output
    assert "src/a.py" in output
    output = (
        await Bench(tree).call("Grep", pattern="find_me", output_mode="files_with_matches", head_limit=1)
    ).output
    assert "Go on with offset=1" in output
