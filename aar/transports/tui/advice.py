"""What a user can do about an error, by its kind."""

from __future__ import annotations

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


def advice_for(kind: str) -> str:
    """Return one sentence for an error of ``kind``; empty when there is nothing to advise."""
    return _ADVICE.get(kind, "")
