"""The steps of every request between its connection and its handler, and back.

router.py            frame -> header -> version -> decode -> handler -> encode -> frame: begin here
responses.py         response frames, and errors of whole requests
large_requests.py    the same for large ones, without blocking the loop for others
login_gate.py        the driver of SASL logins: no request passes before
quotas.py            client quotas enforced: throttle times, muted connections
envelope.py          a request forwarded by a broker, routed again as its client's
request_log.py request_logger.py measured_router.py    requests logged; counted and timed

Called by `reactor/link.py`, which gets the router as a callable; calls `handlers/`.
"""
