"""What is named as a key or trust store is read on the loop: it must be a file, and a small one."""

import os
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from kafkapy.errors import ConfigError
from kafkapy.server.tls.contexts import certified_context
from kafkapy.server.tls.key_stores import MAX_FILE_BYTES, open_key_store, open_trust_store
from tests.support.certificates import Authority
from tests.unit.server.tls.test_key_stores import tls

PUBLIC_KEY_OID = bytes.fromhex("06072a8648ce3d0201")
"""id-ecPublicKey; with another last byte an algorithm that nobody knows."""


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="it is no regular file"):
        open_key_store(tls(ssl_keystore_type="PEM", ssl_keystore_location=str(pipe)))
    with pytest.raises(ConfigError, match="it is no regular file"):
        open_trust_store(tls(ssl_truststore_type="JKS", ssl_truststore_location="/dev/zero"))


def test_a_file_that_no_store_is_as_large_as_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(ConfigError, match=f"it has more than {MAX_FILE_BYTES} bytes"):
        open_trust_store(tls(ssl_truststore_type="PEM", ssl_truststore_location=str(path)))


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "store.pem").write_text("nothing")
    (tmp_path / "link").symlink_to("store.pem")
    with pytest.raises(ConfigError, match="At least one certificate expected"):
        open_trust_store(tls(ssl_truststore_type="PEM", ssl_truststore_location=str(tmp_path / "link")))


def test_a_certificate_with_a_key_of_an_unknown_algorithm_is_an_error_of_the_file(tmp_path: Path) -> None:
    """A changed file is read by a running broker, which any other error would stop."""
    identity = Authority().issue("broker")
    unknown = x509.load_der_x509_certificate(
        Authority("another CA").issue("x").certificate_der.replace(PUBLIC_KEY_OID, PUBLIC_KEY_OID[:-1] + b"\x63", 1)
    )
    path = tmp_path / "store.p12"
    path.write_bytes(
        serialize_key_and_certificates(
            b"broker", identity.key, identity.certificate, [unknown], BestAvailableEncryption(b"secret")
        )
    )
    with pytest.raises(ConfigError, match="a certificate of the PKCS12 file cannot be read"):
        open_key_store(tls(ssl_keystore_type="PKCS12", ssl_keystore_location=str(path), ssl_keystore_password="secret"))


def test_a_password_that_openssl_cannot_take_is_an_error_of_the_file(tmp_path: Path) -> None:
    password = "p" * 1025
    identity = Authority().issue("broker")
    path = tmp_path / "store.pem"
    path.write_text(identity.key_pem(password[:100]) + identity.certificate_pem)
    with pytest.raises(ConfigError, match="password cannot be longer than"):
        certified_context(tls(ssl_keystore_type="PEM", ssl_keystore_location=str(path), ssl_key_password=password))
