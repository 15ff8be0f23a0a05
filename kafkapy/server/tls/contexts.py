"""Builds an ssl.SSLContext from a listener's ssl.* keys, for its server side or for clients of it.

A setting that OpenSSL or CPython cannot honour stops the start if it concerns trust, and is a warning if it is a
preference. OpenSSL reads keys only from files, so they are written to a file in memory; on systems without one, to a
file readable only by this user, which is deleted at once.

Deviation: Apache Kafka's server sends a list of authorities when it requests a client certificate. Here it sends none,
because CPython has no call for it: a client with several certificates has to know which one to present.
"""

import logging
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from kafkapy.config.tls import TlsConfig
from kafkapy.errors import ConfigError
from kafkapy.security import pem
from kafkapy.security.certificate import Certificate, read_certificate
from kafkapy.security.der import DerError
from kafkapy.server.tls.key_stores import KeyMaterial, open_key_store, open_trust_store

PROTOCOLS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CONTEXT_NAMES: Final = ("TLS", "TLSv1.2", "TLSv1.3", "SSL", "TLSv1", "TLSv1.1")
UNSAFE_CLIENTS: Final = ("TLSv1", "TLSv1.1")
KEY_MANAGERS: Final = ("SunX509", "NewSunX509", "PKIX")
TRUST_MANAGERS: Final = ("PKIX", "SunX509", "SunPKIX", "X509", "X.509")
RANDOM_SOURCES: Final = (
    None, "SHA1PRNG", "NativePRNG", "NativePRNGBlocking", "NativePRNGNonBlocking", "DRBG", "Windows-PRNG",
)  # fmt: skip
ENGINE_FACTORY: Final = "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"
HANDSHAKE_STEPS: Final = 4
"""More than the number of flights of an in-memory handshake."""
VERIFY_MODES: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
TICKETS: Final = 1
"""Session tickets that a TLS 1.3 client gets, as many as from Java. OpenSSL's default is 2."""
TICKETS_OF_CERTIFIED: Final = 0
"""The same where clients must present certificates: a ticket contains the certificate, which OpenSSL decodes again to
write it, 0.5 ms of a handshake's 2.6, and a client that resumes is not verified again. Apache Kafka resumes none."""

logger = logging.getLogger("kafkapy.server")


def server_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return the context for a listener's handshakes. Raises ConfigError."""
    return certified_context(tls)[0]


def certified_context(tls: TlsConfig) -> tuple[ssl.SSLContext, tuple[Certificate, ...]]:
    """Return that context with the leaf certificate of each of its keys. Raises ConfigError."""
    context = _new_context(ssl.PROTOCOL_TLS_SERVER, tls)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    keys = open_key_store(tls)
    if not keys:
        raise ConfigError("ssl.keystore.location", None, "a listener with TLS needs a key store (ssl.keystore.*)")
    certificates = _load_keys(context, tls, keys)
    context.verify_mode = VERIFY_MODES[tls.ssl_client_auth]
    context.num_tickets = TICKETS_OF_CERTIFIED if context.verify_mode == ssl.CERT_REQUIRED else TICKETS
    if context.verify_mode != ssl.CERT_NONE:
        _load_trusted(context, tls)
    else:
        open_trust_store(tls)  # a broken one stops the start, as in Kafka
    return context, certificates


def client_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return the context for a node's own connections to such a listener. Raises ConfigError."""
    context = _new_context(ssl.PROTOCOL_TLS_CLIENT, tls)
    _bound_client(context, tls.ssl_protocol)
    algorithm = tls.ssl_endpoint_identification_algorithm
    if algorithm.lower() not in ("", "https"):
        message = "String must be one of: https, or empty for no check of names"
        raise ConfigError("ssl.endpoint.identification.algorithm", algorithm, message)
    context.check_hostname = bool(algorithm)
    context.verify_mode = ssl.CERT_REQUIRED
    _load_trusted(context, tls)
    _load_keys(context, tls, open_key_store(tls))
    return context


def _bound_client(context: ssl.SSLContext, protocol: str) -> None:
    """Apply ssl.protocol. As in Java it bounds clients, not servers: one of TLSv1.2 does not speak TLSv1.3."""
    if protocol == "TLSv1.2":
        context.maximum_version = min(context.maximum_version, ssl.TLSVersion.TLSv1_2)
    if protocol in UNSAFE_CLIENTS or context.minimum_version > context.maximum_version:
        raise ConfigError("ssl.protocol", protocol, "a client of it speaks none of ssl.enabled.protocols")


def node_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return the context of a client for check_trusts, which checks no host names. Raises ConfigError."""
    client = client_context(tls)
    client.check_hostname = False
    return client


def check_trusts(server: ssl.SSLContext, client: ssl.SSLContext, location: str | None) -> None:
    """Raise ConfigError unless both sides trust each other. `location`: the trust store, for the message."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True))
    try:
        for _ in range(HANDSHAKE_STEPS):
            for side in sides:
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLError as error:
        message = (
            "A client SSLEngine created with the provided settings can't connect to a server SSLEngine created with "
            f"those settings: {error.reason}"
        )
        raise ConfigError("ssl.truststore.location", location, message) from error


def _new_context(protocol: int, tls: TlsConfig) -> ssl.SSLContext:
    _check_classes(tls)
    context = ssl.SSLContext(protocol)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # like Java, treat every trusted certificate as an anchor
    _choose_protocols(context, tls)
    _choose_ciphers(context, tls)
    return context


def _check_classes(tls: TlsConfig) -> None:
    """Refuse names of classes or algorithms that only a JVM could load."""
    known = (
        ("ssl.engine.factory.class", tls.ssl_engine_factory_class, (None, ENGINE_FACTORY)),
        ("ssl.provider", tls.ssl_provider, (None,)),
        ("ssl.protocol", tls.ssl_protocol, CONTEXT_NAMES),
        ("ssl.keymanager.algorithm", tls.ssl_keymanager_algorithm, KEY_MANAGERS),
        ("ssl.trustmanager.algorithm", tls.ssl_trustmanager_algorithm, TRUST_MANAGERS),
        ("ssl.secure.random.implementation", tls.ssl_secure_random_implementation, RANDOM_SOURCES),
    )
    for key, value, allowed in known:
        if value not in allowed:
            names = ", ".join(name for name in allowed if name) or "nothing"
            raise ConfigError(key, value, f"it cannot be honoured here, allowed is {names}")


def _choose_protocols(context: ssl.SSLContext, tls: TlsConfig) -> None:
    names = tls.ssl_enabled_protocols or tuple(PROTOCOLS)
    unknown = [name for name in names if name not in PROTOCOLS]
    if unknown:
        message = f"{unknown[0]} is not known or not safe, allowed are {', '.join(PROTOCOLS)}"
        raise ConfigError("ssl.enabled.protocols", ",".join(names), message)
    versions = [PROTOCOLS[name] for name in names]
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _choose_ciphers(context: ssl.SSLContext, tls: TlsConfig) -> None:
    """Offer the suites of ssl.cipher.suites that OpenSSL has; those of TLS 1.3 are all offered or none.

    Deviation: Apache Kafka starts with suites without authentication or encryption (anon, NULL), and with broken
    ciphers (RC4, DES). Here they stop the start, because a JVM does not negotiate them either unless its own security
    properties were changed.
    """
    suites = tls.ssl_cipher_suites
    if not suites:
        return
    from kafkapy.security.cipher_suites import OFFERED_TLS13, TLS13_SUITES, is_javas, openssl_name  # few set the key

    key, shown = "ssl.cipher.suites", ",".join(suites)
    unknown = [suite for suite in suites if not is_javas(suite)]
    if unknown:
        raise ConfigError(key, shown, f"Unsupported CipherSuite: {unknown[0]}")
    modern = {suite for suite in suites if suite in TLS13_SUITES}
    older = {suite: openssl_name(suite) for suite in suites if suite not in TLS13_SUITES}
    names = [name for name in older.values() if name is not None]
    if names:
        with suppress(ssl.SSLError):  # raised if it has none of them; then the former ones stay
            context.set_ciphers(":".join(names))
    offered = {cipher["name"] for cipher in context.get_ciphers()}.intersection(names)
    if not offered and not modern:
        raise ConfigError(key, shown, "OpenSSL offers none of these suites")
    for suite, name in older.items():
        if name not in offered:
            logger.warning("%s: OpenSSL does not offer %s", key, suite)
    _bound_versions(context, has_modern=bool(modern), has_older=bool(offered), shown=shown)
    if modern and modern != OFFERED_TLS13:
        logger.warning("%s: Python cannot choose among the TLS 1.3 suites; all of them are offered", key)


def _bound_versions(context: ssl.SSLContext, *, has_modern: bool, has_older: bool, shown: str) -> None:
    """Disable TLS versions that have no enabled suite."""
    if not has_older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not has_modern:
        context.maximum_version = min(context.maximum_version, ssl.TLSVersion.TLSv1_2)
    if context.minimum_version > context.maximum_version:
        raise ConfigError("ssl.cipher.suites", shown, "no suite belongs to a version of ssl.enabled.protocols")


# ---- keys and certificates


def _load_keys(context: ssl.SSLContext, tls: TlsConfig, keys: tuple[KeyMaterial, ...]) -> tuple[Certificate, ...]:
    """Load all keys; return their certificates. If two keys have the same type, OpenSSL uses only one: the first."""
    shown = tls.ssl_keystore_location or "[hidden]"
    key = "ssl.keystore.location" if tls.ssl_keystore_location else "ssl.keystore.key"
    certificates = tuple(_valid_certificate(material, key, shown) for material in keys)
    for material in reversed(keys):
        try:
            with _in_memory(material) as path:
                context.load_cert_chain(path, password=lambda: material.password or "")  # noqa: B023
        except ssl.SSLError as error:
            raise ConfigError(key, shown, _why(error, material)) from None
        except (
            OSError,
            ValueError,
        ) as error:  # no descriptor for a file in memory; a password that OpenSSL cannot take
            raise ConfigError(key, shown, f"the key or its certificate cannot be loaded: {error}") from None
    return certificates


def _why(error: ssl.SSLError, material: KeyMaterial) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the private key is not that of the certificate"
    if material.password is not None:
        return "the private key cannot be decrypted: is ssl.key.password right?"
    reason = error.reason.lower().replace("_", " ") if error.reason else "unknown format"
    return f"the key or its certificate cannot be loaded: {reason}"


def _valid_certificate(material: KeyMaterial, key: str, shown: str) -> Certificate:
    """Return a key's certificate; refuse an expired one. Deviation: Apache Kafka serves it. Here it stops the start,
    because every client refuses it."""
    certificate = _own_certificate(material, key, shown)
    if certificate.not_after < time.strftime("%Y%m%d%H%M%S", time.gmtime()):
        text = certificate.not_after
        message = f"the certificate of {certificate.subject} expired on {text[:4]}-{text[4:6]}-{text[6:8]}"
        raise ConfigError(key, shown, message)
    return certificate


def _own_certificate(material: KeyMaterial, key: str, shown: str) -> Certificate:
    """Return a key's own (leaf) certificate. Raises ConfigError."""
    try:
        return read_certificate(material.chain[0])
    except (DerError, ValueError) as error:
        raise ConfigError(key, shown, f"the certificate cannot be read: {error}") from error


def _load_trusted(context: ssl.SSLContext, tls: TlsConfig) -> None:
    trusted = open_trust_store(tls)
    if trusted is None:
        context.load_default_certs(
            ssl.Purpose.CLIENT_AUTH if context.protocol == ssl.PROTOCOL_TLS_SERVER else ssl.Purpose.SERVER_AUTH
        )
        return
    try:
        context.load_verify_locations(cadata=b"".join(trusted))
    except ssl.SSLError as error:
        shown = tls.ssl_truststore_location or "[hidden]"
        raise ConfigError("ssl.truststore.location", shown, f"a certificate cannot be read: {error.reason}") from None


@contextmanager
def _in_memory(material: KeyMaterial) -> Iterator[str]:
    """Yield the path of a temporary file with the key and its chain, in memory if the system supports that."""
    text = material.key_pem + "".join(pem.encode("CERTIFICATE", each) for each in material.chain)
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tls")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import tempfile  # with what it imports 5 ms of a start

    descriptor, path = tempfile.mkstemp()  # 0600
    try:
        os.write(descriptor, text.encode())
        os.close(descriptor)
        yield path
    finally:
        os.unlink(path)
