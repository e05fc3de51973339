"""Programs around the prompt: the user's editor, and the clipboard's. For after the first frame."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from aar.protocol.errors import UsageError
from aar.protocol.ports import Spawner, SpawnRequest
from aar.transports.tui.prompt.chips import PastedImage
from aar.transports.tui.prompt.images import MAX_IMAGE_BYTES, image_of

_EDITORS = ("nano", "vi", "vim", "nvim", "emacs")
_IMAGE_READERS = (
    ("WAYLAND_DISPLAY", ("wl-paste", "--no-newline", "--type", "image/png")),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")),
)
_TEXT_READERS = (
    ("WAYLAND_DISPLAY", ("wl-paste", "--no-newline")),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-out")),
    ("DISPLAY", ("xsel", "--clipboard", "--output")),
)
_WAIT_S = 3.0


def editor_command(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the user's editor with its options: ``$VISUAL``, ``$EDITOR``, else one that is there.

    Raises:
        UsageError: There is none.
    """
    for name in ("VISUAL", "EDITOR"):
        try:
            words = tuple(shlex.split(environ.get(name, "")))
        except ValueError:
            words = ()
        if words:
            if shutil.which(words[0]) is None:
                raise UsageError(f"There is no editor {words[0]}; set ${name} to one that is there.")
            return words
    found = next((name for name in _EDITORS if shutil.which(name)), None)
    if found is None:
        raise UsageError("No editor was found; set $EDITOR to yours.")
    return (found,)


async def edit_text(spawner: Spawner, command: tuple[str, ...], text: str, cwd: Path) -> str:
    """Open ``text`` in the editor, which has the terminal meanwhile, and return what was saved.

    Raises:
        UsageError: The editor failed; the text is as it was.
        OSError: It could not be started, or the file could not be read.
    """
    folder = Path(tempfile.mkdtemp(prefix="aar-prompt-"))
    file = folder / "prompt.md"
    try:
        file.write_text(text, encoding="utf-8", newline="")
        request = SpawnRequest((*command, str(file)), cwd, kind="interactive")
        ended = await (await spawner.start(request)).wait()
        if ended.exit_code != 0:
            raise UsageError(f"{command[0]} ended with {ended.exit_code}; the prompt is as it was.")
        after = file.read_text(encoding="utf-8", errors="replace")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    # Editors end a file with a newline that nobody typed.
    return after[:-1] if after.endswith("\n") and not text.endswith("\n") else after


async def read_clipboard(
    spawner: Spawner, cwd: Path, environ: Mapping[str, str] | None = None
) -> PastedImage | str | None:
    """Return the image or text in the clipboard of the desktop; ``None`` where there is nothing to be had."""
    environ = os.environ if environ is None else environ
    for variable, argv in _IMAGE_READERS:
        data = await _read(spawner, cwd, environ, variable, argv)
        image = image_of("clipboard.png", data) if data else None
        if image is not None:
            return image
    for variable, argv in _TEXT_READERS:
        data = await _read(spawner, cwd, environ, variable, argv)
        if data:
            return data.decode("utf-8", "replace")
    return None


async def _read(
    spawner: Spawner, cwd: Path, environ: Mapping[str, str], variable: str, argv: tuple[str, ...]
) -> bytes:
    if not environ.get(variable) or shutil.which(argv[0]) is None:
        return b""
    request = SpawnRequest(
        argv,
        cwd,
        env={variable: environ[variable]},
        kind="helper",
        timeout_s=_WAIT_S,
        max_output=2 * MAX_IMAGE_BYTES,
        merge_stderr=False,
    )
    try:
        ended = await spawner.run(request)
    except OSError:
        return b""
    return ended.output if ended.exit_code == 0 and not ended.truncated else b""
