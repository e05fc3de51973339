"""Which rules hold in a folder, in which order, and what is not read."""

from __future__ import annotations

import os

from aar.config.rules_files import MAX_BYTES, project_rules
from tests.config.helpers import Place


def names(place: Place, cwd: str = ".", *, trusted: bool = True) -> list[str]:
    found = project_rules(place.root, place.root / cwd, config=place.paths.config, trusted=trusted)
    return [rule.text for rule in found]


def test_the_users_own_come_first_and_the_nearest_last(place: Place) -> None:
    place.write(place.paths.config / "AGENTS.md", "user")
    place.write(place.root / "AGENTS.md", "root")
    place.write(place.root / "a/CLAUDE.md", "a, from claude")
    place.write(place.root / "a/b/AGENTS.md", "b")
    place.write(place.root / "a/b/CLAUDE.md", "not used beside AGENTS.md")
    place.write(place.root / "other/AGENTS.md", "other")
    (place.root / "a/b/c").mkdir()
    assert names(place, "a/b/c") == ["user", "root", "a, from claude", "b"]
    assert names(place) == ["user", "root"]


def test_u13_without_trust_only_the_users_own_rules_are_read(place: Place) -> None:
    place.write(place.paths.config / "AGENTS.md", "user")
    place.write(place.root / "AGENTS.md", "root")
    assert names(place, trusted=False) == ["user"]
    assert project_rules(place.root, place.root, trusted=False) == []


def test_a_folder_outside_of_the_project_adds_nothing(place: Place) -> None:
    place.write(place.root / "AGENTS.md", "root")
    place.write(place.home / "x/AGENTS.md", "x")
    assert [r.text for r in project_rules(place.root, place.home / "x", trusted=True)] == ["root"]


def test_a_long_file_is_cut_and_says_so(place: Place) -> None:
    place.write(place.root / "AGENTS.md", "é" * MAX_BYTES)
    (rule,) = project_rules(place.root, place.root, trusted=True)
    assert rule.truncated
    assert rule.text.startswith("é" * (MAX_BYTES // 2) + "\n[AGENTS.md is longer: only its first 32 KiB")


def test_links_out_pipes_folders_and_empty_files_are_passed_over(place: Place) -> None:
    place.write(place.home / "secret.md", "secret")
    (place.root / "AGENTS.md").symlink_to(place.home / "secret.md")
    place.write(place.root / "CLAUDE.md", "claude")
    (place.root / "a").mkdir()
    os.mkfifo(place.root / "a/AGENTS.md")
    (place.root / "a/b/AGENTS.md").mkdir(parents=True)
    place.write(place.root / "a/b/c/AGENTS.md", " \n")
    assert names(place, "a/b/c") == ["claude"]


def test_a_link_inside_the_project_is_followed(place: Place) -> None:
    place.write(place.root / "AGENTS.md", "rules")
    place.write(place.root / "a/x", "")
    (place.root / "a/AGENTS.md").symlink_to("../AGENTS.md")
    assert names(place, "a") == ["rules", "rules"]


def test_bytes_that_are_no_text_are_replaced(place: Place) -> None:
    (place.root / "AGENTS.md").write_bytes(b"a\xffb")
    assert names(place) == ["a\ufffdb"]
