"""The wall of aar's own namespaces: what bubblewrap does, where that program is not installed.

User, mount, process, network, IPC, host name and control group namespaces are made by the spawn server
(`aar.safety.spawn_server.namespaces`) without any program. Needs Linux 5.12 (mount_setattr(2)) and
user namespaces for everybody, which some distributions allow to chosen programs only.
"""

from __future__ import annotations

from aar.safety.sandbox.view import ViewWall


class NamespaceWall(ViewWall):
    """See the module."""

    name = "namespaces"

    def _maker(self, *, own_network: bool) -> dict[str, object]:
        return {"namespaces": True, "own_network": own_network}
