"""What a process needs of its operating system.

logs.py log_writer.py    log lines, written by a thread so that no caller waits
systemd.py               readiness, status and watchdog
system_clock.py          the production clock and randomness
heap.py                  keeps metadata out of garbage collections
failpoints.py            where a test lets the process kill itself
distributions.py         another installed package of the same name

Called by `server/run.py` and `server/node.py` at the start.
"""
