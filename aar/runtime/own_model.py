"""The model with which a stored session goes on: its own, at the address that was named for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aar.core.active_model import ActiveModel, keepable
from aar.protocol.errors import ConfigurationError, StorageError
from aar.protocol.events import EVENT_TYPES, Notice, Setting
from aar.runtime.models import make_active_model, named_for_this_start

if TYPE_CHECKING:
    from aar.core.session import Session
    from aar.runtime.base import Base
    from aar.runtime.parts import Runtime

_BUT_CHOICES = frozenset(EVENT_TYPES) - {"session", "setting"}


def own_model(runtime: Runtime, session: Session) -> ActiveModel | None:
    """Return the model that was chosen in a stored session; ``None``: the present one goes on.

    The model and the address of this start win, and become the session's own; the session's address stays
    with another model of the same provider. Where its model cannot be had, a notice in the session says so.
    """
    own, kept, present = session.totals.chosen_model, session.totals.base_url, runtime.active
    if own is None:
        return None
    name, given = (present.name, present.base_url) if _is_named(runtime) else (own, runtime.base_url)
    address = given or (kept if same_provider(name, own) else None)
    active, stored = None, keepable(address)
    if (name, stored) != (present.name, present.kept_address):
        try:
            active = _make(runtime.base, name, address)
        except ConfigurationError as error:
            told = f"The session's model {own} cannot be used, so that {present.name} answers: {error}"
            session.append(Notice(level="warning", message=told, code="model"))
            return None
    if (name, stored) != (own, kept):
        change = {"key": "model", "from": own, "to": name, "base_url": stored}
        session.append(Setting.model_validate(change))
    if given is None and stored is not None:
        told = f"Using {name} at {stored}, as this session did before."
        runtime.notices += [told] if told not in runtime.notices else []
    return active


def _is_named(runtime: Runtime) -> bool:
    return named_for_this_start(runtime.base) or (
        runtime.profile is not None and runtime.profile.model is not None
    )


def same_provider(one: str, other: str) -> bool:
    """Tell whether two models (``provider/model``) are of the same provider."""
    return one.partition("/")[0] == other.partition("/")[0]


def _make(base: Base, name: str, address: str | None) -> ActiveModel:
    from aar.safety.redact import MARK

    if address is not None and MARK in address:
        raise ConfigurationError(
            f"Its address {address} held a key, which no session keeps. Name it again with --base-url."
        )
    return make_active_model(base, address, name=name)[0]


def first_model(
    base: Base, base_url: str | None, goes_on: Mapping[str, Any]
) -> tuple[ActiveModel, str | None]:
    """Return what `make_active_model` returns; where no model can be had, that of the session to go on with.

    Args:
        base: Settings.
        base_url: ``--base-url``.
        goes_on: Which session is opened next, as for `aar.runtime.parts.Runtime.open_session`.

    Raises:
        ConfigurationError: There is no model, or its settings are wrong.
    """
    try:
        return make_active_model(base, base_url)
    except ConfigurationError as error:
        own, kept = _of_stored(base, goes_on)
        name = base.config.model.name if named_for_this_start(base) else own
        if own is None or name is None or not same_provider(name, own):
            raise
        try:
            return _make(base, name, base_url or kept), None
        except ConfigurationError:
            raise error from None


def _of_stored(base: Base, goes_on: Mapping[str, Any]) -> tuple[str | None, str | None]:
    prefix = goes_on.get("fork_id") or goes_on.get("session_id")
    if prefix is None and not goes_on.get("continue_latest"):
        return None, None
    try:
        return chosen_model(base, base.session_id(prefix))
    except (ConfigurationError, StorageError):
        return None, None


def chosen_model(base: Base, session_id: str) -> tuple[str | None, str | None]:
    """Return model and address that were chosen in a stored session.

    Raises:
        StorageError: It cannot be read.
    """
    from aar.core.totals import TotalsFold

    totals = TotalsFold()
    for event in base.store().read(session_id, skip=_BUT_CHOICES):
        totals.apply(event)
    return totals.chosen_model, totals.base_url
