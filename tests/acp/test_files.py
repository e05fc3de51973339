"""Files through the editor: what is not saved yet is seen, and changes go into its buffers."""

from __future__ import annotations

from pathlib import Path

from tests.acp.support import FULL, Editor, RefusedError, buffers
from tests.cli.support import call, script

EDIT = call("edit_file", path="notes.txt", old_text="milk", new_text="bread")
READ = call("read_file", path="notes.txt")


async def opened(editor: Editor, project: Path, texts: dict[str, str]) -> str:
    editor.answers |= buffers(texts)
    await editor.greet(FULL)
    return await editor.new(project)


def results(editor: Editor) -> list[str]:
    return [told["rawOutput"]["output"] for told in editor.calls().values()]


async def test_text_that_is_not_saved_is_read_and_edited(project: Path, tmp_path: Path) -> None:
    path = str(project / "notes.txt")
    texts = {path: "buy milk and honey\n"}
    async with Editor.inside(model=script(tmp_path / "m.json", READ, EDIT, "Done."), mode="edit") as editor:
        session = await opened(editor, project, texts)
        assert await editor.say(session, "Go.") == "end_turn"
        assert "buy milk and honey" in results(editor)[0]
        assert texts[path] == "buy bread and honey\n"
        edited = list(editor.calls().values())[1]
        assert edited["content"][0]["oldText"] == "buy milk and honey\n"
        assert [params["path"] for params in editor.requests("fs/write_text_file")] == [path]
        assert all(params["sessionId"] == session for params in editor.requests("fs/read_text_file"))


async def test_what_changed_in_the_editor_since_it_was_read_is_not_written_over(
    project: Path, tmp_path: Path
) -> None:
    path = str(project / "notes.txt")
    texts = {path: "buy milk\n"}
    write = call("write_file", path="notes.txt", content="mine\n")
    async with Editor.inside(model=script(tmp_path / "m.json", READ, write, "Done.")) as editor:
        session = await opened(editor, project, texts)

        def type_on(params: dict[str, object]) -> object:
            texts[path] = "buy milk, typed on\n"
            return {"outcome": {"outcome": "selected", "optionId": "allow:once"}}

        editor.answers["session/request_permission"] = type_on
        await editor.say(session, "Go.")
        assert texts[path] == "buy milk, typed on\n"
        assert "Error [stale_file]" in results(editor)[1]


async def test_a_new_file_in_a_new_folder_is_made_by_the_editor(project: Path, tmp_path: Path) -> None:
    write = call("write_file", path="deep/er/new.txt", content="x\n")
    texts: dict[str, str] = {}
    async with Editor.inside(model=script(tmp_path / "m.json", write, "Done."), mode="edit") as editor:
        await editor.say(await opened(editor, project, texts), "Go.")
        assert texts == {str(project / "deep/er/new.txt"): "x\n"}


async def test_line_ends_and_marks_of_the_file_stay(project: Path, tmp_path: Path) -> None:
    path = project / "notes.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\nmilk\r\n")
    texts = {str(path): "one\nmilk\ntyped\n"}
    async with Editor.inside(model=script(tmp_path / "m.json", READ, EDIT, "Done."), mode="edit") as editor:
        await editor.say(await opened(editor, project, texts), "Go.")
        assert texts[str(path)] == "\ufeffone\r\nbread\r\ntyped\r\n"


async def test_secrets_and_files_outside_are_not_asked_for(project: Path, tmp_path: Path) -> None:
    (project / ".env").write_text("KEY=1\n")
    (tmp_path / "outside.txt").write_text("far away\n")
    model = script(
        tmp_path / "m.json",
        call("read_file", path=".env"),
        call("read_file", path=str(tmp_path / "outside.txt")),
        "Done.",
    )
    texts = {str(project / ".env"): "KEY=2\n", str(tmp_path / "outside.txt"): "another\n"}
    async with Editor.inside(model=model) as editor:
        await editor.say(await opened(editor, project, texts), "Go.")
        assert not editor.requests("fs/read_text_file")
        assert "Error [blocked]" in results(editor)[0]
        assert "far away" in results(editor)[1]


async def test_binary_data_goes_to_the_disk(project: Path, tmp_path: Path) -> None:
    (project / "notes.txt").write_bytes(b"caf\xe9 milk\n")
    async with Editor.inside(model=script(tmp_path / "m.json", READ, EDIT, "Done."), mode="edit") as editor:
        await editor.say(await opened(editor, project, {}), "Go.")
        assert not [m for m in editor.asked if m["method"].startswith("fs/")]
        assert (project / "notes.txt").read_bytes() == b"caf\xe9 bread\n"


async def test_an_editor_that_refuses_to_write_is_heard(project: Path, tmp_path: Path) -> None:
    async with Editor.inside(model=script(tmp_path / "m.json", EDIT, "Done."), mode="edit") as editor:
        session = await opened(editor, project, {})

        def refuse(_params: dict[str, object]) -> object:
            raise RefusedError("the buffer is locked")

        editor.answers["fs/write_text_file"] = refuse
        await editor.say(session, "Go.")
        assert "the buffer is locked" in results(editor)[0]
        assert (project / "notes.txt").read_text() == "remember the milk\n"


async def test_an_editor_that_never_answers_does_not_hold_up_a_cancel(project: Path, tmp_path: Path) -> None:
    async with Editor.inside(model=script(tmp_path / "m.json", EDIT, "Done."), mode="edit") as editor:
        session = await opened(editor, project, {})
        del editor.answers["fs/write_text_file"]
        turn = editor.prompt(session, "Go.")
        await editor.until(lambda: editor.requests("fs/write_text_file"))
        editor.tell("session/cancel", sessionId=session)
        assert (await turn)["result"]["stopReason"] == "cancelled"
        await editor.until(lambda: [m for m in editor.log if m.get("method") == "$/cancel_request"])


async def test_nothing_is_asked_of_an_editor_that_offers_nothing(project: Path, tmp_path: Path) -> None:
    bash = call("bash", command="true")
    async with Editor.inside(
        model=script(tmp_path / "m.json", READ, EDIT, bash, "Done."), mode="edit"
    ) as editor:
        editor.answers |= buffers({str(project / "notes.txt"): "milk in the editor\n"})
        await editor.greet({"fs": {"readTextFile": False}})
        await editor.say(await editor.new(project), "Go.")
        assert {m["method"] for m in editor.asked} <= {"session/request_permission"}
        assert (project / "notes.txt").read_text() == "remember the bread\n"


async def test_what_went_through_the_editor_can_be_undone(project: Path, tmp_path: Path) -> None:
    path = str(project / "notes.txt")
    texts = {path: "remember the milk\n"}
    async with Editor.inside(model=script(tmp_path / "m.json", EDIT, "Done."), mode="edit") as editor:
        session = await opened(editor, project, texts)
        await editor.say(session, "Go.")
        assert (project / "notes.txt").read_text() == "remember the bread\n"
        await editor.say(session, "/undo")
        assert (project / "notes.txt").read_text() == "remember the milk\n"
