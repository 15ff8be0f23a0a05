"""How a helper process ends whose broker is gone: at once, and without a word on a terminal that others use."""

import subprocess
import sys

CALL = b'{"id": 1, "call": "tests.support.helper_calls:process_id", "arguments": {}}\n'


def test_a_response_that_nobody_takes_ends_it_silently() -> None:
    """The call ends before stdin's end is seen, as when a broker is killed just then."""
    command = [sys.executable, "-m", "kafkapy.reactor.helper_main"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as helper:
        assert helper.stdin is not None
        assert helper.stdout is not None
        assert helper.stderr is not None
        helper.stdout.close()
        helper.stdin.write(CALL)
        helper.stdin.flush()
        assert helper.stderr.read().decode() == ""
        assert helper.wait(60) == 0
