"""What `WorkspaceFiles` lets through and what it stops."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from aar.protocol.errors import ToolCategory, ToolFailure
from aar.safety.files import WorkspaceFiles
from aar.safety.paths import is_protected, is_secret, is_secret_name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "victim").write_text("untouched")
    return folder


def category(failure: pytest.ExceptionInfo[ToolFailure]) -> ToolCategory:
    return failure.value.category


def test_a_written_file_reads_back_and_keeps_its_mode(root: Path) -> None:
    files = WorkspaceFiles(root)
    files.write_bytes("a/b/run.sh", b"one")
    (root / "a/b/run.sh").chmod(0o754)
    files.write_bytes("a/b/run.sh", b"two")
    assert files.read_bytes("a/b/run.sh") == b"two"
    assert stat.S_IMODE((root / "a/b/run.sh").stat().st_mode) == 0o754
    assert [entry.name for entry in (root / "a/b").iterdir()] == ["run.sh"]


def test_paths_are_shown_relative_inside_and_absolute_outside(root: Path, outside: Path) -> None:
    files = WorkspaceFiles(root)
    assert files.display(files.resolve("./x/../y.py")) == "y.py"
    assert files.display(files.resolve(".")) == "."
    assert files.display(files.resolve(str(outside))) == str(outside)


@pytest.mark.parametrize("path", ["../outside/victim", "link/victim", "file-link", "dangling", "link/new"])
def test_writing_outside_is_blocked_by_every_way_there(root: Path, outside: Path, path: str) -> None:
    (root / "link").symlink_to(outside)
    (root / "file-link").symlink_to(outside / "victim")
    (root / "dangling").symlink_to(outside / "planted")
    files = WorkspaceFiles(root)
    with pytest.raises(ToolFailure) as failure:
        files.write_bytes(path, b"x")
    assert category(failure) is ToolCategory.BLOCKED
    assert (outside / "victim").read_text() == "untouched"
    assert sorted(entry.name for entry in outside.iterdir()) == ["victim"]


def test_extra_roots_may_be_written(root: Path, outside: Path) -> None:
    WorkspaceFiles(root, extra_roots=[outside]).write_bytes(str(outside / "new"), b"x")
    assert (outside / "new").read_bytes() == b"x"


def test_a_link_that_stays_inside_is_written_through(root: Path) -> None:
    (root / "target").write_text("old")
    (root / "link").symlink_to("target")
    WorkspaceFiles(root).write_bytes("link", b"new")
    assert (root / "link").is_symlink()
    assert (root / "target").read_text() == "new"


def test_deleting_a_link_leaves_its_target(root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside / "victim")
    WorkspaceFiles(root).delete("link")
    assert not (root / "link").is_symlink()
    assert (outside / "victim").read_text() == "untouched"


def test_a_hard_link_to_a_file_outside_is_replaced_not_written_through(root: Path, outside: Path) -> None:
    os.link(outside / "victim", root / "hard")
    WorkspaceFiles(root).write_bytes("hard", b"mine")
    assert (outside / "victim").read_text() == "untouched"


@contextlib.contextmanager
def swapping(one: Path, other: Path) -> Generator[None]:
    """Exchange two names, each time at once, as fast as a thread can."""
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if exchange is None:
        pytest.skip("this system cannot exchange two names at once")
    here, both = -100, (os.fsencode(one), os.fsencode(other))
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            exchange(here, both[0], here, both[1], 2)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        yield
    finally:
        stop.set()
        swapper.join()


def test_a_swapped_folder_never_lets_a_write_out(root: Path, outside: Path) -> None:
    (root / "place").mkdir()
    (root / "link").symlink_to(outside)
    files = WorkspaceFiles(root)
    wrote = refused = 0
    deadline = time.monotonic() + 1.0
    with swapping(root / "place", root / "link"):
        while time.monotonic() < deadline:
            for path in ("place/victim", "place/sub/deep"):
                try:
                    files.write_bytes(path, b"stolen")
                    wrote += 1
                except ToolFailure:
                    refused += 1
    assert wrote > 0
    assert refused > 0
    assert (outside / "victim").read_text() == "untouched"
    assert [entry.name for entry in outside.iterdir()] == ["victim"]


def test_a_swapped_file_never_lets_a_secret_be_read(root: Path, clean_environment: Path) -> None:
    secret = clean_environment / ".ssh" / "config"
    secret.parent.mkdir()
    secret.write_text("SECRET")
    (root / "place").write_text("plain")
    (root / "link").symlink_to(secret)
    files = WorkspaceFiles(root)
    seen: set[bytes] = set()
    deadline = time.monotonic() + 0.7
    with swapping(root / "place", root / "link"):
        while time.monotonic() < deadline:
            with contextlib.suppress(ToolFailure):
                seen.add(files.peek_bytes("place"))
    assert seen == {b"plain"}


@pytest.mark.parametrize(
    "path",
    [
        "~/.ssh/id_ed25519",
        "~/.SSH/config",
        "~/.aws/credentials",
        "~/.netrc",
        "~/.config/gcloud/x.json",
        ".env",
        ".ENV.local",
        "deep/.env.production",
        "server.PEM",
        "tls.key",
        "id_rsa",
        "link-to-env",
        "link-to-home/.ssh/config",
        "//etc/passwd",
        "/proc/self/root/etc/passwd",
        "/proc/self/environ",
        "/proc/1/environ",
        "/etc/./../etc/shadow",
    ],
)
def test_secrets_are_not_read_by_any_name(root: Path, clean_environment: Path, path: str) -> None:
    for name in (".ssh/id_ed25519", ".SSH/config", ".ssh/config", ".aws/credentials", ".netrc"):
        (clean_environment / name).parent.mkdir(exist_ok=True)
        (clean_environment / name).write_text("SECRET")
    (clean_environment / ".config/gcloud").mkdir(parents=True)
    (clean_environment / ".config/gcloud/x.json").write_text("SECRET")
    (root / "deep").mkdir()
    for name in (".env", ".ENV.local", "deep/.env.production", "server.PEM", "tls.key", "id_rsa"):
        (root / name).write_text("SECRET")
    (root / "link-to-env").symlink_to(".env")
    (root / "link-to-home").symlink_to(clean_environment)
    with pytest.raises(ToolFailure) as failure:
        WorkspaceFiles(root).read_bytes(path)
    assert category(failure) is ToolCategory.BLOCKED
    assert "SECRET" not in failure.value.message


@pytest.mark.parametrize(
    "name", [".env.example", ".ENV.Sample", ".env.template", "id_map.py", "keys.py", "env.py"]
)
def test_files_that_only_look_like_secrets_are_read(root: Path, name: str) -> None:
    (root / name).write_text("fine")
    assert WorkspaceFiles(root).read_bytes(name) == b"fine"


def test_a_secret_can_be_unlocked_and_another_place_locked(root: Path) -> None:
    (root / ".env").write_text("A=1")
    (root / "private").mkdir()
    (root / "private/x").write_text("no")
    files = WorkspaceFiles(root, secrets=["private"], readable=[".env"])
    assert files.read_bytes(".env") == b"A=1"
    with pytest.raises(ToolFailure):
        files.read_bytes("private/x")
    files.unlock("private/x")
    assert files.read_bytes("private/x") == b"no"


def test_aar_s_own_data_is_secret(clean_environment: Path) -> None:
    assert is_secret(clean_environment / "aar" / "config" / "config.toml")


def test_pipes_devices_folders_and_sockets_are_refused_at_once(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(root)
    try:
        listener.bind("sock")
    finally:
        os.chdir(here)
    files = WorkspaceFiles(root)
    started = time.monotonic()
    for path in ("pipe", "folder", "sock", "/dev/zero", "/dev/tty"):
        with pytest.raises(ToolFailure) as failure:
            files.read_bytes(path)
        assert category(failure) is ToolCategory.INVALID_ARGUMENTS, path
    for path in ("pipe", "folder", "sock", "."):
        with pytest.raises(ToolFailure):
            files.write_bytes(path, b"x")
    listener.close()
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("path", ["", "   ", "a\0b", "x" * 5000, "loop", "plain/below"])
def test_unusable_paths_give_a_sentence(root: Path, path: str) -> None:
    (root / "loop").symlink_to("loop")
    (root / "plain").write_text("x")
    with pytest.raises(ToolFailure) as failure:
        WorkspaceFiles(root).read_bytes(path)
    assert failure.value.message.endswith(".")


@pytest.mark.parametrize("name", [";$(touch x)", "-rf", "new\nline", "`id`", "ü\u202ename", "*"])
def test_odd_names_are_only_names(root: Path, name: str) -> None:
    files = WorkspaceFiles(root)
    files.write_bytes(name, b"x")
    assert files.read_bytes(name) == b"x"
    assert [entry.name for entry in root.iterdir()] == [name]


def test_a_missing_file_names_what_is_near(root: Path) -> None:
    (root / "settings.py").write_text("")
    with pytest.raises(ToolFailure, match=r"Near it: settings\.py"):
        WorkspaceFiles(root).read_bytes("setings.py")


def test_a_file_that_changed_since_it_was_read_is_not_written_or_deleted(root: Path) -> None:
    (root / "a").write_text("one")
    files = WorkspaceFiles(root)
    files.read_bytes("a")
    info = (root / "a").stat()
    (root / "a").write_text("two")
    os.utime(root / "a", ns=(info.st_atime_ns, info.st_mtime_ns))
    for act in (lambda: files.write_bytes("a", b"mine"), lambda: files.delete("a")):
        with pytest.raises(ToolFailure) as failure:
            act()
        assert category(failure) is ToolCategory.STALE_FILE
    assert files.read_bytes("a") == b"two"
    files.write_bytes("a", b"mine")
    files.write_bytes("a", b"mine again")
    files.delete("a")
    assert not files.exists("a")


def test_a_touched_file_with_the_same_content_is_fresh(root: Path) -> None:
    (root / "a").write_text("one")
    files = WorkspaceFiles(root)
    files.read_bytes("a")
    os.utime(root / "a", ns=(1, 1))
    files.write_bytes("a", b"two")
    assert (root / "a").read_bytes() == b"two"


def test_a_read_only_file_is_not_replaced(root: Path) -> None:
    (root / "a").write_text("one")
    (root / "a").chmod(0o444)
    with pytest.raises(ToolFailure) as failure:
        WorkspaceFiles(root).write_bytes("a", b"two")
    assert category(failure) is ToolCategory.BLOCKED


@pytest.mark.parametrize(
    "path",
    [".git/hooks/pre-commit", ".git", ".GIT/config", "sub/.git/config", ".github/workflows/ci.yml", ".envrc",
     "AGENTS.md", "docs/agents.MD", "CLAUDE.md", ".aar/config.toml", ".vscode/tasks.json", ".husky/pre-push"],
)  # fmt: skip
def test_paths_that_others_run_or_obey_are_protected(path: str) -> None:
    assert is_protected(path)


@pytest.mark.parametrize(
    "path", ["src/a.py", ".vscode/settings.json", ".github/FUNDING.yml", "agents.py", ".gitignore"]
)
def test_ordinary_paths_are_not_protected(path: str) -> None:
    assert not is_protected(path)


def test_key_names_are_secret_with_and_without_suffix() -> None:
    assert all(is_secret_name(name) for name in ("id_rsa", "id_ed25519.old", "ID_custom", "a.p12"))
    assert not any(is_secret_name(name) for name in ("id_utils.py", "idea", "environment.yml", "env"))
