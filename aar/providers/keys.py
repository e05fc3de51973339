"""Which key goes to which host. A vendor's key goes to the vendor's own hosts and to this machine only."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from pydantic import SecretStr

from aar.config.schema import Config, ProviderConfig
from aar.protocol.errors import ConfigurationError
from aar.providers.http import host_of, is_loopback
from aar.providers.presets import ALIASES, PRESETS, Preset

KeyCommand = Callable[[str], str]
"""Runs ``api_key_command`` and returns what it printed. Given by the caller, as processes start elsewhere."""


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
    ``api_key_command`` prints (for the vendor's hosts, the configured ``base_url`` and this machine), and
    the vendor's variable (for the vendor's hosts and this machine).

    Raises:
        ConfigurationError: ``api_key_env`` names a variable that is not set, or a command cannot be run.
    """
    environ = os.environ if environ is None else environ
    settings = provider_settings(provider, config)
    preset = PRESETS.get(ALIASES.get(provider, provider), Preset(provider))
    if settings.api_key_env is not None:
        return _named(provider, settings.api_key_env, host, environ)
    if settings.api_key_command is not None and _command_may(settings, preset, host):
        return _commanded(provider, settings.api_key_command, run_command)
    for owner in _owners(preset, host):
        for name in owner.key_names:
            if environ.get(name, "").strip():
                return SecretStr(environ[name].strip())
    return None


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
