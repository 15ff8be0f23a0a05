"""The logger kafka.request.logger, which every request asks whether it is on: by an attribute, as that costs least."""

import logging
from typing import Final

NAME: Final = "kafka.request.logger"


class RequestLogger(logging.Logger):
    """Its own level counts alone: what it would inherit does not turn it on."""

    is_on = False

    def setLevel(self, level: int | str) -> None:
        super().setLevel(level)
        self.is_on = 0 < self.level <= logging.DEBUG


def _made() -> RequestLogger:
    """Make it of the plain logger that whoever configured logging before may have got already."""
    logger = logging.getLogger(NAME)
    logger.__class__ = RequestLogger
    assert isinstance(logger, RequestLogger)
    logger.setLevel(logger.level)
    return logger


request_logger: Final = _made()
