"""The environment of child processes: an allow-list, never the user's keys (SECURITY T18)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from aar.safety.sandbox.caches import cache_variables

_ALLOWED = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TZDIR",
        "HOSTNAME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_CACHE_HOME",
        "XDG_STATE_HOME",
        "XDG_DATA_DIRS",
        "XDG_CONFIG_DIRS",
        "VIRTUAL_ENV",
        "VIRTUAL_ENV_PROMPT",
        "CONDA_PREFIX",
        "CONDA_DEFAULT_ENV",
        "CONDA_EXE",
        "PYENV_ROOT",
        "PYENV_VERSION",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONHASHSEED",
        "PYTHONUTF8",
        "PYTHONIOENCODING",
        "PYTHONWARNINGS",
        "PYTHONDONTWRITEBYTECODE",
        "UV_PYTHON",
        "UV_OFFLINE",
        "NODE_PATH",
        "NODE_ENV",
        "NVM_DIR",
        "NVM_BIN",
        "FNM_DIR",
        "VOLTA_HOME",
        "PNPM_HOME",
        "BUN_INSTALL",
        "DENO_DIR",
        "COREPACK_HOME",
        "CARGO_HOME",
        "CARGO_TARGET_DIR",
        "RUSTUP_HOME",
        "RUSTUP_TOOLCHAIN",
        "RUSTFLAGS",
        "RUST_BACKTRACE",
        "RUST_LOG",
        "GOPATH",
        "GOROOT",
        "GOBIN",
        "GOFLAGS",
        "GOCACHE",
        "GOMODCACHE",
        "GO111MODULE",
        "GOTOOLCHAIN",
        "CGO_ENABLED",
        "JAVA_HOME",
        "JDK_HOME",
        "M2_HOME",
        "MAVEN_HOME",
        "GRADLE_HOME",
        "GRADLE_USER_HOME",
        "KOTLIN_HOME",
        "SDKMAN_DIR",
        "ANDROID_HOME",
        "GEM_HOME",
        "GEM_PATH",
        "RBENV_ROOT",
        "RUBYLIB",
        "BUNDLE_PATH",
        "COMPOSER_HOME",
        "PERL5LIB",
        "DOTNET_ROOT",
        "DOTNET_CLI_TELEMETRY_OPTOUT",
        "ASDF_DIR",
        "ASDF_DATA_DIR",
        "MISE_DATA_DIR",
        "CC",
        "CXX",
        "CFLAGS",
        "CXXFLAGS",
        "CPPFLAGS",
        "LDFLAGS",
        "MAKEFLAGS",
        "CMAKE_PREFIX_PATH",
        "CMAKE_GENERATOR",
        "PKG_CONFIG_PATH",
        "LD_LIBRARY_PATH",
        "DYLD_LIBRARY_PATH",
        "LIBRARY_PATH",
        "CPATH",
        "C_INCLUDE_PATH",
        "MANPATH",
        "INFOPATH",
        "NIX_PATH",
        "NIX_PROFILES",
        "NIX_SSL_CERT_FILE",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "NO_COLOR",
        "SOURCE_DATE_EPOCH",
        "OMP_NUM_THREADS",
        "CUDA_HOME",
        "CUDA_VISIBLE_DEVICES",
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CEILING_DIRECTORIES",
    ]
)
"""Names that commands get as they are, besides ``LC_*``."""

_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH(?!OR)|COOKIE|PRIVATE|SESSION_ID|_PAT$|DSN",
    re.IGNORECASE,
)
_FIXED = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "SYSTEMD_PAGER": "cat",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
}
"""What keeps programs from waiting for a person. Colour and CI are left alone: tests look at them."""

Kind = Literal["tool", "helper", "interactive"]


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name looks like a key, password or token."""
    return _SECRET.search(name) is not None


def child_environment(
    environ: Mapping[str, str],
    kind: Kind = "tool",
    *,
    temp: Path | None = None,
    home: Path | None = None,
    shared_caches: bool = True,
    additions: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment of a new process.

    Commands and helpers get the allow-list; an ``interactive`` program, which the user opened, all but
    secrets. Nobody gets ``AAR_*``. ``additions`` come last and as they are: their caller named them.

    Args:
        environ: Environment of aar.
        kind: As in `SpawnRequest`.
        temp: Private folder for temporary files; without it ``TMPDIR`` stays the user's.
        home: The user's home, to find the caches of package managers; without it they are left alone.
        shared_caches: Whether caches that are there are used; else all are moved into ``temp``.
        additions: More variables.
    """
    env = {name: value for name, value in environ.items() if _passes(name, kind)}
    env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    if kind != "interactive":
        env |= _FIXED
        env["TERM"] = "dumb"
        if temp is not None:
            env["TMPDIR"] = str(temp)
            if home is not None:
                env |= cache_variables(environ, home, temp, every=not shared_caches)
        elif "TMPDIR" in environ:
            env["TMPDIR"] = environ["TMPDIR"]
    env |= additions or {}
    return env


_MIN_SECRET = 8
"""Shorter values stand in ordinary text by chance."""


def _passes(name: str, kind: Kind) -> bool:
    if name.upper().startswith("AAR_") or is_secret_name(name):
        return False
    return kind == "interactive" or name in _ALLOWED or name.startswith("LC_")


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables whose names tell of secrets: what is redacted wherever it turns up."""
    return tuple(
        value
        for name, value in environ.items()
        if len(value) >= _MIN_SECRET and is_secret_name(name) and not value.startswith(("/", "http"))
    )
