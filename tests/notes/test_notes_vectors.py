"""Notes found by what they say: vectors in the index, a server's, a package's, and none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aar.config.schema import Config
from aar.memory.notes import NoteStore
from aar.memory.notes_index import NotesIndex
from aar.protocol.errors import AarError, ConfigurationError, ErrorKind, ProviderError, StorageError
from aar.protocol.notes import Embedder, Note
from aar.protocol.usage import Usage
from aar.providers.embeddings import make_embedder
from aar.providers.prices import find_record
from aar.runtime.notes import by_words_only, open_notes
from tests.support.minds import place
from tests.support.model_server import ModelServer, Reply, model_server

SENSES = ("login sign-in password", "deploy ship release", "paint colour")


class Sense:
    """An embedder that knows a few words that mean the same."""

    name, least = "sense", 0.5

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failure: AarError | None = None

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.failure is not None:
            raise self.failure
        self.asked += texts
        return [
            [float(any(word in text.lower() for word in sense.split())) for sense in SENSES] for text in texts
        ]

    def take_usage(self) -> Usage:
        return Usage()


@pytest.fixture
def sense() -> Sense:
    return Sense()


@pytest.fixture
def store(tmp_path: Path, sense: Sense) -> NoteStore:
    root = tmp_path / "project"
    root.mkdir()
    index = NotesIndex(tmp_path / "i.sqlite", sense)
    store = NoteStore(tmp_path / "user", root / ".aar/memory", root, index, lambda text: text)
    for title, body in (
        ("Login", "The form is in auth."),
        ("Deploy", "From stable."),
        ("Walls", "A colour."),
    ):
        store.save(Note("", "project", title, body))
    return store


def names(hits: Any) -> list[str]:
    return [hit.note.name for hit in hits]


def test_a_note_is_found_by_what_it_says_and_by_its_words(store: NoteStore) -> None:
    assert names(store.search("how does the sign-in work")) == ["login"]
    assert names(store.recall("mend the password page", 3)) == ["login"]
    assert names(store.recall("bake bread", 3)) == []
    # What both orders find comes before what one of them finds.
    assert names(store.search("ship the stable branch, not the form")) == ["deploy", "login"]


def test_vectors_are_made_once_for_each_text_and_go_with_it(store: NoteStore, sense: Sense) -> None:
    store.search("ship")
    assert len(sense.asked) == 4
    store.search("ship")
    assert sense.asked[4:] == ["ship"]
    store.save(Note("", "project", "Walls", "Another colour."))
    store.delete(store.get("deploy"))
    assert names(store.search("ship")) == []
    assert sense.asked[5:] == ["Walls\n\nAnother colour.", "ship"]
    store.index.rebuild()
    assert names(store.search("paint")) == ["walls"]


@pytest.mark.parametrize(
    "failure", [ProviderError(ErrorKind.NETWORK, "Nothing answers."), StorageError("Full.")]
)
def test_where_it_fails_words_count(store: NoteStore, sense: Sense, failure: AarError) -> None:
    sense.failure = failure
    assert names(store.search("login")) == ["login"]
    assert names(store.recall("password", 3)) == []
    assert by_words_only(store) == f"Notes are found by words alone now. {failure}"
    sense.failure = None
    assert names(store.recall("password", 3)) == ["login"]
    assert by_words_only(store) == ""


# --- a server's --------------------------------------------------------------------------------------------


def served(server: ModelServer, **settings: Any) -> Embedder:
    table = {"base_url": f"http://127.0.0.1:{server.port}/v1", **settings}
    return make_embedder("mine/vectors", Config.model_validate({"providers": {"mine": table}}))


def reply(*vectors: object, **more: object) -> Reply:
    rows = [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    return Reply(body=json.dumps({"data": rows[::-1], **more}).encode())


def test_a_server_is_asked_for_vectors_with_its_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-of-mine-123456")
    with model_server([reply([3, 4], [0, 2])]) as server:
        assert served(server, api_key_env="MY_KEY").embed(["a", "b"]) == [[0.6, 0.8], [0.0, 1.0]]
        [request] = server.requests
        assert request.path == "/v1/embeddings"
        assert request.body == {"model": "vectors", "input": ["a", "b"], "encoding_format": "float"}
        assert request.headers["authorization"] == "Bearer sk-of-mine-123456"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Reply(status=401, error="bad key"), "key"),
        (Reply(body=b"<html>"), "does not hold a vector for each text"),
        (Reply(body=b'{"data": []}'), "does not hold a vector for each text"),
        (reply("x", [1]), "a vector in it is none"),
        (reply([1], [1, 2]), "differ in length"),
        (reply([1e999], [1]), "a vector in it is none"),
        (reply([10**400], [1]), "a vector in it is none"),
    ],
)
def test_a_server_that_gives_none_is_one_sentence(answer: Reply, says: str) -> None:
    with model_server([answer]) as server, pytest.raises(ProviderError, match=says) as told:
        served(server).embed(["a", "b"])
    assert "\n" not in str(told.value)


async def test_vectors_of_a_server_are_paid_by_the_session_and_the_day(tmp_path: Path) -> None:
    answers = [reply([1, 0], usage={"prompt_tokens": 1000}), reply([1, 0], usage={"prompt_tokens": 500})]
    with model_server([*answers, reply([1, 0])]) as server:
        sets = (
            "memory.embeddings=mine/vectors",
            f"providers.mine.base_url=http://127.0.0.1:{server.port}/v1",
            "providers.mine.models.vectors.price_input=2",
            "providers.mine.models.vectors.price_output=0",
        )
        async with place(tmp_path, lambda ask: "ok", files={".git/HEAD": ""}, sets=sets) as here:
            open_notes(here.runtime.base, words_only=True).save(Note("", "user", "Pooling", "pgbouncer"))
            for prompt in ("what about pooling", "and what else"):
                await here.run(prompt)
            paid = [event for event in here.of("provider_meta") if event.agent_id == "embeddings"]
    assert [(event.full_model, event.usage.input, event.usage.estimated) for event in paid] == [
        ("mine/vectors", 1500, False),
        ("mine/vectors", 4, True),
    ]
    assert paid[0].cost_usd == pytest.approx(0.003)
    assert here.session.totals.agents["main"].requests == here.session.totals.all.requests - 2


def test_a_model_of_vectors_has_a_price_without_one_for_answers() -> None:
    record = find_record("openai", "text-embedding-3-small")
    assert record is not None
    assert record.price is not None
    assert record.price.cost(Usage(input=1_000_000)) == pytest.approx(0.02)


@pytest.mark.parametrize("name", ["anthropic/claude", "nobody/x", "openai", "local/x", "openai-compatible/x"])
def test_a_provider_without_embeddings_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\[memory\] embeddings"):
        make_embedder(name, Config())


async def test_a_session_says_once_that_words_alone_count(tmp_path: Path) -> None:
    files = {".git/HEAD": ""}
    sets = ("memory.embeddings=mine/vectors", "providers.mine.base_url=http://127.0.0.1:9/v1")
    async with place(tmp_path, lambda ask: "ok", files=files, sets=sets) as here:
        store = open_notes(here.runtime.base, words_only=True)
        store.save(Note("", "user", "Pooling", "pgbouncer"))
        for _ in range(2):
            await here.run("what about pooling")
        told = [event.message for event in here.of("notice") if event.code == "notes"]
        assert sum("found by words alone" in message for message in told) == 1
        assert any("Recalled 1 note: pooling" in message for message in told)


# --- a package's -------------------------------------------------------------------------------------------


def test_the_vectors_in_the_package_tell_what_is_alike() -> None:
    pytest.importorskip("tokenizers", reason="needs the extra embeddings")
    embedder = make_embedder("wordllama", Config())
    try:
        asked, near, far = embedder.embed(
            ["how do we ship a new version", "Deploying releases", "Pasta with tomatoes"]
        )
    except ConfigurationError as error:
        pytest.skip(str(error))
    likeness = [sum(one * other for one, other in zip(asked, text, strict=True)) for text in (near, far)]
    assert likeness[0] > 0.15 > likeness[1]
    assert sum(number * number for number in asked) == pytest.approx(1)
    assert embedder.embed([""]) == [[0.0] * len(asked)]
