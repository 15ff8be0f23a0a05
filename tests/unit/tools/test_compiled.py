"""What `make compiled` prints if a build fails."""

from tools.compiled import refusals

PIP = "error: subprocess-exited-with-error"


def test_the_lines_of_the_compilers_are_told() -> None:
    of_mypyc = 'kafkapy/record/walk.py:12: error: Incompatible types in assignment (expression has type "str")'
    of_gcc = "build/__native.c:101:5: error: unknown type name"

    assert refusals(f"building\n{of_mypyc}\n{of_gcc}\n{PIP}") == f"{of_mypyc}\n{of_gcc}"


def test_the_end_is_told_if_no_compiler_says_why() -> None:
    output = f"{PIP}\nModuleNotFoundError: No module named 'mypyc'"

    assert refusals(output) == output
