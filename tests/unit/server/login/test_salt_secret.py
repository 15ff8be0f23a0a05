"""The secret from which salts of unknown SCRAM users derive: nobody can compute it, and it stays as long as it can."""

from kafkapy.config.definitions import Password
from kafkapy.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from kafkapy.server.login.authentication import salt_secret

Scram = dict[tuple[int, str], UserScramCredentialRecord]


def users(*names: str, password: bytes = b"") -> Scram:
    return {
        (1, name): UserScramCredentialRecord(
            name, mechanism=1, stored_key=b"s" + name.encode() + password, server_key=b"k" + name.encode()
        )
        for name in names
    }


MANY = users(*(f"user-{number}" for number in range(50)))


def secret(scram: Scram, token_key: Password | None = None) -> bytes:
    return salt_secret("cluster", token_key, scram)


def test_all_nodes_have_the_same_whatever_the_order_of_the_users() -> None:
    assert secret(MANY) == secret(dict(reversed(MANY.items())))


def test_it_depends_on_the_keys_of_two_users_and_on_no_others() -> None:
    changes = [secret(MANY | users(name, password=b"new")) != secret(MANY) for _, name in MANY]
    assert changes.count(True) == 2
    removals = [secret({key: value for key, value in MANY.items() if key != gone}) != secret(MANY) for gone in MANY]
    assert removals == changes


def test_one_user_alone_is_enough_and_none_is_not_needed() -> None:
    assert len({secret({}), secret(users("a")), secret(users("a", password=b"new"))}) == 3


def test_with_a_token_key_users_change_nothing() -> None:
    key = Password("secret")
    assert secret(MANY, key) == secret({}, key) != secret({})
