"""The look through the workspace for secret files and nested git folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aar.safety.sandbox import scan
from aar.safety.sandbox.scan import WorkspaceScan, look
from tests.sandbox.conftest import git


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = (tmp_path / "root").resolve()
    folder.mkdir()
    git("init", "-q", cwd=folder)
    return folder


def put(path: Path, text: str = "secret") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_secret_files_are_found_by_name_at_any_depth(root: Path) -> None:
    wanted = {put(root / name) for name in (".env", "a/b/.env.local", "deep/server.key", "id_rsa")}
    for name in (".env.example", "main.py", "node_modules/x/.env", "keys.txt", "sub/.git/x.pem"):
        put(root / name)
    assert set(look(root, ()).secrets) == wanted


def test_what_git_has_committed_is_no_secret_until_it_changes(root: Path) -> None:
    path = put(root / "tests" / "dummy.pem", "public")
    git("add", "-A", cwd=root)
    assert look(root, ()).secrets == ()
    path.write_text("other")
    assert look(root, ()).secrets == (path,)


def test_an_index_entry_for_other_content_opens_nothing(root: Path) -> None:
    put(root / ".env", "harmless")
    git("add", "-f", ".env", cwd=root)
    (root / ".env").write_text("real secret")
    assert look(root, ()).secrets == (root / ".env",)


def test_unlocked_files_and_links_that_lead_out_are_left_alone(root: Path, tmp_path: Path) -> None:
    put(root / ".env")
    outside = put(tmp_path / "outside.pem")
    (root / "link.pem").symlink_to(outside)
    (root / "dangling.pem").symlink_to(tmp_path / "absent")
    assert look(root, (root / ".env",)).secrets == ()


def test_a_link_inside_hides_what_it_leads_to(root: Path) -> None:
    target = put(root / "plain.txt")
    (root / "my.key").symlink_to(target)
    assert look(root, ()).secrets == (target,)


def test_nested_repositories_are_found_but_not_the_own_one(root: Path) -> None:
    (root / "vendor" / "lib" / ".git").mkdir(parents=True)
    assert look(root, ()).git_folders == (root / "vendor" / "lib" / ".git",)


def test_a_virtual_environment_is_not_searched(root: Path) -> None:
    put(root / ".venv" / "pyvenv.cfg", "")
    put(root / ".venv" / "lib" / "x.pem")
    assert look(root, ()).secrets == ()


def test_a_large_workspace_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_ENTRIES", 20)
    for number in range(30):
        put(root / f"d{number}" / "f")
    assert not look(root, ()).whole
    assert look(root / "d1", ()).whole


def test_a_folder_that_cannot_be_read_ends_nothing(root: Path) -> None:
    put(root / "z" / ".env")
    (root / "a").mkdir(mode=0)
    os.symlink(root, root / "loop")
    assert look(root, ()).secrets == (root / "z" / ".env",)


def test_what_is_known_is_kept_only_for_a_while(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(scan.time, "monotonic", lambda: now[0])
    known = WorkspaceScan(root)
    known.findings()
    put(root / ".env")
    now[0] += 60
    assert known.findings().secrets == (root / ".env",)
