"""What a user is told of an error, an end and a way back, by its kind."""

from __future__ import annotations

from collections.abc import Mapping

_ADVICE = {
    "auth": "Set the key (`aar auth set PROVIDER` or its environment variable), or choose another /model.",
    "quota": "The account has no credit left. Top it up, or take another model with /model.",
    "rate_limit": "Wait a little and say “go on”, or take another model with /model.",
    "overloaded": "The provider is overloaded. Say “go on” later, or take another model with /model.",
    "context_overflow": "The conversation is longer than the model can read. /compact shortens it.",
    "content_filter": "A filter of the provider stopped this. Say it in other words.",
    "network": "Check the connection, then say “go on”.",
    "timeout": "The server did not answer in time. Say “go on” to ask again.",
    "incomplete_stream": "The answer broke off and nothing of it was run. Say “go on” to ask again.",
    "malformed_response": "The server sent something that is no answer. Check base_url, or ask again.",
    "provider_internal": "The provider failed. Say “go on” to ask again.",
    "unknown_model": "Choose a model that exists with /model.",
    "configuration": "Change the setting that is named; `aar config show --origin` tells where it is set.",
    "storage": "Make room or give aar the right to write, then go on; nothing that is shown here is lost.",
    "sandbox": "`aar sandbox status` says which wall holds here.",
    "internal": "This is a defect of aar. `aar logs` has the details; the session goes on.",
}


_BACK: Mapping[str, str] = {
    "both": "Went back, files and conversation; /redo comes back",
    "files": "Files went back; /redo changes them again",
    "conversation": "The conversation went back, files stay; /redo comes back",
}
_ENDS: Mapping[str, str] = {
    "cancelled": "Interrupted",
    "stopped": "Stopped as you asked",
    "max_steps": "Stopped at the step limit ([limits] steps)",
    "timeout": "Stopped at the time limit ([limits] seconds)",
    "budget": "Stopped at the budget",
    "repetition": "Stopped: the model repeated itself",
    "denied": "Stopped: you said no; tell what to do instead",
    "empty": "Stopped: the model gave no answer",
    "max_tokens": "Stopped: the answer was cut at the output limit",
    "refusal": "The model declined",
}


def advice_for(kind: str) -> str:
    """Return one sentence for an error of ``kind``; empty when there is nothing to advise."""
    return _ADVICE.get(kind, "")


def way_back(scope: str) -> str:
    """Return what a rewind of ``scope`` did and how it is taken back."""
    return _BACK[scope]


def ending(stop_reason: str) -> str:
    """Return how a run ended that did not end by itself."""
    return _ENDS.get(stop_reason, f"Stopped: {stop_reason}")
