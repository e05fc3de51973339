"""Undo, redo and rewind of a session, as every door offers them.

Only what the session wrote goes back. A file that the user changed since is a conflict: nothing is done until
the caller says what to do with it. The state before is always kept first, so nothing is ever lost.
"""

from aar.runtime.undo.going_back import Undo
from aar.runtime.undo.report import Conflict, OnConflict, UndoReport

__all__ = ["Conflict", "OnConflict", "Undo", "UndoReport"]
