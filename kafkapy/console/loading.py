"""Records of a file of JSON lines, produced part by part: the page reads the file, and asks before it sends the first.

A part is the body of a POST with the session's CSRF token in a header, and is logged as the other changes are.
"""

import json
from typing import Any, Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kafkapy.cli.deadline import TIMEOUT_S
from kafkapy.cli.sender import Sender
from kafkapy.console.brokers import BadRequest, ClusterError
from kafkapy.console.change import ChangeLog, who_asks
from kafkapy.console.client import failures
from kafkapy.console.queries import topic_name
from kafkapy.console.state import Console
from kafkapy.decoders.row import record_of

MAX_LINES: Final = 5_000
"""Lines of one part; security.MAX_BODY_BYTES bounds their bytes."""


class Loading:
    """The endpoint of parts. The producer of a part sends in order and waits for all of it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._log = ChangeLog(console.settings)

    def routes(self) -> list[Route]:
        return [Route("/load", self.endpoint, methods=["POST"])]

    async def endpoint(self, request: Request) -> Response:
        """Return {"sent": how many, "error": why no more, or null}; `first` of the URL numbers the first line."""
        if not request.state.may_change:
            return JSONResponse({"sent": 0, "error": request.state.why_no_change}, 403)
        return await to_thread.run_sync(self._load, request, await request.body(), who_asks(request))

    def _load(self, request: Request, body: bytes, who: str) -> Response:
        sent = 0
        try:
            topic = topic_name(request.query_params)
            self._console.brokers.topic(topic)  # a producer would create it
            records, problem = _records(body)
            sent, failed = self._send(topic, records)
            self._log.changed(who, f"Load {sent} records into {topic}.")
            error = failed or problem
        except ClusterError as refused:
            self._log.refused(who, "Load records.", str(refused))
            error = str(refused)
        return JSONResponse({"sent": sent, "error": error}, 200 if error is None else 400)

    def _send(self, topic: str, records: list[dict[str, Any]]) -> tuple[int, str | None]:
        """Return how many were delivered, and the first error."""
        with failures():
            sender = Sender(self._console.clients.producer(), topic)
            for record in records:
                sender.send(record)
            sender.finish(TIMEOUT_S + 2)
        return sender.count, sender.failures[0] if sender.failures else None


def _records(body: bytes) -> tuple[list[dict[str, Any]], str | None]:
    """Return the records before the first line that is not one, and what is wrong with that line. Raises BadRequest."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    if len(lines) > MAX_LINES:
        raise BadRequest(f"At most {MAX_LINES} lines in a part.")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(record_of(json.loads(line)))
        except (ValueError, RecursionError) as error:
            return records, f"Line {number} of this part: {error}"
    return records, None
