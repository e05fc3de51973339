"""Whether the name of a model can be right, told without asking any server."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from aar.config.environment import parse_value
from aar.protocol.errors import ConfigurationError
from aar.providers.factory import demand_provider, parse_model
from aar.providers.keys import provider_settings
from aar.providers.prices import is_free, may_be_known
from aar.runtime.model_data import look_up

if TYPE_CHECKING:
    from aar.runtime.base import Base

_KEYS = ("model.name", "model.small", "model.fallback")


def check_setting(base: Base, key: str, text: str) -> str:
    """Look at a setting before it is written, where it names models.

    Args:
        base: Settings as they are now.
        key: Dotted key, such as ``model.name`` or ``profiles.fast.model.name``.
        text: What is to be written, as for `aar.config.edit.set_value`.

    Returns:
        A sentence of doubt about a name that the data of models do not hold; empty: none.

    Raises:
        ConfigurationError: A name is not of the form ``provider/model``, or nobody knows its provider.
    """
    if not any(
        key == known or (key.startswith("profiles.") and key.endswith(f".{known}")) for known in _KEYS
    ):
        return ""
    value: object = parse_value(text)
    names = cast("list[object]", value) if isinstance(value, list) else [value]
    doubts = (doubt(base, name) for name in names if isinstance(name, str) and name.strip())
    return " ".join(text for text in doubts if text)


def doubt(base: Base, name: str) -> str:
    """Return a sentence about a model that its vendor's list does not hold; empty: nothing speaks against it.

    Raises:
        ConfigurationError: It is not of the form ``provider/model``, or nobody knows its provider.
    """
    vendor, model = parse_model(name)
    demand_provider(vendor, base.config)
    settings = provider_settings(vendor, base.config)
    own = model in settings.models or is_free(vendor, model, settings.base_url)
    if own or not may_be_known(vendor, settings.base_url):
        return ""
    try:
        known = look_up(base, vendor, model) is not None
    except ConfigurationError:
        return ""
    if known:
        return ""
    return f"aar knows no model {model} of {vendor}: is the name right? `aar models list --all` lists names."
