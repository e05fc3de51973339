"""aar's own folders, the project's root and its key."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import pytest

from aar.config.paths import ensure, paths, project_key, project_root
from aar.protocol.errors import StorageError


def test_aar_home_moves_everything(tmp_path: Path) -> None:
    found = paths({"AAR_HOME": str(tmp_path / "h"), "XDG_DATA_HOME": "/elsewhere"})
    assert (found.data, found.config, found.cache) == (
        tmp_path / "h",
        tmp_path / "h/config",
        tmp_path / "h/cache",
    )
    assert found.user_config == tmp_path / "h/config/config.toml"
    assert {found.sessions, found.models, found.logs, found.outputs} == {
        tmp_path / "h" / name for name in ("sessions", "models", "logs", "outputs")
    }
    assert not (tmp_path / "h").exists()


def test_a_relative_aar_home_is_taken_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths({"AAR_HOME": "h"}).data == tmp_path / "h"


def test_without_aar_home_the_platform_decides(tmp_path: Path) -> None:
    given = {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("DATA", "CONFIG", "CACHE")}
    found = paths(given)
    assert [found.data, found.config, found.cache] == [
        tmp_path / kind / "aar" for kind in ("DATA", "CONFIG", "CACHE")
    ]
    assert paths({"AAR_HOME": "", "XDG_DATA_HOME": "relative"}).data.is_absolute()


def test_the_runtime_folder_is_short_enough_for_sockets_and_private(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    found = paths({"AAR_HOME": str(deep)})
    assert found.runtime.parent == Path(tempfile.gettempdir())
    assert len(str(found.runtime)) <= 80
    assert paths({"AAR_HOME": "/a"}).runtime == Path("/a/cache/run")
    private = tmp_path / "run"
    private.mkdir(mode=0o700)
    first = paths({"AAR_HOME": "/a", "XDG_RUNTIME_DIR": str(private)}).runtime
    second = paths({"AAR_HOME": "/b", "XDG_RUNTIME_DIR": str(private)}).runtime
    assert first.parent == second.parent == private
    assert first != second
    private.chmod(0o755)
    assert paths({"AAR_HOME": "/a", "XDG_RUNTIME_DIR": str(private)}).runtime == Path("/a/cache/run")


def test_folders_are_made_for_the_owner_only_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        made = ensure(tmp_path / "a/b")
    finally:
        os.umask(old)
    assert made.stat().st_mode & 0o777 == 0o700
    assert made.parent.stat().st_mode & 0o777 == 0o700
    made.chmod(0o755)
    assert ensure(made).stat().st_mode & 0o777 == 0o700


def test_a_folder_that_everybody_shares_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(StorageError, match="everybody's folder"):
        ensure(tmp_path)
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777
    assert ensure(tmp_path / "own").stat().st_mode & 0o7777 == 0o700


def test_a_file_in_the_way_of_a_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(StorageError, match="is in the way"):
        ensure(tmp_path / "a")
    with pytest.raises(StorageError, match="cannot be used"):
        ensure(tmp_path / "a/b")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_t16_a_folder_planted_by_another_user_is_refused(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    os.chown(planted, 12345, 12345)
    with pytest.raises(StorageError, match="belongs to another user"):
        ensure(planted)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    os.lchown(link, 12345, 12345)
    with pytest.raises(StorageError, match="another user's link"):
        ensure(link)


def test_the_root_is_the_nearest_folder_with_a_marker(tmp_path: Path) -> None:
    below = tmp_path / "a/b/c"
    below.mkdir(parents=True)
    assert project_root(below) == below
    (tmp_path / "a/.git").write_text("gitdir: elsewhere")
    assert project_root(below) == tmp_path / "a"
    (tmp_path / "a/b/.aar").mkdir()
    assert project_root(below) == tmp_path / "a/b"
    (tmp_path / "link").symlink_to(below)
    assert project_root(tmp_path / "link") == tmp_path / "a/b"


def test_a_key_has_the_base_name_and_the_hash_of_the_resolved_path(tmp_path: Path) -> None:
    root = tmp_path / "my project!"
    root.mkdir()
    digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:12]
    assert project_key(root) == f"my-project-{digest}"
    (tmp_path / "link").symlink_to(root)
    assert project_key(tmp_path / "link") == project_key(root)
    assert project_key(Path("/")).startswith("root-")
    assert "/" not in project_key(tmp_path / "ü" / "..hidden")
