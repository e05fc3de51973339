"""Prompts and drafts on disk."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.memory import prompt_history
from aar.memory.prompt_history import DraftStore, PromptHistory


def test_prompts_of_all_projects_are_kept_and_told_apart(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path / "data/prompt_history.jsonl")
    one, two = tmp_path / "one", tmp_path / "two"
    for text, project in (("a", one), ("b\nc", two), ("a", one), ("wide 世界 👩‍💻", one)):
        history.add(text, project)
    assert history.entries() == ["b\nc", "a", "wide 世界 👩‍💻"]
    assert history.entries(two) == ["b\nc"]
    assert stat.S_IMODE(history.file.stat().st_mode) == 0o600


def test_a_line_that_a_crash_cut_costs_only_itself(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path / "h.jsonl")
    history.add("before", tmp_path)
    with history.file.open("ab") as file:
        file.write(b'{"ts": 1, "text": "cut o')
    history.add("after", tmp_path)
    assert history.entries() == ["before", "after"]


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=40), max_size=10))
def test_no_content_of_the_file_makes_reading_fail(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "h.jsonl"
        file.write_bytes(b"\n".join(lines))
        assert all(isinstance(entry, str) for entry in PromptHistory(file).entries())


def test_a_file_that_grew_too_large_loses_its_older_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_history, "MAX_BYTES", 2000)
    history = PromptHistory(tmp_path / "h.jsonl")
    for number in range(60):
        history.add(f"prompt {number}", tmp_path)
    entries = history.entries()
    assert entries[-1] == "prompt 59"
    assert len(entries) < 60
    assert history.file.stat().st_size < 2200


def test_a_draft_is_taken_over_when_its_screen_is_gone(tmp_path: Path) -> None:
    first = DraftStore(tmp_path / "drafts", tmp_path)
    first.save({"text": "half a thought"})
    second = DraftStore(tmp_path / "drafts", tmp_path)
    assert second.take() is None, "the first screen still runs"
    first.close()
    assert second.take() == {"text": "half a thought"}
    assert second.take() is None


def test_a_draft_that_was_sent_does_not_come_back(tmp_path: Path) -> None:
    first = DraftStore(tmp_path / "drafts", tmp_path)
    first.save({"text": "x"})
    first.clear()
    first.close()
    assert DraftStore(tmp_path / "drafts", tmp_path).take() is None


def test_what_a_thread_writes_when_the_screen_has_ended_changes_nothing(tmp_path: Path) -> None:
    first = DraftStore(tmp_path / "drafts", tmp_path)
    first.save({"text": "all of it"})
    first.close()
    first.save({"text": "a part"})
    first.clear()
    assert DraftStore(tmp_path / "drafts", tmp_path).take() == {"text": "all of it"}


def test_two_screens_of_one_project_keep_their_own_drafts(tmp_path: Path) -> None:
    stores = [DraftStore(tmp_path / "drafts", tmp_path) for _ in range(2)]
    for number, store in enumerate(stores):
        store.save({"text": f"draft {number}"})
    for store in stores:
        store.close()
    third = DraftStore(tmp_path / "drafts", tmp_path)
    texts = [draft["text"] for draft in (third.take(), third.take()) if draft is not None]
    assert sorted(texts) == ["draft 0", "draft 1"]
    assert DraftStore(tmp_path / "drafts", tmp_path / "elsewhere").take() is None


def test_a_draft_that_is_broken_is_no_draft(tmp_path: Path) -> None:
    store = DraftStore(tmp_path / "drafts", tmp_path)
    store.save({"text": "x"})
    store.close()
    (file,) = (tmp_path / "drafts").glob("*/*.json")
    file.write_bytes(b'{"text": ')
    assert DraftStore(tmp_path / "drafts", tmp_path).take() is None
