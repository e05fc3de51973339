"""What belongs to the door: its colours, keys and parts, leaving it, and the prompts that wait."""

from __future__ import annotations

from collections.abc import Sequence

from aar.commands.base import (
    Command,
    Context,
    Failure,
    Result,
    Run,
    Table,
    Text,
    UiAction,
    one_line,
    starting_with,
)
from aar.core.prompt_queue import Prompt
from aar.protocol.errors import UsageError
from aar.protocol.messages import TextBlock

_QUEUE_WORDS = ("clear", "drop", "first", "go")


def _action(name: str) -> Run:
    async def run(context: Context, argument: str) -> Result:
        return UiAction(name, {"argument": argument} if argument else {})

    return run


async def _queue(context: Context, argument: str) -> Result:
    """List, add, drop and reorder the prompts that wait."""
    queue = context.conversation.agent.queue
    word, _, rest = argument.partition(" ")
    if word == "clear" and not rest:
        count = len(queue.prompts)
        queue.replace(())
        return Text(f"{count} waiting prompt{'s' * (count != 1)} dropped.")
    if word in ("drop", "first") and rest.strip().isdigit():
        return _move(context, word, int(rest))
    if argument == "go":
        started = context.conversation.go_on()
        return (
            Text("The next prompt runs.") if started else Failure("No prompt waits, or a run is under way.")
        )
    if argument:
        started = not context.conversation.running
        context.conversation.enqueue(argument)
        return Text("It runs now, as nothing else does." if started else "It waits until this run is over.")
    if not queue.prompts:
        return Text("No prompt waits. /queue PROMPT adds one.")
    rows = tuple((str(place), one_line(words(prompt))) for place, prompt in enumerate(queue.prompts, 1))
    return Table("Waiting prompts", ("", "prompt"), rows, "/queue drop N, first N, clear, go", frozenset({0}))


def _move(context: Context, word: str, number: int) -> Result:
    queue = context.conversation.agent.queue
    prompts = list(queue.prompts)
    if not 1 <= number <= len(prompts):
        waiting = f"{len(prompts)} wait{'s' * (len(prompts) == 1)}" if prompts else "none waits"
        raise UsageError(f"There is no prompt {number}; {waiting}.")
    prompt = prompts.pop(number - 1)
    queue.replace(prompts if word == "drop" else [prompt, *prompts])
    return Text(f"{'Dropped' if word == 'drop' else 'First now'}: {one_line(words(prompt))}")


def words(prompt: Prompt) -> str:
    """Return the text of a prompt; what is no text is named."""
    parts = [
        block.text if isinstance(block, TextBlock) else f"[{type(block).__name__.removesuffix('Block')}]"
        for block in prompt
    ]
    return " ".join(parts)


def _complete_queue(context: Context, text: str) -> Sequence[str]:
    return starting_with(_QUEUE_WORDS, text) if text else list(_QUEUE_WORDS)


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("queue", "List the prompts that wait; add, drop, reorder them.", _queue,
                usage="[PROMPT | drop N | first N | clear | go]", group="session", complete=_complete_queue),
        Command("theme", "Choose the colours.", _action("theme"), usage="[NAME]", group="screen",
                action="theme"),
        Command("keys", "Show the keys.", _action("keys"), group="screen", action="keys"),
        Command("layout", "Choose which parts of the screen are shown.", _action("layout"), usage="[PART]",
                group="screen", action="layout"),
        Command("settings", "Look through all settings, and change them in your config file.",
                _action("settings"), group="screen", aliases=("config",), action="settings"),
        Command("quit", "Leave; the session is kept.", _action("quit"), group="screen",
                aliases=("exit", "q"), action="quit"),
    ]  # fmt: skip
