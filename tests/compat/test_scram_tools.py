"""kafka-configs.sh makes, shows and removes SCRAM credentials beside quotas: what it prints, also of errors."""

from collections.abc import Callable

import pytest

CONFIGS = "org.apache.kafka.tools.ConfigCommand"
COMPLETED = "Completed updating config for user {}.\n"
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"

Run = Callable[..., str]


@pytest.fixture
def users(java_tool: Run, bootstrap: str) -> Run:
    """Run the tool on users; one of them if `user` is not empty."""

    def run(user: str, action: str, *arguments: str) -> str:
        named = ("--entity-name", user) if user else ()
        return java_tool(CONFIGS, "--bootstrap-server", bootstrap, action, "--entity-type", "users", *named, *arguments)

    return run


def described(output: str) -> list[str]:
    """Return the lines; the order of mechanisms is a hash map's, another one each time Apache Kafka starts."""
    lines = []
    for line in output.splitlines():
        head, separator, configs = line.partition(" are ")
        lines.append(head + separator + ", ".join(sorted(configs.split(", "))))
    return lines


def test_credentials_are_made_shown_and_removed(users: Run, topic: str) -> None:
    assert users(topic, "--describe") == ""
    completed = COMPLETED.format(topic)
    assert users(topic, "--alter", "--add-config", f"{SHA_256}=[iterations=8192,password=secret]") == completed
    scram = f"SCRAM credential configs for user-principal '{topic}' are {SHA_256}=iterations="
    assert described(users(topic, "--describe")) == [f"{scram}8192"]
    assert users(topic, "--alter", "--add-config", f"{SHA_512}=[password=secret]") == completed
    assert users(topic, "--alter", "--add-config", f"{SHA_256}=[iterations=16384,password=other]") == completed
    assert users(topic, "--alter", "--add-config", "producer_byte_rate=1024") == completed
    expected = [
        f"Quota configs for user-principal '{topic}' are producer_byte_rate=1024.0",
        f"{scram}16384, {SHA_512}=iterations=4096",
    ]
    assert described(users(topic, "--describe")) == expected
    everybody = described(users("", "--describe"))
    assert [line for line in everybody if f"'{topic}'" in line] == expected
    for name in (SHA_256, "producer_byte_rate"):
        assert users(topic, "--alter", "--delete-config", name) == completed
    assert described(users(topic, "--describe")) == [
        f"SCRAM credential configs for user-principal '{topic}' are {SHA_512}=iterations=4096"
    ]
    assert users(topic, "--alter", "--delete-config", SHA_512) == completed
    assert users(topic, "--describe") == ""


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (
            ("--add-config", f"{SHA_256}=[password=a],{SHA_512}=[password=a]"),
            "DuplicateResourceException: A user credential cannot be altered twice in the same request",
        ),
        (
            ("--add-config", f"{SHA_512}=[iterations=16385,password=a]"),
            "UnacceptableCredentialException: Too many iterations",
        ),
        (
            ("--delete-config", SHA_256),
            "ResourceNotFoundException: Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_what_the_broker_refuses_is_printed(users: Run, topic: str, arguments: tuple[str, ...], reported: str) -> None:
    with pytest.raises(AssertionError, match=reported):
        users(topic, "--alter", *arguments)
    assert users(topic, "--describe") == ""
