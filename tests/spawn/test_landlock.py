"""Escapes from the wall, each tried by a real process inside (SECURITY U8, T14, T18)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from aar.protocol.ports import SpawnRequest, SpawnResult
from aar.safety.spawn import ProcessSpawner
from tests.spawn.conftest import shell


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text("kept")
    (folder / "empty").mkdir()
    return folder


async def python(
    spawner: ProcessSpawner, code: str, cwd: Path, *args: object, **options: object
) -> SpawnResult:
    argv = (sys.executable, "-c", textwrap.dedent(code), *map(str, args))
    return await spawner.run(SpawnRequest(argv, cwd, **options))  # type: ignore[arg-type]


def listing(folder: Path) -> list[tuple[str, bytes]]:
    return sorted(
        (str(p.relative_to(folder)), p.read_bytes() if p.is_file() else b"/") for p in folder.rglob("*")
    )


ESCAPES = {
    "write": "open(out + '/file', 'w').write('x')",
    "append": "open(out + '/file', 'a').write('x')",
    "create": "open(out + '/new', 'x')",
    "truncate": "os.truncate(out + '/file', 0)",
    "ftruncate through a read-only descriptor": "os.ftruncate(os.open(out + '/file', os.O_RDONLY), 0)",
    "open and truncate": "os.open(out + '/file', os.O_RDONLY | os.O_TRUNC)",
    "remove": "os.unlink(out + '/file')",
    "remove a folder": "os.rmdir(out + '/empty')",
    "make a folder": "os.mkdir(out + '/new')",
    "rename inside": "os.rename(out + '/file', out + '/other')",
    "rename out of the workspace": "open('mine', 'w'); os.rename('mine', out + '/file')",
    "rename into the workspace": "os.rename(out + '/file', 'stolen')",
    "hard link in": "os.link(out + '/file', 'link'); open('link', 'w').write('x')",
    "hard link out": "open('mine', 'w'); os.link('mine', out + '/link')",
    "symlink out": "os.symlink('/etc', out + '/link')",
    "write through a symlink": "os.symlink(out + '/file', 'way'); open('way', 'w').write('x')",
    "write through a symlinked folder": "os.symlink(out, 'way'); open('way/new', 'w').write('x')",
    "write through dots": "open('../../outside/file', 'w').write('x')",
    "write through the root of a process": "open('/proc/self/root' + out + '/file', 'w').write('x')",
    "write through a working folder": "os.chdir(out); open('file', 'w').write('x')",
    "make a pipe": "os.mkfifo(out + '/pipe')",
    "make a socket": "import socket; socket.socket(socket.AF_UNIX).bind(out + '/sock')",
    "mount": "assert ctypes.CDLL(None, use_errno=True).mount(b'none', out.encode(), b'tmpfs', 0, 0) == 0",
    "new user namespace": "assert ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0",
    "chroot": "os.chroot(out)",
}


EACH_IN_A_CHILD = """
    import ctypes, json, os, sys
    out, escapes = sys.argv[1], json.loads(sys.argv[2])
    for number, (name, code) in enumerate(escapes.items()):
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os.mkdir(str(number))
            os.chdir(str(number))
            try:
                exec(code)
            except (OSError, AssertionError):
                os._exit(1)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 1:
            print(name)
"""


async def test_nothing_outside_changes(walled: ProcessSpawner, workspace: Path, outside: Path) -> None:
    before = listing(outside)
    result = await python(walled, EACH_IN_A_CHILD, workspace, outside, json.dumps(ESCAPES))
    assert (result.output.decode(), result.exit_code) == ("", 0), "no attempt got its way"
    assert listing(outside) == before


async def test_the_same_acts_work_without_the_wall(
    bare: ProcessSpawner, workspace: Path, outside: Path
) -> None:
    result = await python(bare, "import sys; open(sys.argv[1] + '/file', 'w').write('x')", workspace, outside)
    assert result.exit_code == 0
    assert (outside / "file").read_text() == "x"


async def test_the_workspace_and_the_private_folder_can_be_used_in_full(
    walled: ProcessSpawner, workspace: Path
) -> None:
    code = """
        import os, tempfile, multiprocessing
        os.makedirs("a/b"); open("a/f", "w").write("1"); os.rename("a/f", "a/b/g"); os.link("a/b/g", "h")
        os.symlink("h", "s"); os.truncate("h", 0); os.unlink("h"); os.chmod("a/b/g", 0o755)
        for device in ("null", "zero", "full", "urandom"):
            open("/dev/" + device, "r+b", buffering=0)
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"x"); print(os.path.dirname(file.name))
        multiprocessing.Lock()
    """
    result = await python(walled, code, workspace)
    assert result.output.decode().strip() == str(walled.temp_folder)
    assert result.exit_code == 0
    assert result.wall == walled.wall


async def test_a_granted_folder_can_be_written(
    walled: ProcessSpawner, workspace: Path, outside: Path
) -> None:
    result = await shell(walled, f"echo x > {outside}/file", workspace, writable=(outside,))
    assert result.exit_code == 0


async def test_in_plan_mode_the_workspace_is_read_only(walled: ProcessSpawner, workspace: Path) -> None:
    (workspace / "file").write_text("kept")
    result = await shell(walled, "cat file; echo x > file; echo x > new; ls", workspace, read_only=True)
    assert result.output.startswith(b"kept")
    assert result.output.endswith(b"file\n")
    assert (workspace / "file").read_text() == "kept"
    assert (
        await shell(walled, "echo x > $TMPDIR/scratch && cat $TMPDIR/scratch", workspace, read_only=True)
    ).exit_code == 0


async def test_secrets_of_the_home_are_not_read_but_its_other_files_are(
    workspace: Path, clean_environment: Path
) -> None:
    home = clean_environment
    secrets = [".ssh/id_rsa", ".aws/credentials", ".config/gcloud/token", ".netrc", "aar/config/config.toml"]
    for name in [*secrets, ".gitconfig", ".config/other/file"]:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("content")
    (home / "way").symlink_to(home / ".ssh")
    spawner = ProcessSpawner(workspace)
    try:
        if not spawner.status().enforced:
            pytest.skip("no wall here")
        for name in [*secrets, "way/id_rsa"]:
            result = await shell(spawner, f"cat {home / name}", workspace)
            assert b"ermission denied" in result.output, name
        for name in (".gitconfig", ".config/other/file"):
            assert (await shell(spawner, f"cat {home / name}", workspace)).output == b"content"
    finally:
        spawner.close()


async def test_a_secret_made_later_is_not_read_either(
    walled: ProcessSpawner, workspace: Path, clean_environment: Path
) -> None:
    (clean_environment / ".ssh").mkdir()
    (clean_environment / ".ssh/id_rsa").write_text("late")
    assert (await shell(walled, f"cat {clean_environment}/.ssh/id_rsa", workspace)).exit_code == 1


async def test_a_workspace_that_is_the_home_keeps_the_secrets_closed(clean_environment: Path) -> None:
    home = clean_environment
    (home / ".ssh").mkdir()
    (home / ".ssh/id_rsa").write_text("secret")
    (home / "src").mkdir()
    spawner = ProcessSpawner(home)
    try:
        if not spawner.status().enforced:
            pytest.skip("no wall here")
        result = await shell(
            spawner, "cat .ssh/id_rsa; echo key > .ssh/authorized_keys; echo x > src/a", home
        )
        assert not (home / ".ssh/authorized_keys").exists()
        assert b"secret" not in result.output
        assert (home / "src/a").exists()
    finally:
        spawner.close()


async def test_other_processes_are_neither_read_nor_signalled(
    walled: ProcessSpawner, workspace: Path
) -> None:
    other = subprocess.Popen(["sleep", "30"], env={"SECRET": "hidden"})
    try:
        result = await shell(
            walled,
            f"cat /proc/{other.pid}/environ; cat /proc/{os.getpid()}/environ; head -c 1 /proc/{other.pid}/mem; "
            f"kill -9 {other.pid} || echo refused",
            workspace,
        )
        assert b"hidden" not in result.output
        missing = result.output.count(b"No such file")  # in a pid namespace they are not even there
        assert result.output.count(b"ermission denied") + missing >= 3
        assert b"refused" in result.output
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


async def test_the_network_is_off_and_loopback_works(walled: ProcessSpawner, workspace: Path) -> None:
    code = """
        import socket
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            try:
                s = socket.socket(socket.AF_INET, kind); s.settimeout(2)
                s.connect(("192.0.2.1", 53)); s.send(b"x"); print("escaped")
            except OSError as error:
                print("off", error.errno)
        try:
            print(socket.getaddrinfo("example.org", 80))
        except OSError:
            print("no names")
        with socket.create_server(("127.0.0.1", 0)) as server:
            with socket.create_connection(server.getsockname()):
                print("loopback")
    """
    text = (await python(walled, code, workspace)).output.decode()
    assert "escaped" not in text
    assert text.count("off") == 2
    assert "no names" in text
    if not any("127.0.0.1" in gap for gap in walled.status().gaps):
        assert "loopback" in text


async def test_two_commands_meet_on_loopback(walled: ProcessSpawner, workspace: Path) -> None:
    if any("127.0.0.1" in gap for gap in walled.status().gaps):
        pytest.skip("no network namespace here")
    server = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); s.accept()[0].sendall(b'hello')"
    ready = threading.Event()
    port: list[bytes] = []

    def on_output(piece: bytes) -> None:
        port.append(piece)
        ready.set()

    process = await walled.start(SpawnRequest((sys.executable, "-c", server), workspace), on_output)
    while not ready.is_set() and process.running:
        await shell(walled, "true", workspace)
    client = f"import socket; print(socket.create_connection(('127.0.0.1', {int(port[0])})).recv(9))"
    assert b"hello" in (await python(walled, client, workspace)).output
    await process.kill()


async def test_a_server_of_the_user_is_out_of_reach(walled: ProcessSpawner, workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        assert (await python(walled, code, workspace)).exit_code == 1


async def test_the_network_can_be_granted(walled: ProcessSpawner, workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        assert (await python(walled, code, workspace, network=True)).exit_code == 0


async def test_abstract_sockets_of_others_are_out_of_reach(walled: ProcessSpawner, workspace: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0aar-test-{os.getpid()}")
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0aar-test-{os.getpid()}')"
        assert (await python(walled, code, workspace)).exit_code == 1


async def test_unusual_socket_families_are_refused(walled: ProcessSpawner, workspace: Path) -> None:
    code = """
        import errno, socket
        for family in ("AF_PACKET", "AF_VSOCK", "AF_ALG", "AF_BLUETOOTH"):
            try:
                socket.socket(getattr(socket, family, 99), socket.SOCK_RAW)
            except OSError as error:
                print(family, errno.errorcode[error.errno])
    """
    said = (await python(walled, code, workspace)).output.decode()
    assert said.split() == "AF_PACKET EPERM AF_VSOCK EPERM AF_ALG EPERM AF_BLUETOOTH EPERM".split()


async def test_dangerous_system_calls_are_refused(walled: ProcessSpawner, workspace: Path) -> None:
    code = """
        import ctypes, errno, platform
        libc = ctypes.CDLL(None, use_errno=True)
        ptrace = {"x86_64": 101, "aarch64": 117}[platform.machine()]
        for number in (ptrace, 425, 438, 442):
            print(libc.syscall(number, 0, 0, 0, 0, 0), errno.errorcode[ctypes.get_errno()])
    """
    assert (await python(walled, code, workspace)).output == b"-1 EPERM\n" * 4


async def test_root_has_no_capabilities_inside(walled: ProcessSpawner, workspace: Path) -> None:
    result = await shell(walled, "grep -E 'Cap(Eff|Prm)|NoNewPrivs' /proc/self/status", workspace)
    assert [line.split()[1] for line in result.output.splitlines()] == [b"0" * 16, b"0" * 16, b"1"]


async def test_the_wall_can_not_be_left_by_a_child(
    walled: ProcessSpawner, workspace: Path, outside: Path
) -> None:
    command = f"setsid sh -c 'echo x > {outside}/file' ; nohup env -i sh -c 'echo x > {outside}/new'"
    await shell(walled, command, workspace)
    assert listing(outside) == [("empty", b"/"), ("file", b"kept")]


def git(*args: str, cwd: Path) -> None:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *args], cwd=cwd, check=True, capture_output=True)


COMMIT = "git -c user.name=T -c user.email=t@example.org commit -qm change"


async def test_git_works_inside(walled: ProcessSpawner, workspace: Path) -> None:
    git("init", "-q", cwd=workspace)
    result = await shell(
        walled, f"echo 1 > a && git add -A && {COMMIT} && git status -s && git log --oneline", workspace
    )
    assert result.exit_code == 0, result.output
    assert b"change" in result.output


async def test_git_works_in_a_worktree(tmp_path: Path) -> None:
    main = tmp_path / "main"
    main.mkdir()
    git("init", "-q", cwd=main)
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=main)
    git("worktree", "add", "-q", str(tmp_path / "tree"), cwd=main)
    spawner = ProcessSpawner(tmp_path / "tree")
    try:
        if not spawner.status().enforced:
            pytest.skip("no wall here")
        result = await shell(
            spawner, f"echo 1 > a && git add a && {COMMIT} && git status -s", tmp_path / "tree"
        )
        assert result.exit_code == 0, result.output
        await shell(spawner, f"echo x > {main}/stolen", tmp_path / "tree")
        assert not (main / "stolen").exists()
    finally:
        spawner.close()


async def test_a_forged_git_file_opens_nothing(workspace: Path, outside: Path) -> None:
    for name in ("HEAD", "commondir", "gitdir"):
        (outside / name).write_text("." if name == "commondir" else "/elsewhere")
    (workspace / ".git").write_text(f"gitdir: {outside}\n")
    spawner = ProcessSpawner(workspace)
    try:
        if not spawner.status().enforced:
            pytest.skip("no wall here")
        await shell(spawner, f"echo x > {outside}/file", workspace)
        assert (outside / "file").read_text() == "kept"
    finally:
        spawner.close()


async def test_pytest_works_inside(walled: ProcessSpawner, workspace: Path) -> None:
    (workspace / "test_it.py").write_text("def test_it(tmp_path):\n    (tmp_path / 'f').write_text('x')\n")
    result = await shell(walled, f"{sys.executable} -m pytest -q -p no:cacheprovider", workspace)
    assert b"1 passed" in result.output, result.output
