"""T15, T26: a path means one file, whatever it is called and whoever moves it meanwhile."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from aar.protocol.errors import ToolFailure
from aar.safety import beneath
from aar.safety.beneath import FOLDER, open_beneath, openat2
from aar.safety.files import WorkspaceFiles
from tests.tools.test_file_access import swapping

ODD_NAMES = [
    "-rf", "--help", ";touch x", "$(touch x)", "`x`", "a\nb", "a\tb", " lead", "trail ", "'q\"", "\u202egnp.exe", "é", "e\u0301",
    "\U0001f600", "*", "?", "[a]", "~", "con", "a" * 200, "\x1b[31m", "a\\b", "|sh", "&", "#x", "%s", "{}", "x\u200b",
]  # fmt: skip


@pytest.fixture(params=["openat2", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of opening: the kernel's own, and step by step where it is missing."""
    if request.param == "walk":
        monkeypatch.setattr(beneath, "openat2", lambda: None)
    elif openat2() is None:
        pytest.skip("this kernel has no openat2, or a filter refuses it")
    return request.param


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "victim").write_text("untouched")
    return root, outside


def opened(root: Path, *parts: str) -> bytes:
    folder = os.open(root, FOLDER)
    try:
        with os.fdopen(open_beneath(folder, parts, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            return file.read()
    finally:
        os.close(folder)


@pytest.mark.usefixtures("way")
def test_t15_no_link_on_the_way_is_followed(places: tuple[Path, Path]) -> None:
    root, outside = places
    (root / "sub").mkdir()
    (root / "sub/plain").write_text("plain")
    (root / "link").symlink_to(outside)
    (root / "sub/last").symlink_to(outside / "victim")
    (root / "inner").symlink_to("sub")
    (root / "dangling").symlink_to(outside / "absent")
    (root / "magic").symlink_to("/proc/self/root")
    (root / "loop").symlink_to("loop")
    assert opened(root, "sub", "plain") == b"plain"
    for parts in (
        ("link", "victim"), ("sub", "last"), ("inner", "plain"), ("dangling",), ("magic", "etc", "passwd"), ("loop",),
        ("..", "outside", "victim"), ("sub", "..", "..", "outside", "victim"), ("/etc/passwd",), ("",), ("sub/plain",),
    ):  # fmt: skip
        with pytest.raises(OSError, match=r"."):
            opened(root, *parts)


@pytest.mark.usefixtures("way")
def test_t15_writing_through_links_changes_nothing_outside(places: tuple[Path, Path]) -> None:
    root, outside = places
    (root / "dangling").symlink_to(outside / "made")
    (root / "parent").symlink_to(outside)
    os.link(outside / "victim", root / "hard")
    files = WorkspaceFiles(root)
    for path in ("dangling", "parent/victim", "parent/new/deep", "../outside/victim", f"{outside}/victim",
                 f"//{outside}/victim", f"/proc/self/root{outside}/victim", f"/proc/self/cwd/{outside}/victim"):  # fmt: skip
        with pytest.raises(ToolFailure):
            files.write_bytes(path, b"stolen")
    files.write_bytes("hard", b"mine")
    assert (outside / "victim").read_text() == "untouched"
    assert [entry.name for entry in outside.iterdir()] == ["victim"]


@pytest.mark.usefixtures("way")
def test_t15_a_swapper_gains_nothing(places: tuple[Path, Path]) -> None:
    root, outside = places
    (root / "place").mkdir()
    (root / "place/victim").write_text("inside")
    (root / "link").symlink_to(outside)
    files = WorkspaceFiles(root)
    seen: set[bytes] = set()
    tried = 0
    deadline = time.monotonic() + 0.6
    with swapping(root / "place", root / "link"):
        while time.monotonic() < deadline or tried <= 50:
            tried += 1
            with contextlib.suppress(ToolFailure):
                seen.add(opened_or_none(root) or b"inside")
            with contextlib.suppress(ToolFailure):
                files.write_bytes("place/made", b"x")
    assert seen <= {b"inside"}
    assert [entry.name for entry in outside.iterdir()] == ["victim"]
    assert (outside / "victim").read_text() == "untouched"


def opened_or_none(root: Path) -> bytes | None:
    try:
        return opened(root, "place", "victim")
    except OSError:
        return None


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", ODD_NAMES)
def test_t26_odd_names_are_only_names(places: tuple[Path, Path], name: str) -> None:
    root, outside = places
    files = WorkspaceFiles(root)
    path = f"./{name}" if name == "~" else name
    files.write_bytes(path, b"content")
    assert files.read_bytes(path) == b"content"
    assert [os.fsdecode(entry.name) for entry in root.iterdir()] == [name]
    files.delete(path)
    assert list(root.iterdir()) == []
    assert (outside / "victim").read_text() == "untouched"


@pytest.mark.usefixtures("way")
def test_t15_pipes_and_devices_neither_hang_nor_open(places: tuple[Path, Path]) -> None:
    root, _ = places
    os.mkfifo(root / "pipe")
    files = WorkspaceFiles(root)
    began = time.monotonic()
    for path in ("pipe", "/dev/zero", "/dev/tty", "."):
        with pytest.raises(ToolFailure):
            files.read_bytes(path)
        with pytest.raises(ToolFailure):
            files.write_bytes(path, b"x")
    assert time.monotonic() - began < 20
