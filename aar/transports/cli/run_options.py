"""The flags of ``aar run``, and which of them contradict each other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aar.protocol.errors import UsageError


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The flags of ``aar run``; ``runtime`` holds those that all commands share."""

    runtime: dict[str, Any]
    prompt: str | None
    continue_: bool
    session_id: str | None
    fork_id: str | None
    fork_at: int | None
    if_open: str
    output: str
    input_: str
    output_schema: Path | None
    output_last_message: Path | None
    max_steps: int | None
    max_cost: float | None
    timeout: float | None
    verify: tuple[str, ...]
    images: tuple[Path, ...]
    system_prompt: Path | None
    approve_with: str | None
    title: str | None
    no_session: bool
    quiet: bool


def check(options: RunOptions) -> None:
    """Refuse flags that contradict each other, and a file that cannot be written, before anything is done.

    Raises:
        UsageError: So it is.
    """
    given = [
        flag
        for flag, value in (
            ("--continue", options.continue_),
            ("--session", options.session_id),
            ("--fork", options.fork_id),
        )
        if value
    ]
    if len(given) > 1:
        raise UsageError(f"Give one of {' and '.join(given)}, not more.")
    if options.fork_at is not None and options.fork_id is None:
        raise UsageError("--at goes with --fork.")
    if given and options.no_session:
        raise UsageError(f"{given[0]} needs stored sessions; leave --no-session out.")
    _check_input(options)
    if options.output_schema is not None:
        from aar.core.output_schema import load_schema

        load_schema(options.output_schema)
    file = options.output_last_message
    if file is None:
        return
    if file.is_dir() or not file.parent.is_dir():
        raise UsageError(f"--output-last-message {file}: name a file in a folder that exists.")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise UsageError(f"--output-last-message {file} cannot be written: no permission.")


def _check_input(options: RunOptions) -> None:
    if options.input_ == "text":
        return
    if options.approve_with is not None:
        raise UsageError("With --input stream-json the program answers questions; leave --approve-with out.")
    if options.images and options.prompt is None:
        raise UsageError("--image goes with PROMPT; put images into the content of a prompt line.")
    if options.prompt == "-":
        raise UsageError("With --input stream-json prompts come as lines; leave '-' out.")
