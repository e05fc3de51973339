"""Which shell commands talk to other hosts, as far as their words tell. A wall decides; this only marks."""

from __future__ import annotations

import re

from aar.safety.shell_grammar import parse_command
from aar.safety.shell_hard_stops import git_words
from aar.safety.shell_types import SimpleCommand, words

_PROGRAMS = words(
    "curl wget http https xh aria2c lynx w3m links elinks ssh scp sftp rsync ftp tftp telnet nc ncat"
    " netcat socat openssl dig nslookup host ping traceroute whois gh glab hub aws gcloud az kubectl"
    " helm terraform docker podman mail sendmail mutt smbclient psql mysql redis-cli mongosh gsutil"
    " s3cmd rclone npx bunx uvx pipx flyctl heroku vercel netlify wrangler twine"
)
_VERBS = {
    "git": words("push pull fetch clone ls-remote submodule remote send-email lfs"),
    "pip": words("install download wheel index search"),
    "pip3": words("install download wheel index search"),
    "uv": words("sync add pip publish tool lock run"),
    "poetry": words("install add update publish lock"),
    "npm": words("install i ci add update publish exec login audit"),
    "pnpm": words("install i add update publish dlx"),
    "yarn": words("install add up publish dlx"),
    "bun": words("install add x publish"),
    "cargo": words("install publish fetch update add login"),
    "go": words("get install mod"),
    "gem": words("install push update"),
    "bundle": words("install update"),
    "composer": words("install require update"),
    "apt": words("install update upgrade"),
    "apt-get": words("install update upgrade"),
    "brew": words("install update upgrade"),
    "conda": words("install update create"),
}
_INTERPRETER = re.compile(r"(python|pypy|node|deno|ruby|perl|php|lua)[\d.]*")


def reaches_network(command: str) -> bool:
    """Tell whether a part of ``command`` names a program that talks to hosts, or holds code of its own."""
    shell = parse_command(command)
    if shell.broken or shell.too_large or "/dev/tcp/" in command or "/dev/udp/" in command:
        return True
    return any(_reaches(part) for part in shell.walk())


def _reaches(part: SimpleCommand) -> bool:
    if not part.name_static or part.name in _PROGRAMS:
        return True
    verbs = _VERBS.get(part.name)
    if verbs is not None:
        rest = git_words(part.argv)[1] if part.name == "git" else part.argv[1:]
        return any(word in verbs for word in rest[:3])
    if _INTERPRETER.fullmatch(part.name):
        if part.argv[1:3] in {("-m", "pip"), ("-m", "http.client")}:
            return True
        return any(re.fullmatch(r"-[a-zA-Z]{0,2}[cerE]|--eval", word) for word in part.argv[1:])
    return False
