"""The spawn server: a small single-threaded process from which every command is forked.

It is not part of aar's own process but run as ``python -I -S -E -c … ROOT FD`` (see
`aar.safety.spawn_link`), so that a fork never happens in a process with threads, and costs the same however
large aar has grown. Only the standard library is at hand, and little of it is used, because the size counts
at each fork.

Processes::

    aar ── spawn server ── supervisor (one a command) ── the command ── its descendants

Supervisor and child are forked before they are needed (see `aar.safety.spawn_server.spare`).
The supervisor adopts every orphan below it (PR_SET_CHILD_SUBREAPER), also those that left the process
group by ``setsid``, so that the tree can be killed whole. It kills the tree when the command has ended,
when it is told to, and when aar (its control socket) or the server has died.

Before a command that gets namespaces from here stands one process more (see
`aar.safety.spawn_server.namespaces`).

Requests on socket FD: ``!IB`` (length of the body, number of descriptors) with the descriptors attached
(SCM_RIGHTS), then the body, a dict in marshal format. Descriptors: control socket, stdin, stdout, stderr,
then, where there is one, a Landlock ruleset. Answers on the control socket, one a line: ``started PID``,
``failed STAGE ERRNO TEXT``, ``limit NAME``, ``exit STATUS`` (negative: signal), ``gone`` (the whole tree
is; the end of the socket tells the same), ``probe WRITE NETWORK`` (0 or 1), ``listener`` (with a socket
that listens inside the private network). Anything that arrives on the control socket, and its end, kills
the tree; but for ``d`` with two descriptors, the read end of the output and a log: then the command goes on
when aar has ended, and the server, which was told to ``stay``, with it.
"""
