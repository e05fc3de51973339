"""Opens a runtime: what waits for other processes begins first, beside the imports of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aar.config.paths import ensure
from aar.protocol.errors import ConfigurationError
from aar.runtime.base import Base, open_base
from aar.runtime.models import choice_notice
from aar.runtime.own_model import first_model
from aar.runtime.policy import choose_mode, existing_folder, model_hosts
from aar.safety.spawn import ProcessSpawner

if TYPE_CHECKING:
    from aar.core.active_model import ActiveModel
    from aar.memory.memory_store import MemoryStore
    from aar.memory.session_store import SessionStore
    from aar.runtime.parts import Runtime

_NEEDED_NEXT = (
    "aar.orchestration.delegate",
    "aar.tools.builtin.notes",
    "aar.runtime.hooks",
    "aar.extensions.manager",
    "aar.extensions.skills",
    "aar.extensions.command_files",
    "aar.orchestration.task_tools",
)


def open_runtime(
    *,
    base_url: str | None = None,
    add_dirs: Sequence[Path] = (),
    system_prompt: Path | None = None,
    interactive: bool = False,
    approve_with: str | None = None,
    driven: bool = False,
    mcp_configs: Sequence[Path] = (),
    agent: str | None = None,
    goes_on: Mapping[str, Any] | None = None,
    **base_arguments: Any,
) -> Runtime:
    """Put a runtime together; nothing is sent and no process is started that is not needed for that.

    Args:
        base_url: ``--base-url``.
        add_dirs: More folders that may be changed.
        system_prompt: File that replaces the built-in instructions.
        interactive: Whether a person can answer questions.
        approve_with: Program that answers them otherwise.
        driven: Whether a program that drives the session answers questions; the mode is then chosen as
            without a person where a wall holds.
        mcp_configs: Files of ``--mcp-config``.
        agent: ``--agent``: name of the agent that works.
        goes_on: Which session is opened next, as for `Runtime.open_session`: its model is taken where no
            other can be had.
        **base_arguments: As for `open_base`.

    Raises:
        ConfigurationError: A setting, key, file or folder is wrong.
        SandboxError: A wall that was demanded cannot be raised.
    """
    base = open_base(**base_arguments)
    roots = tuple(existing_folder(path) for path in add_dirs)
    walled = _Walled.begin(base, roots, base_url)
    try:
        active, why = first_model(base, base_url, goes_on or {})
        walled.spawner.keep_from(model_hosts(base.config, active.base_url))
        active.provider.warm()
        # The rest is imported while the wall is tried and the provider loads what it needs.
        from aar.runtime.parts import Runtime
        from aar.tools.builtin.catalogue import builtin_tools
        from aar.tools.registry import ToolRegistry

        notices = _notices(base, active, why, interactive=interactive)
        registry = ToolRegistry(builtin_tools(persistent_shell=base.config.tools.persistent_shell))
        custom_prompt, store = _custom_prompt(system_prompt), _store(base)
        walled.meanwhile()
        spawner = walled.ready()
        asks = interactive or (driven and not spawner.status().enforced)
        return Runtime(
            base=base,
            agent_name=agent,
            store=store,
            active=active,
            base_url=base_url,
            why_model=why,
            mode=choose_mode(base, spawner, asks, notices),
            interactive=interactive or driven,
            spawner=spawner,
            registry=registry,
            roots=roots,
            custom_prompt=custom_prompt,
            reasoning=base.config.model.reasoning,
            notices=notices,
            approve_with=approve_with,
            mcp_configs=mcp_configs,
        )
    except BaseException:
        walled.ready().close()
        raise


@dataclass(frozen=True)
class _Walled:
    """Starts processes; its wall is tried in a thread, which waits for another process most of the time."""

    spawner: ProcessSpawner
    trial: Future[object] | None

    @classmethod
    def begin(cls, base: Base, roots: Sequence[Path], base_url: str | None) -> _Walled:
        spawner = ProcessSpawner(
            base.workspace,
            base.config.sandbox,
            (*roots, *base.writable),
            own=base.own_folders,
            never=model_hosts(base.config, base_url),
        )
        if base.config.permissions.mode == "unsafe":
            # Nobody may ask for the wall, and one that cannot be raised is then no reason to stop.
            spawner.warm()
            return cls(spawner, None)
        threads = ThreadPoolExecutor(1, thread_name_prefix="aar-wall")
        trial: Future[object] = threads.submit(spawner.status)
        threads.shutdown(wait=False)
        return cls(spawner, trial)

    def meanwhile(self) -> None:
        """Import what every session needs next, as long as the wall is being tried."""
        for module in _NEEDED_NEXT:
            if self.trial is None or self.trial.done():
                return
            import_module(module)

    def ready(self) -> ProcessSpawner:
        """Wait until the wall was tried. A failure shows when somebody asks how the wall stands."""
        if self.trial is not None:
            wait([self.trial])
        return self.spawner


def _notices(base: Base, active: ActiveModel, why: str | None, *, interactive: bool) -> list[str]:
    """Return what is told at the start; to a person also what schedules came to meanwhile."""
    notices = [*base.notices, *([] if why is None else [choice_notice(active, why)])]
    if interactive and (base.paths.data / "reports").is_dir():
        from aar.orchestration.schedule import Schedules

        notices += Schedules(base.paths.data).unseen()
    return notices


def _store(base: Base) -> SessionStore | MemoryStore:
    if not base.config.session.store:
        from aar.memory.memory_store import MemoryStore

        return MemoryStore()
    ensure(base.paths.sessions)
    return base.store()


def _custom_prompt(file: Path | None) -> tuple[str, str] | None:
    if file is None:
        return None
    try:
        return str(file), file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigurationError(f"--system-prompt {file} cannot be read: {error.strerror}.") from error
