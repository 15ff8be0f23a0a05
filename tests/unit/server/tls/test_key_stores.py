"""Key and trust stores: what they hold, Kafka's rules between the keys, and what is said of a bad one."""

from pathlib import Path
from typing import Any

import pytest

from kafkapy.config.definitions import Password
from kafkapy.config.tls import TlsConfig
from kafkapy.errors import ConfigError
from kafkapy.security.certificate import subject_of
from kafkapy.server.tls.key_stores import open_key_store, open_trust_store
from tests.support.certificates import Authority

STORES = Path(__file__).parents[3] / "golden" / "key_stores"
AUTHORITY = Authority()
BROKER = AUTHORITY.issue("broker")
COMPANY = ",OU=Tests,O=Kafkapy\\, Inc."


def tls(**keys: Any) -> TlsConfig:
    secret = ("password", "key", "chain", "certificates")
    return TlsConfig(**{key: Password(v) if key.endswith(secret) and v else v for key, v in keys.items()})


def subjects(certificates: tuple[bytes, ...] | None) -> list[str]:
    assert certificates is not None
    return [subject_of(each).removesuffix(COMPANY) for each in certificates]


# ---- Java's files


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize(
    ("name", "key_password", "expected"),
    [
        ("keys.p12", None, [["CN=broker", "CN=ca"]]),
        ("keys.jks", "keypass", [["CN=broker"], ["CN=broker-rsa"]]),
        ("two_keys.p12", None, [["CN=broker"], ["CN=broker-rsa"]]),
    ],
)
def test_keytools_key_stores_are_opened_under_either_type(
    kind: str, name: str, key_password: str | None, expected: list[list[str]]
):
    keys = open_key_store(
        tls(
            ssl_keystore_type=kind,
            ssl_keystore_location=str(STORES / name),
            ssl_keystore_password="storepass",
            ssl_key_password=key_password,
        )
    )
    assert [subjects(each.chain) for each in keys] == expected
    assert all("BEGIN PRIVATE KEY" in each.key_pem for each in keys)
    assert "PRIVATE" not in repr(keys)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize(
    ("name", "password", "expected"),
    [
        ("trust.jks", "storepass", ["CN=ca"]),
        ("trust.jks", None, ["CN=ca"]),
        ("trust.p12", "storepass", ["CN=ca"]),
        ("trust_open.p12", "storepass", ["CN=broker"]),
        ("trust_open.p12", None, ["CN=broker"]),
        ("keys_open.p12", None, ["CN=broker"]),
        ("two_keys.p12", "storepass", ["CN=broker", "CN=broker-rsa"]),
        ("keys.p12", "storepass", ["CN=broker", "CN=ca"]),
        ("keys.jks", None, ["CN=broker", "CN=broker-rsa"]),
    ],
)
def test_keytools_trust_stores_hold_what_java_trusts(kind: str, name: str, password: str | None, expected: list[str]):
    config = tls(ssl_truststore_type=kind, ssl_truststore_location=str(STORES / name), ssl_truststore_password=password)
    assert subjects(open_trust_store(config)) == expected


@pytest.mark.parametrize(
    ("name", "password", "key_password", "reason"),
    [
        ("none.jks", "storepass", None, "the file cannot be read: No such file or directory"),
        ("keys.jks", "Wrong1", None, "tampered with, or its password is wrong"),
        ("keys.jks", "storepass", None, "the key of broker cannot be decrypted: its password is wrong"),
        ("keys.p12", "Wrong1", None, "cannot be opened, is its password right?"),
        ("keys.p12", "storepass", "another", "the key cannot be decrypted: ssl.key.password is not the store's"),
        ("keys.jceks", "storepass", None, "JCEKS is not known"),
        ("trust.jks", "storepass", None, "holds no private key with its certificate"),
        ("trust.p12", "storepass", None, "holds no private key with its certificate"),
        ("root.pem", "storepass", None, "the file is PEM: its type has to say so"),
    ],
)
def test_a_key_store_that_cannot_be_used_says_why(name: str, password: str, key_password: str | None, reason: str):
    path = str(STORES / name)
    config = tls(ssl_keystore_location=path, ssl_keystore_password=password, ssl_key_password=key_password)
    with pytest.raises(ConfigError) as raised:
        open_key_store(config)
    assert reason in str(raised.value)
    assert path in str(raised.value)
    assert password not in str(raised.value)


def test_a_pkcs12_file_in_ber_is_opened(tmp_path: Path):
    """Of indefinite length, as some programs write it."""
    data = (STORES / "keys.p12").read_bytes()
    assert data.startswith(b"\x30\x82")
    path = tmp_path / "ber.p12"
    path.write_bytes(b"\x30\x80" + data[4:] + b"\0\0")
    with pytest.warns(UserWarning, match="parsing as BER"):
        (key,) = open_key_store(tls(ssl_keystore_location=str(path), ssl_keystore_password="storepass"))
    assert subjects(key.chain) == ["CN=broker", "CN=ca"]


def test_what_a_file_is_does_not_depend_on_its_name(tmp_path: Path):
    for name, other in (("keys.p12", "p12.jks"), ("keys.jks", "jks.p12")):
        path = tmp_path / other
        path.write_bytes((STORES / name).read_bytes())
        key_password = "keypass" if name == "keys.jks" else None
        stored = {"ssl_keystore_location": str(path), "ssl_keystore_password": "storepass"}
        assert open_key_store(tls(**stored, ssl_key_password=key_password))
        trusted = {"ssl_truststore_location": str(path), "ssl_truststore_password": "storepass"}
        assert open_trust_store(tls(**trusted))


@pytest.mark.parametrize("name", ["trust.p12", "two_keys.p12"])
def test_encrypted_certificates_of_a_pkcs12_trust_store_are_not_loaded_without_password_as_in_java(name: str):
    with pytest.raises(ConfigError, match="trustAnchors must be non-empty"):
        open_trust_store(tls(ssl_truststore_location=str(STORES / name)))


# ---- PEM


@pytest.mark.parametrize("password", [None, "secret"])
def test_pem_comes_from_a_file_or_inline_with_whatever_stands_around_it(password: str | None, tmp_path: Path):
    key, chain = (
        BROKER.key_pem(password),
        f"Bag Attributes\n  a: b\n{BROKER.certificate_pem}\n{AUTHORITY.certificate_pem}",
    )
    path = tmp_path / "broker.pem"
    path.write_text(chain + key)
    one_line = {"ssl_keystore_key": " ".join(key.split("\n")), "ssl_keystore_certificate_chain": chain}
    for where in ({"ssl_keystore_location": str(path)}, one_line):
        (found,) = open_key_store(tls(ssl_keystore_type="PEM", ssl_key_password=password, **where))
        assert subjects(found.chain) == ["CN=broker", "CN=test CA"]
        assert found.key_pem == key
        assert found.password == password


def test_trusted_certificates_come_inline():
    config = tls(ssl_truststore_type="PEM", ssl_truststore_certificates=AUTHORITY.certificate_pem * 2)
    assert subjects(open_trust_store(config)) == ["CN=test CA"] * 2


KEY, CHAIN = BROKER.key_pem(), BROKER.certificate_pem


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"key": KEY}, "SSL private key can be specified only for PEM, but key store type is JKS."),
        ({"type": "PEM", "key": KEY}, "SSL private key is specified, but certificate chain is not specified."),
        ({"type": "PEM", "key": KEY, "certificate_chain": CHAIN, "location": "x"}, "Both SSL key store location and"),
        ({"type": "PEM", "key": KEY, "certificate_chain": CHAIN, "password": "x"}, "SSL key store password cannot be"),
        ({"type": "PEM", "certificate_chain": CHAIN}, "SSL certificate chain is specified, but private key is not"),
        ({"type": "PEM", "location": "x", "password": "x"}, "SSL key store password cannot be specified with PEM"),
        ({"password": "x"}, "SSL key store is not specified, but key store password is specified."),
        ({"location": "x"}, "SSL key store is specified, but key store password is not specified."),
        ({"type": "BKS"}, "only JKS, PKCS12, PEM are known here"),
        ({"type": "PEM", "key": CHAIN, "certificate_chain": CHAIN}, "Private key not provided"),
        ({"type": "PEM", "key": KEY * 2, "certificate_chain": CHAIN}, "Expected one private key, but found 2"),
        ({"type": "PEM", "key": KEY, "certificate_chain": KEY}, "At least one certificate expected, but none found"),
        ({"type": "PEM", "key": BROKER.key_pem("x"), "certificate_chain": CHAIN}, "ssl.key.password is not set"),
        ({"type": "PEM", "key": KEY[:200], "certificate_chain": CHAIN}, "has no end"),
    ],
)
def test_the_keys_of_a_key_store_go_together_as_in_kafka(keys: dict[str, str], reason: str):
    with pytest.raises(ConfigError) as raised:
        open_key_store(tls(**{f"ssl_keystore_{key}": value for key, value in keys.items()}))
    assert reason in str(raised.value)
    assert "BEGIN PRIVATE KEY" not in str(raised.value).replace("-----BEGIN PRIVATE KEY----- has no end", "")


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"certificates": CHAIN}, "SSL trust store certs can be specified only for PEM, but trust store type is JKS."),
        ({"type": "PEM", "certificates": CHAIN, "location": "x"}, "Both SSL trust store location and separate"),
        ({"type": "PEM", "certificates": CHAIN, "password": "x"}, "SSL trust store password cannot be specified"),
        ({"type": "PEM", "location": "x", "password": "x"}, "SSL trust store password cannot be specified"),
        ({"password": "x"}, "SSL trust store is not specified, but trust store password is specified."),
        ({"type": "PEM", "certificates": KEY}, "At least one certificate expected, but none found"),
        ({"location": str(STORES / "trust.jks"), "password": "x"}, "tampered with, or its password is wrong"),
    ],
)
def test_the_keys_of_a_trust_store_go_together_as_in_kafka(keys: dict[str, str], reason: str):
    with pytest.raises(ConfigError) as raised:
        open_trust_store(tls(**{f"ssl_truststore_{key}": value for key, value in keys.items()}))
    assert reason in str(raised.value)
