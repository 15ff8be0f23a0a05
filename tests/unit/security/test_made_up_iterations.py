"""The iterations told to an unknown SCRAM user: they must not tell it from the users that there are."""

import hmac
from collections import Counter

import pytest

from kafkapy.metadata.scram_types import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS
from kafkapy.security.sasl import SaslError
from kafkapy.security.scram import ScramClient, ScramServer, made_up_credential, made_up_iterations

SECRET = b"the server's own"
NAMES = [f"user-{number}" for number in range(1000)]


def made_up(stored: dict[int, int], secret: bytes = SECRET) -> dict[str, int]:
    return {name: made_up_iterations(secret, name, stored) for name in NAMES}


def test_each_number_is_reported_as_often_as_it_is_stored() -> None:
    reported = Counter(made_up({8192: 9, 4096: 1}).values())
    assert reported.keys() == {8192, 4096}
    assert 50 < reported[4096] < 200, "about a tenth"


@pytest.mark.parametrize("iterations", [MIN_ITERATIONS, 10_000, MAX_ITERATIONS])
def test_a_number_that_all_users_have_is_always_shown(iterations: int) -> None:
    assert set(made_up({iterations: 3}).values()) == {iterations}


def test_without_users_it_is_the_default() -> None:
    assert set(made_up({}).values()) == {MIN_ITERATIONS}


def test_a_name_keeps_its_number_unless_the_users_change_much() -> None:
    before, after = made_up({8192: 50, 4096: 50}), made_up({4096: 50, 8192: 51})
    assert before == made_up({4096: 50, 8192: 50})
    assert sum(before[name] != after[name] for name in NAMES) < 30


def test_nobody_can_foretell_it_without_the_secret() -> None:
    ours, others = made_up({8192: 1, 4096: 1}), made_up({8192: 1, 4096: 1}, b"another")
    assert sum(ours[name] != others[name] for name in NAMES) > 300


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=str)
def test_an_unknown_user_fails_at_the_step_of_a_wrong_password_with_that_number(mechanism) -> None:
    server = ScramServer(
        mechanism, lambda _: None, nonce="abc", secret=SECRET, stored_iterations=lambda: {8192: 2, 10_000: 1}
    )
    client = ScramClient(mechanism, "user-7", "any", nonce="def")
    challenge = server.evaluate(client.evaluate(b""), 0)
    assert challenge.endswith(f",i={made_up_iterations(SECRET, 'user-7', {8192: 2, 10_000: 1})}".encode())
    with pytest.raises(SaslError, match=r"^Invalid client credentials$"):
        server.evaluate(client.evaluate(challenge), 0)


def test_an_unknown_token_gets_the_iterations_of_tokens() -> None:
    server = ScramServer(
        MECHANISMS["SCRAM-SHA-256"], lambda _: None, nonce="abc", secret=SECRET, stored_iterations=lambda: {8192: 2}
    )
    client = ScramClient(MECHANISMS["SCRAM-SHA-256"], "no-token", "any", nonce="def", is_token=True)
    assert server.evaluate(client.evaluate(b""), 0).endswith(f",i={MIN_ITERATIONS}".encode())


@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_known_and_unknown_users_take_the_same_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = MECHANISMS["SCRAM-SHA-256"]
    digests: list[bytes] = []
    digest = hmac.digest
    monkeypatch.setattr(hmac, "digest", lambda *arguments: digests.append(arguments[1]) or digest(*arguments))
    known = {"alice": made_up_credential(mechanism, b"another", "alice")}
    server = ScramServer(
        mechanism, known.get, nonce="nonce", secret=SECRET, stored_iterations=lambda: {4096: 1, 8192: 1}
    )
    digests.clear()
    server.evaluate(f"n,,n={name},r=abc".encode(), 0)
    assert len(digests) == 5  # a score for each number of iterations, and three for the credential
