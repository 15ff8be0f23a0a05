"""The logger kafka.request.logger. Every request checks whether it is on, by an attribute, which is cheapest."""

import logging
from typing import Final

NAME: Final = "kafka.request.logger"


class RequestLogger(logging.Logger):
    """A logger whose own level alone turns it on; an inherited level does not."""

    is_on = False

    def setLevel(self, level: int | str) -> None:
        super().setLevel(level)
        self.is_on = 0 < self.level <= logging.DEBUG


def _made() -> RequestLogger:
    """Return the logger, converted in place: the logging configuration may have created it already."""
    logger = logging.getLogger(NAME)
    logger.__class__ = RequestLogger
    assert isinstance(logger, RequestLogger)
    logger.setLevel(logger.level)
    return logger


request_logger: Final = _made()
