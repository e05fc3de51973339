"""The last word about a session that no disk would take: the same at every door."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from aar.safety.sanitize import sanitize

if TYPE_CHECKING:
    from aar.core.session import Session


def tell_lost(session: Session) -> None:
    """Write to standard error what of a closed session could not be saved, in red on a terminal."""
    if session.lost is None:
        return
    text = f"aar: {sanitize(session.lost)}"
    with suppress(OSError, ValueError):
        if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
            text = f"\x1b[31m{text}\x1b[0m"
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
