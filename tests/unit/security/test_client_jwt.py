"""What the owner of a token reads off it, and when it is renewed: as Apache Kafka's refreshing login."""

import pytest

from kafkapy.security.client_jwt import HeldToken, RenewalSettings, read_token, renewal_ms
from kafkapy.security.oauthbearer import JwtError
from tests.support.bearer_tokens import WALL_MS, SigningKey

KEY = SigningKey("one")
HOUR_MS = 3_600_000


def held(*, starts_at_ms: int | None = WALL_MS, life_ms: int = HOUR_MS) -> HeldToken:
    return HeldToken("text", "alice", starts_at_ms, WALL_MS + life_ms)


def test_a_token_holds_its_times_and_name() -> None:
    token = read_token(KEY.token(now_ms=WALL_MS))
    assert token[1:] == ("alice", WALL_MS, WALL_MS + 60_000)
    assert token.text not in repr(token)
    assert read_token(KEY.token(without="iat")).starts_at_ms is None
    assert read_token(KEY.token(who="bob"), name_claim="who").name == "bob"


@pytest.mark.parametrize(
    "text", ["", "a.b", "a.b.c", "a.W10.c", "a.e30.c", KEY.token(without="exp"), KEY.token(sub="")]
)
def test_a_token_without_times_is_refused(text) -> None:
    with pytest.raises(JwtError) as error:
        read_token(text)
    assert not text or text not in str(error.value)


@pytest.mark.parametrize(
    ("token", "settings", "jitter", "expected_s"),
    [
        (held(), RenewalSettings(), 0, 2880),
        (held(), RenewalSettings(window_jitter=0.25), 200, 3060),
        (held(), RenewalSettings(window_factor=1.0), 0, 3300),  # the buffer at the end
        (held(), RenewalSettings(window_factor=0.5, min_period_seconds=2000), 0, 2000),
        (held(starts_at_ms=WALL_MS - HOUR_MS), RenewalSettings(), 0, 2160),  # counted from its issue
        (held(starts_at_ms=None), RenewalSettings(), 0, 2880),
        (held(life_ms=100_000), RenewalSettings(), 0, 80),  # too short for both pauses
    ],
)
def test_a_token_is_renewed_before_it_expires(token, settings, jitter, expected_s) -> None:
    assert renewal_ms(token, WALL_MS, settings, jitter_permille=jitter) == WALL_MS + expected_s * 1000
