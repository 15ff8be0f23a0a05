"""Reads the keys and certificates that ssl.* keys name: PEM (inline or a file), PKCS12, JKS.

Rules and error messages for combinations of keys are those of Kafka's DefaultSslEngineFactory. PKCS12 and JKS are
distinguished by their first bytes, as Java opens either under either name. Errors name the key, the file and the
reason, but no secret.

Deviation: Apache Kafka ignores certificates of a PKCS12 file without a trustedKeyUsage attribute, and takes private
keys in PEM as PKCS#8 only. Here all certificates of such a file without a private key are trusted, and older forms (RSA
PRIVATE KEY, EC PRIVATE KEY) are taken, because that is what openssl writes.
"""

import os
import stat
from typing import TYPE_CHECKING, Any, Final

from kafkapy.config.definitions import Password
from kafkapy.config.tls import TlsConfig
from kafkapy.dataclass import dataclass
from kafkapy.errors import ConfigError
from kafkapy.security import pem
from kafkapy.security.certificate import subject_of
from kafkapy.security.der import DerError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

    from kafkapy.security.pkcs12 import PlainParts

LOCATION, KEY, CHAIN = "ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain"
TRUST_LOCATION, TRUST_CERTIFICATES = "ssl.truststore.location", "ssl.truststore.certificates"
TYPES: Final = ("JKS", "PKCS12", "PEM")
MAX_FILE_BYTES: Final = 4 << 20
"""Limit of a key or trust store: twenty times the size of an operating system's CA certificates."""
_DER_SEQUENCE: Final = 0x30


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key as PEM, the password that encrypts it, and its certificate chain (DER), leaf first."""

    key_pem: str
    password: str | None
    chain: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"KeyMaterial({len(self.chain)} certificates)"


def open_key_store(tls: TlsConfig) -> tuple[KeyMaterial, ...]:
    """Return a listener's private keys, empty if none are configured. Raises ConfigError."""
    key, chain, path = tls.ssl_keystore_key, tls.ssl_keystore_certificate_chain, tls.ssl_keystore_location
    password, is_pem = tls.ssl_keystore_password, tls.ssl_keystore_type == "PEM"
    _check_type("ssl.keystore.type", tls.ssl_keystore_type)
    if key is not None:
        _check_inline_key(tls)
        assert chain is not None
        return (_pem_key(key.value, chain.value, tls.ssl_key_password, KEY, "in ssl.keystore.key"),)
    if chain is not None:
        raise ConfigError(CHAIN, "[hidden]", "SSL certificate chain is specified, but private key is not specified")
    if path is None:
        if password is not None:
            raise ConfigError(LOCATION, None, "SSL key store is not specified, but key store password is specified.")
        return ()
    if is_pem:
        if password is not None:
            message = "SSL key store password cannot be specified with PEM format, only key password may be specified"
            raise ConfigError(LOCATION, path, message)
        text = _read(LOCATION, path).decode("latin-1")
        return (_pem_key(text, text, tls.ssl_key_password, LOCATION, path),)
    if password is None:
        raise ConfigError(LOCATION, path, "SSL key store is specified, but key store password is not specified.")
    return _open_key_file(path, password.value, (tls.ssl_key_password or password).value)


def open_trust_store(tls: TlsConfig) -> tuple[bytes, ...] | None:
    """Return the trusted certificates (DER), None for the system's. Raises ConfigError."""
    inline, path = tls.ssl_truststore_certificates, tls.ssl_truststore_location
    password, kind = tls.ssl_truststore_password, tls.ssl_truststore_type
    _check_type("ssl.truststore.type", kind)
    if inline is not None:
        if kind != "PEM":
            message = f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}."
            raise ConfigError(TRUST_CERTIFICATES, "[hidden]", message)
        if path is not None:
            message = "Both SSL trust store location and separate trust certificates are specified."
            raise ConfigError(TRUST_CERTIFICATES, "[hidden]", message)
        _refuse_pem_password(password)
        return _pem_certificates(inline.value, TRUST_CERTIFICATES, "[hidden]")
    if path is None:
        if password is not None:
            message = "SSL trust store is not specified, but trust store password is specified."
            raise ConfigError(TRUST_LOCATION, None, message)
        return None
    if kind == "PEM":
        _refuse_pem_password(password)
        return _pem_certificates(_read(TRUST_LOCATION, path).decode("latin-1"), TRUST_LOCATION, path)
    trusted = _open_trust_file(path, password.value if password is not None else None)
    if not trusted:
        message = "the trust store holds no certificate that could be trusted (the trustAnchors must be non-empty)"
        raise ConfigError(TRUST_LOCATION, path, message)
    return trusted


def _check_type(key: str, kind: str) -> None:
    if kind not in TYPES:
        raise ConfigError(key, kind, f"only {', '.join(TYPES)} are known here")


def _check_inline_key(tls: TlsConfig) -> None:
    kind = tls.ssl_keystore_type
    if kind != "PEM":
        reason = f"SSL private key can be specified only for PEM, but key store type is {kind}."
    elif tls.ssl_keystore_certificate_chain is None:
        reason = "SSL private key is specified, but certificate chain is not specified."
    elif tls.ssl_keystore_location is not None:
        reason = "Both SSL key store location and separate private key are specified."
    elif tls.ssl_keystore_password is not None:
        reason = "SSL key store password cannot be specified with PEM format, only key password may be specified."
    else:
        return
    raise ConfigError(KEY, "[hidden]", reason)


def _refuse_pem_password(password: Password | None) -> None:
    if password is not None:
        message = "SSL trust store password cannot be specified for PEM format."
        raise ConfigError("ssl.truststore.password", "[hidden]", message)


def _read(key: str, path: str) -> bytes:
    """Read a regular file of limited size, as this blocks the loop when a key changes at run time."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(key, path, "it is no regular file")
        if found.st_size > MAX_FILE_BYTES:
            raise ConfigError(key, path, f"it has more than {MAX_FILE_BYTES} bytes")
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(key, path, f"the file cannot be read: {error.strerror}") from error


# ---- PEM


def _pem_key(key_text: str, chain_text: str, password: Password | None, key: str, shown: str) -> KeyMaterial:
    """Return the one private key of key_text with the chain of chain_text."""
    found = [block for block in _blocks(key_text, key, shown) if block.is_key]
    if len(found) != 1:
        reason = f"Expected one private key, but found {len(found)}" if found else "Private key not provided"
        raise ConfigError(key, shown, f"{reason} (PEM)")
    (block,) = found
    if block.is_encrypted and password is None:
        raise ConfigError(key, shown, "the private key is encrypted, but ssl.key.password is not set")
    if password is not None and not block.is_encrypted:
        raise ConfigError(key, shown, "ssl.key.password is set, but the private key is not encrypted")
    key_pem = block.text if "Proc-Type" in block.text else pem.encode(block.kind, block.data)
    chain = _pem_certificates(chain_text, key, shown)
    return KeyMaterial(key_pem, password.value if password is not None else None, chain)


def _pem_certificates(text: str, key: str, shown: str) -> tuple[bytes, ...]:
    found = tuple(block.data for block in _blocks(text, key, shown) if block.kind.endswith("CERTIFICATE"))
    if not found:
        raise ConfigError(key, shown, "At least one certificate expected, but none found (PEM)")
    return found


def _blocks(text: str, key: str, shown: str) -> list[pem.Block]:
    try:
        return pem.blocks(text)
    except ValueError as error:
        raise ConfigError(key, shown, f"no valid PEM: {error}") from error


# ---- JKS and PKCS12


def _open_key_file(path: str, password: str, key_password: str) -> tuple[KeyMaterial, ...]:
    from kafkapy.security import jks  # PEM needs none of it

    data = _read(LOCATION, path)
    try:
        if data.startswith(jks.MAGIC):
            entries = jks.read_jks(data, password).keys
            keys = tuple(KeyMaterial(_pkcs8(jks.open_key(each, key_password)), None, each.chain) for each in entries)
        else:
            keys = _pkcs12_keys(_open_pkcs12(data, password), data, password)
            if keys and key_password != password:  # cryptography opens only files with one password for both
                raise jks.KeyStoreError("the key cannot be decrypted: ssl.key.password is not the store's password")
    except jks.KeyStoreError as error:
        raise ConfigError(LOCATION, path, str(error)) from error
    keys = tuple(each for each in keys if each.chain)
    if not keys:
        raise ConfigError(LOCATION, path, "the key store holds no private key with its certificate")
    return keys


def _open_trust_file(path: str, password: str | None) -> tuple[bytes, ...]:
    """As in Java: trusted certificate entries, and the leaf certificate of each key entry."""
    from kafkapy.security import jks

    data = _read(TRUST_LOCATION, path)
    try:
        if data.startswith(jks.MAGIC):
            store = jks.read_jks(data, password)
            return (*store.trusted, *(each.chain[0] for each in store.keys if each.chain))
        if password is None:  # Java does not see encrypted certificates then, and reports no error
            return _plain_parts(data).trusted
        return _pkcs12_trusted(_open_pkcs12(data, password))
    except (jks.KeyStoreError, DerError) as error:
        raise ConfigError(TRUST_LOCATION, path, str(error)) from error


def _pkcs8(key: bytes) -> str:
    return pem.encode("PRIVATE KEY", key)


def _open_pkcs12(data: bytes, password: str) -> "PKCS12KeyAndCertificates":
    """Open a PKCS12 file. Raises KeyStoreError."""
    from kafkapy.security import jks

    if data.startswith(jks.JCEKS_MAGIC):
        raise jks.KeyStoreError("JCEKS is not known: keytool -importkeystore makes PKCS12 of it")
    if b"-----BEGIN" in data:
        raise jks.KeyStoreError("the file is PEM: its type has to say so")
    if not data or data[0] != _DER_SEQUENCE:
        raise jks.KeyStoreError("the file is neither JKS nor PKCS12")
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12  # 120 ms, 16 MB

    try:
        return load_pkcs12(data, password.encode())
    except Exception as error:  # a damaged file may cause any error
        raise jks.KeyStoreError(f"the PKCS12 file cannot be opened, is its password right? ({error})") from error


def _plain_parts(data: bytes) -> "PlainParts":
    """Return the parts of a PKCS12 file that are not encrypted together. Raises KeyStoreError."""
    from kafkapy.security import jks
    from kafkapy.security.pkcs12 import plain_parts

    try:
        return plain_parts(data)
    except DerError as error:
        raise jks.KeyStoreError(f"the file is neither JKS nor PKCS12: {error}") from error


def _encrypted_keys(data: bytes) -> tuple[bytes, ...]:
    """Return the keys of a PKCS12 file that has several; none of one in BER, as keytool and openssl write none."""
    from kafkapy.security.pkcs12 import plain_parts

    try:
        found = plain_parts(data).encrypted_keys
    except DerError:
        return ()
    return found if len(found) > 1 else ()


def _open_key(encrypted: bytes, password: str) -> Any:
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    from kafkapy.security import jks

    try:
        return load_der_private_key(encrypted, password.encode())
    except Exception as error:  # as above
        raise jks.KeyStoreError(f"a key of the PKCS12 file cannot be opened ({error})") from error


def _pkcs12_keys(store: "PKCS12KeyAndCertificates", data: bytes, password: str) -> tuple[KeyMaterial, ...]:
    """Return each key of a PKCS12 file with its chain. Raises KeyStoreError."""
    from kafkapy.security import jks

    try:
        return _keys_with_chains(store, data, password)
    except jks.KeyStoreError:
        raise
    except Exception as error:  # cryptography reads names and public keys only when they are asked for
        raise jks.KeyStoreError(f"a certificate of the PKCS12 file cannot be read ({error})") from error


def _keys_with_chains(store: "PKCS12KeyAndCertificates", data: bytes, password: str) -> tuple[KeyMaterial, ...]:
    """As _pkcs12_keys, but any error may be raised. cryptography returns one key and all certificates."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    if store.key is None or store.cert is None:
        return ()

    def identity(holder: Any) -> bytes:
        public: bytes = holder.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return public

    certificates = [store.cert.certificate, *(each.certificate for each in store.additional_certs)]
    # a key belongs to the certificate with its public key; names and key ids in the file are not to be relied on
    leaves = {identity(each): each for each in reversed(certificates)}
    others = [_open_key(each, password) for each in _encrypted_keys(data)]
    keys: list[KeyMaterial] = []
    for key in {identity(each): each for each in (store.key, *others)}.values():
        leaf = leaves.get(identity(key))
        if leaf is None:
            continue
        issuers = {each.subject: each for each in certificates if each != leaf}
        chain = [leaf]
        while (issuer := issuers.pop(chain[-1].issuer, None)) is not None:
            chain.append(issuer)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        keys.append(KeyMaterial(text, None, tuple(each.public_bytes(Encoding.DER) for each in chain)))
    return tuple(keys)


def _pkcs12_trusted(store: "PKCS12KeyAndCertificates") -> tuple[bytes, ...]:
    """Return the trusted certificates: with a key, only its leaf and certificates that have a name of their own.

    keytool names the certificates of a chain by their subjects.
    """
    from cryptography.hazmat.primitives.serialization import Encoding

    own = [] if store.cert is None else [store.cert.certificate.public_bytes(Encoding.DER)]
    for each in store.additional_certs:
        encoded = each.certificate.public_bytes(Encoding.DER)
        name = each.friendly_name
        if not own or (name is not None and not _is_subject(name, encoded)):
            own.append(encoded)
    return tuple(own)


def _is_subject(name: bytes, certificate: bytes) -> bool:
    return name.decode("utf-8", "replace").lower() == subject_of(certificate).lower()
