"""The choice of the wall, its preflight, and the seccomp program."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest
from pydantic import ValidationError

from aar.config.schema import SandboxConfig
from aar.protocol.errors import SandboxError
from aar.safety.sandbox import choose
from aar.safety.sandbox.base import Fence, Limits, Plan, Probe, Step
from aar.safety.sandbox.choose import choose_wall
from aar.safety.sandbox.landlock import LandlockWall, abi_version
from aar.safety.sandbox.namespaces import NamespaceWall
from aar.safety.sandbox.seccomp import MACHINES, build_filter
from aar.safety.spawn import ProcessSpawner
from tests.spawn.conftest import raise_wall, shell


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(tmp_path, (), tmp_path / "temp", tmp_path / "home", ())


HOLDS = Probe(None, write=False, network=False)
needs_landlock = pytest.mark.skipif(abi_version() < 1, reason="no Landlock in this kernel")


def test_an_unknown_wall_is_an_error() -> None:
    with pytest.raises(ValidationError):
        SandboxConfig(mode="landlok")  # type: ignore[arg-type]


def test_none_is_no_wall_and_says_so(plan: Plan) -> None:
    wall, status = choose_wall(SandboxConfig(mode="none"), plan, lambda _: HOLDS)
    assert wall is None
    assert (status.name, status.enforced) == ("none", False)
    assert status.reasons
    assert status.gaps


def test_a_wall_of_another_system_is_refused_with_the_reason(plan: Plan) -> None:
    with pytest.raises(SandboxError, match="needs macOS"):
        choose_wall(SandboxConfig(mode="seatbelt"), plan, lambda _: HOLDS)


@pytest.mark.parametrize("mode", ["bubblewrap", "namespaces", "landlock"])
def test_linux_below_windows_is_refused_with_the_reason(
    plan: Plan, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("view", "landlock"):
        monkeypatch.setattr(f"aar.safety.sandbox.{module}.windows_subsystem", lambda: True)
    with pytest.raises(SandboxError, match="WSL"):
        choose_wall(SandboxConfig(mode=mode), plan, lambda _: HOLDS)  # type: ignore[arg-type]
    _, status = choose_wall(SandboxConfig(mode="auto"), plan, lambda _: HOLDS)
    assert not status.enforced


BROKEN = {
    "cannot be raised": Probe("setns: no"),
    "lets writes through": Probe(None, write=True, network=False),
    "lets packets through": Probe(None, write=False, network=True),
}


@needs_landlock
@pytest.mark.parametrize("name", BROKEN)
def test_a_demanded_wall_that_does_not_hold_is_an_error_and_auto_steps_down_aloud(
    plan: Plan, name: str
) -> None:
    with pytest.raises(SandboxError, match="does not work here"):
        choose_wall(SandboxConfig(mode="landlock"), plan, lambda _: BROKEN[name])
    wall, status = choose_wall(SandboxConfig(mode="auto"), plan, lambda _: BROKEN[name])
    assert wall is None
    assert (status.name, status.enforced) == ("none", False)
    assert any("landlock" in reason for reason in status.reasons)


@needs_landlock
def test_without_a_network_namespace_sockets_are_denied_instead(plan: Plan) -> None:
    def prober(fence: Fence) -> Probe:
        return Probe("unshare(net): Operation not permitted") if fence.steps["private_network"] else HOLDS

    wall, status = choose_wall(SandboxConfig(mode="landlock"), plan, prober)
    assert wall is not None
    assert (status.name, status.enforced) == ("landlock", True)
    assert any("unshare(net)" in reason for reason in status.reasons)
    assert any("127.0.0.1" in gap for gap in status.gaps)
    wall.close()


def test_a_machine_without_landlock_tells_why(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aar.safety.sandbox.landlock.abi_version", lambda: 0)
    monkeypatch.setattr("aar.safety.sandbox.bubblewrap._USUAL", Path("/absent/bwrap"))
    monkeypatch.setenv("PATH", "/absent")
    assert "not in this kernel" in (LandlockWall(plan).missing() or "")
    monkeypatch.setattr("sys.platform", "darwin")
    assert "needs Linux" in (LandlockWall(plan).missing() or "")
    _, status = choose_wall(SandboxConfig(mode="auto"), plan, lambda _: HOLDS)
    assert not status.enforced


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aar.safety.sandbox.bubblewrap._USUAL", Path("/absent/bwrap"))
    monkeypatch.setattr("aar.safety.sandbox.bubblewrap.shutil.which", lambda _: None)


@pytest.mark.usefixtures("no_bubblewrap")
async def test_where_bubblewrap_is_not_installed_own_namespaces_are_taken(workspace: Path) -> None:
    raise_wall(ProcessSpawner(workspace, SandboxConfig(mode="namespaces"))).close()
    spawner = ProcessSpawner(workspace)
    try:
        status = spawner.status()
        assert (status.name, status.enforced) == ("namespaces", True)
        assert any("bubblewrap is not installed" in reason for reason in status.reasons)
        result = await shell(spawner, "echo $$; touch /etc/aar-canary || exit 7", workspace)
        assert (result.exit_code, result.output.split()[0]) == (7, b"2")
    finally:
        spawner.close()


@needs_landlock
@pytest.mark.usefixtures("no_bubblewrap")
def test_where_user_namespaces_are_forbidden_landlock_is_taken_and_the_reason_told(plan: Plan) -> None:
    def prober(fence: Fence) -> Probe:
        return Probe("unshare: Operation not permitted") if fence.steps.get("namespaces") else HOLDS

    wall, status = choose_wall(SandboxConfig(mode="auto"), plan, prober)
    assert wall is not None
    wall.close()
    assert status.name == "landlock"
    assert "namespaces: unshare: Operation not permitted." in status.reasons


async def test_a_private_view_without_an_own_proc_says_so_and_holds(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Poorer(NamespaceWall):
        def _system(self) -> list[Step]:
            extra: list[Step] = [("proc", "/absent")] if self._own_proc else []
            return [*super()._system(), *extra]

    raise_wall(ProcessSpawner(workspace, SandboxConfig(mode="namespaces"))).close()
    monkeypatch.setitem(choose.LADDER, "namespaces", Poorer)
    spawner = ProcessSpawner(workspace, SandboxConfig(mode="namespaces"))
    try:
        status = spawner.status()
        assert status.enforced
        assert any("mount proc on /absent" in reason for reason in status.reasons)
        assert any("/proc is the machine's" in gap for gap in status.gaps)
        assert (await shell(spawner, "touch /etc/aar-canary", workspace)).exit_code == 1
    finally:
        spawner.close()


async def test_the_wall_holds_without_a_network_namespace_too(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Poorer(LandlockWall):
        def __init__(self, plan: Plan) -> None:
            super().__init__(plan)
            self._private_network = False

    monkeypatch.setitem(choose.LADDER, "landlock", Poorer)
    spawner = ProcessSpawner(workspace, SandboxConfig(mode="landlock"))
    try:
        if not spawner.status().enforced:
            pytest.skip("no wall here")
        code = "import socket\nfor f in (1, 2, 10):\n try: socket.socket(f); print(f)\n except OSError as e: print(e.errno)"
        result = await shell(spawner, f'python3 -c "{code}"', workspace)
        assert result.output.split() == [b"1", b"1", b"1"]
        assert errno.EPERM == 1
    finally:
        spawner.close()


def run_filter(program: bytes, arch: int, number: int, *args: int) -> int:
    """Run a seccomp program as the kernel does, for the few instructions that it uses."""
    data = struct.pack("<iIQ6Q", number, arch, 0, *args, *([0] * (6 - len(args))))
    code = [struct.unpack("<HBBI", program[at : at + 8]) for at in range(0, len(program), 8)]
    at = accumulator = 0
    while True:
        op, true, false, value = code[at]
        at += 1
        if op == 0x06:
            return value
        if op == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
            continue
        test = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[op]
        at += true if test else false


ALLOW, DENY, NOT_THERE = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS


@pytest.mark.parametrize("machine", sorted(MACHINES))
@pytest.mark.parametrize("internet", [True, False])
def test_the_filter_denies_what_it_should_on_each_architecture(machine: str, internet: bool) -> None:
    program = build_filter(internet, machine)
    assert program is not None
    table = MACHINES[machine]
    numbers = table.numbers

    def verdict(name: str, *args: int) -> int:
        return run_filter(program, table.audit, numbers[name], *args)

    for name in ("ptrace", "process_vm_readv", "io_uring_setup", "bpf", "keyctl", "mount", "chroot", "setns"):
        assert verdict(name) == DENY
    assert verdict("clone3") == NOT_THERE
    assert verdict("clone", 17) == ALLOW
    assert verdict("clone", 0x10000000 | 17) == verdict("unshare", 0x10000000) == DENY
    assert verdict("unshare", 0x400) == ALLOW
    assert verdict("ioctl", 1, 0x5412) == verdict("ioctl", 1, 0x541C) == DENY
    assert verdict("ioctl", 1, 0x5413) == ALLOW
    assert verdict("socket", 1) == verdict("socket", 16) == ALLOW
    assert verdict("socket", 2) == verdict("socket", 10) == (ALLOW if internet else DENY)
    assert verdict("socket", 17) == verdict("socket", 40) == verdict("socket", 38) == DENY
    assert run_filter(program, table.audit, 0) == ALLOW
    assert run_filter(program, 0x40000003, 0) == DENY
    if table.x32:
        assert run_filter(program, table.audit, 0x40000000 | 101) == DENY


def test_an_unknown_architecture_has_no_filter() -> None:
    assert build_filter(True, "riscv64") is None


def test_limits_are_keys_of_rulesets() -> None:
    assert Limits() == Limits((), False, False)
    assert hash(Limits()) != hash(Limits(read_only=True))
