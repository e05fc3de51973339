"""Commands that plainly only read, and commands that build and test, told by their words."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

from aar.safety.shell_hard_stops import git_words
from aar.safety.shell_types import SimpleCommand, words

Argv = tuple[str, ...]

_ANY_FLAG = words(
    "ls cat head wc cut tr stat pwd echo which whereis basename dirname realpath readlink true false"
    " nl tac rev fold expand unexpand column comm cmp paste join od hexdump strings sha256sum sha1sum"
    " md5sum cksum sum b2sum sha512sum df uname whoami id groups nproc uptime free seq expr"
    " sleep type cal tty locale lscpu lsblk numfmt : zcat bzcat xzcat zgrep egrep fgrep"
    " grep ps pgrep pstree"
)
_FORBIDDEN: dict[str, str] = {
    # name: pattern of words that make it more than a reader
    "tail": r"-[a-zA-Z]*[fF].*|--follow.*|--retry|--pid.*",
    "find": r"-(exec|execdir|ok|okdir|delete|fprint.*|fls|files0-from)",
    "fd": r"-[a-zA-Z]*[xX].*|--exec.*",
    "rg": r"--pre(=.*|-glob.*)?|--hostname-bin.*|-[a-zA-Z]*z[a-zA-Z]*|--search-zip",
    "sort": r"-[a-zA-Z]*[oST].*|--o.*|--comp.*|--temp.*|--files0.*",
    "tree": r"-[a-zA-Z]*[oR].*|--output.*",
    "du": r"--files0-from.*",
    "file": r"-[a-zA-Z]*C.*|--compile.*",
    "date": r"-s.*|--s.*|-[a-zA-Z]*[fr].*|\d+",
    "diff": r"--output.*|-l|--paginate",
    "jq": r"-[a-zA-Z]*[fL].*|--from-file.*|--rawfile|--slurpfile|--run-tests|-i",
    "yq": r"-[a-zA-Z]*i.*|--inplace.*|-s.*|--split.*|.*load.*",
    "printf": r"-v.*",
    "base64": r"-[a-zA-Z]*o.*|--output.*",
    "hostname": r"[^-].*|-[bF].*|--file.*|--boot",
    "less": r".*",
    # bash evaluates subscripts of the names that these are given.
    "test": r"-[vR]",
    "[": r"-[vR]",
    "wait": r"-.*p.*",
    "jobs": r"-.*x.*",
    "arch": r".+",
    "command": r"(?!-[vV]$)-.*",
    "env": r".+",
    "printenv": r".*(?i:key|token|secret|passw).*",
}  # fmt: skip
_UNIQ = 2
_PRINT_ONLY = re.compile(r"(\d+|\$)?(,(\d+|\$|\+\d+))?p?[;q\d]*")
_DIRECTORY_STACK = words("cd pushd popd dirs")
# Not those that run what the project names: yarn (yarnPath), cargo and rustc (rust-toolchain.toml).
_VERSIONED = re.compile(
    r"(python|pip|pypy|ruby|perl|php|lua|gcc|g\+\+|clang|node)[\d.]*|npm|bun|deno|go|java|javac"
    r"|uv|ruff|mypy|pyright|pytest|make|cmake|git|docker|terraform|kubectl|poetry|black|tsc|gh|rg|bash|zsh|sh"
)

# --- git ---------------------------------------------------------------------------------------------------

_GIT_READERS = words(
    "status log diff show rev-parse ls-files ls-tree describe blame shortlog rev-list merge-base cat-"
    " file reflog for-each-ref name-rev var count-objects grep diff-tree cherry range-diff show-ref"
    " check-ignore whatchanged version"
)
_GIT_REFUSED = re.compile(
    r"--out.*|--ext-d.*|--textc.*|--no-index|-O.*|--open.*|--exec.*|--upload-pack.*|--web|--filters|--batch-command.*"
)
_GIT_LISTING: dict[str, str] = {
    "branch": r"-[avrl]+|-vv|--list|--all|--remotes|--verbose|--show-current|--contains.*|--merged.*"
    r"|--no-merged.*|--sort=.*|--format=.*|--no-color|--color.*|--column.*|--points-at.*",
    "tag": r"-l|--list|-n\d*|--sort=.*|--format=.*|--contains.*|--merged.*|--points-at.*",
    "remote": r"-v|--verbose|show|get-url|-n",
    "stash": r"list|show|-p|--stat|stash@\{\d+\}",
    "worktree": r"list|--porcelain|-v|-z",
    "config": r"--get|--get-all|--list|-l|--show-origin|--show-scope|--get-regexp|--name-only|list|get"
    r"|--local|--global|--system|-z",
    "submodule": r"status|summary|--recursive",
    "notes": r"list|show",
    "bisect": r"log",
    "lfs": r"ls-files|status|env|version",
    "symbolic-ref": r"HEAD|--short|-q",
}


def _git(argv: Argv) -> bool:
    options, rest = git_words(argv)
    if any(option not in {"--no-pager", "--no-optional-locks", "-P", "--version"} for option in options):
        return False
    if not rest:
        return options == ("--version",)
    verb, more = rest[0], rest[1:]
    if verb in _GIT_LISTING:
        return _git_listing(verb, more)
    if verb not in _GIT_READERS or any(_GIT_REFUSED.fullmatch(word) for word in more):
        return False
    return verb != "reflog" or not more or more[0] in {"show", "list", "exists"} or more[0].startswith("-")


def _git_listing(verb: str, more: Argv) -> bool:
    """``git branch`` lists, ``git branch NAME`` makes: names are only taken where a listing option is."""
    pattern = re.compile(_GIT_LISTING[verb])
    if not more:
        return verb in {"branch", "tag", "remote", "notes"}
    first = more[0]
    if pattern.fullmatch(first) is None:
        return False
    if verb in {"remote", "stash", "submodule"} and first.startswith("-"):
        # A verb that changes something may follow; `git stash -p` is one.
        return verb == "remote" and len(more) == 1
    if verb in {"branch", "tag"}:
        listing = any(
            re.match(r"-l$|--list|--contains|--merged|--no-merged|--points-at", word) for word in more
        )
        return all(pattern.fullmatch(word) or (listing and not word.startswith("-")) for word in more)
    if verb == "config":
        reads = {"--get", "--get-all", "--list", "-l", "--get-regexp", "list", "get"} & set(more)
        return bool(reads) and all(pattern.fullmatch(word) or not word.startswith("-") for word in more)
    if verb == "remote" and first == "show":
        return "-n" in more or len(more) == 1
    if verb == "symbolic-ref":
        return all(pattern.fullmatch(word) for word in more)
    return all(pattern.fullmatch(word) or not word.startswith("-") for word in more)


# --- others ------------------------------------------------------------------------------------------------


def _sed(argv: Argv) -> bool:
    """``sed -n N,Mp FILE``: only printing of lines by number."""
    flags = [word for word in argv[1:] if word.startswith("-")]
    operands = [word for word in argv[1:] if not word.startswith("-")]
    if not operands or not set(flags) <= {"-n", "-E", "-r", "-u", "--quiet", "--silent"}:
        return False
    return _PRINT_ONLY.fullmatch(operands[0]) is not None and ("-n" in flags or operands[0].endswith("q"))


def _uniq(argv: Argv) -> bool:
    return sum(not word.startswith("-") for word in argv[1:]) < _UNIQ


def _versions(argv: Argv) -> bool:
    return argv[1:] in {("--version",), ("-V",), ("-version",), ("--help",), ("version",)}


_TOOL_READERS: dict[str, Callable[[Argv], bool]] = {
    "git": _git,
    "sed": _sed,
    "uniq": _uniq,
    "cd": lambda argv: len(argv) <= 2,
    "pip": lambda argv: (
        argv[1:2] in {("list",), ("show",), ("freeze",), ("check",)} and "--outdated" not in argv
    ),
    "pip3": lambda argv: (
        argv[1:2] in {("list",), ("show",), ("freeze",), ("check",)} and "--outdated" not in argv
    ),
    "npm": lambda argv: argv[1:2] in {("ls",), ("list",), ("root",), ("prefix",)},
    "go": lambda argv: argv[1:2] in {("env",), ("version",)} and not {"-w", "-u"} & set(argv),
    "docker": lambda argv: argv[1:2] in {("ps",), ("images",), ("version",)},
    "uv": lambda argv: argv[1:3] in {("pip", "list"), ("pip", "show"), ("pip", "freeze")},
    "xargs": lambda argv: False,
}


def read_only(command: SimpleCommand) -> bool:
    """Whether the words of ``command`` (static, no wrapper) say plainly that it only reads."""
    argv = command.argv
    if not argv or not command.static or not _trusted_name(argv[0]):
        return False
    name = command.name
    if _versions(argv) and _VERSIONED.fullmatch(name):
        return True
    if name in _TOOL_READERS:
        return _TOOL_READERS[name](argv) and not _loose_glob(command)
    if name in _FORBIDDEN:
        pattern = re.compile(_FORBIDDEN[name])
        return not any(pattern.fullmatch(word) for word in argv[1:]) and not _loose_glob(command)
    return name in _ANY_FLAG


def _trusted_name(word: str) -> bool:
    """A bare name, or a program of the system's own folders: not one that the project brought along."""
    return "/" not in word or re.fullmatch(r"/(usr/)?(local/)?s?bin/[^/]+", word) is not None


def _loose_glob(command: SimpleCommand) -> bool:
    """Whether the shell may put a file name that begins with ``-`` where an option would be dangerous."""
    return any(command.argv[index][:1] in "*?[" for index in command.globs if command.argv[index])


_NO_FILES = words(
    "echo printf date sleep true false pwd whoami seq expr uname tr id basename dirname which type git cd"
)
_NAMES_ONLY = words(
    "ls stat file du df test [ tree find fd readlink realpath basename dirname which type echo"
)
_PATTERN_FIRST = words("grep egrep fgrep rg sed jq yq zgrep")
_PATTERN_OPTION = re.compile(r"-[A-Za-z0-9]*[ef].*|--(re|fi|ex|fr).*", re.DOTALL)
"""Where one of these is, the first operand may be a file."""


def operands(command: SimpleCommand) -> list[str]:
    """Return the words of a reader that may name files."""
    if command.name in _NO_FILES - {"git", "cd"}:
        return []
    found: list[str] = []
    for word in command.argv[1:]:
        flag = word.startswith("-")
        value = word.partition("=")[2] if flag else word
        if flag and not value and re.fullmatch(r"-[A-Za-z][/~.].*", word):
            value = word[2:]
        if value and len(value) < 4096:
            found.append(value)
    given = any(_PATTERN_OPTION.fullmatch(word) for word in command.argv[1:])
    if command.name in _PATTERN_FIRST and len(found) > 1 and not given:
        first = next((index for index, value in enumerate(found) if value in command.argv), 0)
        found.pop(first)
    return found


def shows_content(command: SimpleCommand) -> bool:
    """Whether a reader prints what is in files, not only their names."""
    return command.name not in _NAMES_ONLY


def reads_everything(command: SimpleCommand) -> bool:
    """Whether a reader goes through whole folders, hidden files and all."""
    flags = "".join(word[1:] for word in command.argv[1:] if re.fullmatch(r"-[A-Za-z.]+", word))
    if command.name in {"grep", "egrep", "fgrep", "zgrep"}:
        return (
            "r" in flags
            or "R" in flags
            or any(word.startswith(("--rec", "--deref")) for word in command.argv)
        )
    if command.name == "rg":
        return (
            "u" in flags
            or "." in flags
            or any(word.startswith(("--hid", "--no-ig", "--unres")) for word in command.argv)
        )
    return command.name == "diff" and ("r" in flags or "--recursive" in command.argv)


_SECRET_SAMPLES = (
    ".env",
    ".env.local",
    "id_rsa",
    "id_ed25519",
    "server.pem",
    "server.key",
    ".netrc",
    ".ssh",
    ".npmrc",
)


def may_name_secret(word: str) -> bool:
    """Whether a glob may stand for the name of a secret file."""
    last = word.rsplit("/", 1)[-1]
    return any(
        fnmatchcase(sample, last) and (not sample.startswith(".") or last.startswith((".", "[")))
        for sample in _SECRET_SAMPLES
    )


# --- build and test ----------------------------------------------------------------------------------------

_BUILDERS = words(
    "pytest make ruff mypy pyright tsc jest vitest eslint prettier black isort flake8 pylint ctest"
    " ninja tox nox rspec rubocop phpunit shellcheck golangci-lint gofmt rustfmt clang-format clang-"
    " tidy swiftlint ktlint mocha ava stylelint biome coverage py.test lint-imports cmake gradlew"
    " javac gcc g++ clang clang++ cc rustc"
)
_BUILD_VERBS: dict[str, frozenset[str]] = {
    "cargo": words("build test check clippy fmt bench doc nextest"),
    "go": words("build test vet fmt list"),
    "npm": words("test t"),
    "pnpm": words("test build lint typecheck"),
    "yarn": words("test build lint typecheck"),
    "bun": words("test"),
    "deno": words("test check lint fmt"),
    "dotnet": words("build test format"),
    "gradle": words("build test check assemble compileJava"),
    "./gradlew": words("build test check assemble compileJava"),
    "mvn": words("test compile verify package -q"),
    "swift": words("build test"),
    "mix": words("test compile format"),
    "rake": words("test spec"),
    "zig": words("build test fmt"),
    "just": words("test lint check build fmt format"),
    "bazel": words("build test"),
    "pre-commit": words("run"),
    "next": words("build lint"),
    "vite": words("build"),
}  # fmt: skip
_SCRIPT_NAMES = re.compile(
    r"(test|build|lint|check|typecheck|type-check|format|fmt|compile|unit|e2e)([:_-].*)?"
)
_PYTHON_MODULES = words(
    "pytest unittest mypy ruff black isort flake8 pylint pyright compileall doctest coverage"
    " py_compile tox nox"
)
_RUN_PREFIXES = (
    ("uv", "run"),
    ("poetry", "run"),
    ("pipenv", "run"),
    ("hatch", "run"),
    ("pdm", "run"),
    ("npx",),
    ("bundle", "exec"),
)


def builds_or_tests(command: SimpleCommand) -> bool:
    """Whether ``command`` is one that compiles, checks or tests a project."""
    argv = command.argv
    if not argv or not command.static:
        return False
    for prefix in _RUN_PREFIXES:
        if (
            argv[: len(prefix)] == prefix
            and len(argv) > len(prefix)
            and not argv[len(prefix)].startswith("-")
        ):
            argv = argv[len(prefix) :]
            break
    name = argv[0]
    if name in _BUILDERS:
        return not any(word.startswith(("--fix-unsafe", "--plugin=/")) for word in argv)
    if re.fullmatch(r"(\.venv/bin/|venv/bin/)?python[\d.]*", name):
        return len(argv) > 2 and argv[1] == "-m" and argv[2] in _PYTHON_MODULES
    if name in {"npm", "pnpm", "yarn", "bun"} and argv[1:2] == ("run",):
        return len(argv) > 2 and _SCRIPT_NAMES.fullmatch(argv[2]) is not None
    verbs = _BUILD_VERBS.get(name)
    return verbs is not None and len(argv) > 1 and argv[1] in verbs
