"""Puts back what a whole-file answer left out by the way (Python files).

A small model asked for a whole file often gives only the part that it changed. Taken literally that would
delete the rest of the user's file. Where both texts parse, what is missing can be put back without doubt:
top-level functions and classes, methods, and the imports and constants that these need.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from aar.core.coaching.python_check import unbound_names

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Merged:
    """A text with what was missing put back; ``restored`` names it."""

    text: str
    restored: tuple[str, ...]


def restore_lost(old: str, new: str, may_go: Callable[[str], bool]) -> Merged:
    """Return ``new`` with the definitions of ``old`` that it lost.

    Args:
        old: The file as it was.
        new: The file as the model gave it.
        may_go: Tells whether the task speaks of a name, so that its absence is meant.
    """
    was, now = _parse(old), _parse(new)
    if was is None or now is None:
        return Merged(new, ())
    restored: list[str] = []
    text = _restore_methods(old, was, new, may_go, restored)
    now = _parse(text)
    if now is None:
        return Merged(new, ())
    text = _restore_top(old, was, text, now, may_go, restored)
    text = _restore_needed(old, was, text, restored)
    return Merged(text if _parse(text) is not None else new, tuple(restored))


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _definitions(body: list[ast.stmt]) -> dict[str, _Definition]:
    found: dict[str, _Definition] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
    return found


def _named(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Return definitions, constants and the closing ``if __name__`` of a module by name, in order."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found[node.name] = node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = node
            case ast.If() if "__name__" in ast.dump(node.test):
                found["__main__"] = node
            case _:
                pass
    return found


def _source(text: str, node: ast.stmt) -> str:
    """Return the lines of a statement, decorators included."""
    lines = text.splitlines()
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return "\n".join(lines[first - 1 : node.end_lineno])


def _restore_top(
    old: str,
    was: ast.Module,
    new: str,
    now: ast.Module,
    may_go: Callable[[str], bool],
    restored: list[str],
) -> str:
    before, after = _named(was.body), _named(now.body)
    lines = new.rstrip().splitlines()
    inserts: list[tuple[int, int, list[str]]] = []
    previous: int | None = None
    for order, (name, node) in enumerate(before.items()):
        if name in after:
            previous = after[name].end_lineno
        elif not may_go(name):
            inserts.append((_place(name, node, previous, now, len(lines)), order, _spaced(old, node)))
            restored.append(name)
    for at, _, source in sorted(inserts, key=lambda item: (-item[0], -item[1])):
        follows = lines[at] if at < len(lines) else ""
        gap = ["", ""] if source[0] and follows.startswith(("def ", "class ", "async ", "@")) else []
        lines[at:at] = [*source, *gap]
    return "\n".join(lines).lstrip("\n") + "\n" if inserts else new


def _spaced(old: str, node: ast.stmt) -> list[str]:
    source = _source(old, node).splitlines()
    return source if isinstance(node, ast.Assign | ast.AnnAssign) else ["", "", *source]


def _place(name: str, node: ast.stmt, previous: int | None, now: ast.Module, end: int) -> int:
    """Return the line of the new text after which a statement of the old one goes."""
    if name == "__main__":
        return end
    if previous is not None:
        return previous
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return _after_imports(now)
    return next((one.lineno - 1 for key, one in _named(now.body).items() if key == "__main__"), end)


def _after_imports(module: ast.Module) -> int:
    at = _after_docstring(module)
    for node in module.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            at = node.end_lineno or at
    return at


def _restore_methods(
    old: str, was: ast.Module, new: str, may_go: Callable[[str], bool], restored: list[str]
) -> str:
    now = _parse(new)
    if now is None:
        return new
    lines = new.rstrip().splitlines()
    after = _definitions(now.body)
    inserts: list[tuple[int, str]] = []
    for name, node in _definitions(was.body).items():
        given = after.get(name)
        if not isinstance(node, ast.ClassDef) or not isinstance(given, ast.ClassDef):
            continue
        kept = _definitions(given.body)
        for method, body in _definitions(node.body).items():
            if method not in kept and not may_go(method):
                inserts.append((given.end_lineno or len(lines), _source(old, body)))
                restored.append(f"{name}.{method}")
    for at, source in sorted(inserts, key=lambda item: -item[0]):
        lines[at:at] = ["", *source.splitlines()]
    return "\n".join(lines) + "\n" if inserts else new


def _restore_needed(old: str, was: ast.Module, new: str, restored: list[str]) -> str:
    """Put back the imports and constants of the old file whose names the new one uses but lacks."""
    now = _parse(new)
    if now is None:
        return new
    missing = set(unbound_names(now))
    if not missing:
        return new
    needed = [
        _source(old, node)
        for node in was.body
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign)
        and _bound(node) & missing
    ]
    if not needed:
        return new
    restored += needed
    lines = new.splitlines()
    at = _after_docstring(now)
    lines[at:at] = [*needed, *([""] if at == 0 or not now.body else [])]
    return "\n".join(lines) + "\n"


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return {
        item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)
    }


def _after_docstring(module: ast.Module) -> int:
    """Return the line after the module's docstring and ``from __future__`` imports."""
    at = 0
    for node in module.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not docstring and not future:
            break
        at = node.end_lineno or at
    return at
