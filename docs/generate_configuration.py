"""Write the tables of ``docs/configuration.md`` from the docstrings of ``aar/config/schema.py``.

``python docs/generate_configuration.py`` prints them; with ``--write`` they replace those in the page.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import cast

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "aar/config/schema.py"
PAGE = ROOT / "docs/configuration.md"
BEGIN = "<!-- tables: python docs/generate_configuration.py --write -->"
END = "<!-- end of tables -->"
_TYPES = {
    "str": "string",
    "bool": "true or false",
    "PositiveInt": "whole number from 1",
    "NonNegativeInt": "whole number from 0",
    "NonNegativeFloat": "number from 0",
    "Positive": "number above 0",
    "Share": "number from 0 to 1",
    "PermissionMode": '`"plan"` `"ask"` `"edit"` `"auto"` `"unsafe"`',
    "Wall": '`"auto"` `"bubblewrap"` `"namespaces"` `"landlock"` `"seatbelt"` `"none"`',
    "dict[str, dict[str, Any]]": "table of tables",
    "dict[str, str]": "table of strings",
    "dict[str, str | dict[str, str]]": "table of strings, or tables of them",
    "dict[str, Any]": "table",
    "dict[str, ModelSettings]": "tables by name",
    "dict[str, RuleExamples]": "tables by rule",
    "TuiLayoutConfig": "table",
}


def tables() -> str:
    """Return the Markdown of all sections that have keys of their own."""
    tree = ast.parse(SCHEMA.read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    parts = [_table(node) for node in classes if node.name not in ("Section", "Config")]
    return "\n".join(part for part in parts if part)


def _table(node: ast.ClassDef) -> str:
    rows = [
        f"| `{name}` | {_type(field)} | {_default(field)} | {_cell(text)} |"
        for name, field, text in _fields(node)
        if not text.startswith("Servers by name")
    ]
    if not rows:
        return ""
    title, _, about = (ast.get_docstring(node) or "").replace("``", "`").partition(": ")
    heading = title.rstrip(".")
    intro = f"{about[:1].upper()}{about[1:]}\n\n" if about else ""
    return (
        f"### {heading}\n\n{intro}| key | type | default | meaning |\n|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def _fields(node: ast.ClassDef) -> list[tuple[str, ast.AnnAssign, str]]:
    found: list[tuple[str, ast.AnnAssign, str]] = []
    for field, after in zip(node.body, node.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found.append((field.target.id, field, str(after.value.value)))
    return found


def _type(field: ast.AnnAssign) -> str:
    return " or ".join(_words(part) for part in _branches(field.annotation))


def _branches(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [part for side in (node.left, node.right) for part in _branches(side)]
    return [] if isinstance(node, ast.Constant) and node.value is None else [node]


def _words(node: ast.expr) -> str:
    source = ast.unparse(node)
    if source in _TYPES:
        return _TYPES[source]
    if isinstance(node, ast.Subscript) and source.startswith("Literal["):
        choices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return " ".join(f"`{_toml(choice)}`" for choice in choices)
    if isinstance(node, ast.Subscript) and source.startswith("tuple[") and isinstance(node.slice, ast.Tuple):
        return f"list of {_words(node.slice.elts[0]).replace('string', 'strings')}"
    if source.startswith(("Annotated[float", "Annotated[int")):
        low, high = (word.split("=")[1] for word in source[:-2].split("(")[1].split(", "))
        kind = "whole number" if source.startswith("Annotated[int") else "number"
        return f"{kind} from {low} to {high}"
    raise SystemExit(f"docs/generate_configuration.py does not know the type {source}")


def _default(field: ast.AnnAssign) -> str:
    value = field.value
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        return ""
    if isinstance(value, ast.Call):
        return "`{}`"
    return f"`{_toml(value)}`"


def _toml(node: ast.expr) -> str:
    value = ast.literal_eval(node)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        return "[" + ", ".join(f'"{item}"' for item in items) + "]"
    return str(value)


def _cell(text: str) -> str:
    return " ".join(text.replace("``", "`").replace("|", "\\|").split())


def main() -> None:
    """Print the tables, or put them into the page."""
    if sys.argv[1:] != ["--write"]:
        sys.stdout.write(tables())
        return
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
