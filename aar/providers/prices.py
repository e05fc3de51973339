"""What the data source of the catalogue says of a model: its price and its window.

The data are those of the package ``genai-prices`` (MIT), which the makers of Pydantic and others keep up to
date. Importing it costs some 0.3 s, so it is imported only here, by those who need it, and what was found is
kept in a file (`RecordFile`). The package's own updater, which would use the network, is never started.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from aar.protocol.usage import Price, PriceTier
from aar.providers.http.client import host_of, is_loopback
from aar.providers.presets import PRESETS

if TYPE_CHECKING:
    from decimal import Decimal

    from genai_prices.types import ConditionalPrice, ModelInfo, ModelPrice, Provider, TieredPrices

FREE: Final = Price(input=0, output=0, cache_read=0, cache_write=0)
"""The price of a model that runs on the user's own machine."""

_OWN_MACHINE: Final = frozenset({"ollama", "lmstudio", "llamacpp", "vllm"})
_NAMES: Final = {"gemini": "google", "xai": "x-ai"}
"""Providers that the data call otherwise."""
_RATES: Final = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
}


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """What the data say of one model.

    Attributes:
        model: Its name there.
        vendor: The vendor's name there.
        price: ``None``: not told, or not by tokens alone.
        context_window: Tokens; ``None``: not told.
        until: Seconds since 1970 when the price may change by the clock; ``None``: it does not.
        deprecated: Whether the vendor is about to withdraw the model.
    """

    model: str
    vendor: str
    price: Price | None
    context_window: int | None
    until: float | None = None
    deprecated: bool = False


def is_free(provider: str, model: str, base_url: str | None) -> bool:
    """Tell whether ``model`` runs on the user's own machine, so that it is known to cost nothing."""
    if provider in ("local", "scripted"):
        return True
    preset = PRESETS.get(provider)
    address = base_url or (preset.base_url if preset is not None else None)
    hosted = model.lower().endswith(("-cloud", ":cloud"))
    return provider in _OWN_MACHINE and not hosted and address is not None and is_loopback(host_of(address))


def may_be_known(provider: str, base_url: str | None) -> bool:
    """Tell, without importing the data, whether they could know the models of this server.

    A server on this machine without a vendor's name is somebody's own; so is one whose host no vendor has.
    """
    if provider in ("local", "scripted"):
        return False
    preset = PRESETS.get(provider)
    vendor = preset is not None and bool(preset.hosts)
    return vendor or (base_url is not None and not is_loopback(host_of(base_url)))


def find_record(
    provider: str, model: str, base_url: str | None = None, *, when: datetime | None = None
) -> ModelRecord | None:
    """Return what the data say of ``model``; ``None`` when they do not know it.

    Imports the data: to be called where 0.3 s do not matter.

    Args:
        provider: aar's name of the provider.
        model: Name on the wire.
        base_url: Address of the server; its owner's prices win over those of the name ``provider``.
        when: Moment for which prices hold; default: now.
    """
    from genai_prices.data import providers

    when = when or datetime.now(tz=UTC)
    names = _spellings(model)
    for vendor in _vendors(provider, base_url, providers):
        for name in names:
            info = vendor.find_model(name, all_providers=providers)
            if info is not None:
                return _record(vendor, info, when)
    return None


def _spellings(model: str) -> list[str]:
    """Return the names under which a model may be known: as asked, then without a folder or a region."""
    bare = model.removeprefix("models/")
    return list(dict.fromkeys([model, bare, re.sub(r"^(?:[a-z-]+\.)?anthropic\.", "anthropic.", bare)]))


def _vendors(provider: str, base_url: str | None, known: Iterable[Provider]) -> list[Provider]:
    found: list[Provider] = []
    vendors = list(known)
    if base_url is not None and not is_loopback(host_of(base_url)):
        found = [vendor for vendor in vendors if re.match(vendor.api_pattern, base_url)]
    name = _NAMES.get(provider, provider)
    return found or [vendor for vendor in vendors if vendor.id == name]


def _record(vendor: Provider, info: ModelInfo, when: datetime) -> ModelRecord:
    until = None
    if not isinstance(info.prices, list):
        prices = info.prices
    else:
        prices = info.get_prices(when)
        until = _until(info.prices, when)
    return ModelRecord(
        model=info.id,
        vendor=vendor.name,
        price=as_price(prices, answers="embed" not in info.id),
        context_window=info.context_window,
        until=until,
        deprecated=bool(info.deprecated),
    )


def _until(prices: list[ConditionalPrice], when: datetime) -> float | None:
    """Return the next moment at which another price may hold."""
    moments: list[datetime] = []
    for item in prices:
        constraint: Any = item.constraint
        starts = getattr(constraint, "start_date", None)
        if starts is not None and datetime.combine(starts, datetime.min.time(), UTC) > when:
            moments.append(datetime.combine(starts, datetime.min.time(), UTC))
        elif getattr(constraint, "start_time", None) is not None:
            moments.append((when + timedelta(minutes=30)).replace(second=0, microsecond=0))
    return min(moments).timestamp() if moments else None


def as_price(prices: ModelPrice, *, answers: bool = True) -> Price | None:
    """Return the prices of tokens; ``None`` when the data have none for prompts or for answers.

    Args:
        prices: Of the data.
        answers: Whether the model answers; one that makes vectors has no price for that.
    """
    told: dict[str, Decimal | TieredPrices | None] = {
        ours: getattr(prices, theirs, None) for ours, theirs in _RATES.items()
    }
    if told["output"] is None and not answers:
        from decimal import Decimal

        told["output"] = Decimal(0)
    if told["input"] is None or told["output"] is None:
        return None
    starts = sorted({tier.start for rate in told.values() for tier in _tiers(rate)})
    tiers = tuple(PriceTier(above=start, **_rates(told, start)) for start in starts)
    return Price(tiers=tiers, **_rates(told, 0))


def _tiers(rate: Decimal | TieredPrices | None) -> list[Any]:
    return getattr(rate, "tiers", [])


def _rates(told: dict[str, Decimal | TieredPrices | None], start: int) -> dict[str, Any]:
    return {name: _rate(rate, start) for name, rate in told.items() if rate is not None}


def _rate(rate: Decimal | TieredPrices, start: int) -> float:
    reached = [tier.price for tier in _tiers(rate) if tier.start <= start]
    base: Any = getattr(rate, "base", rate)
    return float(reached[-1] if reached else base)


def data_stamp() -> str:
    """Return what changes when other data are installed; empty when there are none. Imports nothing."""
    spec = find_spec("genai_prices")
    if spec is None or spec.origin is None:
        return ""
    try:
        status = (Path(spec.origin).parent / "data.py").stat()
    except OSError:
        return ""
    return f"{status.st_size}-{status.st_mtime_ns}"


def data_version() -> str:
    """Return the version of the data, for people."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("genai-prices")
    except PackageNotFoundError:
        return "not installed"


class RecordFile:
    """What was found before, in a file below ``<cache>``, so that a known model needs no import.

    A file that cannot be read or written is passed over: all in it can be found again.

    Args:
        path: The file.
        clock: Seconds since 1970.
    """

    _MOST = 200

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._stamp = data_stamp()

    def get(self, provider: str, model: str, base_url: str | None) -> tuple[bool, ModelRecord | None]:
        """Return whether the model was looked for before, and what was found."""
        entry = self._read().get(_key(provider, model, base_url))
        if not isinstance(entry, dict):
            return False, None
        try:
            record = _from_json(cast("dict[str, Any]", entry))
        except (TypeError, ValueError, KeyError):
            return False, None
        stale = record is not None and record.until is not None and self._clock() >= record.until
        return not stale, None if stale else record

    def put(self, provider: str, model: str, base_url: str | None, record: ModelRecord | None) -> None:
        """Keep what was found."""
        entries = self._read()
        entries.pop(_key(provider, model, base_url), None)
        entries[_key(provider, model, base_url)] = _to_json(record)
        kept = dict(list(entries.items())[-self._MOST :])
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                temporary.write_text(json.dumps({"stamp": self._stamp, "models": kept}), encoding="utf-8")
                temporary.replace(self._path)
            finally:
                temporary.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        try:
            whole = json.loads(self._path.read_bytes())
            if whole["stamp"] == self._stamp and isinstance(whole["models"], dict):
                return whole["models"]
        except (OSError, ValueError, TypeError, KeyError):
            pass
        return {}


def _key(provider: str, model: str, base_url: str | None) -> str:
    return f"{provider}/{model} {host_of(base_url) if base_url else ''}".strip()


def _to_json(record: ModelRecord | None) -> dict[str, Any]:
    if record is None:
        return {"known": False}
    return {
        "known": True,
        "model": record.model,
        "vendor": record.vendor,
        "price": None if record.price is None else record.price.model_dump(mode="json"),
        "context_window": record.context_window,
        "until": record.until,
        "deprecated": record.deprecated,
    }


def _from_json(entry: dict[str, Any]) -> ModelRecord | None:
    if not entry.pop("known"):
        return None
    price = entry.pop("price")
    return ModelRecord(price=None if price is None else Price.model_validate(price), **entry)
