"""``aar doctor --online``: does the server of each configured model answer, and does it have the model?

Servers are asked for their list of models: that costs nothing, and tells whether address and key are right.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aar.protocol.errors import AarError
from aar.transports.cli.doctor_checks import Check, load, split

if TYPE_CHECKING:
    from aar.runtime import Base

TIMEOUT_S = 10.0
"""Seconds for each server; all are asked at once."""


def examine_online(options: dict[str, Any]) -> list[Check]:
    """Return a check for each configured model; none when the configuration cannot be read.

    Args:
        options: For `aar.runtime.open_base`.
    """
    base, _ = load(options)
    if base is None:
        return []
    return asyncio.run(_all(base))


def _names(base: Base) -> list[str]:
    """Return the models that may be asked: the one that answers first, then the others that are set."""
    from aar.runtime import make_active_model

    active, _ = make_active_model(base)
    model = base.config.model
    return list(dict.fromkeys([active.name, *model.fallback, *([model.small] if model.small else [])]))


async def _all(base: Base) -> list[Check]:
    try:
        names = _names(base)
    except AarError:
        return []  # said by the check of the model
    return list(await asyncio.gather(*(_look(base, name, main=name == names[0]) for name in names)))


async def _look(base: Base, name: str, *, main: bool) -> Check:
    from aar.providers.factory import make_provider, parse_model
    from aar.providers.presets import PRESETS

    title = f"online {name}"
    bad = "fail" if main else "warn"
    try:
        provider_name, model = parse_model(name)
        preset = PRESETS.get(provider_name)
        if preset is not None and preset.kind in ("local", "scripted"):
            return Check(title, "ok", "runs on this machine; nothing to ask")
        provider = make_provider(name, base.config, data_dir=base.paths.data, runtime_dir=base.paths.runtime)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                there = [known for known in await provider.list_models() if known.strip()]
        finally:
            await provider.aclose()
    except TimeoutError:
        return Check(title, bad, f"no answer within {TIMEOUT_S:.0f} s", "check base_url and the network")
    except AarError as error:
        return Check(title, bad, *split(error, "check base_url, the key and the network"))
    if not there:
        return Check(title, "ok", "the server does not tell its models; not checked further")
    if not any(known == model or known.rpartition("/")[2] == model for known in there):
        fix = "`aar models list` tells what it has"
        return Check(title, "warn", f"answers, and has {len(there)} models, but not this one", fix)
    return Check(title, "ok", f"answers, and has it ({len(there)} models)")
