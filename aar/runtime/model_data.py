"""What the data of prices add to what a provider tells of its model, without holding up the first request."""

from __future__ import annotations

from dataclasses import replace

from aar.core.pricing import Pricing
from aar.protocol.usage import Price
from aar.providers import catalog
from aar.providers.base import ProviderCapabilities
from aar.providers.keys import provider_settings
from aar.providers.prices import ModelRecord, RecordFile, find_record, may_be_known
from aar.runtime.base import Base


def record_file(base: Base) -> RecordFile:
    """Return the file of what was found before."""
    return RecordFile(base.paths.cache / "models.json")


def describe(
    base: Base, provider: str, model: str, told: ProviderCapabilities, base_url: str | None = None
) -> tuple[ProviderCapabilities, Pricing | None]:
    """Return what is known of a model, and how its price is found where it must be looked up first.

    A window that the provider itself has found out (from its server) stays.

    Args:
        base: Settings and folders.
        provider: Name of the provider, not an alias.
        model: Name on the wire.
        told: What the provider says.
        base_url: Address from a flag.
    """
    address = base_url or provider_settings(provider, base.config).base_url
    if not may_be_known(provider, address):
        return told, None
    file = record_file(base)
    known, record = file.get(provider, model, address)
    by_name = catalog.lookup(provider, model, base.config, None, address)
    if told.context_window == by_name.context_window and record is not None:
        better = catalog.lookup(provider, model, base.config, record, address)
        told = replace(
            told,
            context_window=better.context_window,
            compact_prompt=told.compact_prompt or better.compact_prompt,
        )
    price = told.price or by_name.price
    if price is None and record is not None:
        price = record.price
    if price is not None or known:
        return replace(told, price=price), None
    return told, Pricing(lambda: _look(file, provider, model, address))


def look_up(base: Base, provider: str, model: str, base_url: str | None = None) -> ModelRecord | None:
    """Return what the data say of a model, and keep it for the next start; may take a second."""
    address = base_url or provider_settings(provider, base.config).base_url
    if not may_be_known(provider, address):
        return None
    file = record_file(base)
    known, record = file.get(provider, model, address)
    return record if known else _find_and_keep(file, provider, model, address)


def _look(file: RecordFile, provider: str, model: str, address: str | None) -> Price | None:
    record = _find_and_keep(file, provider, model, address)
    return None if record is None else record.price


def _find_and_keep(file: RecordFile, provider: str, model: str, address: str | None) -> ModelRecord | None:
    record = find_record(provider, model, address)
    file.put(provider, model, address, record)
    return record
