"""HTTP services of the settings: their operations become tools."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aar.config.environment import expand

if TYPE_CHECKING:
    from aar.config.schema import RestConfig
    from aar.runtime.base import Base
    from aar.tools.registry import ToolRegistry


def register_services(base: Base, registry: ToolRegistry) -> None:
    """Put the operations of ``[rest.NAME]`` into the registry.

    Raises:
        ConfigurationError: A document cannot be read, or a setting cannot be used.
    """
    services = {name: config for name, config in base.config.rest.items() if config.enabled}
    if not services:
        return
    from aar.safety.sandbox.domains import is_public
    from aar.tools.builtin.rest import Service, check_service, make_tools, read_document
    from aar.tools.builtin.web_fetch import resolve

    for name, config in services.items():
        check_service(name, config.base_url)
        service = Service(
            name,
            config.base_url,
            _Headers(config),
            config.allow,
            config.private,
            config.timeout,
            config.max_bytes,
        )
        document = read_document(base.workspace / Path(config.spec).expanduser())
        for spec in make_tools(service, document, resolve, is_public):
            registry.replace(spec)


class _Headers:
    """The headers of a service; keys come out of the environment when they are sent, and are kept nowhere."""

    def __init__(self, config: RestConfig) -> None:
        self._config = config

    def __call__(self) -> Mapping[str, str]:
        headers = {key: expand(value, os.environ) for key, value in self._config.headers.items()}
        if self._config.auth_env is not None:
            headers["Authorization"] = expand(f"Bearer ${{{self._config.auth_env}}}", os.environ)
        return headers
