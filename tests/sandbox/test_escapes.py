"""Escapes, each tried by a real process behind each wall (SECURITY T4, T14, T15, T18, T25, T27, U6, U8, U9).

An attempt prints ESCAPED when it got its way; besides, everything outside is looked at afterwards. What a wall
does not cover is named in its gaps, and here: then the gap must be told.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from aar.safety.sandbox.masks import is_mask
from tests.sandbox.conftest import SECRET, Stage

# name: (attack of SECURITY.md, code)
OUTSIDE = {
    "write": ("U8", "open(out + '/file', 'w').write('x')"),
    "append": ("U8", "open(out + '/file', 'a').write('x')"),
    "truncate by name": ("U8", "os.truncate(out + '/file', 0)"),
    "truncate on opening": ("U8", "os.open(out + '/file', os.O_RDONLY | os.O_TRUNC)"),
    "create": ("U8", "open(out + '/new', 'x')"),
    "nameless file linked in": (
        "U8",
        "fd = os.open(work, os.O_TMPFILE | os.O_RDWR)\n"
        "os.link(f'/proc/self/fd/{fd}', out + '/new', follow_symlinks=True)",
    ),
    "remove": ("U8", "os.unlink(out + '/file')"),
    "remove a folder": ("U8", "os.rmdir(out + '/empty')"),
    "make a folder": ("U8", "os.mkdir(out + '/new')"),
    "rename": ("U8", "os.rename(out + '/file', out + '/other')"),
    "rename of the workspace's parent": ("U8", "os.rename(home, home + '2'); escaped()"),
    "rename of the workspace": ("U8", "os.rename(work, work + '2'); escaped()"),
    "exchange": (
        "U8",
        "open('scratch', 'w'); escaped(libc.renameat2(-100, b'scratch', -100, (out + '/file').encode(), 2) == 0)",
    ),
    "move out": ("U8", "open('scratch', 'w'); os.rename('scratch', out + '/file')"),
    "move in": ("U8", "os.rename(out + '/file', 'scratch-stolen')"),
    "hard link in": ("T15", "os.link(out + '/file', 'scratch-link'); open('scratch-link', 'w').write('x')"),
    "hard link out": ("T15", "open('scratch', 'w'); os.link('scratch', out + '/link')"),
    "symlink out": ("T15", "os.symlink('/etc', out + '/link')"),
    "through a symlink": ("T15", "os.symlink(out + '/file', 'scratch-a'); open('scratch-a', 'w').write('x')"),
    "through a symlinked folder": ("T15", "os.symlink(out, 'scratch-b'); open('scratch-b/new', 'w')"),
    "through dots": ("T15", "open('../outside/file', 'w').write('x')"),
    "through /proc/self/root": ("U9", "open('/proc/self/root' + out + '/file', 'w').write('x')"),
    "through /proc/1/root": ("U9", "open('/proc/1/root' + out + '/file', 'w').write('x')"),
    "through the root of aar": ("U9", "open(f'/proc/{aar}/root{out}/file', 'w').write('x')"),
    "through the working folder of aar": ("U9", "open(f'/proc/{aar}/cwd/x', 'w'); escaped()"),
    "memory map of a read-only file": (
        "U8",
        "import mmap; f = open(out + '/file', 'rb')\n"
        "m = mmap.mmap(f.fileno(), 4, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE); m[0] = 88",
    ),
    "pipe, socket, device": (
        "U8",
        "for make in (lambda: os.mkfifo(out + '/p'), lambda: socket.socket(1).bind(out + '/s'), "
        "lambda: os.mknod(out + '/d', 0o600 | 0o020000, 259)):\n"
        "    try: make()\n    except OSError: pass\n    else: escaped()",
    ),
    "mount over": ("U8", "escaped(libc.mount(b'none', out.encode(), b'tmpfs', 0, 0) == 0)"),
    "remount read-write": ("U8", "escaped(libc.mount(b'none', b'/', b'', 32 | 4096, 0) == 0)"),
    "unmount": ("U8", "escaped(libc.umount2(b'/proc', 2) == 0)"),
    "new mount interface": (
        "U8",
        "escaped(any(libc.syscall(n, -100, b'/', 0) >= 0 for n in (428, 430, 432, 433)))",
    ),
    "user namespace": ("U8", "escaped(libc.unshare(0x10000000) == 0)"),
    "mount namespace": ("U8", "escaped(libc.unshare(0x00020000) == 0)"),
    "namespace by clone": ("U8", "escaped(libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0) > 0)"),
    "namespace by clone3": ("U8", "escaped(libc.syscall(435, b'\\0' * 64, 64) >= 0)"),
    "enter the namespace of aar": (
        "U8",
        "escaped(libc.setns(os.open(f'/proc/{aar}/ns/mnt', os.O_RDONLY), 0) == 0)",
    ),
    "chroot": ("U8", "os.chroot(out); escaped()"),
    "open by handle": ("U8", "escaped(libc.syscall(304, -100, b'\\0' * 64, 0) >= 0)"),
    "become root": ("U8", "os.setuid(0 if os.getuid() else 1); escaped()"),
    "capabilities": (
        "U8",
        "escaped(any(l.split()[1] != '0' * 16 for l in open('/proc/self/status') if l[:6] in ('CapEff', 'CapPrm')))",
    ),
    "set-uid program": (
        "U8",
        "import shutil; shutil.copy('/bin/true', 'scratch-s'); os.chmod('scratch-s', 0o6755)\n"
        "escaped('NoNewPrivs:\\t0' in open('/proc/self/status').read())",
    ),
}

PROCESSES = {
    "ptrace": ("T18", "escaped(libc.ptrace(16, victim, 0, 0) == 0)"),
    "memory of another": ("T18", "open(f'/proc/{victim}/mem', 'rb').read(1); escaped()"),
    "process_vm_readv": ("T18", "escaped(libc.syscall(310, victim, b'\\0' * 16, 1, b'\\0' * 16, 1, 0) >= 0)"),
    "environment of another": ("U9", f"escaped({SECRET!r} in open(f'/proc/{{victim}}/environ').read())"),
    "environment of aar": ("U9", "escaped(open(f'/proc/{aar}/environ').read() != '')"),
    "descriptor of another": ("T18", "escaped(libc.syscall(438, libc.syscall(434, victim, 0), 0, 0) >= 0)"),
    "kill": ("U8", "os.kill(victim, 9); escaped()"),
    "kill everything": ("U8", "os.kill(-1, 0) if libc.prctl(36) else None; os.kill(victim, 15); escaped()"),
    "kill aar": ("U8", "os.kill(aar, 0); escaped()"),
    "io_uring": ("U8", "escaped(libc.syscall(425, 8, b'\\0' * 120) >= 0)"),
    "keyctl": (
        "U8",
        "escaped(libc.syscall(250, 0, -3, 0) >= 0 or libc.syscall(248, b'user', b'a', b'b', 1, -3) >= 0)",
    ),
    "bpf": ("U8", "escaped(libc.syscall(321, 0, b'\\0' * 72, 72) >= 0)"),
    "perf events": ("U8", "escaped(libc.syscall(298, b'\\0' * 128, 0, -1, -1, 0) >= 0)"),
    "typing into the terminal": (
        "U8",
        "import fcntl\nfor name in ('/dev/tty', '/dev/pts/0'):\n"
        "    try: fcntl.ioctl(os.open(name, os.O_RDWR), 0x5412, b'x'); escaped()\n    except OSError: pass",
    ),
    "typing with high bits in the request": (
        "U8",
        "master, slave = os.openpty(); os.setsid() if os.getpid() != os.getsid(0) else None\n"
        "escaped(libc.syscall(16, slave, ctypes.c_ulong(0x1_0000_5412), b'x') == 0)",
    ),
    "kernel settings": (
        "U8",
        "name = '/proc/sys/kernel/core_pattern'; old = open(name).read(); open(name, 'w').write(old); escaped()",
    ),
    "system request": ("U8", "os.open('/proc/sysrq-trigger', os.O_WRONLY); escaped()"),
    "control groups": ("U8", "os.mkdir('/sys/fs/cgroup/pids/scratch'); escaped()"),
    "disk device": (
        "U8",
        "for n in os.listdir('/dev'):\n    if n[:2] in ('vd', 'sd', 'nv'):\n        os.open('/dev/' + n, os.O_RDONLY); escaped()",
    ),
    "host name": ("U8", "escaped(libc.sethostname(b'x', 1) == 0)"),
    "clock": ("U8", "time.clock_settime(time.CLOCK_REALTIME, time.time()); escaped()"),
}

NETWORK = {
    "TCP to a server of the user": ("T14", "socket.create_connection(('127.0.0.1', port), 1); escaped()"),
    "TCP over IPv6": ("T14", "socket.create_connection(('::1', port), 1); escaped()"),
    "TCP to a host": ("T14", "socket.create_connection(('192.0.2.1', 80), 1); escaped()"),
    "UDP": ("T14", "s = socket.socket(2, 2); s.sendto(b'x', ('192.0.2.1', 53)); escaped()"),
    "DNS": ("T14", "socket.getaddrinfo('example.org', 80); escaped()"),
    "DNS by hand": ("T14", "s = socket.socket(2, 2); s.connect(('1.1.1.1', 53)); s.send(b'x'); escaped()"),
    "raw socket": ("T14", "socket.socket(2, 3, 1); escaped()"),
    "packet socket": ("T14", "socket.socket(17, 3, 0x300); escaped()"),
    "virtual machine socket": ("T14", "socket.socket(40, 1); escaped()"),
    "ping socket": (
        "T14",
        "s = socket.socket(2, 2, 1); s.connect(('192.0.2.1', 0)); s.send(b'x'); escaped()",
    ),
    "abstract socket": ("T14", "socket.socket(1).connect('\\0aar-canary-' + str(aar)); escaped()"),
    "service in /run": (
        "T14",
        "for name in ('/run/docker.sock', '/var/run/docker.sock', '/run/dbus/system_bus_socket'):\n"
        "    try: socket.socket(1).connect(name); escaped()\n    except OSError: pass",
    ),
    "new interface": (
        "T14",
        "import fcntl, struct; s = socket.socket(2, 2)\n"
        "fcntl.ioctl(s, 0x8914, struct.pack('16sH22x', b'eth0', 1)); escaped()",
    ),
}

SECRETS = {
    "private key": ("U9", "open(home + '/.ssh/id_rsa').read()"),
    "cloud keys": ("U9", "open(home + '/.aws/credentials').read()"),
    "file in the home": ("U9", "open(home + '/.netrc').read()"),
    "aar's own config": ("U9", "open(home + '/aar/config.toml').read()"),
    "through a symlink": (
        "T15",
        "os.symlink(home + '/.ssh', 'scratch-ssh'); open('scratch-ssh/id_rsa').read()",
    ),
    "hard link": ("T15", "os.link(home + '/.netrc', 'scratch-netrc'); open('scratch-netrc').read()"),
    "moved away": (
        "T15",
        "os.rename(home + '/.ssh', work + '/scratch-moved'); open('scratch-moved/id_rsa').read()",
    ),
    "with other rights": ("U9", "os.chmod(home + '/.ssh/id_rsa', 0o777); open(home + '/.ssh/id_rsa').read()"),
    "through /proc/self/root": ("U9", "open('/proc/self/root' + home + '/.ssh/id_rsa').read()"),
    "passwords": ("U9", "open('/etc/shadow').read() and escaped()"),
}

# What may not be there, or not be changed, afterwards; for each some ways to try it.
PROTECTED = {
    "absent file": ("T4", "open('AGENTS.md', 'w').write('obey')", "AGENTS.md"),
    "absent file in its folder": ("T4", "os.makedirs('.vscode'); open('.vscode/tasks.json', 'w').write('{}')", ".vscode/tasks.json"),
    "absent folder": ("T4", "os.makedirs('.aar'); open('.aar/config.toml', 'w').write('x')", ".aar/config.toml"),
    "absent folder in a folder": ("T4", "os.makedirs('.github/workflows'); open('.github/workflows/ci.yml', 'w').write('x')", ".github/workflows/ci.yml"),
    "by renaming a folder into place": ("T4", "os.mkdir('scratch1'); open('scratch1/config.toml', 'w'); os.rename('scratch1', '.claude')", ".claude/config.toml"),
    "by symlink": ("T4", "os.symlink('scratch2', '.envrc'); open('scratch2', 'w').write('x')", ".envrc"),
    "after removing the mask": ("T4", "os.path.isdir('.codex') and os.rmdir('.codex'); os.mkdir('.codex'); open('.codex/hooks', 'w').write('x')", ".codex/hooks"),
    "after renaming the parent": ("T4", "os.rename('.github', 'scratch-gh'); os.makedirs('.github/workflows'); open('.github/workflows/x.yml', 'w').write('x')", ".github/workflows/x.yml"),
    "git hook": ("T27", "os.makedirs('.git/hooks', exist_ok=True); open('.git/hooks/pre-commit', 'w').write('#!/bin/sh')", ".git/hooks/pre-commit"),
    "git hook after renaming .git": ("T27", "os.rename('.git', 'scratch-git'); os.makedirs('.git/hooks'); open('.git/hooks/post-commit', 'w').write('x')", ".git/hooks/post-commit"),
    "git config": ("T27", "open('.git/config', 'a').write('[core]\\n\\tfsmonitor = /tmp/x\\n')", None),
    "git config through git": ("T27", "subprocess.run(['git', 'config', 'core.hooksPath', '/tmp/x'], capture_output=True)", None),
    "git config by rename": ("T27", "open('scratch3', 'w').write('[core]\\n\\tpager = x\\n'); os.rename('scratch3', '.git/config')", None),
    "shared git folder": ("T27", "open('.git/commondir', 'w').write('/tmp/x')", ".git/commondir"),
    "file of a shell": ("T25", "open('.bashrc', 'a').write('evil')", ".bashrc"),
    "existing hook of a tool": ("T27", "open('.husky/pre-commit', 'w').write('evil')", None),
    "existing folder removed": ("T27", "import shutil; shutil.rmtree('.husky')", None),
}  # fmt: skip

GAPS = {
    "landlock": {
        "chmod": "os.chmod(out + '/file', 0o777); escaped()",
        "time stamps": "os.utime(out + '/file', (1, 1)); escaped()",
        "extended attributes": "os.setxattr(out + '/file', 'user.x', b'y'); escaped()",
        "secret in the workspace": f"escaped({SECRET!r} in open('.env').read())",
    }
}


def test_the_table_is_long_enough() -> None:
    assert sum(map(len, (OUTSIDE, PROCESSES, NETWORK, SECRETS, PROTECTED))) >= 90


@pytest.mark.parametrize("name", OUTSIDE)
async def test_nothing_outside_changes(stage: Stage, name: str) -> None:
    before = stage.picture()
    result = await stage.attack(OUTSIDE[name][1])
    assert stage.picture() == before
    assert b"ESCAPED" not in result.output
    assert stage.workspace.is_dir()


@pytest.mark.parametrize("name", PROCESSES)
async def test_other_processes_and_the_kernel_are_left_alone(stage: Stage, name: str) -> None:
    result = await stage.attack(PROCESSES[name][1])
    assert b"ESCAPED" not in result.output
    assert stage.victim.poll() is None


@pytest.mark.parametrize("name", NETWORK)
async def test_no_way_into_the_network(stage: Stage, name: str) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0aar-canary-{os.getpid()}")
        abstract.listen()
        result = await stage.attack(NETWORK[name][1])
    assert b"ESCAPED" not in result.output
    with pytest.raises(BlockingIOError):
        stage.server.accept()


@pytest.mark.parametrize("name", SECRETS)
async def test_secrets_are_not_read(stage: Stage, name: str) -> None:
    code = SECRETS[name][1].replace("open(", "text = open(", 1) if name != "passwords" else SECRETS[name][1]
    result = await stage.attack(f"print({code})" if ";" not in code else code + "; print(text)")
    assert SECRET.encode() not in result.output
    assert b"ESCAPED" not in result.output
    assert result.exit_code != 0
    assert (stage.home / ".ssh/id_rsa").read_text() == SECRET


@pytest.mark.parametrize("name", PROTECTED)
async def test_protected_paths_stay_as_they_are(stage: Stage, name: str) -> None:
    config = (stage.workspace / ".git/config").read_bytes()
    _, code, path = PROTECTED[name]
    result = await stage.attack(code)
    assert path is None or not os.path.lexists(stage.workspace / path), result.output
    assert (stage.workspace / ".git/config").read_bytes() == config
    assert (stage.workspace / ".husky/pre-commit").read_text() == "true\n"
    if (moved := stage.workspace / "scratch-git").exists():
        shutil.rmtree(stage.workspace / ".git")
        moved.rename(stage.workspace / ".git")
    prevented = stage.spawner.wall != "landlock" and (name.startswith(("git", "existing", "after renaming")))
    if not prevented and name != "shared git folder":
        assert result.notices
        assert b"[aar: " in result.output
    present = {entry.name for entry in stage.workspace.iterdir()}
    assert not present & {"AGENTS.md", ".claude", ".envrc", ".codex", ".aar", ".bashrc"}


@pytest.mark.parametrize("name", [name for name in PROTECTED if "git" not in name and "shell" not in name])
async def test_protected_paths_are_never_made_by_a_command_without_a_time_limit(
    stage: Stage, name: str
) -> None:
    _, code, path = PROTECTED[name]
    shutil.rmtree(stage.workspace / ".vscode", ignore_errors=True)
    watch = f"\nprint('ESCAPED' if {path!r} and os.path.lexists({path!r}) and not os.path.isdir({path!r}) else '')"
    result = await stage.attack(f"try:\n    {code}\nexcept OSError: pass{watch}", timeout_s=None)
    # The other wall can only undo it.
    assert b"ESCAPED" not in result.output or stage.spawner.wall == "landlock"
    assert path is None or not os.path.lexists(stage.workspace / path)
    assert (stage.workspace / ".husky/pre-commit").read_text() == "true\n"
    assert not any(is_mask(entry) for entry in stage.workspace.iterdir())


async def test_a_listing_shows_no_folders_that_are_not_the_users(stage: Stage) -> None:
    before = {entry.name for entry in stage.workspace.iterdir()}
    result = await stage.shell("ls -A1", timeout_s=10)
    assert set(result.output.decode().split()) == before


@pytest.mark.parametrize("name", ["chmod", "time stamps", "extended attributes", "secret in the workspace"])
async def test_what_only_some_walls_hold_is_told_by_the_others(stage: Stage, name: str) -> None:
    code = GAPS["landlock"][name]
    before = stage.picture()
    result = await stage.attack(code)
    if stage.spawner.wall in GAPS:
        gaps = " ".join(stage.spawner.status().gaps)
        assert {"chmod": "chmod", "secret in the workspace": ".env"}.get(name, name) in gaps
        (stage.outside / "file").chmod(0o644)
    else:
        assert b"ESCAPED" not in result.output
        assert stage.picture() == before


async def test_survivors_of_setsid_die_with_the_command(stage: Stage) -> None:
    mark = f"31{os.getpid() % 1000:03}"
    result = await stage.attack(
        f"""
        for _ in range(3):
            subprocess.Popen(["sh", "-c", "trap '' TERM HUP; setsid sleep {mark} & sleep {mark}"], start_new_session=True)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep({mark})
        print("started", flush=True)
        os._exit(0)
        """
    )
    assert b"started" in result.output
    assert survivors(mark) == []


def survivors(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "cmdline").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return [pid for pid in found if pid != str(os.getpid())]


async def test_a_fork_bomb_ends(stage: Stage) -> None:
    mark = f"bomb-mark-{os.getpid()}"  # other workers have bombs of their own
    result = await stage.attack(
        f"mark = {mark!r}\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(1)",
        timeout_s=2,
    )
    assert result.duration_s < 60
    assert survivors(mark) == []
    assert (await stage.shell("echo alive")).output == b"alive\n"


async def test_output_without_end_is_cut(stage: Stage) -> None:
    result = await stage.shell("yes", timeout_s=2, max_output=10_000)
    assert result.timed_out
    assert len(result.output) < 10_200
    assert result.truncated
