"""The services of the operating system that the process uses.

logs.py log_writer.py    log lines, written by a thread so that no caller waits
systemd.py               readiness, status and watchdog
system_clock.py          the production clock and randomness
heap.py                  keeps metadata out of garbage collections
failpoints.py            named places at which a test makes the process kill itself
distributions.py         detects another installed package of the same name

Called by `server/run.py` and `server/node.py` at the start.
"""
