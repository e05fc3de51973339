"""The question whether a folder is trusted, as data that every door asks in its own way (SECURITY T1, T5)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aar.config.trust import Fingerprint, TrustItem, TrustStore, fingerprint
from aar.runtime.base import Base


@dataclass(frozen=True, slots=True)
class TrustQuestion:
    """What trust would let in. Paths and summaries come from the project: show them sanitised.

    Attributes:
        root: The project.
        items: All that would act or be read, in order of paths.
        changed: Paths that are new, other or gone since it was trusted last; empty when it never was.
        possible: False when there is too much in it to look at, so that it cannot be trusted.
        found: The state that was looked at; what is trusted is this and nothing that came later.
    """

    root: Path
    items: tuple[TrustItem, ...]
    changed: tuple[str, ...]
    possible: bool
    found: Fingerprint


def trust_question(base: Base) -> TrustQuestion | None:
    """Return the question to ask, or ``None`` when the folder is trusted or brings nothing along.

    Nothing of the folder runs or is interpreted for it: files are hashed and names listed.
    """
    question = describe(base)
    if not question.items or TrustStore(base.paths).is_trusted(base.workspace, question.found):
        return None
    return question


def describe(base: Base) -> TrustQuestion:
    """Return what the folder brings along, trusted or not."""
    found = fingerprint(base.workspace)
    store = TrustStore(base.paths)
    changed = store.changed(base.workspace, found) if store.is_known(base.workspace) else ()
    return TrustQuestion(base.workspace, found.items, changed, found.complete, found)


def trust_folder(base: Base, question: TrustQuestion | None = None) -> Fingerprint:
    """Trust the folder as it was when ``question`` was shown, or as it is now; it acts from the next start.

    Raises:
        ConfigurationError: There is too much in it to look at.
        StorageError: The decision cannot be written.
    """
    return TrustStore(base.paths).record(base.workspace, None if question is None else question.found)


def forget_trust(base: Base) -> bool:
    """Take trust back; tell whether there was any."""
    return TrustStore(base.paths).forget(base.workspace)
