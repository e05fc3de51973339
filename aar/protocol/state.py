"""What an agent is doing, why it stopped, and what a script is told about it."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final


class AgentState(StrEnum):
    """What an agent is doing now (DESIGN 3)."""

    IDLE = "idle"
    RUNNING = "running"
    WAITING_FOR_TOOL = "waiting_for_tool"
    WAITING_FOR_INPUT = "waiting_for_input"
    COMPACTING = "compacting"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    ERROR = "error"
    MAX_STEPS = "max_steps"
    TIMED_OUT = "timed_out"
    BUDGET_EXCEEDED = "budget_exceeded"


class StopReason(StrEnum):
    """Why a run ended."""

    END_TURN = "end_turn"
    VERIFIED = "verified"
    STOPPED = "stopped"
    MAX_STEPS = "max_steps"
    TIMEOUT = "timeout"
    BUDGET = "budget"
    CANCELLED = "cancelled"
    ERROR = "error"
    REFUSAL = "refusal"
    REPETITION = "repetition"
    MAX_TOKENS = "max_tokens"
    EMPTY = "empty"
    DENIED = "denied"


class ExitCode(IntEnum):
    """Exit codes of the command line (DESIGN 9)."""

    OK = 0
    UNFINISHED = 1
    USAGE = 2
    CONFIGURATION = 3
    PROVIDER = 4
    LIMIT = 5
    DENIED = 6
    INTERNAL = 7
    CANCELLED = 130
    TERMINATED = 143


_WORKING: Final = frozenset(
    {
        AgentState.RUNNING,
        AgentState.WAITING_FOR_TOOL,
        AgentState.WAITING_FOR_INPUT,
        AgentState.COMPACTING,
    }
)
_ENDED: Final = frozenset(
    {
        AgentState.COMPLETED,
        AgentState.CANCELLED,
        AgentState.ERROR,
        AgentState.MAX_STEPS,
        AgentState.TIMED_OUT,
        AgentState.BUDGET_EXCEEDED,
    }
)

TRANSITIONS: Final[dict[AgentState, frozenset[AgentState]]] = {
    AgentState.IDLE: frozenset({AgentState.RUNNING, AgentState.COMPACTING}),
    AgentState.RUNNING: _WORKING - {AgentState.RUNNING} | _ENDED,
    AgentState.WAITING_FOR_TOOL: _WORKING - {AgentState.WAITING_FOR_TOOL} | _ENDED,
    AgentState.WAITING_FOR_INPUT: _WORKING - {AgentState.WAITING_FOR_INPUT} | _ENDED,
    AgentState.COMPACTING: frozenset({AgentState.RUNNING, AgentState.IDLE}) | _ENDED,
    **{ended: frozenset({AgentState.RUNNING, AgentState.IDLE}) for ended in _ENDED},
}
"""Which state may follow which. A new run starts from `idle` or from the end of the last one."""

_END_STATES: Final[dict[StopReason, AgentState]] = {
    StopReason.CANCELLED: AgentState.CANCELLED,
    StopReason.ERROR: AgentState.ERROR,
    StopReason.MAX_STEPS: AgentState.MAX_STEPS,
    StopReason.TIMEOUT: AgentState.TIMED_OUT,
    StopReason.BUDGET: AgentState.BUDGET_EXCEEDED,
}

_EXIT_CODES: Final[dict[StopReason, ExitCode]] = {
    StopReason.END_TURN: ExitCode.OK,
    StopReason.VERIFIED: ExitCode.OK,
    StopReason.STOPPED: ExitCode.OK,
    StopReason.MAX_STEPS: ExitCode.LIMIT,
    StopReason.TIMEOUT: ExitCode.LIMIT,
    StopReason.BUDGET: ExitCode.LIMIT,
    StopReason.CANCELLED: ExitCode.CANCELLED,
    StopReason.ERROR: ExitCode.PROVIDER,
    StopReason.REFUSAL: ExitCode.UNFINISHED,
    StopReason.REPETITION: ExitCode.UNFINISHED,
    StopReason.MAX_TOKENS: ExitCode.UNFINISHED,
    StopReason.EMPTY: ExitCode.UNFINISHED,
    StopReason.DENIED: ExitCode.DENIED,
}


def is_working(state: AgentState) -> bool:
    """Tell whether an agent in ``state`` is in the middle of a run."""
    return state in _WORKING


def may_follow(current: AgentState, following: AgentState) -> bool:
    """Tell whether ``following`` is an allowed next state after ``current``."""
    return following in TRANSITIONS[current]


def end_state(reason: StopReason) -> AgentState:
    """Return the state in which a run that stopped for ``reason`` ends."""
    return _END_STATES.get(reason, AgentState.COMPLETED)


def exit_code(reason: StopReason) -> ExitCode:
    """Return the exit code for a run that stopped for ``reason``.

    An ``error`` stop maps to the provider's code; the command line refines it from the error's kind.
    """
    return _EXIT_CODES[reason]
