"""A quick look at changed Python files: do they parse, and does every name come from somewhere?

Not a linter: it reports only what is surely wrong (syntax errors, names that nothing binds, imports from
project modules that do not define them, definitions that got lost), so that a small model can be told at
once. Nothing is run.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from functools import cache
from pathlib import PurePosixPath

ReadFile = Callable[[str], str | None]

_ALWAYS_BOUND = frozenset(dir(builtins)) | {
    "__file__", "__name__", "__doc__", "__package__", "__spec__", "__path__", "__class__", "__builtins__",
    "__annotations__", "__module__", "__qualname__", "__debug__", "WindowsError",
}  # fmt: skip
_BINDING = frozenset({
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.arg, ast.Name,
    ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping, ast.Global, ast.Nonlocal,
})  # fmt: skip
_NOTHING: frozenset[str] = frozenset()
_DYNAMIC = frozenset({"exec", "eval", "globals", "locals", "vars", "setattr"})


def check_python(paths: Iterable[str], read: ReadFile, known: frozenset[str]) -> list[str]:
    """Return sentences about what is surely wrong in the Python files among ``paths``.

    Args:
        paths: Files to look at, relative with forward slashes.
        read: Returns the present text of a project file, or ``None``.
        known: All paths of the project.
    """
    problems: list[str] = []
    modules = _Modules(read)
    for path in paths:
        text = read(path) if path.endswith(".py") else None
        if text is not None:
            problems += _check_file(path, text, modules, known)
    return problems


class _Modules:
    """What modules define, each read once however many import it."""

    def __init__(self, read: ReadFile) -> None:
        def defined(path: str) -> set[str] | None:
            return _defined(read(path))

        def functions(path: str) -> dict[str, ast.FunctionDef]:
            return _functions(read(path))

        self.defined, self.functions = cache(defined), cache(functions)


def _check_file(path: str, text: str, modules: _Modules, known: frozenset[str]) -> list[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return [f"{path}, line {error.lineno}: {error.msg}."]
    except ValueError:
        return [f"{path} is not Python text."]
    problems = [
        f"{path}: the name `{name}` is used but not defined or imported." for name in unbound_names(tree)
    ]
    problems += _wrong_imports(path, tree, modules, known)
    return problems + _wrong_calls(path, tree, modules, known)


def unbound_names(tree: ast.Module) -> list[str]:
    """Return names that are read although no scope binds them; none where that cannot be told."""
    bound: set[str] = set(_ALWAYS_BOUND)
    used: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return []
        bound |= _binds(node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.id in _DYNAMIC:
                return []
            used[node.id] = None
    return [name for name in used if name not in bound]


def _binds(node: ast.AST) -> Set[str]:
    if type(node) not in _BINDING:  # nearly all nodes
        return _NOTHING
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Import() | ast.ImportFrom():
            return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        case ast.arg():
            return {node.arg}
        case ast.Name() if not isinstance(node.ctx, ast.Load):
            return {node.id}
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            return {node.name} if node.name else _NOTHING
        case ast.MatchMapping():
            return {node.rest} if node.rest else _NOTHING
        case ast.Global() | ast.Nonlocal():
            return set(node.names)
        case _:
            return _NOTHING


def _wrong_imports(path: str, tree: ast.Module, modules: _Modules, known: frozenset[str]) -> list[str]:
    problems: list[str] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        source = _module_file(path, node, known)
        names = modules.defined(source) if source is not None else None
        if source is None or names is None:
            continue
        folder = PurePosixPath(source).parent.as_posix() if source.endswith("__init__.py") else None
        for alias in node.names:
            inside = folder is not None and _is_module(f"{folder}/{alias.name}", known)
            if alias.name != "*" and alias.name not in names and not inside:
                problems.append(f"{path} imports `{alias.name}` from {source}, which does not define it.")
    return problems


def _wrong_calls(path: str, tree: ast.Module, modules: _Modules, known: frozenset[str]) -> list[str]:
    """Return sentences about calls that do not fit the function's parameters."""
    functions = {node.name: (node, path) for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        source = _module_file(path, node, known) if isinstance(node, ast.ImportFrom) else None
        if source is None or not isinstance(node, ast.ImportFrom):
            continue
        theirs = modules.functions(source)
        for alias in node.names:
            if alias.name in theirs:
                functions[alias.asname or alias.name] = (theirs[alias.name], source)
    rebound = _rebound(tree)
    problems: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in rebound:
            found = functions.get(node.func.id)
            wrong = _misfit(node, found[0]) if found is not None else None
            if found is not None and wrong is not None:
                problems[f"{found[1]}: `{node.func.id}` {wrong}, but {path} calls it so."] = None
    return list(problems)


def _functions(text: str | None) -> dict[str, ast.FunctionDef]:
    try:
        tree = ast.parse(text or "")
    except (SyntaxError, ValueError):
        return {}
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _rebound(tree: ast.Module) -> set[str]:
    """Return names that are bound by more than their definition or import: these prove nothing."""
    names: Counter[str] = Counter()
    for node in ast.walk(tree):
        names.update(_binds(node))
    return {name for name, count in names.items() if count > 1}


def _misfit(call: ast.Call, function: ast.FunctionDef) -> str | None:
    """Return what is wrong with the arguments of ``call``, if it surely is."""
    taken = function.args
    plain = [*taken.posonlyargs, *taken.args]
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    keywords = [keyword.arg for keyword in call.keywords]
    if function.decorator_list or starred or None in keywords:
        return None
    if taken.vararg is None and len(call.args) > len(plain):
        return f"takes {len(plain)} arguments and not {len(call.args)}"
    names = {argument.arg for argument in (*taken.args, *taken.kwonlyargs)}
    unknown = [name for name in keywords if name is not None and name not in names]
    if taken.kwarg is None and unknown:
        return f"has no argument `{unknown[0]}`"
    needed = [argument.arg for argument in plain[: len(plain) - len(taken.defaults)]]
    missing = [name for name in needed[len(call.args) :] if name not in keywords]
    return f"needs the argument `{missing[0]}`" if missing else None


def _module_file(path: str, node: ast.ImportFrom, known: frozenset[str]) -> str | None:
    """Return the project file that an import names, if the project has it."""
    parts = (node.module or "").split(".") if node.module else []
    here = PurePosixPath(path).parent
    if node.level:
        for _ in range(node.level - 1):
            here = here.parent
        bases = [here]
    else:
        # The folder of a package is not searched for modules: `import x` there is not its own x.py.
        around = [base for base in (here, *here.parents) if (base / "__init__.py").as_posix() not in known]
        bases = [*around, PurePosixPath("src")]
    for base in bases:
        stem = base.joinpath(*parts).as_posix()
        for candidate in (f"{stem}/__init__.py", f"{stem}.py"):
            if candidate.removeprefix("./") in known:
                return candidate.removeprefix("./")
    return None


def _is_module(stem: str, known: frozenset[str]) -> bool:
    return f"{stem}.py" in known or f"{stem}/__init__.py" in known


def _defined(text: str | None) -> set[str] | None:
    """Return all names that a module binds anywhere; ``None`` when that cannot be told."""
    if text is None:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return None
        names |= _binds(node)
    return None if "__getattr__" in names else names


def lost_definitions(before: Mapping[str, str], read: ReadFile) -> dict[str, list[str]]:
    """Return the top-level functions and classes, and their methods, that changed files no longer have.

    Args:
        before: Text of each changed file as it was.
        read: Returns the present text.
    """
    lost: dict[str, list[str]] = {}
    for path, old in before.items():
        if not path.endswith(".py"):
            continue
        was, now = _definitions(old), _definitions(read(path) or "")
        if was is not None and now is not None:
            missing = [name for name in was if name not in now]
            if missing:
                lost[path] = missing
    return lost


def _definitions(text: str) -> list[str] | None:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef))
            names += [f"{node.name}.{item.name}" for item in inner]
    return names
