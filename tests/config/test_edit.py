"""``aar config set`` changes one key and leaves the rest of the file as it was."""

from __future__ import annotations

import errno
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.config.edit import get_value, set_value
from aar.config.load import validate_file
from aar.protocol.errors import ConfigurationError, StorageError

TEXT = """# mine
[model]            # which
name = "a/b"   # the good one

retries=2
fallback = [
  "x/y", # second
]

[limits]
steps = 3
"""


def test_only_the_value_changes(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(TEXT)
    assert set_value(file, "model.name", "c/d") == "c/d"
    assert file.read_text() == TEXT.replace('"a/b"', '"c/d"')
    assert set_value(file, "limits.steps", "9") == 9
    assert file.read_text() == TEXT.replace('"a/b"', '"c/d"').replace("steps = 3", "steps = 9")
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_file_and_missing_tables_are_made(tmp_path: Path) -> None:
    file = tmp_path / "new/config.toml"
    set_value(file, "providers.my-server.base_url", "http://h")
    set_value(file, "model.retries", "3")
    set_value(file, 'providers."a.b".timeout', "3")
    set_value(file, "profiles.p.model.name", "x/y")
    set_value(file, "permissions.deny", '["bash(rm *)"]')
    assert tomllib.loads(file.read_text()) == {
        "providers": {"my-server": {"base_url": "http://h"}, "a.b": {"timeout": 3}},
        "model": {"retries": 3},
        "profiles": {"p": {"model": {"name": "x/y"}}},
        "permissions": {"deny": ["bash(rm *)"]},
    }
    assert validate_file(file) == []
    assert get_value(file, 'providers."a.b".timeout') == 3
    assert get_value(file, "model.name") is None


def test_a_name_that_looks_like_a_number_stays_text(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    assert set_value(file, "model.name", "42") == "42"
    assert get_value(file, "model.name") == "42"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model.nmae", "x", "model.nmae is not a known key; did you mean model.name"),
        ("modle.name", "x", "modle is not a known key; did you mean model"),
        ("sandbox.mode", "landlok", "'landlok' is not one of"),
        ("limits.steps", "many", "limits.steps: expected a whole number"),
        ("permissions.mode", "unsafe", "only for one run"),
        ("profiles.p.limits.steps", "0", "expected a number greater than 0"),
        ("model", "3", "expected a table"),
        ("a b", "3", "is not a dotted key"),
        ("model.name.x", "3", "name is a value, not a table"),
    ],
)
def test_what_is_wrong_is_not_written(tmp_path: Path, key: str, value: str, message: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(TEXT)
    with pytest.raises(ConfigurationError) as caught:
        set_value(file, key, value)
    assert message in str(caught.value)
    assert file.read_text() == TEXT


def test_a_broken_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[model\n")
    with pytest.raises(ConfigurationError, match="Correct it first"):
        set_value(file, "model.name", "x")
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        set_value(file, "model.name", "x")


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text(TEXT)
    link = tmp_path / "config.toml"
    link.symlink_to(real)
    set_value(link, "limits.steps", "4")
    assert link.is_symlink()
    assert "steps = 4" in real.read_text()


@pytest.mark.parametrize(
    ("code", "advice"), [(errno.ENOSPC, "free some space"), (errno.EACCES, "make it and its folder writable")]
)
def test_what_helps_depends_on_why_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, advice: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("aar.config.edit.write_atomic", refuse)
    with pytest.raises(StorageError, match=advice):
        set_value(tmp_path / "config.toml", "limits.steps", "4")


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "model.name": st.text(st.characters(exclude_categories=["Cs"])),
    "model.stop": st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3),
    "model.stream": st.booleans(),
    "limits.steps": st.integers(1, 2**53),
    "limits.usd": st.floats(0, 1e9),
    "providers.x.headers.A": st.text(st.characters(exclude_categories=["Cs"])),
}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4, unique=True), st.data())
def test_what_is_set_is_read_back_and_the_rest_stays(
    tmp_path_factory: pytest.TempPathFactory, keys: list[str], data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("edit") / "config.toml"
    file.write_text(TEXT)
    written: dict[str, Any] = {}
    for key in keys:
        value = data.draw(VALUES[key])
        written[key] = value
        set_value(file, key, _toml(value))
    for key, value in written.items():
        assert get_value(file, key) == value
    if "model.retries" not in written:
        assert get_value(file, "model.retries") == 2
    for comment in ("# mine", "# which", "# second"):
        assert comment in file.read_text()


def _toml(value: Any) -> str:
    if isinstance(value, str):
        escaped = "".join(c if c.isalnum() or c == " " else f"\\U{ord(c):08x}" for c in value)
        return f'"{escaped}"'
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return str(value).lower() if isinstance(value, bool) else repr(value)
