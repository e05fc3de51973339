"""``aar auth``: keys that aar keeps for you, each for one provider and one host. No key is ever shown."""

from __future__ import annotations

import json
import sys

import click
from pydantic import SecretStr

from aar.config.paths import ensure, paths
from aar.protocol.errors import ConfigurationError, UsageError
from aar.providers.http.client import host_of
from aar.providers.key_store import KeyStore
from aar.providers.presets import ALIASES, PRESETS
from aar.safety.sanitize import sanitize
from aar.transports.cli.console import Console
from aar.transports.cli.groups import NearestGroup

_MAX_KEY_CHARS = 16_384


@click.group(cls=NearestGroup)
def auth() -> None:
    """Keep, list and forget keys of model servers."""


@auth.command("set")
@click.argument("provider")
@click.option("--host", metavar="HOST", help="The host that alone gets the key; default: the provider's own.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the key from standard input.")
def set_(provider: str, host: str | None, from_stdin: bool) -> None:
    """Keep the key of PROVIDER, asked for without echo, in the keyring or a file of yours alone."""
    name = _provider(provider)
    target = _host(name, host)
    key = _from_stdin() if from_stdin else _asked(name, target)
    own = paths()
    ensure(own.config)
    where = KeyStore(own.config).set(name, target, key)
    place = "the system's keyring" if where == "keyring" else f"{own.config / 'keys.json'} (for you alone)"
    click.echo(f"The key of {name} for {target} is kept in {place}.")


@auth.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_(as_json: bool) -> None:
    """List for which providers and hosts keys are kept; the keys are not shown."""
    entries = KeyStore(paths().config).entries()
    if as_json:
        for entry in entries:
            click.echo(json.dumps({"provider": entry.provider, "host": entry.host, "where": entry.where}))
        return
    rows = [(entry.provider, entry.host, entry.where) for entry in entries]
    if rows:
        Console(sanitize).table(rows, ("PROVIDER", "HOST", "WHERE"))
    else:
        click.echo("No keys are kept; `aar auth set PROVIDER` keeps one.", err=True)


@auth.command()
@click.argument("provider")
@click.option("--host", metavar="HOST", help="Only the key for this host.")
def remove(provider: str, host: str | None) -> None:
    """Forget the keys of PROVIDER."""
    name = _provider(provider)
    gone = KeyStore(paths().config).remove(name, None if host is None else _host(name, host))
    if not gone:
        raise ConfigurationError(f"No key of {name} is kept; `aar auth list` shows those that are.")
    for entry in gone:
        click.echo(f"The key of {entry.provider} for {entry.host} is forgotten.")


def _provider(given: str) -> str:
    name = ALIASES.get(given.lower(), given.lower())
    if "/" in name or not name.strip():
        raise UsageError(f"{given!r} is no provider; give its name alone, such as openai.")
    if name in ("local", "scripted"):
        raise UsageError(f"{name} needs no key.")
    return name


def _host(provider: str, given: str | None) -> str:
    """Return the host that the key is for, in lower case.

    Raises:
        UsageError: None was given and the provider has none of its own, or it is no host.
    """
    if given is None:
        preset = PRESETS.get(provider)
        if preset is None or not preset.hosts:
            raise UsageError(f"{provider} has no host of its own; say with --host which host gets the key.")
        return preset.hosts[0]
    try:
        return host_of(given if "://" in given else f"https://{given}")
    except ConfigurationError:
        raise UsageError(f"--host {given}: give the name of a host, such as models.example.com.") from None


def _from_stdin() -> SecretStr:
    if sys.stdin.isatty():
        raise UsageError("--stdin reads the key from a pipe or file; leave it out to be asked for the key.")
    return _checked(sys.stdin.read(_MAX_KEY_CHARS + 1))


def _asked(provider: str, host: str) -> SecretStr:
    if not sys.stdin.isatty():
        raise UsageError("There is no terminal to ask for the key; pipe it in and say --stdin.")
    import getpass

    try:
        return _checked(getpass.getpass(f"Key of {provider} for {host} (not shown): "))
    except EOFError:
        raise UsageError("No key was given.") from None


def _checked(text: str) -> SecretStr:
    """Return the key; what a header cannot carry is refused, without showing it."""
    key = text.strip()
    if not key:
        raise UsageError("The key is empty.")
    if len(key) > _MAX_KEY_CHARS or not key.isascii() or not key.isprintable() or any(map(str.isspace, key)):
        raise UsageError("That is no key: a key is one line of ASCII characters without spaces.")
    return SecretStr(key)
