"""What is learnt from a server's refusal of a parameter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aar.providers.http.rejected_parameters import RejectedParameters

OPTIONAL = (
    "include",
    "reasoning.summary",
    "reasoning.effort",
    "reasoning",
    "temperature",
    "max_tokens",
    "stream",
)


def rejected() -> RejectedParameters:
    return RejectedParameters(
        "host",
        OPTIONAL,
        other_names={"max_tokens": "max_completion_tokens"},
        levels=("reasoning.effort",),
        instead={"stream": False},
    )


def body(message: str, param: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "param": param}}).encode()


FIELDS: dict[str, Any] = {
    "include": ["a"],
    "reasoning": {"effort": "minimal", "summary": "auto"},
    "temperature": 0.5,
    "max_tokens": 9,
    "stream": True,
}


def learnt(message: str, param: str | None = None, status: int = 400) -> tuple[str | None, dict[str, Any]]:
    known = rejected()
    notice = known.learn("m", FIELDS, status, body(message, param))
    return notice, known.apply("m", FIELDS)


def without(*names: str, **changed: Any) -> dict[str, Any]:
    return {name: value for name, value in {**FIELDS, **changed}.items() if name not in names}


@pytest.mark.parametrize(
    ("message", "param", "fields"),
    [
        ("Unsupported parameter: temperature", None, without("temperature")),
        (
            "'temperature' does not support 0.5. Only the default (1) value is supported.",
            None,
            without("temperature"),
        ),
        ("Not supported", "reasoning.summary", without(reasoning={"effort": "minimal"})),
        ("Not supported", "include[0]", without("include")),
        ("Not supported", "reasoning", without("reasoning")),
        (
            "Unsupported: 'max_tokens'. Use 'max_completion_tokens' instead.",
            "max_tokens",
            without("max_tokens", max_completion_tokens=9),
        ),
        ("must be verified to stream this model", "stream", without(stream=False)),
        (
            "Unsupported value: 'minimal'. Supported values are: 'none', 'low' and 'high'.",
            "reasoning.effort",
            without(reasoning={"effort": "low", "summary": "auto"}),
        ),
        ("Unsupported value: 'minimal'.", "reasoning.effort", without(reasoning={"summary": "auto"})),
    ],
)
def test_a_refused_parameter_is_given_up_or_changed(message: str, param: str | None, fields: dict[str, Any]):
    notice, applied = learnt(message, param)
    assert applied == fields
    assert notice is not None
    assert notice.endswith(".")


@pytest.mark.parametrize(
    ("message", "param", "status"),
    [
        ("Unsupported parameter: temperature", None, 500),
        ("temperature is lovely", None, 400),
        ("Invalid prompt: it does not include text and has no stream of thought.", None, 400),
        ("Invalid value", "input[3].content", 400),
        ("Invalid type for an item of reasoning", "input", 400),
    ],
)
def test_a_refusal_of_anything_else_teaches_nothing(message: str, param: str | None, status: int):
    assert learnt(message, param, status) == (None, FIELDS)


def test_what_is_learnt_holds_for_its_model_and_leaves_what_was_given_alone():
    known = rejected()
    known.learn("m", FIELDS, 400, body("Unsupported parameter", "reasoning.summary"))
    known.learn("m", known.apply("m", FIELDS), 400, body("Unsupported parameter", "reasoning.effort"))
    assert known.apply("m", FIELDS) == without("reasoning")
    assert known.apply("other", FIELDS) == FIELDS
    assert FIELDS["reasoning"] == {"effort": "minimal", "summary": "auto"}
