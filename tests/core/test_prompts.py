"""What goes in: prompts, steering, the queue, files named with @."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aar.core.mentions import expand_mentions
from aar.core.prompt_queue import PromptQueue, as_prompt
from aar.protocol.errors import UsageError
from aar.protocol.events import Event
from aar.protocol.messages import ImageBlock, ResourceBlock, TextBlock
from aar.safety.files import WorkspaceFiles
from aar.safety.policy import RuleSet
from tests.support.fakes import Turn, World, call, check_messages
from tests.support.waiting import until


def said(world: World) -> list[tuple[str, str]]:
    return [(event.source, event.content[-1].text) for event in world.of("user_message")]


async def test_steering_is_heard_before_the_next_request(tmp_path: Path) -> None:
    gate = asyncio.Event()
    world = World(tmp_path, [Turn("Step.", [call("list_directory", path=".")], gate=gate), "Done."])
    run = world.start("Begin.")
    await until(lambda: world.provider.requests)
    world.agent.steer("Mind the tests.")
    gate.set()
    await run
    assert said(world) == [("prompt", "Begin."), ("steer", "Mind the tests.")]
    types = [event.type for event in world.events]
    assert types.index("tool_result") < len(types) - 1 - types[::-1].index("user_message")
    assert "Mind the tests." in world.provider.requests[1].messages[-1].text
    check_messages(world.session.messages())


async def test_steering_during_the_last_answer_is_heard_in_the_same_run(tmp_path: Path) -> None:
    gate = asyncio.Event()
    world = World(tmp_path, [Turn("Done.", gate=gate), "Done with tests."])
    run = world.start()
    await until(lambda: world.provider.requests)
    world.agent.steer("And the tests?")
    gate.set()
    assert (await run).text == "Done with tests."
    assert world.agent.queue.next_prompt() is None


async def test_steering_that_no_run_took_becomes_the_next_prompt(tmp_path: Path) -> None:
    world = World(tmp_path, ["One.", "Two.", "Three."])
    world.agent.queue.add("second")
    await world.run("first")
    world.agent.steer("sooner")
    first = await world.agent.run_queued(world.session)
    assert first is not None
    assert first.text == "Two."
    assert (await world.agent.run_queued(world.session)) is not None
    assert await world.agent.run_queued(world.session) is None
    assert [text for _, text in said(world)] == ["first", "sooner", "second"]


def test_waiting_prompts_can_be_reordered() -> None:
    queue = PromptQueue()
    queue.add("a")
    queue.add("b")
    queue.replace(queue.prompts[::-1])
    assert [queue.next_prompt(), queue.next_prompt()] == [as_prompt("b"), as_prompt("a")]
    assert not queue.has_steering


async def test_the_prompt_event_comes_only_when_the_prompt_changed(tmp_path: Path) -> None:
    world = World(tmp_path, ["Hello."])
    await world.run()
    await world.run()
    assert len(world.of("prompt")) == 1

    async def nothing(_arguments: object, _context: object) -> None:
        return None

    from tests.support.fakes import tool

    world.registry.register(tool("extra", nothing))
    await world.run()
    assert len(world.of("prompt")) == 2
    assert world.of("prompt")[0].run_id == world.of("user_message")[0].run_id


@pytest.mark.parametrize("prompt", ["", "  \n"])
async def test_an_empty_prompt_is_refused(tmp_path: Path, prompt: str) -> None:
    world = World(tmp_path, ["Never."])
    with pytest.raises(UsageError, match="empty"):
        await world.run(prompt)
    assert world.of("state") == []


async def test_a_prompt_that_is_too_long_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, ["Never."])
    with pytest.raises(UsageError, match="max_prompt_chars"):
        await world.run("x" * 2_000_001)


async def test_an_image_alone_is_a_prompt(tmp_path: Path) -> None:
    world = World(tmp_path, ["A cat."])
    image = ImageBlock(media_type="image/png", data="AAAA")
    assert (await world.agent.run([image], world.session)).text == "A cat."


# --- @file -----------------------------------------------------------------------------------------------


def mention(root: Path, text: str) -> tuple[list[ResourceBlock], list[str]]:
    content, problems = expand_mentions((TextBlock(text=text),), WorkspaceFiles(root))
    assert content[-1] == TextBlock(text=text)
    return [block for block in content if isinstance(block, ResourceBlock)], problems


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("one\ntwo\nthree\n")
    (root / "README.md").write_text("read me\n")
    (root / "read me.md").write_text("one\ntwo\n")
    (root / ".env").write_text("KEY=secret\n")
    (root / "image.png").write_bytes(b"\x89PNG\0\0")
    return root


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Fix @src/a.py", ["src/a.py"]),
        ("Fix @src/a.py, then @README.md.", ["src/a.py", "README.md"]),
        ("(see @README.md)", ["README.md"]),
        ("@README.md @README.md", ["README.md"]),
        ("lines @src/a.py:2-3", ["src/a.py:2-3"]),
        ('see @"read me.md" and @"read me.md":2-2', ["read me.md", "read me.md:2-2"]),
        ('say @"not there.md", @"" and me@"read me.md"', []),
        ("mail me@README.md", []),
        ("mail to someone@example.com", []),
        ("a @property and @types/node", []),
        ("https://host/@README.md", []),
        ("@@README.md", []),
        ("@nothing.py", []),
        ("@", []),
    ],
)
def test_which_words_are_files(project: Path, text: str, names: list[str]) -> None:
    resources, problems = mention(project, text)
    assert [block.uri for block in resources] == names
    assert problems == []


def test_lines_of_a_file(project: Path) -> None:
    resources, _ = mention(project, "@src/a.py:2-3")
    assert resources[0].text == "two\nthree\n"


def test_u10_a_secret_is_not_attached_under_any_name(project: Path) -> None:
    (project / "notes.txt").symlink_to(".env")
    (project / "far").symlink_to(Path.home() / ".ssh")
    (Path.home() / ".ssh").mkdir()
    (Path.home() / ".ssh" / "id_rsa").write_text("PRIVATE")
    for text in ("@.env", "@notes.txt", "@far/id_rsa", f"@{Path.home()}/.ssh/id_rsa"):
        resources, problems = mention(project, text)
        assert resources == []
        assert len(problems) == 1
        assert "not attached" in problems[0]


def test_what_is_no_text_is_told(project: Path) -> None:
    assert "not a text file" in mention(project, "@image.png")[1][0]


def test_a_long_file_is_cut_and_that_is_told(project: Path) -> None:
    (project / "long.txt").write_text("x" * 300_000)
    resources, problems = mention(project, "@long.txt")
    assert len(resources[0].text) == 200_000
    assert "was cut" in problems[0]


def test_a_file_that_is_too_large_is_not_attached(project: Path) -> None:
    content, problems = expand_mentions((TextBlock(text="@README.md"),), WorkspaceFiles(project), max_bytes=3)
    assert len(content) == 1
    assert "larger than 3 bytes" in problems[0]


def test_a_folder_is_attached_as_the_names_in_it(project: Path) -> None:
    (project / "src/deep").mkdir()
    for text in ("look into @src/", "look into @src."):
        resources, problems = mention(project, text)
        assert problems == []
        assert [(one.uri, one.text) for one in resources] == [("src/", "deep/\na.py")]
    for number in range(600):
        (project / f"src/deep/f{number:03}").touch()
    (resource,), _ = mention(project, "@src/deep")
    assert resource.text.endswith("f499\n… and 100 more")
    assert mention(project, "wait @... and @.") == ([], [])


async def test_rules_on_reading_hold_for_mentions(project: Path) -> None:
    rules = [RuleSet.parse("user", deny=("read(src/**)",))]
    world = World(project, ["Done."], rules=rules)
    await world.run("@src/a.py and @README.md")
    content = world.of("user_message")[0].content
    assert [block.uri for block in content if isinstance(block, ResourceBlock)] == ["README.md"]
    (notice,) = world.of("notice")
    assert "@src/a.py was not attached" in notice.message


async def test_what_would_be_asked_about_is_not_attached(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("x")
    world = World(project, ["Done."], mode="ask")
    await world.run(f"@{outside}")
    assert len(world.of("user_message")[0].content) == 1
    assert "must be asked for" in world.of("notice")[0].message


# --- who watches -----------------------------------------------------------------------------------------


async def test_a_slow_subscriber_does_not_hold_up_the_run_and_misses_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn("many words " * 50, [call("list_directory", path=".")]), "Done."])
    seen: list[Event] = []
    release = asyncio.Event()

    async def slow(event: Event) -> None:
        await release.wait()
        seen.append(event)

    world.session.subscribe("slow", slow)
    result = await world.run()
    assert result.stop_reason == "end_turn"
    assert seen == []
    release.set()
    await world.session.aclose()
    stored = [event for event in world.live if event.stored]
    assert [event.id for event in seen if event.stored] == [event.id for event in stored]


async def test_a_failing_subscriber_is_told_once_and_harms_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, [Turn("x", [call("list_directory", path=".")]), "Done."])

    def fails(_event: Event) -> None:
        raise ValueError("broken screen")

    world.session.on_event(fails)
    assert (await world.run()).stop_reason == "end_turn"
    assert [event.code for event in world.of("notice")] == ["subscriber_failed"]
