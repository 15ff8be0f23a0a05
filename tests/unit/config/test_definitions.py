"""Texts of values as Java prints them."""

import pytest

from kafkapy.config.definitions import Password, to_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (-1.5e-5, "-1.5E-5"),
        (0.0, "0.0"),
        (float("inf"), "Infinity"),
        (float("nan"), "NaN"),
        (True, "true"),
        (7, "7"),
        (("a", "b"), "a,b"),
        ((), ""),
        (None, None),
        (Password("x"), "x"),
    ],
)
def test_text_of_a_value(value, text) -> None:
    assert to_text(value) == text


def test_passwords_hide_themselves() -> None:
    assert str(Password("x")) == repr(Password("x")) == "[hidden]"
    assert Password("x") == Password("x") != Password("y")
    assert len({Password("x"), Password("x")}) == 1
