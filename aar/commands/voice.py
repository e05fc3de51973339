"""Speaking to aar and hearing it, by programs of the user's."""

from __future__ import annotations

from collections.abc import Sequence

from aar.commands.base import Command, Context, Failure, Result, Text, UiAction, starting_with
from aar.protocol.errors import UsageError

_WORDS = ("on", "off", "read", "stop")


async def _voice(context: Context, argument: str) -> Result:
    """Dictate into the prompt, or have answers read aloud."""
    voice = context.conversation.voice
    match argument.lower():
        case "":
            if voice.listening:
                voice.stop()
                return Text("What was said comes in a moment.")
            heard = await voice.listen()
            return UiAction("insert", {"argument": heard}) if heard else Failure("Nothing was heard.")
        case "on":
            voice.check_reading()
            voice.reads_answers = True
            return Text("Answers are read aloud until /voice off.")
        case "off":
            voice.reads_answers = False
            voice.stop()
            return Text("Answers are not read aloud.")
        case "read":
            voice.read_last()
            return Text("The last answer is read aloud; /voice stop ends it.")
        case "stop":
            return Text("Ended.") if voice.stop() else Failure("Nothing is heard or read.")
        case _:
            raise UsageError(f"/voice takes {', '.join(_WORDS)}, or nothing: then it listens.")


def _complete(context: Context, text: str) -> Sequence[str]:
    return starting_with(_WORDS, text)


def commands() -> list[Command]:
    """Return the commands of this family."""
    return [
        Command("voice", "Dictate into the prompt, or have answers read aloud.", _voice, group="screen",
                usage="[on|off|read|stop]", complete=_complete, action="insert", example="/voice"),
    ]  # fmt: skip
