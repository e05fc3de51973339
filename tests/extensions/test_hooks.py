"""Hooks: what they hear, what they can stop and change, and what they cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.state import StopReason
from tests.support.fakes import Turn, call
from tests.support.minds import Ask, place

pytestmark = pytest.mark.usefixtures("clean_environment")


def toml(event: str, command: str, **more: Any) -> str:
    lines = [f"[[hooks.{event}]]", f"command = {json.dumps(command)}"]
    return "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in more.items())]) + "\n"


def write(path: str = "out.txt") -> Turn:
    return Turn(calls=[call("write_file", path=path, content="x\n")])


def writes_once(ask: Ask) -> Turn | str:
    return write() if ask.first else "Done."


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "hooks.toml"


async def test_a_hook_that_blocks_a_call_gives_its_reason_to_the_model(tmp_path: Path, config: Path) -> None:
    config.write_text(
        toml("before_tool", "cat > seen.json; echo 'not on Sundays' >&2; exit 2", matcher="write_file")
    )
    async with place(tmp_path, writes_once, config_file=config) as here:
        await here.run()
        [result] = here.of("tool_result")
        assert result.category == "blocked"
        assert "not on Sundays" in result.output
        assert not (here.root / "out.txt").exists()
        seen = json.loads((here.root / "seen.json").read_text())
        assert seen["tool_name"] == "write_file"
        assert seen["arguments"]["path"] == "out.txt"
        assert seen["event"] == "before_tool"


async def test_arguments_that_a_hook_changes_are_judged_again(tmp_path: Path, config: Path) -> None:
    answer = json.dumps({"arguments": {"path": "../escaped.txt"}, "decision": "allow"})
    config.write_text(toml("before_tool", f"echo '{answer}'"))
    async with place(tmp_path, writes_once, config_file=config) as here:
        await here.run()
        [result] = here.of("tool_result")
        assert result.is_error
        assert not (tmp_path / "escaped.txt").exists()


async def test_claude_hook_files_run_unchanged_after_trust(tmp_path: Path) -> None:
    script = (
        "import json,sys\n"
        "d=json.load(sys.stdin)\n"
        "open('seen.json','w').write(json.dumps(d))\n"
        "p=d['tool_input']['file_path']\n"
        "if p.endswith('.env'): print('secret file', file=sys.stderr); sys.exit(2)\n"
        "print(json.dumps({'hookSpecificOutput':{'hookEventName':'PreToolUse','updatedInput':{'content':'changed'}}}))\n"
    )
    settings = {
        "hooks": {
            "PreToolUse": [
                {
                    "matcher": "Write|Edit",
                    "hooks": [
                        {"type": "command", "command": 'python3 "$CLAUDE_PROJECT_DIR"/.claude/hooks/check.py'}
                    ],
                }
            ],
            "Stop": [{"hooks": [{"type": "command", "command": "true"}]}],
        }
    }
    files = {".claude/settings.json": json.dumps(settings), ".claude/hooks/check.py": script}
    async with place(tmp_path, writes_once, files=files, trust=True) as here:
        await here.run()
        assert (here.root / "out.txt").read_text() == "changed"
        seen = json.loads((here.root / "seen.json").read_text())
        assert (seen["hook_event_name"], seen["tool_name"]) == ("PreToolUse", "Write")
        assert seen["tool_input"]["file_path"] == f"{here.root}/out.txt"
        assert seen["tool_input"]["content"] == "x\n"
        assert seen["session_id"] == here.session.session_id


async def test_hooks_of_a_project_do_not_run_before_trust(tmp_path: Path) -> None:
    hook = [{"hooks": [{"type": "command", "command": "touch canary"}]}]
    files = {
        ".claude/settings.json": json.dumps({"hooks": {"PreToolUse": hook, "UserPromptSubmit": hook}}),
        ".aar/config.toml": toml("before_tool", "touch canary"),
    }
    async with place(tmp_path, writes_once, files=files) as here:
        await here.run()
        assert not (here.root / "canary").exists()


async def test_hooks_run_behind_the_wall_and_only_the_user_can_say_otherwise(
    tmp_path: Path, config: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    files = {".aar/config.toml": toml("before_tool", f"touch {outside}/project", sandbox=False)}
    config.write_text(
        toml("before_tool", f"touch {outside}/walled")
        + toml("before_tool", f"touch {outside}/free", sandbox=False)
    )
    async with place(tmp_path, writes_once, files=files, config_file=config, trust=True) as here:
        await here.run()
        assert [path.name for path in outside.iterdir()] == ["free"]


async def test_a_project_hook_cannot_allow_what_the_rules_ask_about(tmp_path: Path, config: Path) -> None:
    allow = toml("before_tool", 'echo \'{"decision": "allow"}\'')
    async with place(
        tmp_path, writes_once, files={".aar/config.toml": allow}, trust=True, mode="ask"
    ) as here:
        assert (await here.run()).stop_reason is StopReason.DENIED
        assert not (here.root / "out.txt").exists()
    config.write_text(allow)
    other = tmp_path / "other"
    other.mkdir()
    async with place(other, writes_once, config_file=config, mode="ask") as here:
        await here.run()
        assert (here.root / "out.txt").exists()
        assert here.of("approval")[-1].by == "hook"


async def test_no_hook_allows_a_denial_or_a_hard_stop(tmp_path: Path, config: Path) -> None:
    config.write_text(toml("before_tool", 'echo \'{"decision": "allow"}\''))

    def think(ask: Ask) -> Turn | str:
        calls = [call("bash", command="git reset --hard"), call("write_file", path="no.txt", content="x")]
        return Turn(calls=calls) if ask.first else "Done."

    options: dict[str, Any] = {"mode": "ask", "sets": ('permissions.deny=["write(no.txt)"]',)}
    async with place(tmp_path, think, config_file=config, **options) as here:
        await here.run()
        assert all(result.is_error for result in here.of("tool_result"))
        assert not (here.root / "no.txt").exists()


@pytest.mark.parametrize(("fail", "made"), [("open", True), ("closed", False)])
async def test_a_hook_that_fails_lets_go_on_or_blocks_as_set(
    tmp_path: Path, config: Path, fail: str, made: bool
) -> None:
    config.write_text(toml("before_tool", "sleep 60", fail=fail, timeout=2))
    async with place(tmp_path, writes_once, config_file=config) as here:
        await here.run()
        assert (here.root / "out.txt").exists() is made
        assert any("took longer" in notice.message for notice in here.of("notice"))


async def test_a_stop_hook_sends_the_model_back_but_not_for_ever(tmp_path: Path, config: Path) -> None:
    config.write_text(toml("stop", "test -f out.txt || { echo 'write out.txt first' >&2; exit 2; }"))

    def think(ask: Ask) -> Turn | str:
        return write() if "write out.txt first" in ask.said and ask.first else "Done."

    async with place(tmp_path, think, config_file=config) as here:
        assert (await here.run()).stop_reason is StopReason.END_TURN
        assert (here.root / "out.txt").exists()
    config.write_text(toml("stop", "exit 2"))
    other = tmp_path / "other"
    other.mkdir()
    async with place(other, lambda ask: f"Done {len(ask.said)}.", config_file=config) as here:
        assert (await here.run()).steps <= 10


async def test_a_prompt_that_a_hook_blocks_reaches_neither_model_nor_file(
    tmp_path: Path, config: Path
) -> None:
    config.write_text(
        toml("prompt_submit", "grep -q hunter2 && { echo 'has a password' >&2; exit 2; } || true")
    )
    async with place(tmp_path, lambda ask: "Done.", config_file=config) as here:
        result = await here.run("the password is hunter2")
        assert result.stop_reason is StopReason.DENIED
        assert not here.mind.asked
        assert not here.of("user_message")
        assert (await here.run("hello")).stop_reason is StopReason.END_TURN


async def test_session_start_adds_context_once_and_session_end_is_heard(tmp_path: Path, config: Path) -> None:
    config.write_text(toml("session_start", "echo 'Branch: main'") + toml("session_end", "touch ended"))
    async with place(tmp_path, lambda ask: "Done.", config_file=config) as here:
        await here.run()
        await here.run()
        assert here.mind.asked[-1].said.count("Branch: main") == 1
        root = here.root
    assert (root / "ended").exists()


async def test_a_checker_after_edits_tells_the_model_what_is_wrong(tmp_path: Path, config: Path) -> None:
    config.write_text(
        toml("after_edit", "printf 'formatted\\n' > {path}", glob="*.txt")
        + toml("after_edit", "echo bad style in {path}; exit 1", glob="*.txt")
        + toml("after_edit", "touch never", glob="*.py")
    )
    async with place(tmp_path, writes_once, config_file=config) as here:
        await here.run()
        assert (here.root / "out.txt").read_text() == "formatted\n"
        said = here.mind.asked[-1].said
        assert "bad style in out.txt" in said
        assert "read it again" in said
        assert not (here.root / "never").exists()


async def test_rules_of_a_folder_come_when_it_is_entered_with_what_they_import(tmp_path: Path) -> None:
    def think(ask: Ask) -> Turn | str:
        if len(ask.results) < 2:
            return Turn(calls=[call("read_file", path=f"api/v1/{len(ask.results)}.txt")])
        return "Done."

    files = {
        "AGENTS.md": "Root rule. See @docs/style.md and `@docs/no.md`.\n",
        "docs/style.md": "Imported rule.\n",
        "docs/no.md": "Never.\n",
        "api/AGENTS.md": "API rule.\n",
        "api/v1/0.txt": "a\n",
        "api/v1/1.txt": "b\n",
    }
    async with place(tmp_path, think, files=files, trust=True) as here:
        await here.run()
        first, last = here.mind.asked[0], here.mind.asked[-1]
        assert "Imported rule." in first.system
        assert "Never." not in first.system
        assert "API rule." not in first.system + first.said
        assert last.said.count("API rule.") == 1


async def test_hooks_hold_for_children_and_a_stop_hook_of_theirs_has_its_own_name(
    tmp_path: Path, config: Path
) -> None:
    config.write_text(
        toml("before_tool", "exit 2", matcher="write_file") + toml("subagent_stop", "cat > stopped.json")
    )

    def think(ask: Ask) -> Turn | str:
        if "You work for another agent" in ask.system:
            return write() if ask.first else "tried"
        return Turn(calls=[call("task", prompt="write", agent="coder")]) if ask.first else "Done."

    async with place(tmp_path, think, config_file=config) as here:
        await here.run()
        assert not (here.root / "out.txt").exists()
        agent_id = here.of("subagent")[0].agent_id
        assert json.loads((here.root / "stopped.json").read_text())["agent_id"] == agent_id
