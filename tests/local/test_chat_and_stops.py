"""How messages are laid out, how stop sequences are found, and which saved prefix is taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.protocol.messages import (
    ImageBlock,
    Message,
    ReasoningBlock,
    ResourceBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from aar.providers.base import ProviderRequest
from aar.providers.local.chat import chat_messages
from aar.providers.local.engine import EngineError, _Answer
from aar.providers.local.prefixes import KEPT, PrefixStore


def test_tool_calls_and_results_become_qwens_tags():
    messages = [
        Message(role="user", content=(TextBlock(text="fix it"), ResourceBlock(uri="a.py", text="x = 1"))),
        Message(
            role="assistant",
            content=(
                ReasoningBlock(text="hm"),
                TextBlock(text="I look."),
                ToolUseBlock(call_id="1", name="read_file", arguments={"path": "ä.py"}),
            ),
        ),
        Message(role="user", content=(ToolResultBlock(call_id="1", output="x = 1"),)),
    ]
    laid_out = chat_messages(ProviderRequest("m", "rules", messages))
    assert laid_out == [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "fix it\na.py:\n```\nx = 1\n```"},
        {
            "role": "assistant",
            "content": 'I look.\n<tool_call>\n{"name": "read_file", "arguments": {"path": "ä.py"}}\n</tool_call>',
        },
        {"role": "user", "content": "<tool_response>\nx = 1\n</tool_response>"},
    ]


def test_calls_that_did_not_parse_and_images_are_written_out():
    messages = [
        Message(role="assistant", content=(ToolUseBlock(call_id="1", name="x", raw_arguments="{oops"),)),
        Message(role="user", content=(ImageBlock(media_type="image/png", data="", name="a.png"),)),
        Message(role="assistant", content=(ReasoningBlock(text="only thought"),)),
    ]
    contents = [message["content"] for message in chat_messages(ProviderRequest("m", "", messages))]
    assert contents == [
        "<tool_call>\n{oops\n</tool_call>",
        "[the image a.png cannot be shown to this model]",
    ]


def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"text": text, "finish_reason": finish}], "timings": {"predicted_n": 1}}


def feed(pieces: list[str], stops: list[str]) -> tuple[str, dict[str, Any]]:
    events: list[dict[str, Any]] = []
    answer = _Answer(stops, events.append, lambda: False)
    ended = any(answer.take(chunk(piece)) for piece in pieces) or answer.take(chunk("", "stop"))
    done = answer.finish()
    assert ended == (done["stop"] == "stop_sequence")
    return "".join(event.get("text", "") for event in events), done


@given(
    text=st.text("abX\n", max_size=40),
    stops=st.lists(st.text("abX\n", min_size=1, max_size=4), max_size=3),
    data=st.data(),
)
def test_stop_sequences_are_found_however_the_text_is_cut(text, stops, data):
    pieces: list[str] = []
    rest = text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        pieces.append(rest[:size])
        rest = rest[size:]
    shown, done = feed(pieces, stops)
    ends = [at + len(stop) for stop in stops if (at := text.find(stop)) >= 0]
    if not ends:
        assert (shown, done["stop"]) == (text, "stop")
        return
    assert done["stop"] == "stop_sequence"
    assert text.startswith(shown)
    assert not any(stop in shown for stop in stops)
    assert any(text[len(shown) :].startswith(stop) for stop in stops)


def test_a_context_overflow_has_its_numbers():
    answer = _Answer([], lambda _: None, lambda: False)
    error = {"type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 8192, "message": "no"}
    assert answer.take({"error": error})
    with pytest.raises(EngineError, match="9000 tokens and the context of the embedded model 8192") as caught:
        answer.finish()
    assert caught.value.kind == "context_overflow"


def test_an_unknown_chunk_is_a_malformed_response():
    answer = _Answer([], lambda _: None, lambda: False)
    assert answer.take({"choices": [None]})
    with pytest.raises(EngineError) as caught:
        answer.finish()
    assert caught.value.kind == "malformed_response"


def keep(store: PrefixStore, folder: Path, tokens: list[int]) -> None:
    store.keep(tokens, lambda file: bool((folder / file).write_bytes(b"slot")))


def test_the_saved_prefix_that_shares_most_is_taken(tmp_path):
    store = PrefixStore(tmp_path, "k")
    keep(store, tmp_path, [1, 2, 3, 4])
    keep(store, tmp_path, [1, 2, 3, 4, 5, 6, 7])
    keep(PrefixStore(tmp_path, "other"), tmp_path, [1, 2, 3, 4, 5, 6, 7, 8])
    best = store.best([1, 2, 3, 4, 5, 6, 8, 8])
    assert best is not None
    assert best.shared == 6
    assert (tmp_path / best.file).read_bytes() == b"slot"
    assert store.best([9, 9, 9]) is None


def test_only_the_newest_prefixes_are_kept_and_a_failed_save_leaves_nothing(tmp_path):
    store = PrefixStore(tmp_path, "k")
    for number in range(KEPT + 3):
        keep(store, tmp_path, [number, number])
    assert len(list(tmp_path.glob("*.json"))) == len(list(tmp_path.glob("*.bin"))) == KEPT
    store.keep([7, 7, 7], lambda _: False)
    assert len(list(tmp_path.iterdir())) == 2 * KEPT


def test_a_torn_note_is_skipped(tmp_path):
    store = PrefixStore(tmp_path, "k")
    keep(store, tmp_path, [1, 2])
    (tmp_path / "k-torn.json").write_text(json.dumps([1, 2, 3])[:-2])
    best = store.best([1, 2])
    assert best is not None
    assert best.shared == 2
