"""Address ranges as hosts of ACLs: the cases are what Apache Kafka 4.4.0 answers (CidrUtils)."""

import pytest

from kafkapy.metadata.cidr import is_in_range, range_error


@pytest.mark.parametrize(
    ("host", "pattern", "is_in"),
    [
        ("10.1.2.3", "10.1.0.0/16", True),
        ("10.1.0.0", "10.1.0.0/16", True),
        ("10.1.255.255", "10.1.99.99/16", True),
        ("10.2.0.0", "10.1.0.0/16", False),
        ("192.168.1.7", "192.168.1.7/32", True),
        ("192.168.1.6", "192.168.1.7/32", False),
        ("192.168.1.6", "192.168.1.7/31", True),
        ("255.255.255.255", "0.0.0.0/0", True),
        ("0.0.0.0", "0.0.0.0/0", False),
        ("10.1.2.3", "010.001.0.0/16", True),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::/32", True),
        ("2001:db9:0:0:0:0:0:1", "2001:db8::/32", False),
        ("0:0:0:0:0:0:0:1", "::1/128", True),
        ("fe80:0:0:0:0:0:0:1", "::/0", True),
        ("10.1.2.3", "::/0", False),
        ("2001:db8:0:0:0:0:0:1", "0.0.0.0/0", False),
        ("10.1.2.3", "10.1.2.3", False),
        ("10.1.2.3", "10.1.0.0/33", False),
        ("10.1.2.3", "a/b", False),
        ("a host", "10.0.0.0/8", False),
    ],
)
def test_addresses_in_and_beside_a_range(host: str, pattern: str, is_in: bool) -> None:
    assert is_in_range(host, pattern) is is_in


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("10.1.0.0/16", None),
        ("2001:db8::/32", None),
        ("::/+0", None),
        ("10.1.0.0/33", "Value [33] not in range [0,32]"),
        ("10.1.0.256/8", "Value [256] not in range [0,255]"),
        ("10.1.0/8", "Could not parse [10.1.0/8]"),
        ("10.1.0.0/", "Could not parse [10.1.0.0/]"),
        ("10.1.0.0/8\n", "Could not parse [10.1.0.0/8\n]"),
        ("localhost/8", "Could not parse [localhost/8]"),
        ("::/129", "Could not parse [::/129] - prefix length must be between 0 and 128"),
        ("::/x", "Could not parse [::/x] - invalid prefix length"),
        ("::g/8", "Could not parse [::g]"),
        ("::ffff:10.0.0.1/8", "Could not parse [::ffff:10.0.0.1] - not an IPv6 address"),
    ],
)
def test_what_is_no_range_is_refused_with_the_reason(pattern: str, reason: str | None) -> None:
    assert range_error(pattern) == reason
