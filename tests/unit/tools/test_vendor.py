"""The console's scripts of others are unmodified, and each is accounted for."""

from tools.vendor import differences, vendored


def test_vendored_files_are_those_of_the_table() -> None:
    assert list(differences()) == []
    assert {each.file for each in vendored()} >= {"htmx.min.js", "htmx.LICENSE", "uPlot.LICENSE"}
