"""Checks that end a run: what must hold before the work counts as done."""

from aar.core.verify.verifier import Verifier

__all__ = ["Verifier"]
