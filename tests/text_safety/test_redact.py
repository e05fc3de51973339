"""Secrets do not survive, ordinary text does."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.safety.redact import MARK, Redactor

_BODY = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hJ5"
_KEYS = [
    f"sk-ant-api03-{_BODY}", f"sk-{_BODY}", f"sk-proj-{_BODY}", f"ghp_{_BODY}", f"gho_{_BODY}", f"github_pat_{_BODY}",
    "AKIAIOSFODNN7EXAMPLE", "AIza" + _BODY, "xoxb-1234567890-abcdef", f"glpat-{_BODY}", f"npm_{_BODY}", f"pypi-{_BODY}",
    f"hf_{_BODY}", f"gsk_{_BODY}", f"sk_live_{_BODY}", f"SG.{_BODY}.{_BODY}", f"dckr_pat_{_BODY}", f"xai-{_BODY}",
    f"r8_{_BODY}", f"hvs.{_BODY}", f"whsec_{_BODY}", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_123",
]  # fmt: skip


@pytest.mark.parametrize("key", _KEYS)
@pytest.mark.parametrize("frame", ["{}", "x {} y", '"{}"', "KEY={}", "--key={},", "{{'a': '{}'}}"])
def test_known_key_forms_go(key: str, frame: str) -> None:
    found = Redactor().redact(frame.format(key))
    assert key not in found
    assert MARK in found


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abc123def456", "abc123def456"),
        ('"authorization": "Basic dXNlcjpwYXNz"', "dXNlcjpwYXNz"),
        ("curl -H 'Authorization: token abcdef12'", "abcdef12"),
        ("postgres://u:pw@h/db", "pw@"),
        ("https://user:p4ss@host/x", "p4ss"),
        ("curl -u user:pass http://x", ":pass"),
        ("curl --user=user:pass http://x", ":pass"),
        ("password=hunter22", "hunter22"),
        ('"password": "correct horse"', "correct horse"),
        ("DB_PASSWORD='s3cr3t'", "s3cr3t"),
        ("api_key: 9f8e7d6c5b4a3f2e1d0c", "9f8e7d6c5b4a3f2e1d0c"),
        ("MY_TOKEN=Zx8Qw2Er9Ty4Ui7O", "Zx8Qw2Er9Ty4Ui7O"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----", "MIIEabc"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz cut", "b3BlbnNz"),
    ],
)
def test_u15_secrets_in_context_go(text: str, secret: str) -> None:
    found = Redactor().redact(text)
    assert secret not in found
    assert MARK in found


@pytest.mark.parametrize(
    "text",
    ["def login(token: str, password: str | None = None)", "max_tokens=4096", "tokens: 12", "password = input()",
     "token = os.environ['X']", "git@github.com:a/b.git", "https://docs.python.org/3/", "sk-learn", "a skeleton key-value",
     "secret: true", "basic usage of bearer tokens", "commit 4f2cce2b3dd33e", "api_key_env = \"OPENAI_API_KEY\"",
     "ratio 3:4@5", "x" * 5000],
)  # fmt: skip
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor().redact(text) == text


def test_known_values_go_wherever_they_stand() -> None:
    redactor = Redactor(["hunter2hunter2", "hunter2hunter2-long", "tiny"])
    assert redactor.redact("a hunter2hunter2-long b hunter2hunter2 tiny") == f"a {MARK} b {MARK} tiny"


def test_json_values_under_a_telling_name_go_whole() -> None:
    value = {
        "password": "abc",
        "headers": {"Authorization": "Bearer x1y2z3a4b5"},
        "n": 1,
        "l": [f"ghp_{_BODY}"],
    }
    found = Redactor().redact_json(value)
    assert found["password"] == MARK
    assert found["n"] == 1
    assert "x1y2z3" not in json.dumps(found)
    assert _BODY not in json.dumps(found)


_PIECES = st.sampled_from(
    [*_KEYS[:6], "password=", "token: ", "Bearer ", "abc123XYZ789", "https://u:p@h", " ", "\n", '"', "'", ":", "=", MARK,
     "-u a:b", "Authorization: "]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_redacting_twice_changes_nothing(text: str) -> None:
    redactor = Redactor(["abc123XYZ789"])
    once = redactor.redact(text)
    assert redactor.redact(once) == once
    assert "abc123XYZ789" not in once


@pytest.mark.parametrize(
    "piece", ["word ", "a.b-", "token=", "https://", "-u a", "x:", "Bearer ", "password", "eyJ"]
)
def test_long_text_takes_linear_time(piece: str) -> None:
    began = time.process_time()
    Redactor(["abcdefgh"]).redact(piece * (200_000 // len(piece)))
    assert time.process_time() - began < 15
