"""Dialect ``files`` as text: the rules that teach it, calls and results in its words."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath

from aar.protocol.messages import ToolResultBlock, ToolUseBlock
from aar.providers.dialects import fences

FILES_RULES = """\
Do the task by answering with the complete new content of each file that must change: the path of the file \
alone on a line, then a fenced block. For example:

docs/greeting.txt
```
Hello, world!
```

The block replaces the whole file: repeat every line that stays, and never write "...".
Leave out files that do not change. Use the real paths of the project. Keep tests as they are unless the \
task is about them. Only when the task is a question, answer in words."""
"""The part of the system prompt that teaches the dialect to a small model."""

EXAMPLE_PATHS = frozenset({"docs/greeting.txt", "docs/guide.txt"})
"""Paths of the rules' own examples: small models copy them."""

NO_FINAL_NEWLINE = "\\ No newline at end of file"
"""Line behind a block whose file does not end with a line feed; the words are those of ``diff``."""

_PLAIN_PATH = re.compile(r"[\w@+-][\w./@+-]*|\.[\w][\w./@+-]*|/[\w./@+-]+")
_LANGUAGES = {
    ".py": "python", ".js": "javascript", ".mjs": "javascript", ".ts": "typescript", ".tsx": "tsx",
    ".jsx": "jsx", ".rs": "rust", ".go": "go", ".java": "java", ".c": "c", ".h": "c", ".cpp": "cpp",
    ".hpp": "cpp", ".rb": "ruby", ".sh": "bash", ".toml": "toml", ".json": "json", ".yaml": "yaml",
    ".yml": "yaml", ".md": "markdown", ".html": "html", ".css": "css", ".sql": "sql", ".txt": "text",
    ".php": "php", ".kt": "kotlin", ".swift": "swift", ".cs": "csharp",
}  # fmt: skip


def language_of(path: str) -> str:
    """Return the name of a file's language as fences give it, or an empty string."""
    return _LANGUAGES.get(PurePosixPath(path).suffix.lower(), "")


def render_call(call: ToolUseBlock) -> str:
    """Return a call as dialect ``files`` writes it; what it has no words for is told as JSON."""
    arguments = call.arguments
    match call.name:
        case "write_file" if set(arguments) == {"path", "content"}:
            return render_file(str(arguments["path"]), str(arguments["content"]))
        case "bash" if set(arguments) == {"command"}:
            return _run(str(arguments["command"]))
        case "read_file" if set(arguments) == {"path"}:
            return f"READ: {arguments['path']}"
        case _:
            return f"({call.name} {json.dumps(arguments, ensure_ascii=False)})"


def render_file(path: str, content: str) -> str:
    """Return a file as the dialect writes it: a path line and a fenced block."""
    marks = fences.enough(content)
    shown = path if _PLAIN_PATH.fullmatch(path) else f"`{path}`"
    head = f"{shown}\n{marks}{language_of(path)}\n{content}"
    if content and not content.endswith("\n"):
        return f"{head}\n{marks}\n{NO_FINAL_NEWLINE}"
    return f"{head}{marks}"


def _run(command: str) -> str:
    if command and "\n" not in command and command == command.strip() and command[0] + command[-1] != "``":
        return f"RUN: {command}"
    marks = fences.enough(command)
    return f"RUN:\n{marks}bash\n{command}\n{marks}"


def render_result(result: ToolResultBlock) -> str:
    """Return a result as dialect ``files`` tells it."""
    output = result.output.rstrip()
    if "\n" not in output and len(output) <= 200:
        return f"{result.name}: {output}" if result.is_error or not output else output
    marks = fences.enough(output)
    head = {"bash": "Output of the command", "read_file": "Content of the file"}.get(result.name, result.name)
    return f"{head}:\n{marks}\n{output}\n{marks}"
