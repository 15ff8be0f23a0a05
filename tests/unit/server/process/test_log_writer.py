"""The log's own thread: what it writes, what it loses and says so, and how its files are rotated."""

import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kafkapy.server.process.log_writer import FileSink, LogWriter, StreamSink
from kafkapy.server.process.logs import JsonFormatter, KafkaFormatter


class StuckSink:
    """Takes nothing until it is told to: a pipe, say, that nobody reads."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        self.lines: list[str] = []
        self.is_waiting = threading.Event()
        self.fails = False

    def write(self, line: bytes) -> None:
        if not self.lines:
            self.is_waiting.set()
            os.read(self.read_end, 1)
        if self.fails:
            raise OSError(28, "No space left on device")
        self.lines.append(line.decode())

    def let_go(self) -> None:
        os.write(self.write_end, b"x" * 100)


@pytest.fixture
def log() -> logging.Logger:
    logger = logging.Logger("test", logging.INFO)
    logger.propagate = False
    return logger


def test_logging_never_waits_and_lost_lines_are_counted(log: logging.Logger) -> None:
    sink = StuckSink()
    writer = LogWriter(sink, max_queued_chars=500)
    log.addHandler(writer)
    log.info("line 000")
    assert sink.is_waiting.wait(60)
    for number in range(1, 200):
        log.info("line %03d", number)
    kept = 500 // len("line 000\n")
    assert writer.lost_count == 200 - kept
    sink.let_go()
    writer.flush()
    log.info("after")
    writer.close()
    lost = f"{200 - kept} log lines were lost: they could not be written, or not as fast as they came\n"
    assert [line for line in sink.lines if line != lost] == [f"line {each:03d}\n" for each in range(kept)] + ["after\n"]
    assert sink.lines.count(lost) == 1


def test_a_disk_that_is_full_for_a_while_costs_lines_and_nothing_else(log: logging.Logger) -> None:
    sink = StuckSink()
    sink.let_go()
    sink.fails = True
    writer = LogWriter(sink)
    log.addHandler(writer)
    log.info("lost")
    writer.flush()
    sink.fails = False
    log.info("kept")
    writer.close()
    assert sink.lines[0].startswith("1 log lines were lost")
    assert sink.lines[1:] == ["kept\n"]


def test_a_file_is_rotated_by_size_and_count(tmp_path: Path) -> None:
    path = tmp_path / "log"
    sink = FileSink(str(path), 20, 2)
    for number in range(9):
        sink.write(b"line %04d\n" % number)  # ten bytes: two to a file
    sink.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", "log.1", "log.2"]
    texts = [(tmp_path / name).read_text() for name in ("log.2", "log.1", "log")]
    assert texts == ["line 0004\nline 0005\n", "line 0006\nline 0007\n", "line 0008\n"]


def test_a_line_longer_than_the_bound_has_a_file_of_its_own(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "log"), 20, 0)
    for line in (b"short\n", bytes(100), b"last\n"):
        sink.write(line)
    sink.close()
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("log", b"last\n")]


@pytest.mark.parametrize("move", [lambda path: path.rename(f"{path}.old"), Path.unlink])
def test_a_file_that_logrotate_took_is_opened_anew(tmp_path: Path, move) -> None:
    path = tmp_path / "log"
    sink = FileSink(str(path), None, 0)
    sink.write(b"before\n")
    move(path)
    sink.write(b"after\n")
    sink.close()
    assert path.read_text() == "after\n"


def test_a_file_that_was_cut_off_is_written_from_its_start(tmp_path: Path) -> None:
    """As logrotate's copytruncate does."""
    path = tmp_path / "log"
    sink = FileSink(str(path), None, 0)
    sink.write(b"before\n")
    path.write_bytes(b"")
    sink.write(b"after\n")
    sink.close()
    assert path.read_bytes() == b"after\n"


def test_without_standard_error_lines_go_nowhere() -> None:
    StreamSink(None).write(b"line\n")


def test_what_stands_in_for_standard_error_is_written_to() -> None:
    stream = io.StringIO()
    StreamSink(stream).write(b"line\n")
    assert stream.getvalue() == "line\n"


@pytest.mark.parametrize("formatter", [KafkaFormatter(), JsonFormatter()])
def test_a_line_has_time_level_logger_message_and_traceback(formatter: logging.Formatter) -> None:
    try:
        raise ValueError("broken\nhere")
    except ValueError as error:
        found = (ValueError, error, error.__traceback__)
        record = logging.LogRecord("kafkapy.server", logging.WARNING, "", 1, 'of "%s"\n', ("x",), found)
    text = formatter.format(record)
    if isinstance(formatter, KafkaFormatter):
        assert re.match(r'\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] WARN of "x"\n \(kafkapy\.server\)\nTraceback', text)
        return
    assert "\n" not in text
    line = json.loads(text)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line.pop("exception").endswith("ValueError: broken\nhere")
    assert line == {"level": "WARN", "logger": "kafkapy.server", "message": 'of "x"\n'}


def test_a_helper_logs_to_the_brokers_file_before_it_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "log"
    program = (
        "import logging, os; from kafkapy.server.process.logs import configure; configure(logging.INFO)\n"
        "logging.getLogger('kafkapy.storage').info('Recovering unflushed segment 0')\n"
        "os._exit(0)"
    )
    environment = {**os.environ, "KAFKAPY_LOG_FILE": str(file), "KAFKAPY_LOG_JSON": "1"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    assert json.loads(file.read_text())["message"] == "Recovering unflushed segment 0"
