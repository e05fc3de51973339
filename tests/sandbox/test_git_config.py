"""What a git config makes git execute, and which commands of git write it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aar.safety.sandbox.git_config import OddConfigError, changes_execution, executing, parse, writes_config
from tests.sandbox.conftest import git

PLAIN = '[core]\n\tbare = false\n[remote "origin"]\n\turl = https://example.org/a.git\n'


def test_settings_are_parsed_as_git_reads_them() -> None:
    text = (
        '[Core] ; note\n\tBare = false # x\n[remote "Ori\\"gin"] url = a\\\n b\n[a.b]c\n[branch "x"]\n'
        "\tmerge=refs/heads/x\n"
    )
    assert [key for key, _ in parse(text)] == [
        "core.bare",
        'remote.Ori"gin.url',
        "a.b.c",
        "branch.x.merge",
    ]


@pytest.mark.parametrize(
    "text", ["key = value\n", "[core\nbare=1\n", "[core]\n1x = 2\n", "[core]\nbare false\n", "[]\nx=1\n"]
)
def test_what_is_no_config_is_an_error(text: str) -> None:
    with pytest.raises(OddConfigError):
        parse(text)


EXECUTING = [
    "[core]\n\tfsmonitor = /tmp/x\n",
    "[core]\n\thooksPath = /tmp\n",
    "[core]\n\tsshCommand = x\n",
    "[core]\n\tpager = x\n",
    "[CORE]\n\tPAGER = x\n",
    "[core] pager = x\n",
    "[core]\n\tpag\\\ner = x\n",
    "[alias]\n\tst = !x\n",
    '[filter "x"]\n\tclean = x\n',
    '[diff "x"]\n\ttextconv = x\n',
    "[include]\n\tpath = /tmp/x\n",
    '[includeIf "gitdir:/"]\n\tpath = /tmp/x\n',
    "[credential]\n\thelper = x\n",
    '[url "ext::sh"]\n\tinsteadOf = https://\n',
    '[remote "evil"]\n\turl = ext::sh -c x\n',
    '[remote "evil"]\n\turl = "ext::sh -c x"\n',
    '[remote "evil"]\n\turl = -oProxyCommand=x\n',
    '[remote "evil"]\n\tuploadpack = x\n',
    '[submodule "x"]\n\tupdate = !x\n',
    '[submodule "x"]\n\turl = ext::x\n',
    "[gpg]\n\tprogram = x\n",
    "[some.future]\n\tkey = x\n",
]


@pytest.mark.parametrize("text", EXECUTING)
def test_settings_that_start_something_count(text: str) -> None:
    assert executing(parse(text))
    assert changes_execution(PLAIN.encode(), (PLAIN + text).encode())
    assert changes_execution((PLAIN + text).encode(), PLAIN.encode())


def test_what_cannot_be_read_counts_unless_it_is_the_same() -> None:
    assert changes_execution(PLAIN.encode(), b"\xff\xfe")
    assert changes_execution(PLAIN.encode(), b"no config\n")
    assert not changes_execution(b"no config\n", b"no config\n")


def test_what_git_itself_writes_does_not_count(tmp_path: Path) -> None:
    git("init", "-q", cwd=tmp_path)
    before = (tmp_path / ".git/config").read_bytes()
    git("remote", "add", "origin", "git@example.org:a/b.git", cwd=tmp_path)
    git("config", "user.email", "t@example.org", cwd=tmp_path)
    git("config", "branch.main.merge", "refs/heads/main", cwd=tmp_path)
    git("config", "pull.rebase", "true", cwd=tmp_path)
    after = (tmp_path / ".git/config").read_bytes()
    assert before != after
    assert not changes_execution(before, after)


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_two_texts_can_be_compared(before: str, after: str) -> None:
    assert changes_execution(before.encode(), before.encode()) is False
    assert changes_execution(before.encode(), after.encode()) in (True, False)


@pytest.mark.parametrize(
    "command",
    [
        "git config user.name x",
        "git -C sub remote add o u",
        "cd a && git push -u o b",
        "git clone u .",
        "git  pull",
    ],
)
def test_commands_that_write_the_config_are_known(command: str) -> None:
    assert writes_config(("/bin/sh", "-c", command))
    assert writes_config(tuple(command.split()))


@pytest.mark.parametrize(
    "command", ["git status", "git log --oneline", "git diff; ls config", "git add -A\nconfig", "ls"]
)
def test_commands_that_do_not_are_left_out(command: str) -> None:
    assert not writes_config(("/bin/sh", "-c", command))
