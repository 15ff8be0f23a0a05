"""`--add-scram`: what it reads, and Kafka's complaints, which show no password here."""

import base64

import pytest

from kafkapy.metadata.scram_types import MECHANISMS, keys_of, salted_password
from kafkapy.server.process.system_clock import SystemRandom
from kafkapy.storage.offline.format import FormatError
from kafkapy.storage.offline.scram_arguments import parse_scram_argument

SHA_512 = MECHANISMS["SCRAM-SHA-512"]


def parse(text: str):
    return parse_scram_argument(text, SystemRandom())


def test_a_password_gets_a_salt_of_its_own() -> None:
    first, second = (parse(" SCRAM-SHA-512=[name=alice,password=a=b,iterations=5000]") for _ in range(2))
    salted = salted_password(SHA_512, "a=b", first.salt, 5000)
    assert (first.name, first.mechanism, first.iterations) == ("alice", 2, 5000)
    assert (first.stored_key, first.server_key) == keys_of(SHA_512, salted)
    assert first.salt != second.salt


def test_a_salted_password_is_taken_with_its_salt() -> None:
    salted = base64.b64encode(salted_password(SHA_512, "pw", b"salt", 4096)).decode()
    given = parse(f'SCRAM-SHA-512=[name="alice",salt="c2FsdA==",saltedpassword="{salted}",]')
    assert given == parse("SCRAM-SHA-512=[name=alice,salt=c2FsdA==,password=pw]")


def test_a_password_wins_over_a_salted_one() -> None:
    alone = parse("SCRAM-SHA-256=[name=a,salt=YQ==,password=pw]")
    assert parse("SCRAM-SHA-256=[name=a,salt=YQ==,password=pw,saltedpassword=*]") == alone


def test_base64_may_lack_its_padding() -> None:
    given = parse("SCRAM-SHA-256=[name=a,salt=YQ,saltedpassword=YmI]")
    assert given == parse("SCRAM-SHA-256=[name=a,salt=YQ==,saltedpassword=YmI=]")


def test_iterations_are_read_as_a_java_int() -> None:
    assert parse("SCRAM-SHA-256=[name=a,password=pw,iterations=+0004097]").iterations == 4097


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("SCRAM-SHA-256", "Failed to find equals sign in SCRAM argument"),
        ("SCRAM-SHA-1=[name=a,password=s3cret]", "The add-scram mechanism SCRAM-SHA-1 is not supported."),
        ("SCRAM-SHA-256=name=a,password=s3cret]", "Expected configuration string to start with \\["),
        ("SCRAM-SHA-256=[name=a,password=s3cret", "Expected configuration string to end with \\]"),
        ("SCRAM-SHA-256=[password=s3cret]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name=a]", "You must supply one of 'password' or 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=s3cret]", "You must supply 'salt' with 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,salt=*,password=s3cret]", "Failed to decode given salt"),
        ("SCRAM-SHA-256=[name=a,salt=YQ==,saltedpassword=s3cret*]", "Failed to decode given saltedPassword"),
        ("SCRAM-SHA-256=[name=a,password=s3cret,s3cret]", "No equals sign found in a SCRAM component"),
        ("SCRAM-SHA-256=[name=a,password=s3cret,x=y]", "Unknown SCRAM configurations: x"),
        ("SCRAM-SHA-256=[name=a,password=s3cret,iterations=x]", "Failed to parse iterations count: x"),
        ("SCRAM-SHA-256=[name=a,password=s3cret,iterations=4_096]", "Failed to parse iterations count: 4_096"),
        ("SCRAM-SHA-256=[name=a,password=s3cret,iterations= 4096]", "Failed to parse iterations count:  4096"),
        ("SCRAM-SHA-256=[name=a,password=s3cret,iterations=-]", "Failed to parse iterations count: -"),
        ("SCRAM-SHA-256=[name=a,password=s3cret,iterations=2147483648]", "Failed to parse iterations count: 2147"),
        ("SCRAM-SHA-256=[name=a,salt=\u00fc,password=s3cret]", "Failed to decode given salt"),
        ("SCRAM-SHA-256=[name=a,salt=YQ=,password=s3cret]", "Failed to decode given salt"),
        ("SCRAM-SHA-256=[name=a,iterations=1]", "You must supply one of 'password' or 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,password=s3cret,iterations=1,x=y]", "Unknown SCRAM configurations: x"),
        ("SCRAM-SHA-256=[name=a,salt=YQ==,saltedpassword=*,x=y]", "Failed to decode given saltedPassword"),
        ("SCRAM-SHA-256=[name=a,password=]", "must not be empty"),
        ("SCRAM-SHA-256=[name=a,salt=YQ==,saltedpassword=]", "must not be empty"),
        ("SCRAM-SHA-256=[name=a,password=s3cret,iterations=4095]", ">= 4096 for add-scram using SCRAM_SHA_256"),
        ("SCRAM-SHA-512=[name=a,password=s3cret,iterations=16385]", "<= 16384 for add-scram using SCRAM_SHA_512"),
    ],
)
def test_what_cannot_be_is_refused_without_the_secret(text, complaint) -> None:
    with pytest.raises(FormatError, match=complaint) as error:
        parse(text)
    assert "s3cret" not in str(error.value)
