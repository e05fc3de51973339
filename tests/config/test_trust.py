"""Trust is pinned to all that could run or steer, and is the user's alone (T1, T5, U13)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aar.config import trust
from aar.config.paths import paths
from aar.config.trust import TrustStore, fingerprint, untrusted_notice
from aar.protocol.errors import ConfigurationError, StorageError
from tests.config.helpers import Place

FILES = {
    ".aar/config.toml": ("config", "[hooks]\na = 1\n[model]\nname = 'x'\n", "sets hooks, model"),
    ".aar/hooks/pre.sh": ("hooks", "#!/bin/sh\n", "10 bytes"),
    ".aar/agents/a.md": ("agents", "x", "1 bytes"),
    ".aar/commands/c.md": ("commands", "x", "1 bytes"),
    ".aar/extensions/e/main.py": ("extensions", "x", "1 bytes"),
    ".aar/extensions/__pycache__/e.pyc": ("extensions", "x", "1 bytes"),
    ".aar/skills/s/SKILL.md": ("skills", "x", "1 bytes"),
    "AGENTS.md": ("rules", "be good", "7 bytes"),
    "CLAUDE.md": ("rules", "be good", "7 bytes"),
    ".mcp.json": ("mcp", '{"mcpServers": {"gh": {}, "db": {}}}', "servers gh, db"),
    ".claude/settings.json": ("config", '{"hooks": {}}', "sets hooks"),
    ".claude/skills/s/SKILL.md": ("skills", "x", "1 bytes"),
    ".agents/skills/s/SKILL.md": ("skills", "x", "1 bytes"),
    ".env": ("environment", "K=v", "3 bytes"),
}


def test_every_setting_that_could_run_or_steer_is_listed(place: Place) -> None:
    for name, (_kind, text, _summary) in FILES.items():
        place.write(place.root / name, text)
    place.write(place.root / "src/main.py", "x")
    place.write(place.root / ".claude/worktrees/w/big.py", "x")
    found = fingerprint(place.root)
    assert {item.path: (item.kind, item.summary) for item in found.items} == {
        name: (kind, summary) for name, (kind, _text, summary) in FILES.items()
    }
    assert found.complete


@pytest.mark.parametrize("name", FILES)
def test_t5_any_change_takes_trust_away(place: Place, name: str) -> None:
    store = TrustStore(place.paths)
    for path, (_kind, text, _summary) in FILES.items():
        place.write(place.root / path, text)
    assert not store.is_trusted(place.root)
    store.record(place.root)
    assert store.is_trusted(place.root)
    file = place.root / name
    before = file.read_text()
    file.write_text(before + " ")
    assert not store.is_trusted(place.root)
    assert store.is_known(place.root)
    file.write_text(before)
    assert store.is_trusted(place.root)
    file.chmod(0o755)
    assert not store.is_trusted(place.root)
    file.unlink()
    assert not store.is_trusted(place.root)


def test_t5_a_new_file_takes_trust_away_and_other_files_do_not(place: Place) -> None:
    store = TrustStore(place.paths)
    store.record(place.root)
    place.write(place.root / "src/a.py", "x")
    assert store.is_trusted(place.root)
    place.write(place.root / ".aar/hooks/x", "x")
    assert not store.is_trusted(place.root)


def test_files_behind_links_inside_the_project_count_and_outside_ones_are_not_read(place: Place) -> None:
    place.write(place.root / "shared/s/SKILL.md", "one")
    (place.root / ".aar").mkdir()
    (place.root / ".aar/skills").symlink_to("../shared")
    outside = place.write(place.home / "outside.md", "one")
    (place.root / "AGENTS.md").symlink_to(outside)
    first = fingerprint(place.root)
    assert {item.path: item.summary for item in first.items}["AGENTS.md"].startswith("not read: it is a link")
    outside.write_text("two")
    assert fingerprint(place.root) == first
    place.write(place.root / "shared/s/SKILL.md", "two")
    assert fingerprint(place.root).sha256 != first.sha256


def test_link_circles_pipes_and_odd_names_are_survived(place: Place) -> None:
    folder = place.root / ".aar/hooks"
    folder.mkdir(parents=True)
    (folder / "loop").symlink_to("..")
    (folder / "self").symlink_to("self")
    os.mkfifo(folder / "pipe")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\n")).write_text("x")
    found = fingerprint(place.root)
    assert found.complete
    assert len(found.items) == 4
    store = TrustStore(place.paths)
    store.record(place.root, found)
    assert store.is_trusted(place.root)


def test_a_project_with_too_much_in_it_cannot_be_trusted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "_MAX_ENTRIES", 3)
    for number in range(4):
        place.write(place.root / f".aar/hooks/{number}", "x")
    store = TrustStore(place.paths)
    with pytest.raises(ConfigurationError, match="cannot be trusted"):
        store.record(place.root)
    assert not store.is_trusted(place.root)


def test_a_change_in_the_middle_of_a_huge_file_is_seen(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_MAX_FILE_BYTES", 10)
    file = place.write(place.root / ".aar/hooks/big", "a" * 30)
    first = fingerprint(place.root).sha256
    assert fingerprint(place.root).sha256 == first
    file.write_text("a" * 15 + "b" + "a" * 14)
    assert fingerprint(place.root).sha256 != first


def test_trust_is_kept_for_the_owner_only_and_can_be_taken_back(place: Place) -> None:
    store = TrustStore(place.paths)
    other = place.home / "other"
    other.mkdir()
    store.record(place.root)
    store.record(other)
    assert (place.paths.data / "trust.json").stat().st_mode & 0o777 == 0o600
    assert store.forget(place.root)
    assert not store.forget(place.root)
    assert not store.is_trusted(place.root)
    assert TrustStore(place.paths).is_trusted(other)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"projects": 3}', '{"projects": {"x": 3}}', "\x00", "[" * 9999]
)
def test_a_damaged_store_trusts_nothing_and_can_be_written_again(place: Place, text: str) -> None:
    place.write(place.paths.data / "trust.json", text)
    store = TrustStore(place.paths)
    assert not store.is_trusted(place.root)
    store.record(place.root)
    assert store.is_trusted(place.root)


def test_a_store_that_cannot_be_written_is_one_sentence(place: Place) -> None:
    place.home.joinpath("data").write_text("")
    store = TrustStore(paths({"AAR_HOME": str(place.home / "data")}))
    with pytest.raises(StorageError):
        store.record(place.root)


def test_what_was_shown_is_what_is_trusted(place: Place) -> None:
    place.write(place.root / "AGENTS.md", "shown")
    shown = fingerprint(place.root)
    place.write(place.root / "AGENTS.md", "swapped")
    store = TrustStore(place.paths)
    store.record(place.root, shown)
    assert not store.is_trusted(place.root)


def test_the_line_for_a_run_without_trust_tells_the_kinds(place: Place) -> None:
    assert untrusted_notice(fingerprint(place.root)) is None
    place.write(place.root / "AGENTS.md", "x")
    place.write(place.root / ".aar/hooks/x", "x")
    notice = untrusted_notice(fingerprint(place.root))
    assert notice == (
        "This project is not trusted: its hooks, rules are not used. Look at them, then run with --trust."
    )
