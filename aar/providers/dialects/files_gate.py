"""What of a whole-file answer may be shown while it arrives."""

from __future__ import annotations

from aar.providers.dialects import fences
from aar.providers.dialects.base import Shown
from aar.providers.dialects.fences import Fence
from aar.providers.dialects.file_blocks import SHELLS, command_line
from aar.providers.dialects.paths import LEAD, comment_path, info_path, path_line

_WORDS_OF_PROSE = 6
_SPECIAL = ("`", "~", "<", "RUN", "READ")


class Gate:
    """Lets prose through while the answer arrives, up to the first thing that may be a call."""

    def __init__(self, known: frozenset[str]) -> None:
        self.shown = Shown()
        self.path: str | None = None
        self._known = known
        self._spaced = tuple(path for path in known if " " in path)
        self._line = ""
        self._mid_line = False
        self._waiting = ""
        self._named: str | None = None
        self._shell: str | None = None
        self._fence: Fence | None = None
        self._holding = False

    def feed(self, piece: str) -> str:
        *complete, last = (self._line + piece).split("\n")
        out = "".join([self._complete(line) for line in complete])
        self._line = last
        if not self._holding and (self._mid_line or self._is_prose(last)):
            out += self._release() + last
            self._line, self._mid_line = "", True
        return self.shown.add(out)

    def _is_prose(self, line: str) -> bool:
        """Tell whether an unfinished line is too much of a sentence to become a path, call or fence."""
        if self._fence is not None or self._shell is not None:
            return False
        text = LEAD.sub("", line, count=1)
        if any(path.startswith(text) or text.startswith(path) for path in self._spaced):
            return False
        return not text.startswith(_SPECIAL) and len(text.split()) >= _WORDS_OF_PROSE

    def _release(self) -> str:
        text, self._waiting, self._named = self._waiting, "", None
        return text

    def _complete(self, line: str) -> str:
        if self._holding:
            self._follow(line)
            return ""
        if self._mid_line:
            self._mid_line = False
            return line + "\n"
        if self._shell is not None:
            return self._after_shell_fence(line)
        if self._fence is not None:
            if fences.closes(line, self._fence):
                self._fence = None
            return line + "\n"
        return self._prose_line(line)

    def _prose_line(self, line: str) -> str:
        fence = fences.opening(line)
        if (
            fence is not None
            and not self._named
            and fence.language in SHELLS
            and not info_path(fence.info, self._known)
        ):
            self._shell, self._fence = line, fence
            return ""
        if fence is not None or command_line(line) is not None or line.startswith("<<<<<<<"):
            self._holding = True
            self._follow(line)
            return ""
        if not line.strip() and self._waiting:
            self._waiting += line + "\n"
            return ""
        path = path_line(line, self._known) if line.strip() else None
        out = self._release()
        if path is None:
            return out + line + "\n"
        self._waiting, self._named = line + "\n", path
        return out

    def _has_path(self, fence: Fence) -> bool:
        return self._named is not None or info_path(fence.info, self._known) is not None

    def _after_shell_fence(self, line: str) -> str:
        opened, self._shell = self._shell or "", None
        if comment_path(line, self._known) or command_line(line) is not None:
            self._holding, self._fence = True, None
            return ""
        if self._fence is not None and fences.closes(line, self._fence):
            self._fence = None
        return f"{self._release()}{opened}\n{line}\n"

    def _follow(self, line: str) -> None:
        """Keep track of the file that is being received."""
        if self._fence is not None:
            if fences.closes(line, self._fence):
                self._fence, self.path = None, None
            return
        fence = fences.opening(line)
        if fence is not None:
            self._fence, self.path = fence, self._named or info_path(fence.info, self._known)
            self._named = None
        elif line.strip():
            self._named = path_line(line, self._known)
