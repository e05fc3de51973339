"""``python -m aar`` and the ``aar`` command. Answers ``--version`` before anything is imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] == ["--version"]:
        from aar import __version__

        sys.stdout.write(f"aar {__version__}\n")
        return
    from aar.transports.cli.main import run_cli

    sys.exit(run_cli(sys.argv[1:]))


if __name__ == "__main__":
    main()
