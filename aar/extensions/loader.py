"""Imports one extension and lets it register. Runs in the thread of the extension."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from aar.extensions.api import API_VERSION, ExtensionAPI
from aar.extensions.discovery import Source
from aar.extensions.worker import ExtensionTroubleError

PREFIX = "aar_extension_"
_number = itertools.count(1)


class _SourceLoader(SourceFileLoader):
    """Reads and writes no bytecode: files that appear in a project would end its trust, and may be stale."""

    def path_stats(self, path: Any) -> Any:
        raise OSError("no bytecode")


class _Parts(MetaPathFinder):
    """Finds the modules inside of an extension that is a folder."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not fullname.startswith(PREFIX):
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _SourceLoader(fullname, spec.loader.path)
        return spec


def load(source: Source, api: ExtensionAPI) -> Any:
    """Import ``source`` and call its ``register``; return what that returns, which may be awaitable.

    Raises:
        ExtensionTroubleError: It has no ``register``, or needs another version of the API.
        Exception: What its code raised.
    """
    module, register = _of_package(source) if source.target else _of_file(source)
    _check_version(getattr(module, "AAR_API", API_VERSION))
    if not callable(register):
        raise ExtensionTroubleError("it has no function register(api)")
    _check_parameters(register)
    return register(api)


def _of_file(source: Source) -> tuple[ModuleType, Any]:
    name = f"{PREFIX}{source.tier.replace('-', '_')}_{source.name.replace('-', '_')}_{next(_number)}"
    if not any(isinstance(finder, _Parts) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Parts())
    folder = [str(source.path.parent)] if source.path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(
        name, source.path, loader=_SourceLoader(name, str(source.path)), submodule_search_locations=folder
    )
    if spec is None or spec.loader is None:
        raise ExtensionTroubleError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        forget(name)
        raise
    return module, getattr(module, "register", None)


def _of_package(source: Source) -> tuple[ModuleType, Any]:
    module_name, _, attribute = source.target.partition(":")
    module = importlib.import_module(module_name.strip())
    return module, getattr(module, attribute.strip() or "register", None)


def forget(name: str) -> None:
    """Take a module of an extension, and those inside it, out of the table of modules."""
    # A copy first: other threads import meanwhile.
    for known in [key for key in tuple(sys.modules) if key == name or key.startswith(f"{name}.")]:
        del sys.modules[known]


def _check_version(wanted: object) -> None:
    """Raise unless the extension was written for this API.

    Raises:
        ExtensionTroubleError: It was not.
    """
    try:
        major, minor = (int(part) for part in (*str(wanted).split("."), "0")[:2])
    except ValueError:
        raise ExtensionTroubleError(f"AAR_API is {wanted!r}; write it as in '{API_VERSION}'") from None
    ours = tuple(int(part) for part in API_VERSION.split("."))
    if major != ours[0] or minor > ours[1]:
        raise ExtensionTroubleError(f"it needs version {wanted} of the API and this aar has {API_VERSION}")


def _check_parameters(register: Callable[..., Any]) -> None:
    try:
        inspect.signature(register).bind(None)
    except TypeError:
        raise ExtensionTroubleError("register must take one argument: def register(api)") from None
    except ValueError:
        return


def where_it_failed(error: BaseException, file: Path) -> str:
    """Return ``, line N`` of the extension's own file, if the failure came from there."""
    line = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == str(file):
        line = error.lineno or line
    return f", line {line}" if line else ""
