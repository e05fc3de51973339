"""Titles by a model: only where nobody gave one, and never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from aar.core.session_title import clean_title, improve_title
from aar.protocol.errors import ErrorKind, ProviderError
from tests.session.support import new_session, user


async def _says(question: str) -> str:
    assert "mend the parser" in question
    return '**"Parser mended"**\nand more'


async def test_a_session_without_a_name_gets_one_that_lists_show(tmp_path: Path) -> None:
    store, session = new_session(tmp_path)
    assert await improve_title(session, _says) is None
    session.append(user("please mend the parser\nof ours"))
    assert await improve_title(session, _says) == "Parser mended"
    session.close()
    assert store.list()[0].title == "Parser mended"


async def test_a_name_that_somebody_gave_stays(tmp_path: Path) -> None:
    _, session = new_session(tmp_path, title="Mine")
    session.append(user("mend the parser"))
    assert await improve_title(session, _says) is None
    assert session.title == "Mine"
    session.close()


async def test_a_model_that_fails_leaves_the_title(tmp_path: Path) -> None:
    async def fails(question: str) -> str:
        raise ProviderError(ErrorKind.OVERLOADED, "busy")

    _, session = new_session(tmp_path)
    session.append(user("mend the parser"))
    assert await improve_title(session, fails) is None
    assert session.title == "mend the parser"
    session.close()


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Fix the parser.", "Fix the parser"),
        ("\n\n# Title: `Fix it`\nmore", "Fix it"),
        ("", ""),
        ("word " * 40, ("word " * 12).strip()),
    ],
)
def test_an_answer_becomes_one_short_line(answer: str, title: str) -> None:
    assert clean_title(answer) == title
