"""The audit chain: any later change of a session is seen."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aar.observability.audit_log import AuditChain, audit_key, verify
from aar.protocol.errors import StorageError
from tests.cli.support import aar, call, script, stored


def recorded(folder: Path, lines: int = 6) -> tuple[Path, bytes]:
    session = folder / "S.jsonl"
    key = audit_key(folder / "data")
    session.write_bytes(b"".join(b'{"seq": %d}\n' % number for number in range(1, lines + 1)))
    AuditChain(session, key).extend()
    return session, key


def test_a_session_as_it_was_written_verifies(tmp_path: Path) -> None:
    session, key = recorded(tmp_path)
    result = verify(session, key)
    assert (result.ok, result.lines) == (True, 6)
    with session.open("ab") as stream:
        stream.write(b'{"seq": 7}\n{"torn')
    chain = AuditChain(session, key)
    assert chain.head == result.head
    assert chain.extend() == 1
    assert verify(session, key).line == 8
    with session.open("ab") as stream:
        stream.write(b'"}\n')
    assert AuditChain(session, key).extend() == 1
    assert verify(session, key).ok
    assert (session.with_suffix(".d") / "audit").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "data/audit.key").stat().st_mode & 0o777 == 0o600


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_changed_byte_is_found(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / str(data.draw(st.integers(0, 10**9)))
    folder.mkdir(exist_ok=True)
    session, key = recorded(folder)
    whole = bytearray(session.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    session.write_bytes(whole)
    result = verify(session, key)
    assert not result.ok
    assert result.line is not None
    assert result.line <= at // 11 + 1


@pytest.mark.parametrize("how", ["removed", "added", "swapped", "cut", "no chain entry"])
def test_lines_cannot_come_go_or_move(tmp_path: Path, how: str) -> None:
    session, key = recorded(tmp_path)
    lines = session.read_bytes().splitlines(keepends=True)
    changed = {
        "removed": lines[:2] + lines[3:],
        "added": [*lines, b'{"seq": 7}\n'],
        "swapped": [lines[1], lines[0], *lines[2:]],
        "cut": lines[:-1],
        "no chain entry": lines,
    }[how]
    session.write_bytes(b"".join(changed))
    if how == "no chain entry":
        chain = session.with_suffix(".d") / "audit"
        chain.write_text("".join(chain.read_text().splitlines(keepends=True)[:-1]))
    assert not verify(session, key).ok


def test_a_chain_made_with_another_key_does_not_hold(tmp_path: Path) -> None:
    session, key = recorded(tmp_path)
    (session.with_suffix(".d") / "audit").unlink()
    session.write_bytes(session.read_bytes().replace(b"3", b"9"))
    AuditChain(session, os.urandom(32)).extend()
    assert not verify(session, key).ok


def test_without_a_record_it_says_how_to_have_one(tmp_path: Path) -> None:
    (tmp_path / "S.jsonl").write_text("{}\n")
    with pytest.raises(StorageError, match="audit = true"):
        verify(tmp_path / "S.jsonl", audit_key(tmp_path / "data"))


def test_aar_audit_verify_sees_a_change_in_a_real_session(tmp_path: Path) -> None:
    project = tmp_path / "p"
    (project / ".git").mkdir(parents=True)
    model = script(tmp_path / "m.json", call("list_directory", path="."), "Done.")
    for flags in ((), ("--continue",)):
        assert (
            aar("run", "hi", "--model", model, "--set", "session.audit=true", *flags, cwd=project).code == 0
        )
    found = aar("audit", "verify", "--json", cwd=project)
    assert found.code == 0
    file = stored()[0]
    assert found.json["lines"] == len(file.read_bytes().splitlines())
    assert aar("audit", "verify", file.stem, "--head", found.json["head"], cwd=project).code == 0
    assert aar("audit", "verify", "--head", "00", cwd=project).code == 1
    file.write_bytes(file.read_bytes().replace(b"Done.", b"Gone.", 1))
    broken = aar("audit", "verify", cwd=project)
    assert broken.code == 1
    assert "not what was written" in broken.out
    assert json.loads(aar("audit", "verify", "--json", cwd=project).out)["ok"] is False
