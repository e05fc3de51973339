"""Which key goes to which host. A vendor's key goes to the vendor's own hosts and to this machine only."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import SecretStr

from aar.config.paths import paths
from aar.config.schema import Config, ProviderConfig
from aar.protocol.errors import ConfigurationError
from aar.protocol.late import late_pattern
from aar.providers.http.client import host_of, is_loopback
from aar.providers.key_store import KeyStore
from aar.providers.presets import ALIASES, PRESETS, Preset

KeyCommand = Callable[[str], str]
"""Runs ``api_key_command`` and returns what it printed. Given by the caller, as processes start elsewhere."""


_SECRET_HEADER = late_pattern(r"(?i)auth|key|token|secret|cookie|password|credential|signature")
_NO_SETTINGS = ProviderConfig.model_construct()


def provider_settings(provider: str, config: Config) -> ProviderConfig:
    """Return the table ``[providers.NAME]``; the name's other spellings count too."""
    canonical = ALIASES.get(provider, provider)
    spellings = [provider, canonical, *(alias for alias, name in ALIASES.items() if name == canonical)]
    return next((config.providers[name] for name in spellings if name in config.providers), _NO_SETTINGS)


def find_key(
    provider: str,
    host: str,
    config: Config,
    *,
    environ: Mapping[str, str] | None = None,
    run_command: KeyCommand | None = None,
) -> SecretStr | None:
    """Return the key to send to ``host``; ``None``: the request goes out without one.

    In this order: the variable that ``api_key_env`` names (for any host: the user said so), what
    ``api_key_command`` prints (for the vendor's hosts, the configured ``base_url`` and this machine), the
    vendor's variable (for the vendor's hosts and this machine), and what ``aar auth set`` keeps for exactly
    this provider and host.

    Raises:
        ConfigurationError: ``api_key_env`` names a variable that is not set, a command cannot be run, or the
            kept key cannot be read.
    """
    found = locate_key(provider, host, config, environ=environ, run_command=run_command)
    return None if found is None else found.key


@dataclass(frozen=True, slots=True)
class LocatedKey:
    """A key, and where it came from, for people."""

    key: SecretStr
    source: str


def locate_key(
    provider: str,
    host: str,
    config: Config,
    *,
    environ: Mapping[str, str] | None = None,
    run_command: KeyCommand | None = None,
) -> LocatedKey | None:
    """Return what `find_key` returns, with its source; arguments and errors as there."""
    environ = os.environ if environ is None else environ
    settings = provider_settings(provider, config)
    preset = PRESETS.get(ALIASES.get(provider, provider), Preset(provider))
    if settings.api_key_env is not None:
        named = _named(provider, settings.api_key_env, host, environ)
        return None if named is None else LocatedKey(named, f"the variable {settings.api_key_env}")
    if settings.api_key_command is not None and _command_may(settings, preset, host):
        return LocatedKey(_commanded(provider, settings.api_key_command, run_command), "api_key_command")
    for owner in _owners(preset, host):
        for name in owner.key_names:
            if environ.get(name, "").strip():
                return LocatedKey(SecretStr(environ[name].strip()), f"the variable {name}")
    return _kept(preset, host, environ)


def _kept(preset: Preset, host: str, environ: Mapping[str, str]) -> LocatedKey | None:
    """Return the key that `aar auth set` keeps; a vendor's own hosts share the one for the first of them."""
    store = KeyStore(paths(environ).config)
    entries = {(entry.provider, entry.host): entry for entry in store.entries()}
    owner = preset
    hosts = [host]
    if preset.name == "openai-compatible":
        owner = next((item for item in PRESETS.values() if _owns(item, host)), preset)
    if _owns(owner, host):
        hosts += owner.hosts[:1]
    for provider in dict.fromkeys([preset.name, owner.name]):
        for kept_host in hosts:
            entry = entries.get((provider, kept_host))
            key = store.get(provider, kept_host) if entry is not None else None
            if entry is not None and key is not None:
                place = "the keyring" if entry.where == "keyring" else "keys.json"
                return LocatedKey(key, f"{place} (aar auth)")
    return None


def headers_for(provider: str, host: str, config: Config) -> dict[str, str]:
    """Return the configured headers that may go to ``host``.

    Headers that carry secrets go to the host that the provider is configured for, to the vendor's own hosts
    and to this machine; another host, which only a flag can name, does not get them.
    """
    settings = provider_settings(provider, config)
    preset = PRESETS.get(ALIASES.get(provider, provider), Preset(provider))
    if _command_may(settings, preset, host):
        return settings.headers
    return {name: value for name, value in settings.headers.items() if not _SECRET_HEADER.search(name)}


def _owners(preset: Preset, host: str) -> list[Preset]:
    """Return those whose key may go to ``host``."""
    if is_loopback(host):
        return [PRESETS["openai"]] if preset.name == "openai-compatible" else [preset]
    if preset.name == "openai-compatible":
        return [owner for owner in PRESETS.values() if _owns(owner, host)]
    return [preset] if _owns(preset, host) else []


def _owns(preset: Preset, host: str) -> bool:
    name = host.rstrip(".").lower()
    return any(name == own or name.endswith(f".{own}") for own in preset.hosts)


def _command_may(settings: ProviderConfig, preset: Preset, host: str) -> bool:
    if is_loopback(host) or _owns(preset, host):
        return True
    return settings.base_url is not None and host_of(settings.base_url) == host


def _named(provider: str, name: str, host: str, environ: Mapping[str, str]) -> SecretStr | None:
    value = environ.get(name, "").strip()
    if value:
        return SecretStr(value)
    if is_loopback(host):
        return None
    raise ConfigurationError(
        f"The environment variable {name}, which api_key_env of [providers.{provider}] names, is not set. "
        f"Set it to the key, or name another one."
    )


def _commanded(provider: str, command: str, run_command: KeyCommand | None) -> SecretStr:
    if run_command is None:
        raise ConfigurationError(
            f"api_key_command of [providers.{provider}] cannot be run here. Use api_key_env instead."
        )
    printed = run_command(command).strip()
    if not printed or "\n" in printed:
        raise ConfigurationError(
            f"api_key_command of [providers.{provider}] must print one line, the key. Run it by hand to see."
        )
    return SecretStr(printed)
