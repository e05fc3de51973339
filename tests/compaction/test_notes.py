"""Notes in whatever form a model gives them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aar.core.compaction.notes import (
    SECTIONS,
    has_headings,
    merge_notes,
    notes_tokens,
    parse_missing,
    parse_notes,
    render_notes,
    telling,
    trim_notes,
)

FORMS = {
    "asked for": "## Goal\n- G\n\n## Decisions, with their reasons\n- D\n\n## Next step\n- N",
    "bold": "**Goal**\nG\n**Decisions:**\n* D\n**Next step:** N",
    "numbered": "1. **Goal**\n- G\n2. **Decisions**\n- D\n3. **Next step**\n- N",
    "colons": "Goal: G\nDecisions:\n• D\nNext steps: N",
    "fenced": "```markdown\n# Goal\nG\n# Decisions\n1. D\n# Next step\nN\n```",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_sections_are_found_in_every_usual_form(form: str) -> None:
    assert parse_notes(form) == {"goal": ("G",), "decisions": ("D",), "next": ("N",)}
    assert has_headings(form)


def test_text_without_headings_is_facts_and_frames_calls_and_nothing_are_none() -> None:
    text = 'The port is 99.\n{"name": "bash"}\n<notes>\nNone.\n- n/a\nNothing missing'
    assert parse_notes(text) == {"facts": ("The port is 99.",)}
    assert not has_headings(text)


def test_a_sentence_with_a_colon_is_no_heading() -> None:
    assert parse_notes("## Facts worth keeping\n- status: the port is 99\n- the rule: no eval") == {
        "facts": ("status: the port is 99", "the rule: no eval")
    }


def test_missing_lines_go_where_they_say() -> None:
    text = "Here:\n- constraints: no eval\n- The port is 99\n- open: write docs\nNOTHING MISSING"
    assert parse_missing(text) == {
        "constraints": ("no eval",),
        "facts": ("The port is 99",),
        "open": ("write docs",),
    }
    assert parse_missing("NOTHING MISSING") == {}


def test_lasting_sections_grow_and_the_others_change() -> None:
    earlier = {"goal": ("old",), "facts": ("a", "b"), "next": ("go",)}
    later = {"goal": ("new",), "facts": ("B!", "c")}
    assert merge_notes(earlier, later) == {"goal": ("new",), "facts": ("a", "b", "c"), "next": ("go",)}


def test_trimming_keeps_what_tells_most() -> None:
    lines = ("It went well and all was as it should be in this part.",) * 1
    filler = tuple(f"{line} {'indeed ' * number}" for number, line in enumerate(lines * 40))
    notes = {"facts": ("The lock PelicanLock is on port 48151.", *filler)}
    trimmed = trim_notes(notes, 200)
    assert "The lock PelicanLock is on port 48151." in trimmed["facts"]
    assert notes_tokens(trimmed) <= 200


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=400))
def test_any_text_can_be_read_and_shown_again(text: str) -> None:
    notes = parse_notes(text)
    assert set(notes) <= set(SECTIONS)
    assert isinstance(render_notes(notes), str)
    assert notes_tokens(trim_notes(notes, 50)) <= max(50, 60 * len(SECTIONS) + 100)
    assert isinstance(parse_missing(text), dict)


@pytest.mark.parametrize("piece", ["x", "x-", "x.", "a_", "aB", "x/", "`", "1", "# ", "* "])
def test_words_of_any_length_are_weighed_at_once(piece: str) -> None:
    text = piece * 20_000
    began = time.process_time()
    telling(text)
    parse_notes(text)
    assert time.process_time() - began < 5
