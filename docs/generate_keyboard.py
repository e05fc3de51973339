"""Write the tables of ``docs/keyboard.md`` from the bindings of the screen's parts.

``python docs/generate_keyboard.py`` prints them; with ``--write`` they replace those in the page.
"""

from __future__ import annotations

import sys
from pathlib import Path

from aar.transports.tui.key_table import key_table
from aar.transports.tui.keys import keyboard_tables

PAGE = Path(__file__).resolve().parent / "keyboard.md"
BEGIN = "<!-- tables: python docs/generate_keyboard.py --write -->"
END = "<!-- end of tables -->"


def main() -> None:
    """Print the tables, or put them into the page."""
    tables = keyboard_tables(key_table())
    if sys.argv[1:] != ["--write"]:
        sys.stdout.write(tables)
        return
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN, 1)
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
