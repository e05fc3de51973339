"""The plan of a session: set down by the model, changed by the user, run by agents."""

from aar.runtime.plan.state import (
    approve,
    current,
    drop,
    edit,
    known_ids,
    set_down,
    skip,
    store,
    write,
)

__all__ = ["approve", "current", "drop", "edit", "known_ids", "set_down", "skip", "store", "write"]
