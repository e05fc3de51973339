"""How many of twelve planted facts survive compactions: ``python -m tests.benchmarks.needles [--embedded]``.

Without the flag models that are scripted write the notes: a fair one, a forgetful one, none. With it the
embedded model does (the weights that ``AAR_TEST_GGUF`` names, else those of the ``local`` extra).
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from aar.protocol.errors import ErrorKind, ProviderError
from tests.compaction.needles import NEEDLES, campaign, embedded_campaign, embedded_model
from tests.compaction.support import Notes, SmallWorld, fair_notes, forgetful_notes


def no_model(prompt: str) -> ProviderError:
    """Fail, as a model without a key does."""
    return ProviderError(ErrorKind.AUTH, "There is no key.")


def main() -> None:
    """Print a line for each kind of notes, and what was lost."""
    kinds: dict[str, Notes] = {"fair": fair_notes, "forgetful": forgetful_notes, "none": no_model}
    with tempfile.TemporaryDirectory(prefix="aar-") as name:
        folder = Path(name)
        if "--embedded" in sys.argv:
            asyncio.run(embedded(folder, verbose="-v" in sys.argv))
            return
        for kind, notes in kinds.items():
            _print(kind, asyncio.run(campaign(folder / kind, notes)))


async def embedded(folder: Path, *, verbose: bool) -> None:
    """Let the embedded model write the notes; tells each compaction as it comes."""
    began = time.monotonic()

    def tell(world: SmallWorld, survivors: list[str]) -> None:
        last = world.compactions[-1]
        seconds = time.monotonic() - began
        told = f"{last.tokens_before:,} -> {last.tokens_after:,} tokens, {seconds:.0f} s after the beginning"
        print(f"{len(survivors)}/{len(NEEDLES)}: {told}", flush=True)
        if verbose:
            print(last.summary)

    model = embedded_model(folder)
    try:
        _print("embedded", await embedded_campaign(folder / "p", model, tell))
    finally:
        await model.aclose()


def _print(name: str, found: list[list[str]]) -> None:
    print(f"{name:10}", *(f"{len(survivors):2}/{len(NEEDLES)}" for survivors in found))
    for number, survivors in enumerate(found, 1):
        lost = [needle for needle in NEEDLES if needle not in survivors]
        print(f"  after {number}: lost {', '.join(lost) or 'nothing'}")


if __name__ == "__main__":
    main()
