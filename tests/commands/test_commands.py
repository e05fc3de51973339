"""What each command does to a real conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aar.commands.base import Choice, Failure, Submit, Table, Text, UiAction
from aar.protocol.events import ProviderMeta, Setting, UserMessage
from tests.commands.support import WRITE, Desk, desk, git
from tests.support.waiting import until


def cells(answer: Any) -> dict[str, str]:
    """Return the facts of a table by name."""
    assert isinstance(answer, Table)
    assert all(len(row) == len(answer.columns or answer.rows[0]) for row in answer.rows)
    return {row[0]: row[1] for row in answer.rows}


def text(answer: Any) -> str:
    """Return what a `Text` says."""
    assert isinstance(answer, Text), answer
    return answer.markdown


def refusal(answer: Any) -> str:
    """Return what a `Failure` says: one sentence or two, no traceback."""
    assert isinstance(answer, Failure), answer
    assert "Traceback" not in answer.sentence
    return answer.sentence


async def test_every_command_answers_without_words_and_with_nonsense(tmp_path: Path) -> None:
    async with desk(tmp_path, {"text": "ok"}) as at:
        for command in at.context.registry.all(at.context):
            for argument in ("", "\x1b[2J nonsense @@ ../..", "9" * 400):
                answer = await at.run(f"/{command.name} {argument}")
                assert not (isinstance(answer, Failure) and "failed inside" in answer.sentence), answer
            at.talk.interrupt()
            await at.talk.wait()


async def test_help_lists_all_and_tells_of_one(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        listed = cells(await at.run("/help"))
        assert "/model" in listed
        assert listed["The model"] == ""
        assert "ollama" in text(await at.run("/help /model"))
        assert "/permissions" in refusal(await at.run("/help permision"))


async def test_status_tells_where_things_stand(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        facts = cells(await at.run("/status"))
        assert facts["branch"] == "main"
        assert facts["mode"] == "ask"
        assert facts["session"] == at.talk.session.session_id


async def test_sessions_are_listed_left_and_taken_up_again(tmp_path: Path) -> None:
    async with desk(tmp_path, {"text": "hello"}) as at:
        await at.say("the first prompt")
        first = at.talk.session.session_id
        assert "is kept" in text(await at.run("/clear Another"))
        assert at.talk.session.title == "Another"
        listed = await at.run("/sessions")
        assert isinstance(listed, Choice)
        by_label = {item.label: item for item in listed.items}
        assert by_label["Another"].current
        assert text(await at.run(by_label["the first prompt"].command)).startswith("Going on")
        assert at.talk.session.session_id == first
        assert "no session" in refusal(await at.run("/sessions zzzz")).lower()


async def test_sessions_are_found_by_the_words_of_their_messages(tmp_path: Path) -> None:
    async with desk(tmp_path, {"text": "the rounding mode has an error"}, {"text": "nothing"}) as at:
        await at.say("look at the sums")
        first = at.talk.session.session_id
        await at.run("/clear")
        await at.say("something else")
        found = await at.run("/sessions rounding err")
        assert isinstance(found, Choice)
        (item,) = found.items
        assert (item.label, item.command) == ("look at the sums", f"/sessions {first}")
        assert item.detail.startswith("assistant: the rounding mode has an error · ")
        assert not item.current
        everywhere = await at.run("/sessions all something")
        assert isinstance(everywhere, Choice)
        assert [item.current for item in everywhere.items] == [True]
        text(await at.run(item.command))
        assert at.talk.session.session_id == first
        for words in ("rounding elephant", "***", "all elephant"):
            assert words.removeprefix("all ") in refusal(await at.run(f"/sessions {words}"))


async def test_a_fork_copies_up_to_an_event_and_a_rename_titles(tmp_path: Path) -> None:
    async with desk(tmp_path, {"text": "hello"}) as at:
        await at.say("hi")
        first, last = at.talk.session.session_id, at.talk.session.last_seq
        assert first in text(await at.run("/fork 1"))
        assert at.talk.session.session_id != first
        assert len(at.talk.session.messages()) == 0
        assert f"1 to {at.talk.session.last_seq}" in refusal(await at.run(f"/fork {last + 9}"))
        assert "“New name”" in text(await at.run("/rename New\tname"))
        assert at.talk.session.title == "New name"
        assert "title" in refusal(await at.run("/rename"))


async def test_the_model_is_changed_by_full_and_by_short_name(tmp_path: Path) -> None:
    async with desk(tmp_path, {"text": "a"}) as at:
        listed = await at.run("/model")
        assert isinstance(listed, Choice)
        assert [item.label for item in listed.items if item.current] == [at.context.runtime.active.name]
        other = tmp_path / "other.json"
        other.write_text('{"steps": [{"text": "from the other"}]}')
        assert "answers from now on" in text(await at.run(f"/model scripted/{other}"))
        await at.say("who?")
        assert at.talk.last_result is not None
        assert at.talk.last_result.text == "from the other"
        assert "ollama/qwen3-coder answers" in text(await at.run("/model qwen3-coder"))
        assert "PROVIDER/MODEL" in refusal(await at.run("/model nothing-like-it"))
        assert "nowhere" in refusal(await at.run("/model nowhere/x"))


async def test_thinking_is_set_to_what_the_model_takes(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        assert "does not think" in text(await at.run("/think"))
        assert "no level to choose" in refusal(await at.run("/think high"))
        await at.run("/model ollama/qwen3-coder:480b")
        await at.run("/think 2000")
        assert at.context.runtime.reasoning == 2000
        assert text(await at.run("/think default"))
        assert at.context.runtime.reasoning is None
        settings = [event for event in at.talk.session.events() if isinstance(event, Setting)]
        assert [event.to for event in settings if event.key == "reasoning"] == [2000, None]


async def test_modes_are_chosen_and_unsafe_is_not_to_be_had(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        listed = await at.run("/mode")
        assert isinstance(listed, Choice)
        assert [item.label for item in listed.items] == ["plan", "ask", "edit", "auto", "unsafe"]
        assert "Mode edit" in text(await at.run("/mode edit"))
        assert at.talk.mode == "edit"
        assert "--mode unsafe" in refusal(await at.run("/mode unsafe"))
        assert "no mode" in refusal(await at.run("/mode wild"))


async def test_managed_settings_bound_the_mode_also_later(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        object.__setattr__(at.context.runtime.base.loaded, "mode_ceiling", "ask")
        assert "the loosest that is allowed" in refusal(await at.run("/mode edit"))
        assert at.talk.mode == "ask"
        assert text(await at.run("/mode plan"))


async def test_plan_reads_only_until_it_is_off(tmp_path: Path) -> None:
    async with desk(tmp_path, WRITE, {"text": "Here is a plan."}) as at:
        answer = await at.run("/plan think about b")
        assert isinstance(answer, Submit)
        await at.say(answer.prompt)
        assert not (at.context.runtime.workspace / "b.txt").exists()
        assert "Mode ask" in text(await at.run("/plan off"))
        assert at.talk.mode == "ask"


async def test_rules_of_the_session_are_added_used_explained_and_removed(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        assert "no rules" in text(await at.run("/permissions"))
        assert "would be asked for" in text(await at.run("/policy npm test"))
        await at.run("/permissions allow 'bash(npm test *)'")
        await at.run("/permissions deny bash(curl *)")
        table = await at.run("/permissions")
        assert isinstance(table, Table)
        assert table.rows == (("session", "allow", "bash(npm test *)"), ("session", "deny", "bash(curl *)"))
        assert "may run unasked" in text(await at.run("/policy npm test --all"))
        assert "would be refused" in text(await at.run("/policy curl x.org && npm test"))
        choice = await at.run("/permissions remove")
        assert isinstance(choice, Choice)
        await at.run(next(item.command for item in choice.items if "npm" in item.label))
        assert "would be asked for" in text(await at.run("/policy npm test"))
        assert "would be refused" in text(await at.run("/policy curl x.org"))
        assert "no rule bash(npm" in refusal(await at.run("/permissions remove bash(npm test *)"))
        assert "rule" in refusal(await at.run("/permissions allow bash(("))


async def test_rules_of_files_are_not_removed_here(tmp_path: Path) -> None:
    async with desk(tmp_path, sets=('permissions.deny=["bash(rm *)"]',)) as at:
        assert "aar config path" in refusal(await at.run("/permissions remove bash(rm *)"))
        assert "would be refused" in text(await at.run("/policy rm x"))


async def test_the_wall_is_shown_and_a_host_let_through(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        assert "wall" in cells(await at.run("/sandbox"))
        assert "docs.python.org" in text(await at.run("/sandbox allow docs.python.org"))
        assert cells(await at.run("/sandbox"))["allowed host"] == "docs.python.org"
        assert refusal(await at.run("/sandbox allow http://no spaces"))


async def test_changes_of_the_session_and_of_the_tree_are_told_apart(tmp_path: Path) -> None:
    async with desk(tmp_path, WRITE, {"text": "done"}) as at:
        assert "no files yet" in refusal(await at.run("/diff"))
        await at.say("write b")
        assert "+b" in text(await at.run("/diff"))
        assert "+b" in text(await at.run("/diff b.txt"))
        assert "did not change" in refusal(await at.run("/diff a.txt"))
        assert "none" in text(await at.run("/diff git")), "an untracked file is in no diff of git"
        (at.context.runtime.workspace / "a.txt").write_text("```\ntwo\n")
        shown = text(await at.run("/diff git"))
        assert "````diff" in shown
        assert "(+2 −1)" in shown


async def test_undo_redo_and_rewind_bring_files_and_words_back(tmp_path: Path) -> None:
    async with desk(tmp_path, WRITE, {"text": "done"}, {"text": "second"}) as at:
        assert "nothing to undo" in refusal(await at.run("/undo"))
        assert "no prompt" in text(await at.run("/rewind"))
        await at.say("write b")
        file = at.context.runtime.workspace / "b.txt"
        assert file.exists()
        assert "`b.txt`" in text(await at.run("/undo"))
        assert not file.exists()
        assert "Done again" in text(await at.run("/redo"))
        assert file.read_text() == "b\n"
        listed = await at.run("/rewind")
        assert isinstance(listed, Choice)
        assert [item.label for item in listed.items] == ["write b"]
        assert text(await at.run(listed.items[0].command))
        assert not file.exists()
        assert at.talk.session.messages() == []
        assert "number of steps" in refusal(await at.run("/undo many"))


async def test_what_the_user_changed_since_is_not_overwritten_unasked(tmp_path: Path) -> None:
    async with desk(tmp_path, WRITE, {"text": "done"}) as at:
        await at.say("write b")
        file = at.context.runtime.workspace / "b.txt"
        kept = at.context.runtime.checkpoints(at.talk.session)
        assert kept is not None
        await until(lambda: not kept._tasks)  # what aar left is kept beside the talk
        file.write_text("mine\n")
        ways = await at.run("/undo")
        assert isinstance(ways, Choice), ways
        assert "b.txt" in ways.title
        assert file.read_text() == "mine\n"
        assert "b.txt.yours" in text(await at.run(ways.items[0].command))
        assert (file.parent / "b.txt.yours").read_text() == "mine\n"


async def test_checkpoints_are_made_listed_shown_and_restored(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        file = at.context.runtime.workspace / "a.txt"
        made = text(await at.run("/checkpoints create before the storm")).split("`")[1]
        file.write_text("two\n")
        listed = await at.run("/checkpoints")
        assert isinstance(listed, Choice)
        assert "before the storm" in listed.items[0].detail
        assert "+two" in text(await at.run(listed.items[0].command))
        assert text(await at.run(f"/checkpoints restore {made} force"))
        assert file.read_text() == "one\n"
        assert refusal(await at.run("/checkpoints show"))
        assert refusal(await at.run("/checkpoints restore nope"))


async def test_the_window_is_shown_by_part_and_compacted(tmp_path: Path) -> None:
    async with desk(tmp_path, {"text": "word " * 50}) as at:
        table = await at.run("/context")
        assert isinstance(table, Table)
        assert {row[0] for row in table.rows} >= {"instructions", "conversation", "free"}
        assert "nothing to sum up" in refusal(await at.run("/compact"))


async def test_reviews_commits_and_requests_bring_facts_and_no_mentions(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        folder = at.context.runtime.workspace
        assert "nothing to review" in refusal(await at.run("/review"))
        assert "nothing to commit" in refusal(await at.run("/commit"))
        assert "make a branch" in refusal(await at.run("/pr"))
        (folder / "a.txt").write_text("see @a.txt\n")
        commit = await at.run("/commit short please")
        assert isinstance(commit, Submit)
        assert "short please" in commit.prompt
        assert "Nothing is staged" in commit.prompt
        facts = dict(commit.facts)
        assert "Begin with one" in facts["last commits"]
        assert "+see @a.txt" in facts["git diff"]
        assert "@a.txt" not in commit.prompt
        assert [block.type for block in commit.content()] == ["resource", "resource", "resource", "text"]
        git(folder, "checkout", "-q", "-b", "topic")
        git(folder, "commit", "-qam", "Point to a")
        request = await at.run("/pr")
        assert isinstance(request, Submit)
        assert "topic onto main" in request.prompt
        assert "Point to a" in dict(request.facts)["commits"]


async def test_git_commands_say_so_where_there_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    async with desk(tmp_path) as at:
        for line in ("/commit", "/pr", "/review", "/diff git"):
            assert "not in a git repository" in refusal(await at.run(line))
        assert cells(await at.run("/status"))["branch"] == "none"


async def test_a_hostile_git_config_runs_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        folder = at.context.runtime.workspace
        evil = f"touch {tmp_path}/owned"
        for key in ("core.fsmonitor", "diff.external", "core.pager", "core.sshCommand"):
            git(folder, "config", key, evil)
        git(folder, "config", "diff.evil.textconv", evil)
        (folder / ".gitattributes").write_text("* diff=evil\n")
        (folder / "a.txt").write_text("two\n")
        await at.run("/diff git")
        await at.run("/commit")
        await at.run("/status")
        assert not (tmp_path / "owned").exists()


async def test_init_asks_for_agents_md_and_knows_whether_there_is_one(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        first = await at.run("/init")
        (at.context.runtime.workspace / "AGENTS.md").write_text("# Rules\n")
        second = await at.run("/init")
        assert isinstance(first, Submit)
        assert isinstance(second, Submit)
        assert "There is none yet" in first.prompt
        assert "still true" in second.prompt


async def test_a_file_is_attached_by_the_door(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        assert await at.run("/attach a.txt") == UiAction("attach", {"path": "a.txt"})
        assert "no file" in refusal(await at.run("/attach zzz"))
        assert refusal(await at.run("/attach"))


async def test_a_question_on_the_side_is_no_part_of_the_conversation(tmp_path: Path) -> None:
    steps = ({"text": "It is 42."}, {"text": "EXDEV: another file system."}, {"text": "third"})
    async with desk(tmp_path, *steps) as at:
        await at.say("remember 42")
        before = at.talk.session.messages()
        answer = text(await at.run("/btw what is EXDEV?"))
        assert "another file system" in answer
        assert "not part of the conversation" in answer
        assert at.talk.session.messages() == before
        costs = [event for event in at.talk.session.events() if isinstance(event, ProviderMeta)]
        assert [event.agent_id for event in costs] == ["main", "btw"]
        await at.say("go on")
        assert at.talk.last_result is not None
        assert at.talk.last_result.text == "third"


async def test_a_question_on_the_side_that_fails_is_one_sentence(tmp_path: Path) -> None:
    async with desk(tmp_path, {"status": 401, "error": "No key."}) as at:
        assert refusal(await at.run("/btw hello?"))
        assert at.talk.session.messages() == []


async def test_cost_and_numbers_of_a_session(tmp_path: Path) -> None:
    async with desk(tmp_path, WRITE, {"text": "done"}) as at:
        assert "nothing was spent" in text(await at.run("/cost"))
        await at.say("write b")
        cost = await at.run("/cost")
        assert isinstance(cost, Table)
        assert cost.rows[0][0].startswith("scripted/")
        assert cost.rows[0][1] == "2"
        numbers = cells(await at.run("/stats"))
        assert numbers["steps"] == "2"
        assert numbers["calls of write_file"] == "1"


async def test_the_queue_is_shown_and_changed(tmp_path: Path) -> None:
    async with desk(tmp_path, {"text": "slow", "first_delay_ms": 60_000}) as at:
        at.talk.submit("work")
        await until(lambda: at.talk.agent.running)
        for prompt in ("one", "two", "three"):
            assert "waits" in text(await at.run(f"/queue {prompt}"))
        await at.run("/queue first 3")
        await at.run("/queue drop 2")
        shown = await at.run("/queue")
        assert isinstance(shown, Table)
        assert [row[1] for row in shown.rows] == ["three", "two"]
        assert "no prompt 7" in refusal(await at.run("/queue drop 7"))
        assert "2 waiting prompts dropped" in text(await at.run("/queue clear"))
        assert "under way" in refusal(await at.run("/model ollama/x"))
        at.talk.interrupt()
        await at.talk.wait()


async def test_tools_doctor_and_log(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        tools = await at.run("/tools")
        assert isinstance(tools, Table)
        assert {row[0]: row[1] for row in tools.rows}["bash"] == "yes"
        doctor = await at.run("/doctor")
        assert isinstance(doctor, Table)
        assert doctor.rows[0] == ("warn", "wall", "none → install bubblewrap")
        assert "log" in text(await at.run("/log"))
        assert refusal(await at.run("/log many"))


async def test_actions_of_the_door_are_handed_on(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        assert await at.run("/theme night") == UiAction("theme", {"argument": "night"})
        assert await at.run("/exit") == UiAction("quit")


async def test_a_command_says_nothing_to_the_model(tmp_path: Path) -> None:
    async with desk(tmp_path, {"text": "ok"}) as at:
        for line in ("/help", "/status", "/cost", "/tools", "/diff git", "/sandbox", "/why"):
            await at.run(line)
        assert not [event for event in at.talk.session.events() if isinstance(event, UserMessage)]
        assert isinstance(at, Desk)


async def test_hooks_are_listed_with_what_they_run_and_whose_they_are(tmp_path: Path) -> None:
    hooks = "hooks.before_tool=[{command='./check \\u001b[2J', matcher='bash'}]"
    async with desk(tmp_path, sets=(hooks, "hooks.after_edit=['ruff']")) as at:
        table = await at.run("/hooks")
        assert isinstance(table, Table)
        assert [row[0] for row in table.rows] == ["before_tool", "after_edit"]
        assert table.rows[0][1] == "bash"
        assert table.rows[0][3] == "you"
    async with desk(tmp_path) as at:
        assert "docs/hooks.md" in text(await at.run("/hooks"))
