"""What the screens show, taken from the runtime; for threads. Imported when a screen is opened."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel
from textual.content import Content

from aar.protocol.errors import AarError
from aar.protocol.events import AssistantMessage, ToolCall, UserMessage
from aar.protocol.messages import TextBlock
from aar.providers import catalog
from aar.providers.catalog_reasoning import reasoning_levels
from aar.providers.factory import parse_model
from aar.providers.keys import locate_key, provider_settings
from aar.providers.presets import PRESETS
from aar.runtime.base import Base
from aar.runtime.model_data import look_up
from aar.runtime.models import running_ollama
from aar.safety.sanitize import sanitize
from aar.transports.tui.activity import tokens
from aar.transports.tui.header import money
from aar.transports.tui.one_line import one_line
from aar.transports.tui.screens.picker import Row

if TYPE_CHECKING:
    from aar.core.provider_runner import ActiveModel
    from aar.memory.session_words import Hit
    from aar.protocol.events import Event
    from aar.protocol.usage import Price
    from aar.runtime.parts import Runtime

_PREVIEW_EVENTS = 120
_PREVIEW_CHARS = 400
_MOST_SESSIONS = 1000
_MOST_HITS = 50
_LEAST_CHARS = 3
_FOLLOWING = 12
_SEARCH_DELAY_S = 0.1
_LOG_LINES = 1000
NOT_SET = "not set"
"""Stands in the list of settings for one without a value."""
_PLAIN_TYPES = (bool, int, float, str)


# --- sessions --------------------------------------------------------------------------------------------


def session_rows(runtime: Runtime, current: str) -> list[Row]:
    """Return all sessions, those of this folder first, the newest on top."""
    here = str(runtime.workspace)
    infos = [info for info in runtime.store.list() if info.title or info.id == current][:_MOST_SESSIONS]
    infos.sort(key=lambda info: info.cwd != here)
    return [
        Row(
            info.id,
            _title_line(info.title),
            _place(info.cwd, here),
            ago(info.updated),
            f"{info.id} {info.model} {info.cwd}",
            mark=info.id == current,
        )
        for info in infos
    ]


def _title_line(title: str | None) -> str:
    return " ".join((title or "").split()) or "(no prompt yet)"


def _place(cwd: str, here: str) -> str:
    return "" if cwd == here else cwd


def ago(stamp: str, now: datetime | None = None) -> str:
    """Return how long ago an RFC 3339 time was, in a few letters: ``3 min``, ``2 h``, ``5 days``."""
    try:
        then = datetime.fromisoformat(stamp)
    except ValueError:
        return ""
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    seconds = max(0.0, ((now or datetime.now(UTC)) - then).total_seconds())
    for size, name in ((86_400, "day"), (3600, "h"), (60, "min")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' * (count != 1 and name == 'day')}"
    return "now"


def session_preview(runtime: Runtime, session_id: str) -> Content:
    """Return the end of a session in a few lines a message."""
    try:
        events = runtime.store.tail(session_id, _PREVIEW_EVENTS)
    except AarError as error:
        return Content.styled(sanitize(str(error)), "$error")
    lines = [line for event in events if (line := _line_of(event)) is not None]
    return Content("\n\n").join(lines[-30:]) if lines else Content("Nothing was said yet.")


class SessionFinder:
    """Finds sessions by words of their messages, while the user types.

    Args:
        runtime: Whose sessions.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._hits: dict[str, Hit] = {}
        self._one_at_a_time = threading.Lock()

    async def rows(self, query: str) -> list[Row]:
        """Return the sessions in which all words of ``query`` stand in one message, the best first."""
        self._hits = {}
        if len(query.strip()) < _LEAST_CHARS:
            return []
        # More keys may come at once; the caller cancels this then.
        await asyncio.sleep(_SEARCH_DELAY_S)
        found = await asyncio.to_thread(self._search, query)
        self._hits = {hit.session.id: hit for hit in found}
        here = str(self._runtime.workspace)
        return [_hit_row(hit, here) for hit in found]

    def _search(self, query: str) -> list[Hit]:
        try:
            with self._one_at_a_time:
                return self._runtime.store.search(query, None, _MOST_HITS)
        except (AarError, OSError):
            return []

    def preview(self, session_id: str) -> Content:
        """Return the place that was found with what follows it, else the end of the session."""
        hit = self._hits.get(session_id)
        if hit is None:
            return session_preview(self._runtime, session_id)
        head = Content("").join(
            Content.styled(sanitize(piece), "bold $accent" if marked else "$foreground")
            for piece, marked in hit.pieces
        )
        many = f"{hit.kind}, event {hit.seq}" + (f", and {hit.count - 1} more" if hit.count > 1 else "")
        parts = [Content.styled(many, "$text-muted"), head]
        try:
            events = islice(self._runtime.store.read(session_id, max(1, hit.seq)), _PREVIEW_EVENTS)
            parts += [line for event in events if (line := _line_of(event)) is not None][:_FOLLOWING]
        except AarError as error:
            parts.append(Content.styled(sanitize(str(error)), "$error"))
        return Content("\n\n").join(parts)


def _hit_row(hit: Hit, here: str) -> Row:
    info = hit.session
    detail = "  ".join(part for part in (_place(info.cwd, here), hit.plain) if part)
    return Row(info.id, _title_line(info.title), detail, ago(info.updated))


def _line_of(event: Event) -> Content | None:
    if isinstance(event, UserMessage):
        return Content.styled("› " + _text(event.content), "bold $foreground")
    if isinstance(event, AssistantMessage) and event.content:
        return Content.styled(_text(event.content), "$foreground")
    if isinstance(event, ToolCall):
        return Content.styled(f"· {one_line(event.tool_name)}", "$text-muted")
    return None


def _text(content: Any) -> str:
    if not isinstance(content, str):
        content = "\n".join(block.text for block in content if isinstance(block, TextBlock))
    text = sanitize(content.strip())
    return text if len(text) <= _PREVIEW_CHARS else text[:_PREVIEW_CHARS] + "…"


# --- models ----------------------------------------------------------------------------------------------


def model_rows(base: Base, active: ActiveModel) -> list[Row]:
    """Return the models to choose from: present, configured and known ones, and a running Ollama's best."""
    current, ollama = active.name, running_ollama()
    names = [
        current,
        base.config.model.name or "",
        base.config.model.small or "",
        *base.config.model.fallback,
    ]
    known = {**catalog.DEFAULT_MODELS, **({"ollama": ollama} if ollama else {})}
    names += [f"{vendor}/{model}" for vendor, model in known.items()]
    for provider, settings in base.config.providers.items():
        names += [f"{provider}/{model}" for model in settings.models]
    rows = [_model_row(base, name, active, ollama is not None) for name in dict.fromkeys(names) if name]
    return sorted(rows, key=lambda row: (not row.mark, not row.enabled))


def _model_row(base: Base, name: str, active: ActiveModel, ollama_runs: bool) -> Row:
    current = active.name
    try:
        vendor, model = parse_model(name)
        record = look_up(base, vendor, model)
        price = catalog.figures(vendor, model, base.config, record).price.value
        told = active.capabilities if name == current else catalog.lookup(vendor, model, base.config, record)
    except AarError as error:
        return Row(name, name, str(error), enabled=False)
    levels = reasoning_levels(vendor, model)
    facts = [f"{tokens(told.context_window)} tokens", _price(price, vendor)]
    if levels:
        facts.append(f"thinks: {' '.join(levels)}")
    usable, problem = usable_model(base, vendor)
    if vendor == "ollama" and not ollama_runs and not provider_settings(vendor, base.config).base_url:
        usable, problem = False, "not running"
    if problem and name != current:
        facts.append(problem)
    return Row(name, name, " · ".join(fact for fact in facts if fact), enabled=usable or name == current,
               mark=name == current)  # fmt: skip


def _price(price: Price | None, vendor: str) -> str:
    if vendor in {"local", "ollama"}:
        return "free"
    if price is None:
        return "price not known"
    if not price.input and not price.output:
        return "free"
    return f"{money(price.input) or 'free'} in, {money(price.output) or 'free'} out per 1M"


def usable_model(base: Base, vendor: str) -> tuple[bool, str]:
    """Tell whether there is a key for ``vendor`` where one is needed, and what is missing."""
    preset = PRESETS.get(vendor)
    if vendor == "ollama":
        return True, ""
    if vendor == "local":
        from aar.providers.local.provider import installed

        there = installed(base.config.providers.get("local"), base.paths.data)
        return there, "" if there else "not installed"
    if preset is None or not preset.key_names or not preset.hosts:
        return True, ""
    settings = provider_settings(vendor, base.config)
    if settings.api_key_command or settings.base_url:
        return True, ""
    try:
        found = locate_key(vendor, preset.hosts[0], base.config)
    except AarError as error:
        return False, str(error)
    return (True, "") if found else (False, f"needs {preset.key_names[0]}")


def level_rows(name: str, current: str | int | None) -> list[Row]:
    """Return how much a model can think; empty where it has no choice."""
    vendor, model = parse_model(name)
    levels = reasoning_levels(vendor, model)
    shown = "" if current is None else str(current)
    if not levels:
        return []
    return [
        Row("", "as the model likes", mark=not shown),
        *(Row(level, level, mark=level == shown) for level in levels),
    ]


# --- settings and log ------------------------------------------------------------------------------------


def setting_rows(base: Base) -> list[Row]:
    """Return all settings that have a plain value; what each does is found by a search, too."""
    from aar.config.describe import docs

    rows: list[Row] = []
    told = {name: fields for name, (_, fields) in docs().items()}
    for section in type(base.config).model_fields:
        _collect(rows, told, section, getattr(base.config, section))
    return rows


def setting_help(row: Row) -> str:
    """Return what the setting of a row does."""
    return row.search or "A TOML value; what is none is text."


def _collect(rows: list[Row], told: Mapping[str, Mapping[str, str]], key: str, section: Any) -> None:
    if not isinstance(section, BaseModel):
        return
    for name, field in type(section).model_fields.items():
        value, inner = getattr(section, name), f"{key}.{name}"
        if isinstance(value, BaseModel):
            _collect(rows, told, inner, value)
        elif value is None or isinstance(value, (*_PLAIN_TYPES, tuple)):
            usual = toml_text(field.get_default(call_default_factory=False))
            about = told.get(type(section).__name__, {}).get(name, "").replace("`", "")
            default = f"Default: {usual}." if usual else ""
            help_ = " ".join(part for part in (about, default) if part)
            rows.append(Row(inner, inner, toml_text(cast("object", value)) or NOT_SET, search=help_))


def toml_text(value: object) -> str:
    """Return a plain value as TOML writes it; empty for none."""
    if value is None:
        return ""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        import json

        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(toml_text, cast("Iterable[object]", value))) + "]"
    return str(value)


def log_text(base: Base) -> Content:
    """Return the end of the diagnostics log; warnings and errors stand out."""
    from aar.observability.diagnostics_log import tail

    lines = tail(base.paths.logs, _LOG_LINES)
    if not lines:
        return Content("The log is empty.")
    return Content("\n").join(Content.styled(sanitize(line), _log_style(line)) for line in lines)


def _log_style(line: str) -> str:
    if " ERROR" in line or " CRITICAL" in line:
        return "$error"
    return "$warning" if " WARNING" in line else "$text-muted"


def write_setting(base: Base, key: str, text: str) -> str:
    """Write one setting into the user's config file; return a sentence of doubt about it, or nothing.

    Raises:
        ConfigurationError: The key or value is wrong, or the file is.
        StorageError: The file cannot be written.
    """
    from aar.config.edit import set_value
    from aar.runtime.model_names import check_setting

    doubt = check_setting(base, key, text)
    set_value(base.paths.user_config, key, text)
    return doubt


def reread(options: Mapping[str, Any]) -> Base:
    """Return settings and folders as the files, the environment and the flags tell them now.

    Args:
        options: For `aar.runtime.open_runtime`; those of the model's server are left out.

    Raises:
        ConfigurationError: A file is wrong.
    """
    from aar.runtime.base import base_arguments, open_base

    # What was trusted once is not trusted anew because it is read again.
    return open_base(**base_arguments({**options, "trust": False}))
