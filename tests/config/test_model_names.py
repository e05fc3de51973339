"""Names of models in settings: what cannot be right is refused, what is not known is doubted."""

from __future__ import annotations

from pathlib import Path

import pytest

from aar.protocol.errors import ConfigurationError
from aar.runtime.base import open_base
from aar.runtime.model_names import check_setting

OWN = ("providers.mine.base_url=http://127.0.0.1:9/v1",)


@pytest.mark.parametrize(
    ("key", "text", "told"),
    [
        ("model.name", "nope", "not of the form provider/model"),
        ("model.small", "opena/gpt-5", "Did you mean openai?"),
        ("model.fallback", "['openai/gpt-5', 'bad']", "'bad'"),
        ("profiles.fast.model.name", "other/x", "base_url under [providers.other]"),
    ],
)
def test_a_name_that_cannot_be_right_is_refused(tmp_path: Path, key: str, text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_setting(open_base(cwd=tmp_path, sets=OWN), key, text)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("name", "doubted"),
    [
        ("openai/gpt-5", False),
        ("openai/gpt-5x", True),
        ("anthropic", False),
        ("mine/anything", False),
        ("openai-compatible/anything", False),
        ("ollama/anything", False),
        ("scripted//file.json", False),
    ],
)
def test_a_model_that_its_vendor_lacks_is_doubted_and_not_refused(
    tmp_path: Path, name: str, doubted: bool
) -> None:
    told = check_setting(open_base(cwd=tmp_path, sets=OWN), "model.name", name)
    assert ("is the name right?" in told) == doubted


def test_other_settings_are_none_of_its_business(tmp_path: Path) -> None:
    assert check_setting(open_base(cwd=tmp_path), "limits.steps", "nope") == ""
