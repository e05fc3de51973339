"""Commands that run other commands: what they run.

A wrapper is *transparent* when it only runs what it is given, so that it may be judged by that alone
(``timeout 5 ls``). Others (``sudo``, ``watch``, ``xargs`` with options, ``find -exec`` …) are looked into for
deny rules and hard stops, but are never allowed because of what is inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from aar.safety.shell_types import Redirection, ShellCommand, SimpleCommand, words

ParseText = Callable[[str], ShellCommand]
Words = tuple[str, ...]


@dataclass(slots=True)
class Through:
    """What was found inside of a wrapper.

    Attributes:
        argvs: Commands given as words.
        commands: Commands given as text, parsed.
        redirections: Of those texts.
        transparent: Whether the wrapper may be judged by these alone.
        reasons: What about it is not plain.
    """

    argvs: tuple[Words, ...] = ()
    commands: tuple[SimpleCommand, ...] = ()
    transparent: bool = False
    reasons: tuple[str, ...] = ()
    redirections: tuple[Redirection, ...] = ()


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """How a wrapper's own words are told from the command's.

    Attributes:
        valued: Options that take the next word (or ``--option=value``).
        flags: Options without a value.
        operands: Words between the options and the command (``timeout DURATION``).
        transparent: Whether it only runs the command.
    """

    valued: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    operands: int = 0
    transparent: bool = False
    joined: bool = False


_WRAPPERS: dict[str, _Wrapper] = {
    "timeout": _Wrapper(
        words("-k -s --kill-after --signal"),
        words("--foreground --preserve-status -v --verbose"),
        1,
        transparent=True,
    ),
    "nice": _Wrapper(words("-n --adjustment"), frozenset(), 0, True),
    "nohup": _Wrapper(transparent=True),
    "stdbuf": _Wrapper(words("-i -o -e --input --output --error"), frozenset(), 0, True),
    "time": _Wrapper(flags=words("-p -v"), transparent=True),
    "command": _Wrapper(flags=words("-p"), transparent=True),
    "builtin": _Wrapper(),
    "noglob": _Wrapper(transparent=True),
    "exec": _Wrapper(words("-a"), words("-c -l -cl"), 0),
    "env": _Wrapper(words("-u --unset -C --chdir"), words("-i - -0 --null --ignore-environment -v --debug")),
    "sudo": _Wrapper(
        words(
            "-u -g -h -p -C -D -R -T -U -r -t --user --group --host --prompt --chdir --chroot --role --type"
        ),
        words("-A -b -E -e -H -i -K -k -l -n -P -S -s -V -v --preserve-env --login --stdin --shell"),
    ),
    "doas": _Wrapper(words("-u -C"), words("-n -s -L")),
    "setsid": _Wrapper(flags=words("-c -f -w --ctty --fork --wait")),
    "ionice": _Wrapper(words("-c -n -p -P -u --class --classdata"), words("-t --ignore")),
    "chrt": _Wrapper(words("-T -P -D"), words("-b -d -f -i -o -r"), 1),
    "taskset": _Wrapper(flags=words("-a -c --cpu-list"), operands=1),
    "strace": _Wrapper(words("-o -e -p -s -u -E -a -b"), words("-f -ff -c -C -q -t -tt -T -v -y")),
    "ltrace": _Wrapper(words("-o -e -p -s -u -a -n"), words("-f -c -S -t -T")),
    "watch": _Wrapper(
        words("-n --interval"),
        words("-d -t -b -e -g -c -x --differences --no-title"),
        0,
        False,
        True,
    ),
    "xargs": _Wrapper(
        words("-I -n -P -L -d -E -s -a --max-args --max-procs --max-lines --delimiter --arg-file --replace"),
        words("-0 -r -t -p -x -o --null --no-run-if-empty --verbose --interactive --exit"),
    ),
    "busybox": _Wrapper(),
    "toybox": _Wrapper(),
    "chroot": _Wrapper(flags=words("--skip-chdir"), operands=1),
    "unshare": _Wrapper(
        words("-S -G -R -w --setuid --setgid --root --wd"), words("-m -u -i -n -p -U -C -T -f -r -c")
    ),
    "nsenter": _Wrapper(words("-t --target -S -G"), words("-a -m -u -i -n -p -C -U -T -r -w -F")),
    "caffeinate": _Wrapper(words("-t -w"), words("-d -i -m -s -u")),
    "parallel": _Wrapper(words("-j --jobs -I -n -N"), words("-k -0 -X -m --bar"), 0, False, True),
    "pkexec": _Wrapper(words("--user"), words("--disable-internal-agent")),
    "runuser": _Wrapper(words("-u -g -G")),
    "fakeroot": _Wrapper(words("-l -s -i -b")),
    "dbus-run-session": _Wrapper(flags=words("--")),
    "entr": _Wrapper(flags=words("-a -c -d -n -p -r -s -z")),
    "torsocks": _Wrapper(),
    "proxychains": _Wrapper(words("-f"), words("-q")),
    "rlwrap": _Wrapper(),
    "unbuffer": _Wrapper(flags=words("-p")),
}
SHELLS = words("sh bash dash zsh ksh mksh ash fish rbash csh tcsh")
_FIND_EXEC = words("-exec -execdir -ok -okdir")
_LOADER = re.compile(r"ld(-linux[-\w]*|-musl[-\w]*|)([-.][\w.]*)?\.so[.\d]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_RUNNERS: dict[str, Words] = {
    **dict.fromkeys(("uv", "poetry", "pipenv", "hatch", "pdm", "rye", "pipx", "devbox"), ("run",)),
    **dict.fromkeys(("npm", "kubectl", "mise", "direnv"), ("exec",)),
    **dict.fromkeys(("pnpm", "yarn"), ("exec", "dlx")),
    **dict.fromkeys(("docker", "podman"), ("exec", "run")),
    **dict.fromkeys(("npx", "bunx", "uvx", "ssh"), ()),
    "nix": ("shell", "develop", "run"),
}


def look_through(argv: Words, parse: ParseText) -> Through:
    """Return the commands that ``argv`` starts; ``parse`` reads those that are given as text."""
    if len(argv) < 2:
        return Through()
    name = argv[0].rsplit("/", 1)[-1]
    if name in SHELLS:
        return _shell(argv, parse)
    if name == "eval":
        return _text(" ".join(argv[1:]), parse, "eval runs its words as a command")
    if name in {"trap", "alias"}:
        return _definitions(argv, parse)
    if name == "find" or name == "fd" or name == "fdfind":
        return _find(name, argv)
    if name in {"su", "script", "flock"}:
        return _option_c(argv, parse)
    if name == "git":
        return _git_alias(argv, parse)
    if name in _WRAPPERS:
        return _wrapper(name, argv, parse)
    if _LOADER.fullmatch(name):
        return _every_suffix(argv, "the program is started through the dynamic loader")
    if name in _RUNNERS:
        return _runner(name, argv)
    return Through()


def _text(text: str, parse: ParseText, reason: str | None) -> Through:
    parsed = parse(text)
    reasons = () if reason is None else (reason,)
    if parsed.too_large:
        reasons = (*reasons, TOO_DEEP)
    redirects = ("a redirection inside of a nested command",) if parsed.redirections else ()
    return Through(
        commands=parsed.commands,
        transparent=reason is None and parsed.plain and not redirects,
        reasons=(*reasons, *redirects, *parsed.reasons),
        redirections=parsed.redirections,
    )


def _texts(texts: Iterable[str], parse: ParseText, reason: str) -> Through:
    """Look into several texts, none of which makes the wrapper transparent."""
    found = [_text(text, parse, reason) for text in texts if text]
    return Through(
        commands=tuple(command for item in found for command in item.commands),
        reasons=tuple(dict.fromkeys(reason for item in found for reason in item.reasons)),
        redirections=tuple(redirection for item in found for redirection in item.redirections),
    )


_MOST_TEXTS = 5
"""Words after a ``c`` option that are looked into: an option among them may have taken the first."""
TOO_DEEP = "commands inside commands go too deep to judge every part"


def _shell(argv: Words, parse: ParseText) -> Through:
    """``bash -c TEXT``; options with a value are few, so every word after a ``c`` option may be the text."""
    for index, word in enumerate(argv[1:], 1):
        if word == "--":
            break
        if re.fullmatch(r"[-+][A-Za-z]*c[A-Za-z]*", word):
            rest = [item for item in argv[index + 1 :] if not item.startswith(("-", "+"))]
            simple = word == "-c" and index == 1 and len(argv) == 3
            if not rest:
                return Through(reasons=("a shell without a command",))
            if simple:
                return _text(rest[0], parse, None)
            return _texts(rest[:_MOST_TEXTS], parse, "a shell is started with options")
    return Through(reasons=("a shell runs a script or its input",))


def _option_c(argv: Words, parse: ParseText) -> Through:
    name = argv[0].rsplit("/", 1)[-1]
    for index, word in enumerate(argv[1:-1], 1):
        if word in {"-c", "--command"}:
            return _text(argv[index + 1], parse, f"{name} runs a command")
    for word in argv[1:]:
        if word.startswith("--command="):
            return _text(word.removeprefix("--command="), parse, f"{name} runs a command")
    return (
        _every_suffix(argv, f"{name} runs a command")
        if name == "flock"
        else Through(reasons=(f"{name} runs a command",))
    )


def _definitions(argv: Words, parse: ParseText) -> Through:
    """``trap TEXT SIGNAL`` and ``alias NAME=TEXT``: TEXT runs later."""
    texts = [argv[1]] if argv[0] == "trap" else [word.partition("=")[2] for word in argv[1:]]
    return _texts(texts, parse, f"{argv[0]} runs a command later")


def _find(name: str, argv: Words) -> Through:
    options = _FIND_EXEC if name == "find" else words("-x -X --exec --exec-batch")
    argvs: list[Words] = []
    index = 1
    while index < len(argv):
        if argv[index] in options:
            end = next((at for at in range(index + 1, len(argv)) if argv[at] in {";", "+"}), len(argv))
            if argv[index + 1 : end]:
                argvs.append(argv[index + 1 : end])
            index = end
        index += 1
    return Through(argvs=tuple(argvs), reasons=(f"{name} runs a command for each file",) if argvs else ())


def _git_alias(argv: Words, parse: ParseText) -> Through:
    """``git -c alias.x='!CMD'`` and ``git config alias.x '!CMD'``."""
    texts = [word.partition("=!")[2] for word in argv if "=!" in word]
    texts += [word[1:] for word in argv if word.startswith("!") and len(word) > 1]
    if "foreach" in argv[1:3] or argv[1:3] == ("bisect", "run"):
        texts.append(" ".join(argv[3:]))
    texts += [
        argv[at + 1] for at in range(len(argv) - 1) if argv[1] == "rebase" and argv[at] in {"-x", "--exec"}
    ]
    return _texts(texts, parse, "git runs a command")


@dataclass(slots=True)
class _Options:
    rest: Words = ()
    text: str | None = None
    unknown: bool = False
    assigned: bool = False
    seen: list[str] = field(default_factory=list[str])


def _own_words(name: str, wrapper: _Wrapper, argv: Words) -> _Options:
    """Tell the wrapper's own options and operands from the command's argv."""
    result = _Options()
    index, operands = 0, wrapper.operands
    while index < len(argv):
        word = argv[index]
        option, equals, value = word.partition("=")
        if word == "--":
            index += 1
            break
        if name == "env" and (option in {"--split-string"} or re.match(r"-[i0v]*S", word)):
            text = value if option == "--split-string" else re.sub(r"^-[i0v]*S", "", word)
            result.text = " ".join([text, *argv[index + 1 :]])
            return result
        if name in {"env", "sudo", "doas"} and _ASSIGNMENT.match(word):
            result.assigned = True
        elif not word.startswith("-") or (word == "-" and word not in wrapper.flags):
            if not operands:
                break
            operands -= 1
        elif word in wrapper.valued:
            result.seen.append(word)
            index += 1
        elif (equals and option in wrapper.valued) or word in wrapper.flags or _attached(name, word, wrapper):
            result.seen.append(option)
        else:
            result.unknown = True
            return result
        index += 1
    if operands and index < len(argv):
        index += operands
    while name == "env" and index < len(argv) and _ASSIGNMENT.match(argv[index]):
        result.assigned, index = True, index + 1
    result.rest = argv[index:]
    return result


def _attached(name: str, word: str, wrapper: _Wrapper) -> bool:
    """``-n5``, ``nice -5``, ``-oL``: a short option with its value in the same word."""
    if name == "nice" and re.fullmatch(r"--?\d+", word):
        return True
    if not word.startswith("--") and len(word) > 2:
        return word[:2] in wrapper.valued or all(f"-{char}" in wrapper.flags for char in word[1:])
    return False


def _wrapper(name: str, argv: Words, parse: ParseText) -> Through:
    wrapper = _WRAPPERS[name]
    own = _own_words(name, wrapper, argv[1:])
    if own.text is not None:
        return _text(own.text, parse, "env -S splits a text into a command")
    if name == "command" and argv[1] in {"-v", "-V"}:
        return Through()
    if own.unknown:
        return _every_suffix(argv, f"an option of {name} is not known")
    if not own.rest:
        return Through()
    reasons: list[str] = []
    if own.assigned:
        reasons.append("an assignment changes how the command runs")
    if not wrapper.transparent and not (name in {"env", "xargs"} and not own.seen and not own.assigned):
        reasons.append(f"{name} changes how the command runs")
    if wrapper.joined:
        found = _text(" ".join(own.rest), parse, reasons[0])
        return Through((own.rest,), found.commands, False, (*reasons, *found.reasons), found.redirections)
    # xargs appends words from its input: whatever it runs is more than what stands here.
    return Through((own.rest,), (), not reasons and name != "xargs", tuple(reasons))


def _every_suffix(argv: Words, reason: str) -> Through:
    """Take every word for the start of a command: for deny rules and hard stops only."""
    starts = [at for at in range(1, len(argv)) if not argv[at].startswith("-")]
    if len(starts) > 200:
        return Through(reasons=(TOO_DEEP,))
    return Through(tuple(argv[at:] for at in starts), (), False, (reason,))


def _runner(name: str, argv: Words) -> Through:
    """``uv run CMD``, ``docker exec BOX CMD``: known to run something, never judged by it."""
    verbs = _RUNNERS[name]
    at = 1
    if verbs:
        at = next((index for index in range(1, min(len(argv), 6)) if argv[index] in verbs), 0) + 1
        if at == 1:
            return Through()
    rest = [index for index in range(at, min(len(argv), at + 8)) if not argv[index].startswith("-")]
    return Through(tuple(argv[index:] for index in rest[:3]), (), False, ())
