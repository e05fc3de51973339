"""Twelve facts planted in a long session, and what is still before the model after compactions."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aar.config.schema import ProviderConfig
from aar.core.active_model import ActiveModel
from aar.providers.local.provider import LocalProvider
from tests.compaction.support import Notes, SmallWorld, fair_notes
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
ROUNDS = 3


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
    """Return the names of the facts that stand in ``text`` word for word."""
    return [name for name, needle in NEEDLES.items() if needle in text]


async def campaign(
    root: Path,
    notes: Notes,
    adapt: Callable[[SmallWorld], Any] = lambda world: None,
    after: Callable[[SmallWorld, list[str]], Any] = lambda world, found: None,
) -> list[list[str]]:
    """Return which needles are before the model after each of three compactions that sum up.

    Args:
        root: The workspace; made.
        notes: Answers the questions for notes.
        adapt: Changes the world before it begins.
        after: Told what is left after each compaction.
    """
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
            after(world, found[-1])
        if len(found) == ROUNDS:
            break
    world.check_requests()
    return found


async def _work(world: SmallWorld, prompt: str, turns: list[Turn]) -> None:
    world.script.turns = turns
    world.script.requests.clear()
    result = await asyncio.wait_for(world.agent.run(prompt, world.session), 7200)
    assert result.stop_reason == "end_turn", world.of("error")


async def embedded_campaign(
    root: Path,
    model: LocalProvider,
    after: Callable[[SmallWorld, list[str]], Any] = lambda world, found: None,
) -> list[list[str]]:
    """Run the campaign with notes by the embedded model."""
    name = "qwen2.5-coder-1.5b"
    active = ActiveModel(f"local/{name}", model, name, model.capabilities(name))

    def adapt(world: SmallWorld) -> None:
        def writer(_: ActiveModel) -> ActiveModel:
            return active

        world.agent._notes_model = writer  # pyright: ignore[reportPrivateUsage] - as the runtime passes it

    return await campaign(root, fair_notes, adapt, after)


def embedded_model(folder: Path) -> LocalProvider:
    """Return the embedded model: the weights that AAR_TEST_GGUF names, else those that are installed.

    Args:
        folder: For what the worker of the model keeps.
    """
    from aar.config.paths import paths

    weights = os.environ.get("AAR_TEST_GGUF")
    data = folder if weights else paths(os.environ).data
    runtime = Path(tempfile.mkdtemp(prefix="aar-"))
    return LocalProvider(ProviderConfig(model_path=weights, keep_warm=20), data, runtime)
