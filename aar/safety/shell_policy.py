"""Judges shell commands, part by part, for `SafetyPolicy`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aar.safety.policy_types import CommandDecision, Decision, Verdict, strictest
from aar.safety.rule_proposals import propose_rule
from aar.safety.rules import Rule
from aar.safety.shell_grammar import parse_command
from aar.safety.shell_hard_stops import Places, git_words, hard_stop, normal, redirect_stop
from aar.safety.shell_readonly import (
    builds_or_tests,
    may_name_secret,
    operands,
    read_only,
    reads_everything,
    shows_content,
)
from aar.safety.shell_types import Redirection, ShellCommand, SimpleCommand, words
from aar.safety.shell_written import written_operands

if TYPE_CHECKING:
    from aar.safety.policy import SafetyPolicy

_RAISES_RIGHTS = words("sudo doas su pkexec runuser nsenter chroot run0 machinectl")
_OPEN_TO_READ = tuple(Path(root) for root in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt"))
_PLAIN_FACTS = re.compile(
    r"/(proc/(cpuinfo|meminfo|version|loadavg|uptime|stat|filesystems)|etc/(os-release|debian_version|hostname|hosts"
    r"|timezone|issue|shells|lsb-release)|dev/null)"
)
_SCRATCH = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - places are judged, nothing is made there
_MAX_PLACES = 16


class ShellJudge:
    """Judges one command line, which runs in ``folder``."""

    def __init__(self, policy: SafetyPolicy, *, enforced: bool, folder: Path) -> None:
        self.policy = policy
        self.enforced = enforced
        self.places = Places(policy.workspace, normal(Path.home()), cwds=(folder,))
        self._unlocks: dict[Path, None] = {}

    def decide(self, text: str) -> Decision:
        """Return the decision for a command line: that of its strictest part."""
        shell = parse_command(text)
        verdicts: list[Verdict] = [*self._whole(shell)]
        decided: list[tuple[SimpleCommand, Verdict]] = []
        for part in sorted((*shell.commands, *shell.redirections), key=lambda item: item.start):
            if isinstance(part, Redirection):
                verdicts.append(self.policy.final(self._redirection(part)))
                continue
            verdict = self.policy.final(self._command(part))
            decided.append((part, verdict))
            self._follow_cd(part)
        overall = strictest([*verdicts, *(verdict for _, verdict in decided)])
        return Decision(
            overall.decision,
            overall.rule,
            overall.reasons,
            tuple(CommandDecision(part.argv, verdict.decision, verdict.reasons) for part, verdict in decided),
            self._proposal(shell, decided, overall),
            overall.hard_stop,
            overall.by,
            tuple(self._unlocks) if overall.decision == "ask" else (),
            overall.decision == "allow" and not self._lets_anything_run(shell),
        )

    def _lets_anything_run(self, shell: ShellCommand) -> bool:
        """Whether any other command, or code of the project, would run without a question too."""
        if self.policy.table("command" if self.enforced else "leaves").decision == "allow":
            return True
        if not self.enforced or self.policy.table("build").decision != "allow":
            return False
        return any(builds_or_tests(part) for part in shell.walk())

    def _whole(self, shell: ShellCommand) -> list[Verdict]:
        """What is said about the line as a whole: syntax that hides what runs is never plainly allowed."""
        found: list[Verdict] = []
        for kind in ("deny", "ask"):
            match = self.policy.matching(kind, lambda rule: rule.matches_tool("bash"))
            if match:
                found.append(
                    self.policy.final(Verdict(kind, (f"rule {match[1].text}",), match[1], by="policy"))
                )
        if shell.too_large:
            found.append(
                Verdict("deny", ("the command is too large to judge every part; split it",), by="policy")
            )
        if shell.broken:
            broken = "the command cannot be read as shell syntax"
            found.append(
                self.policy.final(Verdict("deny" if self.policy.mode == "plan" else "ask", (broken,)))
            )
        elif shell.syntax and self.policy.mode not in {"auto", "unsafe"}:
            found.append(self.policy.table("command", *shell.syntax))
        return found

    # --- one command ---------------------------------------------------------------------------------------

    def _command(self, command: SimpleCommand) -> Verdict:
        strict = [*self._rules("deny", command), *self._stops(command), *self._rules("ask", command)]
        strict.extend(self._secrets(part) for part in command.walk() if read_only(part))
        for part in command.walk():
            strict.extend(self._redirection(item) for item in part.redirections)
            strict.extend(self._written(part))
        strict.append(self._mode_or_allow(command))
        return strictest(strict)

    def _rules(self, kind: Literal["deny", "ask"], command: SimpleCommand) -> list[Verdict]:
        """Deny and ask rules see every part, under every name that it may go by."""
        for part in command.walk():
            forms = _forms(part)
            found = self.policy.matching(kind, partial(_covers, forms))
            if found:
                return [Verdict(kind, (f"rule {found[1].text}",), found[1], by="policy")]
        return []

    def _stops(self, command: SimpleCommand) -> list[Verdict]:
        for part in command.walk():
            why = hard_stop(part, self.places)
            if why:
                return [self.policy.table("hard", f"hard stop: {why}")]
        return []

    def _secrets(self, command: SimpleCommand) -> Verdict:
        if not shows_content(command):
            return Verdict("allow")
        for word in operands(command):
            for path in self.places.candidates(word):
                verdict = self.policy.path("read", path)
                if verdict.by == "policy" and verdict.decision != "allow":
                    return verdict
        return Verdict("allow")

    def _written(self, command: SimpleCommand) -> list[Verdict]:
        """Heed the user's rules, and ask about protected paths where the wall would stop the command."""
        found: list[Verdict] = []
        for word in written_operands(command):
            for path in self.places.candidates(word):
                by_wall = self.policy.protected(path, by_wall=True)
                verdict = self.policy.path("write", path)
                if by_wall:
                    self._unlocks[path] = None
                if by_wall or (verdict.rule is not None and verdict.decision != "allow"):
                    found.append(verdict)
        return found

    def _mode_or_allow(self, command: SimpleCommand) -> Verdict:
        if self.policy.mode != "plan":
            found = self.policy.matching("allow", partial(_may_allow, command))
            if found:
                return Verdict("allow", (), found[1], by="policy")
        if command.transparent and command.inner:
            return strictest(self._mode_or_allow(part) for part in command.inner)
        if command.reasons or not command.static:
            return self._not_plain(command)
        if read_only(command) and not command.inner:
            return self._reading(command)
        if any(part.name in _RAISES_RIGHTS for part in command.walk()):
            return self.policy.table("leaves", f"{command.name} takes other rights")
        if not self.enforced:
            return self.policy.table("leaves", f"{command.argv[0]} would run without a wall")
        if builds_or_tests(command):
            return self.policy.table("build", f"{command.name} runs code of the project")
        return self.policy.table("command", f"{command.argv[0]} is not plainly read-only")

    def _not_plain(self, command: SimpleCommand) -> Verdict:
        reasons = command.reasons or ("a word is not known before it runs",)
        raises = any(part.name in _RAISES_RIGHTS for part in command.walk())
        hidden = any(not part.name_static for part in command.walk()) or (
            command.name == "eval" and not command.static
        )
        if raises or hidden or not self.enforced:
            return self.policy.table("leaves", *reasons)
        return self.policy.table("command", *reasons)

    def _reading(self, command: SimpleCommand) -> Verdict:
        """A reader is plain inside the workspace; elsewhere it leaves, unless auto's wall holds."""
        reason = self._reads_elsewhere(command)
        if reason is None or (self.policy.mode == "auto" and self.enforced):
            return self.policy.table("read")
        return self.policy.table("leaves", reason)

    def _reads_elsewhere(self, command: SimpleCommand) -> str | None:
        if command.name == "cd":
            return None
        if self.places.unknown or not all(self._open(cwd) for cwd in self.places.cwds):
            return f"{command.argv[0]} runs outside of the workspace"
        if reads_everything(command) and not self.enforced:
            return f"{command.argv[0]} reads hidden files too, and there is no wall"
        globs = [command.argv[index] for index in command.globs]
        if shows_content(command) and any(may_name_secret(word) for word in globs):
            return "the pattern may name a file that holds secrets"
        for word in operands(command):
            outside = next((path for path in self.places.candidates(word) if not self._open(path)), None)
            if outside is not None:
                return f"{word} is outside of the workspace"
        return None

    def _open(self, path: Path) -> bool:
        if self.policy.inside(path) or _PLAIN_FACTS.fullmatch(str(path)):
            return True
        return any(path.is_relative_to(root) for root in _OPEN_TO_READ)

    # --- redirections and folders --------------------------------------------------------------------------

    def _redirection(self, item: Redirection) -> Verdict:
        if item.duplicates or not (item.writes or item.reads):
            return Verdict("allow")
        why = redirect_stop(item, self.places)
        if why:
            return self.policy.table("hard", f"hard stop: {why}")
        if not item.static:
            return self.policy.table(
                "command" if self.enforced else "leaves", "a redirection to a name not known"
            )
        if item.target.startswith(("/dev/tcp/", "/dev/udp/")):
            return self.policy.table("leaves", f"{item.target} is a network connection")
        if re.fullmatch(r"/dev/(null|stdout|stderr|stdin|tty|fd/\d+|zero|u?random)", item.target):
            return Verdict("allow")
        return strictest(self._redirect_path(item, path) for path in self.places.candidates(item.target))

    def _redirect_path(self, item: Redirection, path: Path) -> Verdict:
        if item.writes and self.policy.protected(path):
            self._unlocks[path] = None
        if item.writes and self.enforced and any(path.is_relative_to(root) for root in _SCRATCH):
            found = self.policy.path("write", path)
            return found if found.by == "policy" else self.policy.table("edit", f"writes {path}")
        verdict = self.policy.path("write" if item.writes else "read", path)
        if item.reads and self.policy.mode == "auto" and self.enforced and verdict.by == "mode":
            return Verdict("allow")
        if verdict.decision != "allow" and not verdict.reasons:
            return Verdict(
                verdict.decision, (f"writes {self.policy.shown(path)}",), verdict.rule, by=verdict.by
            )
        return verdict

    def _follow_cd(self, command: SimpleCommand) -> None:
        """After ``cd`` words mean other places. It may fail, so the old ones stay unless ``&&`` follows."""
        for part in command.walk():
            if part.name not in {"cd", "pushd", "popd"}:
                continue
            target = part.argv[1] if len(part.argv) > 1 else "~"
            if part.argv[1:2] == ("--",):
                target = part.argv[2] if len(part.argv) > 2 else "~"
            if part.name == "popd" or not part.static or target.startswith("-") or part.globs:
                self.places.unknown = True
                continue
            fresh = tuple(self.places.candidates(target))
            kept = () if part.then == "&&" else self.places.cwds
            self.places.cwds = tuple(dict.fromkeys((*fresh, *kept)))
            if len(self.places.cwds) > _MAX_PLACES:
                self.places.unknown, self.places.cwds = True, self.places.cwds[:_MAX_PLACES]

    def _proposal(
        self, shell: ShellCommand, decided: list[tuple[SimpleCommand, Verdict]], overall: Verdict
    ) -> str | None:
        if overall.decision != "ask" or overall.hard_stop or overall.rule is not None or shell.syntax:
            return None
        if self._unlocks:
            return None
        asked = [part for part, verdict in decided if verdict.decision == "ask"]
        if len(asked) != 1 or not asked[0].static:
            return None
        command = asked[0]
        while command.transparent and len(command.inner) == 1:
            command = command.inner[0]
        return None if command.reasons or command.inner else propose_rule(command.argv)


def _forms(part: SimpleCommand) -> tuple[str, ...]:
    """``/bin/rm`` is ``rm``, and ``git -C x push`` is ``git push``, for rules that tighten."""
    forms = [part.text, " ".join((part.name, *part.argv[1:]))]
    if part.name == "git":
        forms.append(" ".join(("git", *git_words(part.argv)[1])))
    return tuple(dict.fromkeys(forms))


def _covers(forms: tuple[str, ...], rule: Rule) -> bool:
    return any(rule.matches_command(form) for form in forms)


def _may_allow(command: SimpleCommand, rule: Rule) -> bool:
    """A rule allows known words; a command that starts others must be named word for word."""
    if not command.static or not command.argv or re.search(r"\s", command.argv[0]):
        return False
    if not rule.matches_command(command.text):
        return False
    return rule.exact or rule.kind == "tool" or not (command.reasons or command.inner)
