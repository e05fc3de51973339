"""Tasks on a Dask cluster: what a lost worker had is done again, results and sessions come back once."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aar.orchestration.batch_child import ChildOptions
from aar.orchestration.batch_cluster import ClusterDoer
from aar.orchestration.batch_results import Journal
from aar.orchestration.batch_tasks import BatchTask
from aar.protocol.errors import ProviderError
from tests.batch.support import done, repository
from tests.batch.test_work import completed, write_batch
from tests.cli.support import aar, environment, finish, start, stored
from tests.support.waiting import wait_until

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'aar[cluster]'")
TASK = BatchTask(id="a", prompt="Do it")


class ToldFuture:
    """Answers at once; ``answer`` may be an error."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.released = answer, False

    def __await__(self) -> Iterator[Any]:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer
        yield

    def release(self) -> None:
        self.released = True


class ToldClient:
    def __init__(self, answer: Any) -> None:
        self.future, self.sent = ToldFuture(answer), []

    def submit(self, function: Any, payload: dict[str, Any], **more: Any) -> ToldFuture:
        self.sent.append((payload, more))
        return self.future


def packed(name: str, data: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        item = tarfile.TarInfo(name)
        item.size = len(data)
        archive.addfile(item, io.BytesIO(data))
    return made.getvalue()


async def ask(client: ToldClient, folder: Path) -> Any:
    journal = Journal(folder / "out")
    options = ChildOptions(Path("/here"), model="p/m", environ={"KEY": "secret"})
    doer = ClusterDoer(client, "project", journal, options, folder / "sessions", trusted=False)
    try:
        return await doer.do(TASK, 2, 0.5)
    finally:
        journal.close()


async def test_patch_and_session_come_back_and_what_is_there_stays(tmp_path: Path) -> None:
    result = done("a").model_copy(update={"session_id": "S1", "worker": "w7", "files": ("x",)})
    back = {
        "result": result.model_dump(mode="json"),
        "patch": b"diff",
        "session": b"events\n",
        "kept": packed("S1.d/out", b"kept"),
    }
    client = ToldClient(back)
    first = await ask(client, tmp_path)
    assert (first.patch, first.worker, first.status) == ("patches/a.patch", "w7", "done")
    assert (tmp_path / "out/patches/a.patch").read_bytes() == b"diff"
    assert (tmp_path / "sessions/S1.d/out").read_bytes() == b"kept"
    (payload, _), future = client.sent[0], client.future
    # Neither this machine's folder nor its environment go there.
    assert set(payload["options"]) & {"cwd", "environ"} == set()
    assert "secret" not in json.dumps(payload)
    assert future.released
    (tmp_path / "sessions/S1.jsonl").write_bytes(b"events\nmore\n")
    await ask(ToldClient(back), tmp_path)
    assert (tmp_path / "sessions/S1.jsonl").read_bytes() == b"events\nmore\n"


async def test_a_task_that_every_worker_was_lost_with_has_failed(tmp_path: Path) -> None:
    lost = distributed.KilledWorker("aar-a", None, 3)
    result = await ask(ToldClient(lost), tmp_path)
    assert result.status == "failed"
    assert result.error == "Every worker that did it was lost (4 of them)."


async def test_a_scheduler_that_goes_away_is_told_in_a_sentence(tmp_path: Path) -> None:
    gone = distributed.client.FutureCancelledError("aar-a", "connection lost")
    with pytest.raises(ProviderError, match="went away"):
        await ask(ToldClient(gone), tmp_path)


async def test_a_session_cannot_be_written_elsewhere(tmp_path: Path) -> None:
    result = done("a").model_copy(update={"session_id": "../../evil"})
    kept = packed("../evil", b"")
    back = {"result": result.model_dump(mode="json"), "patch": b"", "session": b"x", "kept": kept}
    with pytest.raises(tarfile.OutsideDestinationError):
        await ask(ToldClient(back), tmp_path)
    assert not (tmp_path / "evil").exists()


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and two workers with folders of their own."""
    folder.mkdir()
    told = folder / "scheduler.json"
    processes: list[subprocess.Popen[bytes]] = []

    def begin(*words: str, **env: str) -> None:
        with (folder / f"log{len(processes)}").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", *words], stdout=log, stderr=log, env=environment(**env)
                )
            )

    try:
        local = ("--host", "127.0.0.1", "--no-dashboard")
        begin("distributed.cli.dask_scheduler", *local, "--port", "0", "--scheduler-file", str(told))
        wait_until(lambda: told.exists() and told.read_text().rstrip().endswith("}"))
        address = json.loads(told.read_text())["address"]
        for number in (1, 2):
            home, space = str(folder / f"home{number}"), str(folder / f"space{number}")
            words = ("--nthreads", "1", "--no-nanny", "--name", f"w{number}", "--local-directory", space)
            begin("distributed.cli.dask_worker", address, *local, *words, AAR_HOME=home)
        yield address, processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Outcome:
    """What a batch came to that lost one of its two workers, and what the same command did then."""

    results: list[dict[str, Any]]
    again: str

    def names(self, status: str) -> list[str]:
        return sorted(item["id"] for item in self.results if item["status"] == status)

    def sessions(self) -> list[str]:
        return sorted(item["session_id"] for item in self.results)


def lose_a_worker(tmp_path: Path, count: int, after: int) -> Outcome:
    root = repository(tmp_path / "project")
    file, model = write_batch(tmp_path, count)
    with cluster(tmp_path / "cluster") as (address, workers):
        words = (
            "batch",
            file,
            "--model",
            model,
            "--mode",
            "edit",
            "--json",
            "-j",
            "2",
            "--scheduler",
            address,
        )
        process = start(*words, cwd=root)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(after)]
        # Both workers have tasks now; the one that is lost is in the middle of one.
        workers[1].kill()
        ran = finish(process)
        assert ran.code == 0, ran.err
        results = [json.loads(line) for line in (*lines, *ran.out.splitlines())]
        again = aar(*words, cwd=root).out
    return Outcome(results, again)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "after"), [(4, 1), (40, 12)])
def test_what_a_lost_worker_had_is_done_again_and_nothing_comes_twice(
    tmp_path: Path, count: int, after: int
) -> None:
    outcome = lose_a_worker(tmp_path, count, after)
    assert outcome.names("done") == sorted(f"t{number}" for number in range(count))
    assert len(outcome.results) == count
    assert outcome.again == "", "a second start has nothing left to do"
    assert outcome.sessions() == sorted(file.stem for file in stored())
    assert len(completed()) == count
    for item in outcome.results:
        assert "+made" in (tmp_path / "tasks.results" / item["patch"]).read_text()
