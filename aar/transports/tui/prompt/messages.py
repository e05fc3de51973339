"""What the prompt and the parts around it tell the app."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from textual.message import Message

from aar.transports.tui.prompt.chips import PastedImage


@dataclass
class Submitted(Message, namespace="prompt_area"):
    """A prompt is to be sent (it steers a run under way), or to wait its turn (``queue``).

    ``text`` has all pasted text in place; ``typed`` is what stood in the box, for the history.
    """

    text: str
    how: Literal["send", "queue"] = "send"
    images: tuple[PastedImage, ...] = ()
    typed: str = ""


@dataclass
class ShellWanted(Message, namespace="prompt_area"):
    """The user wants to run ``command``; ``private``: the model does not get to see it."""

    command: str
    private: bool


class GoOnWanted(Message, namespace="prompt_area"):
    """Enter on an empty prompt: the queue is to go on."""


class TakeBackWanted(Message, namespace="prompt_area"):
    """The last queued prompt is to come back into the box."""


class FilesWanted(Message, namespace="prompt_area"):
    """The list of the project's files is wanted for completion."""


class DraftChanged(Message, namespace="prompt_area"):
    """What is being typed changed."""


@dataclass
class EditorWanted(Message, namespace="prompt_area"):
    """``text`` is to be edited in the user's editor."""

    text: str


class ClipboardWanted(Message, namespace="prompt_area"):
    """What is in the clipboard is to be pasted: an image, or text."""


@dataclass
class FilesDropped(Message, namespace="prompt_area"):
    """Files were dragged into the terminal; ``text`` is what the terminal wrote."""

    text: str
    paths: tuple[Path, ...]


@dataclass
class CopyWanted(Message, namespace="prompt_area"):
    """``text`` is to go into the clipboard."""

    text: str


@dataclass
class HintWanted(Message, namespace="prompt_area"):
    """A sentence is to be shown below the prompt for some seconds."""

    text: str


@dataclass
class ModeChanged(Message, namespace="prompt_area"):
    """Vim's mode is another: ``INSERT``, ``NORMAL``, or nothing without vim keys."""

    mode: str


class QuitWanted(Message, namespace="prompt_area"):
    """Ctrl+D on an empty prompt."""


class StopWanted(Message, namespace="prompt_area"):
    """Ctrl+C where there is nothing to copy or to clear."""


class CancelWanted(Message, namespace="prompt_area"):
    """Ctrl+X: the run and the queue are to be dropped."""


class HistoryWanted(Message, namespace="prompt_area"):
    """The search over all prompts is to open."""


class AnswerWanted(Message, namespace="prompt_area"):
    """The keys are to go to the open question, if there is one."""


class QueueFocusWanted(Message, namespace="prompt_area"):
    """The keys are to go to the queue."""
