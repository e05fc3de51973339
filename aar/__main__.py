"""``python -m aar`` and the ``aar`` command. Answers ``--version`` before anything is imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] == ["--version"]:
        from aar import __version__

        sys.stdout.write(f"aar {__version__}\n")
        return
    _start_lightly()
    from aar.transports.cli.main import run_cli

    code = run_cli(sys.argv[1:])
    _end_lightly()
    sys.exit(code)


def _start_lightly() -> None:
    """Spare work that would double the time of small commands."""
    import gc
    import os

    # Imports make many objects that all stay: looking for garbage among them finds nothing. An agent that
    # begins its work changes this (`aar.protocol.late`).
    gc.set_threshold(400_000, 20, 10)
    # pydantic would read the metadata of every installed package to find code that wants to run inside it.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def _end_lightly() -> None:
    """Spare the interpreter its last search for garbage: all that is left goes with the process."""
    import gc

    gc.freeze()


if __name__ == "__main__":
    main()
