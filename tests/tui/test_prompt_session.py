"""The prompt and a session: steering, the queue, interrupting, the user's commands, drafts, the editor."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from aar.protocol.events import Approval, ApprovalRequest, ContextEvent, Event, ToolResult, UserMessage
from aar.protocol.messages import ImageBlock, TextBlock
from aar.safety.spawn import ProcessSpawner
from aar.transports.tui.app import AarApp
from aar.transports.tui.approvals import ApprovalPanel
from aar.transports.tui.blocks import ToolBlock
from aar.transports.tui.prompt import PromptArea, controller, outside
from aar.transports.tui.prompt.hint import HintLine
from aar.transports.tui.prompt.history_search import HistorySearch
from aar.transports.tui.prompt.queue_panel import QueuePanel
from tests.tui.screens import screen_text, until
from tests.tui.test_prompt_parts import PNG

SLOW = {"text": "Slow answer. " * 200, "chunk_chars": 2, "chunk_delay_ms": 50}
SHORT = {"text": "Slow answer. " * 20, "chunk_chars": 4, "chunk_delay_ms": 60}
QUICK = {"text": "Done."}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "src").mkdir()
    (folder / "src/app.py").write_text("print(1)\n")
    monkeypatch.chdir(folder)
    return folder


@asynccontextmanager
async def screen(project: Path, *steps: dict[str, Any], **kwargs: Any) -> AsyncIterator[Pilot[int]]:
    """The whole screen, ready, with a model that says ``steps``."""
    file = project.parent / "scenario.json"
    file.write_text(json.dumps({"steps": list(steps or (QUICK,)), "after": "last"}))
    sets = kwargs.pop("sets", ())
    app = AarApp({"model": f"scripted/{file}", "cwd": project, "sets": sets}, **kwargs)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.connection is not None and app.prompting.conversation is not None)
        yield pilot


def conversation(pilot: Pilot[int]) -> Any:
    app = pilot.app
    assert isinstance(app, AarApp)
    assert app.connection is not None
    return app.connection.conversation


def stored(pilot: Pilot[int], kind: type[Event]) -> list[Any]:
    return [event for event in conversation(pilot).session.events() if isinstance(event, kind)]


def said(pilot: Pilot[int]) -> list[tuple[str, str]]:
    return [
        ("".join(block.text for block in event.content if isinstance(block, TextBlock)), event.source)
        for event in stored(pilot, UserMessage)
    ]


def area(pilot: Pilot[int]) -> PromptArea:
    return pilot.app.query_one(PromptArea)


async def begin_slow_run(pilot: Pilot[int]) -> None:
    await pilot.press(*"go", "enter")
    await until(pilot, lambda: "Slow answer" in screen_text(pilot.app))


async def test_a_prompt_typed_before_the_session_stands_is_sent_when_it_does(project: Path) -> None:
    async with screen(project, QUICK, prompt="early") as pilot:
        await until(pilot, lambda: not conversation(pilot).running and said(pilot))
        assert said(pilot) == [("early", "prompt")]


async def test_enter_steers_and_alt_enter_queues_while_it_works(project: Path) -> None:
    call = {"name": "list_directory", "arguments": {"path": "."}}
    async with screen(project, {**SHORT, "tool_calls": [call]}, QUICK) as pilot:
        await begin_slow_run(pilot)
        for words, key in (("steer", "enter"), ("later", "alt+enter")):
            area(pilot).insert(words)  # key by key, a slow machine would be behind the answer
            await pilot.press(key)
        await until(pilot, lambda: "1. later" in screen_text(pilot.app))
        assert "steer" in screen_text(pilot.app)
        await until(pilot, lambda: not conversation(pilot).running, 30)
        assert said(pilot) == [("go", "prompt"), ("steer", "steer"), ("later", "queue")]
        await until(pilot, lambda: not pilot.app.query_one(QueuePanel).display)


async def test_escape_interrupts_and_brings_unheard_words_back(project: Path) -> None:
    async with screen(project, SLOW) as pilot:
        await begin_slow_run(pilot)
        await pilot.press(*"steer", "enter", *"later", "ctrl+s", *"draft", "escape")
        await until(pilot, lambda: not conversation(pilot).running)
        await until(pilot, lambda: area(pilot).text == "steer\n\ndraft")
        await until(pilot, lambda: "waiting" in screen_text(pilot.app))
        assert "1. later" in screen_text(pilot.app)


async def test_a_second_escape_offers_to_go_back_and_a_late_one_does_not(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with screen(project) as pilot:
        offered: list[int] = []
        app = pilot.app
        assert isinstance(app, AarApp)
        app.offer_rewind = lambda: offered.append(1)
        monkeypatch.setattr(controller, "REWIND_S", 0)
        await pilot.press(*"text", "escape", "escape")
        assert offered == []
        monkeypatch.setattr(controller, "REWIND_S", 60)
        await pilot.press("escape")
        assert offered == [1]
        assert area(pilot).text == "text"


async def test_up_takes_the_last_queued_prompt_back_and_enter_goes_on_with_the_rest(project: Path) -> None:
    async with screen(project, SLOW, QUICK) as pilot:
        await begin_slow_run(pilot)
        await pilot.press(*"one", "ctrl+s", *"two", "ctrl+s")
        await until(pilot, lambda: len(conversation(pilot).agent.queue.prompts) == 2)
        await pilot.press("up")
        await until(pilot, lambda: area(pilot).text == "two")
        await pilot.press("ctrl+c", "escape")
        await until(pilot, lambda: not conversation(pilot).running)
        await pilot.press("enter")
        await until(pilot, lambda: not conversation(pilot).running and len(said(pilot)) == 2)
        assert said(pilot)[1] == ("one", "queue")


async def test_queued_prompts_can_be_moved_removed_and_edited(project: Path) -> None:
    async with screen(project, SLOW) as pilot:
        await begin_slow_run(pilot)
        for text in ("one", "two", "three"):
            await pilot.press(*text, "ctrl+s")
        await until(pilot, lambda: len(conversation(pilot).agent.queue.prompts) == 3)
        await pilot.press("alt+q")
        await until(pilot, lambda: pilot.app.query_one(QueuePanel).has_focus)
        await pilot.press("shift+up", "shift+up")
        await pilot.pause()
        texts = [block.text for (block,) in conversation(pilot).agent.queue.prompts]
        assert texts == ["three", "one", "two"]
        await pilot.press("down", "d")
        await pilot.pause()
        await pilot.press("up", "up", "enter")
        await pilot.pause()
        assert area(pilot).text == "three"
        assert area(pilot).has_focus
        assert [block.text for (block,) in conversation(pilot).agent.queue.prompts] == ["two"]
        await pilot.press("alt+q", "escape")
        await pilot.pause()
        assert area(pilot).has_focus


async def test_ctrl_x_ends_the_run_and_clears_the_queue_after_asking(project: Path) -> None:
    async with screen(project, SLOW) as pilot:
        await begin_slow_run(pilot)
        await pilot.press(*"later", "ctrl+s", "ctrl+x")
        await until(pilot, lambda: pilot.app.query_one(HintLine).asking)
        await pilot.press("n")
        await until(pilot, lambda: area(pilot).has_focus)
        assert conversation(pilot).running
        assert len(conversation(pilot).agent.queue.prompts) == 1
        await pilot.press("ctrl+x")
        await until(pilot, lambda: pilot.app.query_one(HintLine).asking)
        await pilot.press("y")
        await until(pilot, lambda: not conversation(pilot).running)
        assert conversation(pilot).agent.queue.prompts == ()
        await pilot.press("up")
        assert area(pilot).text == "later", "what was cleared can be had again"


async def test_ctrl_d_asks_before_it_leaves_a_run(project: Path) -> None:
    async with screen(project, SLOW) as pilot:
        await begin_slow_run(pilot)
        for answer in ("n", "y"):
            await pilot.press("ctrl+d")
            await until(pilot, lambda: pilot.app.query_one(HintLine).asking)
            assert pilot.app.is_running
            await pilot.press(answer)
            await until(pilot, lambda: not pilot.app.query_one(HintLine).asking)
        await until(pilot, lambda: pilot.app.return_code is not None)


async def test_ctrl_c_in_an_empty_prompt_ends_the_run_and_twice_leaves(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with screen(project, SLOW) as pilot:
        await begin_slow_run(pilot)
        monkeypatch.setattr(controller, "QUIT_S", 0)
        await pilot.press("ctrl+c", "ctrl+c")
        await until(pilot, lambda: not conversation(pilot).running)
        assert pilot.app.return_code is None
        monkeypatch.setattr(controller, "QUIT_S", 60)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: pilot.app.return_code is not None)


async def test_what_is_pasted_while_a_list_has_the_keys_goes_into_the_prompt(project: Path) -> None:
    async with screen(project) as pilot:
        await pilot.press("f9")
        assert not area(pilot).has_focus
        pilot.app.post_message(events.Paste("pasted text"))
        await until(pilot, lambda: area(pilot).text == "pasted text")


async def test_an_image_is_sent_beside_the_text(project: Path) -> None:
    file = project / "shot.png"
    file.write_bytes(PNG)
    async with screen(project) as pilot:
        area(pilot).post_message(events.Paste(str(file)))
        await until(pilot, lambda: area(pilot).text == "[image shot.png] ")
        await pilot.press(*"what", "enter")
        await until(pilot, lambda: stored(pilot, UserMessage))
        content = stored(pilot, UserMessage)[0].content
        assert [type(block) for block in content] == [TextBlock, ImageBlock]
        assert content[0].text == "[image shot.png] what"
        assert content[1].media_type == "image/png"


async def test_a_dragged_file_of_the_project_becomes_a_mention(project: Path) -> None:
    async with screen(project) as pilot:
        area(pilot).post_message(events.Paste(str(project / "src/app.py")))
        await until(pilot, lambda: area(pilot).text == "@src/app.py ")
        await pilot.press(*"and @ap")
        await until(pilot, lambda: "src/app.py" in screen_text(pilot.app).split("Tab takes")[0])
        assert area(pilot).text == "@src/app.py and @ap"


async def test_a_prompt_that_is_too_long_comes_back(project: Path) -> None:
    async with screen(project, sets=["context.max_prompt_chars=50"]) as pilot:
        area(pilot).paste("word " * 20)
        await pilot.press("enter")
        await pilot.pause()
        assert area(pilot).text == ("word " * 20).strip()
        assert "max_prompt_chars" in screen_text(pilot.app)
        assert not conversation(pilot).running


async def test_a_command_of_the_user_runs_and_the_model_sees_it_as_data(project: Path) -> None:
    async with screen(project) as pilot:
        await pilot.press(*"!echo from-$((1+1)); exit 3", "enter")
        await until(pilot, lambda: stored(pilot, ContextEvent))
        (told,) = stored(pilot, ContextEvent)
        assert (told.source, told.label, told.trusted) == ("shell", "echo from-$((1+1)); exit 3", False)
        assert "from-2" in told.content[0].text
        assert "Exit code: 3" in told.content[0].text
        app = pilot.app
        assert isinstance(app, AarApp)
        assert app.connection is not None
        (block,) = [one for one in app.connection.presenter.blocks if isinstance(one, ToolBlock)]
        assert (block.status, block.exit_code, block.live) == ("failed", 3, False)


async def test_a_private_command_is_shown_and_not_stored(project: Path) -> None:
    async with screen(project) as pilot:
        await pilot.press(*"!!echo se''cret", "enter")
        app = pilot.app
        assert isinstance(app, AarApp)
        assert app.connection is not None
        blocks = app.connection.presenter.blocks
        await until(pilot, lambda: any(isinstance(one, ToolBlock) and not one.live for one in blocks))
        (block,) = [one for one in blocks if isinstance(one, ToolBlock)]
        assert block.output == "secret\n"
        await until(pilot, lambda: "\n    secret\n" in screen_text(app))
        assert stored(pilot, ContextEvent) == []


async def test_escape_ends_a_command_of_the_user(project: Path) -> None:
    async with screen(project) as pilot:
        await pilot.press(*"!echo begun; sleep 60", "enter")
        await until(pilot, lambda: "begun" in screen_text(pilot.app))
        begin = time.monotonic()
        await pilot.press("escape")
        app = pilot.app
        assert isinstance(app, AarApp)
        assert app.connection is not None
        blocks = app.connection.presenter.blocks
        await until(pilot, lambda: any(getattr(one, "status", "") == "cancelled" for one in blocks))
        assert time.monotonic() - begin < 40


async def test_the_rules_hold_for_commands_of_the_user(project: Path) -> None:
    async with screen(project, sets=['permissions.deny=["bash(touch *)"]']) as pilot:
        await pilot.press(*"!touch x", "enter")
        await until(pilot, lambda: "did not run" in screen_text(pilot.app))
        assert not (project / "x").exists()


async def test_a_hard_stop_is_asked_about_also_where_the_user_typed_it(project: Path) -> None:
    async with screen(project) as pilot:
        await pilot.press(*"!git push --force", "enter")
        await until(pilot, lambda: stored(pilot, ApprovalRequest))
        panel = pilot.app.query_one(ApprovalPanel)
        await until(pilot, lambda: panel.display)
        panel.focus()
        await pilot.press("n")
        await until(pilot, lambda: "you did not allow it" in screen_text(pilot.app))
        (asked,) = stored(pilot, ApprovalRequest)
        assert (asked.tool_name, asked.scopes) == ("bash", ("once",))
        (answer,) = stored(pilot, Approval)
        assert (answer.request_id, answer.decision, answer.by) == (asked.request_id, "reject", "user")
        assert stored(pilot, ContextEvent) == [], "it did not run"


async def test_an_approval_reaches_its_call_and_a_wrong_rule_is_told(project: Path) -> None:
    call = {"name": "bash", "arguments": {"command": "touch made"}}
    async with screen(project, {"tool_calls": [call]}, QUICK) as pilot:
        await pilot.press(*"go", "enter")
        panel = pilot.app.query_one(ApprovalPanel)
        await until(pilot, lambda: panel.display and panel.has_focus)
        await pilot.press("i")
        await until(pilot, lambda: area(pilot).has_focus)
        await pilot.press("tab")
        await until(pilot, lambda: panel.has_focus)
        await pilot.press("r", "ctrl+u", *"bash((", "enter", "s")
        await until(pilot, lambda: "bash((" in screen_text(pilot.app).split("allows later:")[-1][9:])
        assert panel.display
        await pilot.press("y")
        await until(pilot, lambda: stored(pilot, ToolResult))
        assert stored(pilot, ToolResult)[0].exit_code == 0
        assert (project / "made").exists()
        await until(pilot, lambda: area(pilot).has_focus)


async def test_what_was_typed_is_there_again_after_the_screen_ended(project: Path) -> None:
    async with screen(project) as pilot:
        area(pilot).paste("long\n" * 100)
        await pilot.press(*" and more")
    async with screen(project) as pilot:
        await until(pilot, lambda: area(pilot).text == "[pasted 100 lines] and more")
        await pilot.press("enter")
        await until(pilot, lambda: said(pilot))
        assert said(pilot)[0][0] == "long\n" * 100 + " and more"
    async with screen(project) as pilot:
        await pilot.pause(0.1)
        assert area(pilot).text == ""


async def test_what_was_queued_is_not_lost_when_the_screen_ends_or_is_killed(
    project: Path, clean_environment: Path
) -> None:
    async with screen(project, SLOW) as pilot:
        await begin_slow_run(pilot)
        await pilot.press(*"steer", "enter", *"later", "ctrl+s", *"draft")
        await pilot.pause()
        assert [text for text, _ in said(pilot)] == ["go"]
        drafts = clean_environment / "aar/drafts"
        await until(
            pilot, lambda: any("later\\n\\ndraft" in one.read_text() for one in drafts.glob("*/*.json"))
        )
    async with screen(project) as pilot:
        await until(pilot, lambda: area(pilot).text == "steer\n\nlater\n\ndraft")
        assert said(pilot) == [], "nothing is sent unasked"


async def test_the_draft_is_on_disk_within_a_moment(project: Path, clean_environment: Path) -> None:
    async with screen(project) as pilot:
        await pilot.press(*"thought")
        drafts = clean_environment / "aar/drafts"
        await until(pilot, lambda: list(drafts.glob("*/*.json")), 3)
        (file,) = drafts.glob("*/*.json")
        await until(pilot, lambda: json.loads(file.read_text())["text"] == "thought", 3)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_earlier_prompts_are_found_in_another_session(project: Path) -> None:
    async with screen(project) as pilot:
        await pilot.press(*"first thing", "enter", *"second thing", "enter")
        await until(pilot, lambda: not conversation(pilot).running)
    async with screen(project) as pilot:
        await pilot.press(*"fir", "up")
        assert area(pilot).text == "first thing"
        await pilot.press("ctrl+c", "ctrl+r")
        await until(pilot, lambda: pilot.app.query_one(HistorySearch).has_focus)
        await pilot.press(*"thing sec", "enter")
        await pilot.pause()
        assert area(pilot).text == "second thing"
        assert area(pilot).has_focus


async def test_the_editor_gets_the_prompt_and_its_text_comes_back(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawner = ProcessSpawner(project)
    script = project.parent / "editor.sh"
    script.write_text('#!/bin/sh\ncat "$2" > "$1"\nprintf \'changed 世界\\n\' > "$2"\n')
    script.chmod(0o700)
    seen = project.parent / "seen"
    monkeypatch.setenv("EDITOR", f"{script} {seen}")
    monkeypatch.delenv("VISUAL", raising=False)
    command = outside.editor_command({"EDITOR": f"{script} {seen}"})
    assert command == (str(script), str(seen))
    after = await outside.edit_text(spawner, command, "before", project)
    assert (after, seen.read_text()) == ("changed 世界", "before")
    script.write_text("#!/bin/sh\nexit 4\n")
    with pytest.raises(Exception, match="ended with 4; the prompt is as it was"):
        await outside.edit_text(spawner, command, "before", project)
    with pytest.raises(Exception, match="There is no editor nowhere"):
        outside.editor_command({"EDITOR": "nowhere -w"})
    spawner.close()


async def test_an_editor_that_the_screen_cannot_make_room_for_is_told(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    async with screen(project) as pilot:
        await pilot.press(*"text", "ctrl+g")
        await until(pilot, lambda: "cannot be given to an editor" in screen_text(pilot.app))
        assert area(pilot).text == "text"


async def test_an_editor_that_fails_gives_the_screen_back_and_the_prompt_stays(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "false")
    told: list[str] = []
    async with screen(project) as pilot:
        driver: Any = pilot.app._driver
        monkeypatch.setattr(type(driver), "can_suspend", True)
        for name in ("suspend_application_mode", "resume_application_mode"):
            monkeypatch.setattr(driver, name, lambda name=name: told.append(name.partition("_")[0]))
        await pilot.press(*"text", "ctrl+g")
        await until(pilot, lambda: "the prompt is as it was" in screen_text(pilot.app))
        assert told == ["suspend", "resume"]
        assert area(pilot).text == "text"


async def test_what_was_dictated_stands_in_the_prompt_behind_what_was_typed(project: Path) -> None:
    hears = project.parent / "hears.sh"
    began = project.parent / "began"
    hears.write_text(
        f"trap 'ended=1' INT; : > '{began}'; while [ -z $ended ]; do sleep 0.02; done; echo the parser\n"
    )
    async with screen(project, sets=(f"voice.stt_command=sh '{hears}'",)) as pilot:
        area, hint = pilot.app.query_one(PromptArea), pilot.app.query_one(HintLine)
        await pilot.press(*"mend")
        await pilot.press("alt+v")
        await until(pilot, began.exists)
        assert "Listening" in str(hint.content)
        await pilot.press("escape")
        await until(pilot, lambda: area.text == "mend the parser")
        assert not hint.display
        assert said(pilot) == []
