"""Twelve facts planted in a long session: how many are still before the model after one, two and three compactions.

``python -m tests.compaction.test_needles`` prints the table, ``--local`` with the embedded model.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aar.protocol.errors import ErrorKind, ProviderError
from tests.compaction.support import Notes, SmallWorld, fair_notes, forgetful_notes
from tests.support.fakes import Turn, call

NEEDLES = {
    "rule": "Never touch the folder legacy/billing",
    "rule of style": "use tabs in Makefiles, not spaces",
    "number of the user": "the timeout must stay 4711 ms",
    "path that was read": "config/zebra.ini",
    "path that was written": "src/quokka.txt",
    "failing test": "tests/test_ledger.py::test_rounding_of_yen",
    "command": "sh check.sh --seed 90210",
    "decision": "chose SQLite over Redis",
    "name": "the lock is called PelicanLock",
    "number": "port 48151",
    "cause": "overflow happens in fold_ledger line 233",
    "open work": "still has to migrate the Osprey table",
}
"""What must be found, word for word."""
BY_PROGRAM = ("rule", "rule of style", "number of the user", "path that was read", "path that was written",
              "failing test", "command")  # fmt: skip
"""Those that events tell by themselves; no model is needed for them."""


def planted(root: Path) -> list[tuple[str, list[Turn]]]:
    """Return prompts with the answers in which the facts lie."""
    (root / "config").mkdir(parents=True)
    (root / "config" / "zebra.ini").write_text("[zebra]\nstripes = 7\n")
    (root / "check.sh").write_text(
        "echo 'FAILED tests/test_ledger.py::test_rounding_of_yen - assert 1 == 2'\nexit 1\n"
    )
    rules = f"Mend the ledger. {NEEDLES['rule']}; {NEEDLES['rule of style']}."
    return [
        (rules, [
            Turn("I look at the settings first.", [call("read_file", path="config/zebra.ini")]),
            Turn(f"I {NEEDLES['decision']}, because it must run offline.",
                 [call("write_file", path="src/quokka.txt", content="q\n")]),
            Turn(f"In the code {NEEDLES['name']} and the server listens on {NEEDLES['number']}.",
                 [call("bash", command=NEEDLES["command"])]),
            Turn(f"The {NEEDLES['cause']}, that is why the test fails. One {NEEDLES['open work']} before 2 pm."),
        ]),
        (f"Mind that {NEEDLES['number of the user']}.", [Turn("I will.")]),
    ]  # fmt: skip


def filler(root: Path, phase: int) -> tuple[str, list[Turn]]:
    """Return a prompt whose work fills the window."""
    steps: list[Turn] = []
    for number in range(8):
        name = f"filler{phase}-{number}.txt"
        (root / name).write_text(f"nothing of interest in {name}\n" * 60)
        noise = f"In {name} helper_{number} is called {37 * number + phase} times. "
        steps.append(
            Turn(f"I read on. {noise}" + "It is ordinary code. " * 90, [call("read_file", path=name)])
        )
    return f"Look through part {phase} of the files.", [*steps, Turn("Nothing there.")]


def surviving(text: str) -> list[str]:
    return [name for name, needle in NEEDLES.items() if needle in text]


async def campaign(
    root: Path, notes: Notes, adapt: Callable[[SmallWorld], Any] = lambda world: None
) -> list[list[str]]:
    """Return which needles are before the model after each of three compactions that sum up."""
    world = SmallWorld(root, ["x"], window=20_000, notes=notes, mode="auto", wall="bubblewrap")
    adapt(world)
    root.mkdir(exist_ok=True)
    for prompt, turns in planted(root):
        await _work(world, prompt, turns)
    assert len(surviving(world.texts())) == len(NEEDLES)
    found: list[list[str]] = []
    for phase in range(12):
        done = sum(bool(event.summary) for event in world.compactions)
        await _work(world, *filler(root, phase))
        now = sum(bool(event.summary) for event in world.compactions)
        if now > done:
            found.append(surviving(world.texts()))
        if len(found) == 3:
            break
    world.check_requests()
    return found


async def _work(world: SmallWorld, prompt: str, turns: list[Turn]) -> None:
    world.script.turns = turns
    world.script.requests.clear()
    result = await asyncio.wait_for(world.agent.run(prompt, world.session), 7200)
    assert result.stop_reason == "end_turn", world.of("error")


def no_model(prompt: str) -> ProviderError:
    return ProviderError(ErrorKind.AUTH, "There is no key.")


@pytest.mark.parametrize(
    ("notes", "least"),
    [(fair_notes, 10), (forgetful_notes, 11), (no_model, 12)],
    ids=["fair", "forgetful", "none"],
)
async def test_needles_survive_three_compactions(tmp_path: Path, notes: Notes, least: int) -> None:
    found = await campaign(tmp_path / "p", notes)
    assert len(found) == 3
    for survivors in found:
        assert set(survivors) >= set(BY_PROGRAM)
        assert len(survivors) >= least


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(7200)
async def test_needles_survive_with_the_embedded_model(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    found = await local_campaign(tmp_path / "p")
    assert len(found) == 3
    for survivors in found:
        assert set(survivors) >= set(BY_PROGRAM)


async def local_campaign(root: Path) -> list[list[str]]:
    """Run the campaign with notes by the embedded model."""
    from aar.core.active_model import ActiveModel
    from aar.runtime import open_base
    from aar.runtime.models import make_active_model

    base = open_base(cwd=Path(tempfile.gettempdir()), model="local/qwen2.5-coder-1.5b")
    active, _ = make_active_model(base)

    def adapt(world: SmallWorld) -> None:
        def writer(_: ActiveModel) -> ActiveModel:
            return active

        world.agent._notes_model = writer  # pyright: ignore[reportPrivateUsage] - as the runtime passes it

    try:
        return await campaign(root, fair_notes, adapt)
    finally:
        await active.provider.aclose()


def main() -> None:
    """Print the table."""
    kinds: dict[str, Notes] = {"fair": fair_notes, "forgetful": forgetful_notes, "none": no_model}
    with tempfile.TemporaryDirectory() as folder:
        for name, notes in kinds.items():
            found = asyncio.run(campaign(Path(folder) / name, notes))
            _print(name, found)
        if "--local" in sys.argv:
            _print("embedded", asyncio.run(local_campaign(Path(folder) / "local")))


def _print(name: str, found: list[list[str]]) -> None:
    print(f"{name:10}", *(f"{len(survivors):2}/{len(NEEDLES)}" for survivors in found))
    for number, survivors in enumerate(found, 1):
        lost = [needle for needle in NEEDLES if needle not in survivors]
        print(f"  after {number}: lost {', '.join(lost) or 'nothing'}")


if __name__ == "__main__":
    main()
