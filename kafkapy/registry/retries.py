"""Log lines for requests that are tried again several times a second until the cluster serves them."""

import logging
from typing import Final

REPEAT_S: Final = 30.0
"""After this time the same failure is logged again."""


class RetryLog:
    """Logs a failure when it begins, when it becomes another one, and every 30 s. Of one thread."""

    def __init__(self, logger: logging.Logger, what: str) -> None:
        """`what`: what is tried, as the lines begin."""
        self._logger = logger
        self._what = what
        self._failure: str | None = None
        self._logged_s = 0.0

    def on_failure(self, error: Exception, now_s: float) -> None:
        text = str(error)
        if text == self._failure and now_s - self._logged_s < REPEAT_S:
            return
        self._failure, self._logged_s = text, now_s
        self._logger.warning("%s: %s", self._what, text)

    def on_success(self) -> None:
        if self._failure is not None:
            self._failure = None
            self._logger.info("%s: it works again", self._what)
