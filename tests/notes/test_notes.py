"""Notes as files: what is kept, what is refused, what is found, what is doubtful."""

from __future__ import annotations

import os
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.config.front_matter import Document, read_document, split
from aar.memory.notes import NoteStore
from aar.memory.notes_check import check_notes
from aar.memory.notes_format import note_of, render, slug
from aar.memory.notes_index import NotesIndex, recency
from aar.protocol.errors import UsageError
from aar.protocol.notes import Note
from aar.safety.redact import Redactor

LONG_AGO = date(2020, 1, 2)


@pytest.fixture
def store(tmp_path: Path) -> NoteStore:
    root = tmp_path / "project"
    root.mkdir()
    return NoteStore(
        tmp_path / "user", root / ".aar/memory", root, NotesIndex(tmp_path / "i.sqlite"), Redactor().redact
    )


def note(title: str, body: str, scope: Any = "project", *tags: str, **more: Any) -> Note:
    return Note("", scope, title, body, tags, **more)


def names(hits: Any) -> list[str]:
    return [hit.note.name for hit in hits]


def test_a_note_is_a_markdown_file_that_reads_back_the_same(store: NoteStore) -> None:
    kept = store.save(
        note("Pool: sizes & co", "We pool with pgbouncer.", "project", "DB", "ops", source="S#4")
    )
    text = (store.root / ".aar/memory/pool-sizes-co.md").read_text()
    assert text.startswith("---\ntitle: 'Pool: sizes & co'\ntags: [db, ops]\n")
    assert store.get("pool-sizes-co") == kept
    assert (kept.source, kept.created) == ("S#4", date.today().isoformat())


def test_a_note_of_the_same_name_is_replaced_and_keeps_its_first_date_and_foreign_fields(
    store: NoteStore,
) -> None:
    store.save(note("Pool", "Ten.", more={"owner": "ops"}), LONG_AGO)
    store.save(note("Pool", "Twenty."))
    [now] = store.all()
    assert (now.body, now.created, now.updated) == ("Twenty.", "2020-01-02", date.today().isoformat())
    assert now.more == {"owner": "ops"}


@settings(max_examples=60, deadline=None)
@given(
    st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=60),
    st.text(st.characters(exclude_categories=("C",), include_characters="\n"), min_size=1),
    st.lists(st.from_regex(r"[a-z0-9:#-]{1,12}", fullmatch=True), max_size=4, unique=True),
)
def test_any_note_survives_its_file(title: str, body: str, tags: list[str]) -> None:
    before = Note("n", "user", title, body.strip() or "x", tuple(tags), "2026-01-01", "2026-01-02", "S#1")
    meta, text = split(render(before))
    after = note_of(Document(Path("n.md"), meta, text), "user")
    assert (after.title, after.created, after.updated, after.source) == (
        title,
        "2026-01-01",
        "2026-01-02",
        "S#1",
    )
    assert after.tags == before.tags
    assert after.body == before.body.strip()


def test_a_plain_file_of_a_person_is_a_note_too(store: NoteStore) -> None:
    folder = store.user
    folder.mkdir()
    (folder / "mine.md").write_text("# How I like commits\n\nImperative, short.\n")
    found = store.get("mine")
    assert (found.title, found.scope) == ("How I like commits", "user")
    document = read_document(folder / "mine.md")
    assert document is not None
    assert found.updated == date.today().isoformat()


@pytest.mark.parametrize(
    "body",
    [
        "key: sk-ant-abcdefghijklmnopqrstuvwx",
        "password = hunter2hunter2",
        "-----BEGIN PRIVATE KEY-----\nabc\n",
    ],
)
def test_what_looks_like_a_secret_is_refused_and_not_repeated(store: NoteStore, body: str) -> None:
    with pytest.raises(UsageError, match="looks like a secret") as refused:
        store.save(note("Access", body))
    assert "hunter2" not in str(refused.value)
    assert "abcdefghijklmnop" not in str(refused.value)
    assert store.all() == []


def test_empty_long_and_wrongly_named_notes_are_refused(store: NoteStore) -> None:
    for wrong, says in (
        (note(" ", "x"), "title"),
        (note("T", "  "), "title and a text"),
        (note("T", "x" * 20_001), "20,001"),
        (Note("../up", "user", "T", "x"), "no name"),
    ):
        with pytest.raises(UsageError, match=says):
            store.save(wrong)
    assert slug("Größe der Übung") == "groe-der-ubung"
    assert slug("数据库") == "note-6570-636e-5e93"


def test_notes_of_a_project_without_trust_do_not_count(store: NoteStore) -> None:
    store.save(note("Pool", "Ten."))
    blind = NoteStore(store.user, None, store.root, store.index, store.redact)
    assert blind.all() == []
    with pytest.raises(UsageError, match="not trusted"):
        blind.save(note("Pool", "Ten."))


def test_a_link_out_of_the_project_is_neither_read_nor_written(store: NoteStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("# Secret plans\n\nx\n")
    folder = store.root / ".aar/memory"
    folder.mkdir(parents=True)
    (folder / "plans.md").symlink_to(outside)
    (store.root / ".env").write_text("PASSWORD=x\n")
    (folder / "env.md").symlink_to(store.root / ".env")
    assert store.all() == []
    with pytest.raises(UsageError, match="behind a link"):
        store.save(Note("plans", "project", "Plans", "new"))
    assert outside.read_text() == "# Secret plans\n\nx\n"


def test_words_find_notes_in_other_forms_and_tags_filter_exactly(store: NoteStore) -> None:
    store.save(note("Database", "We pool connections with pgbouncer.", "project", "db"))
    store.save(note("Commits", "Imperative mood.", "user", "git"))
    assert names(store.search("connection pooling")) == ["database"]
    assert names(store.search("", ["git"])) == ["commits"]
    assert names(store.search("imperative", ["db"])) == []
    assert names(store.search('"; DROP TABLE notes -- NEAR(')) == []
    assert sorted(names(store.search(""))) == ["commits", "database"]


def test_only_notes_that_fit_a_prompt_are_recalled(store: NoteStore) -> None:
    store.save(note("Connection pool", "pgbouncer, twenty."))
    store.save(note("Releases", "Tag with v, then run the release workflow and update the changelog."))
    assert names(store.recall("why does the connection pool run dry?", 3)) == ["connection-pool"]
    assert names(store.recall("update the changelog and tag it", 3)) == ["releases"]
    assert store.recall("rename the button in the header", 3) == []
    assert store.recall("please fix it and run all of the files", 3) == []
    assert names(store.recall("update the changelog of the connection pool", 1)) != []


def test_newer_notes_and_those_of_the_project_come_first(store: NoteStore) -> None:
    store.save(note("Deploy old", "Deploy with make."), LONG_AGO)
    store.save(note("Deploy new", "Deploy with make."))
    store.save(note("Deploy mine", "Deploy with make.", "user"))
    assert names(store.search("deploy")) == ["deploy-new", "deploy-mine", "deploy-old"]
    assert recency(date.today().isoformat()) == 1.0
    assert recency("no date") == 0.0


def test_scripts_without_spaces_are_found(store: NoteStore) -> None:
    store.save(note("数据库连接", "测试使用端口五四三三。"))
    assert len(store.search("数据库")) == 1
    assert len(store.recall("数据库连接失败了", 3)) == 1
    assert store.recall("按钮颜色", 3) == []


def test_a_damaged_or_locked_out_index_loses_nothing(store: NoteStore, tmp_path: Path) -> None:
    store.save(note("Pool", "Ten."))
    assert names(store.search("pool")) == ["pool"]
    (tmp_path / "i.sqlite").write_bytes(b"no database" * 1000)
    assert names(store.search("pool")) == ["pool"]
    store.index.rebuild()
    assert not (tmp_path / "i.sqlite").exists()
    nowhere = NotesIndex(tmp_path / "no/such/folder/i.sqlite")
    assert names(NoteStore(store.user, store.project, store.root, nowhere, store.redact).search("ten")) == [
        "pool"
    ]


def test_what_changes_in_a_file_is_found_at_once_and_what_is_gone_is_not(store: NoteStore) -> None:
    kept = store.save(note("Pool", "Ten."))
    assert store.search("elephants") == []
    Path(kept.path).write_text(render(kept).replace("Ten.", "Elephants."))
    assert names(store.search("elephants")) == ["pool"]
    store.delete(kept)
    assert store.search("elephants") == []
    assert os.listdir(store.root / ".aar/memory") == []


def test_doubts_are_told_old_gone_contradicting_double_and_secret(store: NoteStore) -> None:
    store.save(note("Test database", "The port is 5433.\nSee `src/db.py` and `src/gone.py`."))
    (store.root / "src").mkdir()
    (store.root / "src/db.py").write_text("")
    store.save(note("Database for tests", "The test database port: 6000", "user"), LONG_AGO)
    store.save(note("Deploying with make", "Run make deploy on the build host, then wait for green.", "user"))
    store.save(note("Deploy by hand", "Run make deploy on the build host, then wait for green!", "user"))
    leak = store.user / "leak.md"
    leak.write_text("# Leak\n\npassword = hunter2hunter2\n")
    found = {
        (item.note.name, item.kind): item.sentence
        for item in check_notes(store.all(), store.root, 180, store.redact)
    }
    assert "src/gone.py" in found["test-database", "gone"]
    assert "src/db.py" not in found["test-database", "gone"]
    assert "2020-01-02" in found["database-for-tests", "old"]
    assert "hunter2" not in found["leak", "secret"]
    assert found["deploy-by-hand", "similar"]
    assert {kind for _, kind in found} >= {"gone", "old", "secret", "similar"}


def test_notes_that_contradict_each_other_say_so_with_the_newer_one(store: NoteStore) -> None:
    store.save(note("Staging", "Deploy host: alpha"), LONG_AGO)
    store.save(note("Servers", "- deploy host: beta."))
    [hit] = store.search("staging")
    assert any("alpha" in warning and "beta" in warning and "newer" in warning for warning in hit.warnings)
    yesterday = (date.today() - timedelta(days=1)).isoformat()
    assert not any(yesterday in warning for warning in hit.warnings)


def test_the_projects_note_comes_before_the_users_of_the_same_name(store: NoteStore) -> None:
    store.save(note("Pool", "Mine.", "user"))
    store.save(note("Pool", "Ours."))
    assert store.get("pool").body == "Ours."
    assert store.get("user/pool").body == "Mine."
    assert any("another note" in warning for warning in store.search("ours")[0].warnings)
    with pytest.raises(UsageError, match="Did you mean pool"):
        store.get("pol")
