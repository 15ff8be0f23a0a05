"""The mark of tests that compiled modules cannot pass: they replace methods, or count what the interpreter does."""

import pytest

from kafkapy import compiled


def needs_interpreter(reason: str) -> pytest.MarkDecorator:
    """Return the mark of a test that is skipped if modules are compiled, with the reason."""
    return pytest.mark.skipif(bool(compiled.manifest()), reason=f"needs the interpreter: {reason}")
