"""``aar serve``: sessions over HTTP, a page for the browser, and aar as a model for chat clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aar.transports.cli.options import runtime_options, take_runtime_options
from aar.transports.cli.web_options import demand_web, web_options


@click.command()
@web_options
@runtime_options
def serve(host: str, port: int, hosts: tuple[str, ...], token_file: Path | None, **values: Any) -> int:
    """Serve sessions of this folder over HTTP, with a page for the browser.

    Prints the address with a token that every request must show. Chat clients can use aar as a model:
    the OpenAI API under /v1, Anthropic's under /v1/messages.
    """
    options = take_runtime_options(values)
    demand_web()
    from aar.transports.serve.command import serve as run

    return run(options, host, port, hosts, token_file)
