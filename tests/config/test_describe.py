"""What is told of the settings: a commented file, and a JSON Schema, both from the schema itself."""

from __future__ import annotations

import re
import tomllib

import pytest
from jsonschema import Draft202012Validator

from aar.config.describe import commented_config, docs, json_schema
from aar.config.load import validate_file
from aar.config.schema import Config
from tests.config.helpers import Place

_KEY = re.compile(r"#(\[|[a-z_0-9]+ = )")


def uncommented(*, unset: bool) -> str:
    lines = (
        line[1:] if _KEY.match(line) and (unset or not line.endswith("# not set")) else line
        for line in commented_config().splitlines()
    )
    return "\n".join(lines)


def test_the_commented_config_sets_nothing(place: Place) -> None:
    file = place.user(commented_config())
    assert validate_file(file) == []
    assert {name: table for name, table in tomllib.loads(file.read_text()).items() if table} == {
        "tui": {"layout": {}}
    }


def test_every_line_of_it_can_be_uncommented(place: Place) -> None:
    assert validate_file(place.user(uncommented(unset=True))) == []


def test_its_values_are_the_defaults(place: Place) -> None:
    defaults = Config().model_dump(mode="json")
    told = tomllib.loads(uncommented(unset=False))
    for section in ("limits", "budget", "guardrails", "sandbox", "session", "verify", "checkpoints"):
        for key, value in told[section].items():
            assert value == defaults[section][key], (section, key)
    assert told["limits"]["steps"] == 500


def test_every_key_has_its_meaning_above_it() -> None:
    lines = commented_config().splitlines()
    keys = [number for number, line in enumerate(lines) if re.match(r"#[a-z_]+ = ", line)]
    assert len(keys) > 100
    for number in keys:
        assert lines[number - 1].startswith("# "), lines[number]


def test_the_json_schema_says_what_the_loader_says(place: Place) -> None:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for text, right in (
        ('[model]\nname = "x/y"\nreasoning = 3', True),
        ("[tools.bash]\ntimeout = 5", True),
        ("[profiles.cheap.limits]\nsteps = 2", True),
        ('[providers.x.headers]\nA = "b"', True),
        ("[model]\nnam = 3", False),
        ("[limits]\nsteps = 0", False),
        ('[sandbox]\nmode = "rock"', False),
        ("[profiles.cheap.limits]\nstep = 2", False),
        ("[nowhere]\nx = 1", False),
    ):
        assert validator.is_valid(tomllib.loads(text)) is right, text
        assert (validate_file(place.user(text)) == []) is right, text


def test_the_json_schema_describes_every_documented_key() -> None:
    schema = json_schema()
    for name, (_, fields) in docs().items():
        if name in schema["$defs"]:
            for key in fields:
                assert schema["$defs"][name]["properties"][key]["description"], (name, key)


@pytest.mark.parametrize("name", ["Config", "ModelConfig", "SandboxConfig"])
def test_docstrings_are_read_by_class(name: str) -> None:
    about, fields = docs()[name]
    assert about
    assert name == "Config" or "mode" in fields or "name" in fields
