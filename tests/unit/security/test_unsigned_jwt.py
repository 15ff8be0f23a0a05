"""Unsigned tokens: made and checked by the options of Apache Kafka's login module."""

import base64
import json

import pytest

from kafkapy.security.oauthbearer import Bearer, JwtError
from kafkapy.security.unsigned_jwt import UnsignedJwtValidator, unsigned_token
from tests.support.bearer_tokens import WALL_MS, SigningKey

ALICE = {"unsecuredLoginStringClaim_sub": "alice"}


def test_a_token_names_its_owner() -> None:
    token = unsigned_token(ALICE, WALL_MS)
    assert UnsignedJwtValidator({})(token, WALL_MS)() == Bearer("alice", WALL_MS + 3_600_000)


def test_options_name_claims_and_scopes() -> None:
    options = {
        "unsecuredLoginPrincipalClaimName": "who",
        "unsecuredLoginStringClaim_who": "bob",
        "unsecuredLoginListClaim_scope": "|read|write",
        "unsecuredLoginNumberClaim_level": "3",
        "unsecuredLoginLifetimeSeconds": "60",
    }
    token = unsigned_token(options, WALL_MS)
    checked = {"unsecuredValidatorPrincipalClaimName": "who", "unsecuredValidatorRequiredScope": "write read"}
    assert UnsignedJwtValidator(checked)(token, WALL_MS)() == Bearer("bob", WALL_MS + 60_000)
    with pytest.raises(JwtError, match="scope"):
        UnsignedJwtValidator(checked | {"unsecuredValidatorRequiredScope": "admin"})(token, WALL_MS)()


def test_a_scope_of_text_is_one_scope() -> None:
    """As in Apache Kafka, whose required scopes are separated by spaces."""
    token = unsigned_token(ALICE | {"unsecuredLoginStringClaim_scope": " read write "}, WALL_MS)
    with pytest.raises(JwtError, match="scope"):
        UnsignedJwtValidator({"unsecuredValidatorRequiredScope": "read"})(token, WALL_MS)()
    token = unsigned_token(ALICE | {"unsecuredLoginStringClaim_scope": " read "}, WALL_MS)
    assert UnsignedJwtValidator({"unsecuredValidatorRequiredScope": "read"})(token, WALL_MS)().name == "alice"
    token = unsigned_token(ALICE | {"unsecuredLoginStringClaim_scope": "\u00a0read"}, WALL_MS)
    with pytest.raises(JwtError, match="scope"):  # Java trims no no-break space
        UnsignedJwtValidator({"unsecuredValidatorRequiredScope": "read"})(token, WALL_MS)()


@pytest.mark.parametrize("name", ["", " ", "a" * 4097])
def test_a_name_is_neither_blank_nor_too_long(name) -> None:
    token = unsigned_token(ALICE, WALL_MS).split(".")
    claims = json.dumps({"sub": name, "exp": WALL_MS // 1000 + 60}).encode()
    token[1] = base64.urlsafe_b64encode(claims).decode().rstrip("=")
    with pytest.raises(JwtError, match="sub value must be"):
        UnsignedJwtValidator({})(".".join(token), WALL_MS)()


@pytest.mark.parametrize(("later_ms", "skew_ms", "is_valid"), [(60_000, 0, False), (60_000, 1, True), (-1, 0, False)])
def test_times_are_checked(later_ms, skew_ms, is_valid) -> None:
    token = unsigned_token(ALICE | {"unsecuredLoginLifetimeSeconds": "60"}, WALL_MS)
    validate = UnsignedJwtValidator({"unsecuredValidatorAllowableClockSkewMs": str(skew_ms)})
    if is_valid:
        assert validate(token, WALL_MS + later_ms)().name == "alice"
    else:
        with pytest.raises(JwtError, match=r"expired|future"):
            validate(token, WALL_MS + later_ms)()


@pytest.mark.parametrize("token", ["", "a.b.c", SigningKey("one").token(), "e30.e30.", unsigned_token(ALICE, 1) + "x"])
def test_anything_else_is_refused(token) -> None:
    with pytest.raises(JwtError):
        UnsignedJwtValidator({})(token, WALL_MS)()


@pytest.mark.parametrize(
    "options", [{}, {"unsecuredLoginStringClaim_exp": "1"}, ALICE | {"unsecuredLoginNumberClaim_n": "x"}]
)
def test_options_that_make_no_token_are_refused(options) -> None:
    with pytest.raises(JwtError):
        unsigned_token(options, WALL_MS)


@pytest.mark.parametrize("skew", ["-1", "x"])
def test_a_clock_skew_that_is_none_is_refused(skew) -> None:
    with pytest.raises(ValueError):
        UnsignedJwtValidator({"unsecuredValidatorAllowableClockSkewMs": skew})
