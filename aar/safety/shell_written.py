"""Which files a command plainly writes, as its words tell.

Only programs of everybody's use are known, and only to ask before the wall says no: what is overlooked here
is stopped there.
"""

from __future__ import annotations

import re

from aar.safety.shell_types import SimpleCommand, words

_ALL = words("rm rmdir unlink touch tee truncate mkdir shred mv chmod chown")
"""Programs that write whatever they are given."""
_LAST = words("cp install ln rsync")
"""Programs that write their last operand, or the folder after ``-t``."""
_IN_PLACE = re.compile(r"-[a-zA-Z]*i.*|--in-place(=.*)?")
_MOST = 200


def written_operands(command: SimpleCommand) -> list[str]:
    """Return the words of ``command`` (without those it starts) that name what it writes, at most 200."""
    name, argv = command.name, command.argv[1:]
    if name == "dd":
        return [word[3:] for word in argv if word.startswith("of=")]
    operands = _operands(argv)
    if name in _ALL:
        return operands[:_MOST]
    if name == "sed" and any(_IN_PLACE.fullmatch(word) for word in argv):
        return operands[:_MOST]
    if name in _LAST:
        return (_target(argv) or operands[-1:] if len(operands) > 1 else _target(argv))[:_MOST]
    return []


def _operands(argv: tuple[str, ...]) -> list[str]:
    before, after = argv, ()
    if "--" in argv:
        at = argv.index("--")
        before, after = argv[:at], argv[at + 1 :]
    return [word for word in before if not word.startswith("-")] + list(after)


def _target(argv: tuple[str, ...]) -> list[str]:
    """Return the folder that ``-t`` or ``--target-directory`` names."""
    for index, word in enumerate(argv):
        if word in {"-t", "--target-directory"}:
            return list(argv[index + 1 : index + 2])
        if word.startswith("--target-directory="):
            return [word.partition("=")[2]]
    return []
