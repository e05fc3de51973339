"""Folders where package managers keep what they have fetched.

A folder that is there may be written by commands; for one that is not, the program is pointed into the
private folder by its variable. So the home is never opened, and nothing is made in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache.

    Attributes:
        usual: Where it is, relative to the home.
        variable: What moves it.
        inner: Parts of it that are opened, the one that it cannot do without first; empty: all of it.
    """

    usual: str
    variable: str
    inner: tuple[str, ...] = ()


CACHES = (
    Cache(".cache/pip", "PIP_CACHE_DIR"),
    Cache(".cache/uv", "UV_CACHE_DIR"),
    Cache(".npm", "npm_config_cache"),
    Cache(".cache/yarn", "YARN_CACHE_FOLDER"),
    Cache(".cache/go-build", "GOCACHE"),
    Cache("go/pkg/mod", "GOMODCACHE"),
    Cache(".cache/pre-commit", "PRE_COMMIT_HOME"),
    Cache(
        ".cargo",
        "CARGO_HOME",
        ("registry", "git", ".package-cache", ".package-cache-mutate", ".global-cache"),
    ),
    Cache(".cache/ccache", "CCACHE_DIR"),
    Cache(".gradle", "GRADLE_USER_HOME", ("caches", "wrapper", "daemon", "native")),
)


def cache_folders(environ: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """Return what is there and may be written."""
    found: list[Path] = []
    for cache in CACHES:
        top = Path(_place(cache, environ, home))
        parts = [top / name for name in cache.inner] if cache.inner else [top]
        found += [path.resolve() for path in parts if path.exists()]
    return tuple(found)


def cache_variables(environ: Mapping[str, str], home: Path, temp: Path, *, every: bool) -> dict[str, str]:
    """Return the variables for caches that are not there, or for all of them."""
    inside = f"{temp}/caches"
    return {
        cache.variable: f"{inside}/{cache.usual.rpartition('/')[2]}"
        for cache in CACHES
        if every or not _is_there(cache, environ, home)
    }


def _is_there(cache: Cache, environ: Mapping[str, str], home: Path) -> bool:
    """Return whether the cache can be used: ``~/.cargo`` alone, as its installer leaves it, cannot."""
    place = _place(cache, environ, home)
    return os.path.exists(os.path.join(place, *cache.inner[:1]))  # noqa: PTH110, PTH118 - strings: asked for each command


def _place(cache: Cache, environ: Mapping[str, str], home: Path) -> str:
    return environ.get(cache.variable) or os.path.join(home, cache.usual)  # noqa: PTH118 - as above
