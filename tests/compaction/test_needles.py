"""Facts planted in a long session are before the model after one, two and three compactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from aar.protocol.errors import ErrorKind, ProviderError
from tests.compaction.needles import BY_PROGRAM, ROUNDS, campaign, embedded_campaign, embedded_model
from tests.compaction.support import Notes, fair_notes, forgetful_notes


def no_model(prompt: str) -> ProviderError:
    return ProviderError(ErrorKind.AUTH, "There is no key.")


@pytest.mark.parametrize(
    ("notes", "least"),
    [(fair_notes, 10), (forgetful_notes, 11), (no_model, 12)],
    ids=["fair", "forgetful", "none"],
)
async def test_needles_survive_three_compactions(tmp_path: Path, notes: Notes, least: int) -> None:
    found = await campaign(tmp_path / "p", notes)
    assert len(found) == ROUNDS
    for survivors in found:
        assert set(survivors) >= set(BY_PROGRAM)
        assert len(survivors) >= least


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(7200)
async def test_needles_survive_with_the_embedded_model(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    model = embedded_model(tmp_path)
    try:
        found = await embedded_campaign(tmp_path / "p", model)
    finally:
        await model.aclose()
    assert len(found) == ROUNDS
    for survivors in found:
        assert set(survivors) >= set(BY_PROGRAM)
