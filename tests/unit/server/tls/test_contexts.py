"""ssl.* keys -> contexts: what two of them agree on, and which values stop the start."""

import logging
import os
import ssl
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kafkapy.config.definitions import Password
from kafkapy.config.embedded import embedded_properties
from kafkapy.config.load import load
from kafkapy.config.tls import TlsConfig
from kafkapy.errors import ConfigError
from kafkapy.security.certificate import subject_of
from kafkapy.security.cipher_suites import TLS13_SUITES, openssl_name
from kafkapy.server.tls.contexts import client_context, server_context
from kafkapy.server.tls.listeners import principals
from tests.support.certificates import Authority, Identity

AUTHORITY = Authority()
BROKER, ALICE = AUTHORITY.issue("broker"), AUTHORITY.issue("alice", key_number=2)
STORES = Path(__file__).parents[3] / "golden" / "key_stores"


def tls(identity: Identity = BROKER, password: str | None = None, **keys: Any) -> TlsConfig:
    return TlsConfig(
        ssl_keystore_type="PEM",
        ssl_keystore_key=Password(identity.key_pem(password)),
        ssl_keystore_certificate_chain=Password(identity.certificate_pem),
        ssl_key_password=Password(password) if password else None,
        ssl_truststore_type="PEM",
        ssl_truststore_certificates=Password(AUTHORITY.certificate_pem),
        **keys,
    )


def shake(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> tuple[str, bytes | None]:
    """Return the suite that two contexts agree on, and the client's certificate. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=host)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    cipher = other.cipher()
    assert cipher is not None
    return cipher[0], other.getpeercert(binary_form=True)


@pytest.mark.parametrize("auth", ["none", "requested", "required"])
def test_client_certificates_are_requested_as_configured(auth: str):
    _, shown = shake(server_context(tls(ssl_client_auth=auth)), client_context(tls(ALICE)))
    assert shown == (None if auth == "none" else ALICE.certificate_der)


@pytest.mark.parametrize(("auth", "is_refused"), [("none", False), ("requested", False), ("required", True)])
def test_clients_without_a_certificate_are_served_unless_it_is_required(auth: str, is_refused: bool):
    anonymous = TlsConfig(
        ssl_truststore_type="PEM",
        ssl_truststore_certificates=Password(AUTHORITY.certificate_pem),
        ssl_enabled_protocols=("TLSv1.2",),
    )
    server = server_context(tls(ssl_client_auth=auth))
    if is_refused:
        with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            shake(server, client_context(anonymous))
    else:
        assert shake(server, client_context(anonymous))[1] is None


def test_a_strangers_certificate_is_refused_where_none_is_required():
    stranger = tls(Authority("another CA").issue("mallory"), ssl_enabled_protocols=("TLSv1.2",))
    with pytest.raises(ssl.SSLError):
        shake(server_context(tls(ssl_client_auth="requested")), client_context(stranger))


def test_a_certificate_that_is_trusted_itself_needs_no_authority():
    """Java: whatever the trust store holds is an anchor."""
    pinned = Password(ALICE.certificate_pem)
    server = TlsConfig(
        ssl_keystore_type="PEM",
        ssl_keystore_key=Password(BROKER.key_pem()),
        ssl_keystore_certificate_chain=Password(BROKER.certificate_pem),
        ssl_truststore_type="PEM",
        ssl_truststore_certificates=pinned,
        ssl_client_auth="required",
    )
    assert shake(server_context(server), client_context(tls(ALICE)))[1] == ALICE.certificate_der


@pytest.mark.parametrize(("auth", "count"), [("none", 1), ("requested", 1), ("required", 0)])
def test_a_client_gets_one_session_ticket_unless_it_must_present_a_certificate(auth: str, count: int):
    """The ticket would cost such a handshake a fifth."""
    assert server_context(tls(ssl_client_auth=auth)).num_tickets == count


def test_names_are_checked_unless_the_algorithm_is_empty():
    server = server_context(tls())
    assert shake(server, client_context(tls()), "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        shake(server, client_context(tls()), "127.0.0.2")
    assert shake(server, client_context(tls(ssl_endpoint_identification_algorithm="")), "127.0.0.2")


@pytest.mark.parametrize(
    ("suites", "expected"),
    [
        (("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",), "ECDHE-ECDSA-AES128-GCM-SHA256"),
        (("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",), "ECDHE-ECDSA-CHACHA20-POLY1305"),
        (
            ("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
            "TLS_AES_256_GCM_SHA384",
        ),
    ],
)
def test_suites_are_chosen_by_javas_names(suites: tuple[str, ...], expected: str):
    assert shake(server_context(tls(ssl_cipher_suites=suites)), client_context(tls()))[0] == expected


def test_the_servers_order_of_suites_counts():
    suites = ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")
    client = client_context(tls())
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers(":".join(filter(None, map(openssl_name, reversed(suites)))))
    for order in (suites, suites[::-1]):
        assert shake(server_context(tls(ssl_cipher_suites=order)), client)[0] == openssl_name(order[0])


def test_renegotiation_is_off_whatever_the_version_of_openssl():
    assert server_context(tls()).options & ssl.OP_NO_RENEGOTIATION


def test_the_protocol_bounds_clients_and_no_servers():
    """As OpenJDK 17's contexts of these names do."""
    server = server_context(tls(ssl_protocol="TLSv1.2"))
    assert shake(server, client_context(tls()))[0].startswith("TLS_AES")
    assert shake(server, client_context(tls(ssl_protocol="TLSv1.2")))[0].startswith("ECDHE-ECDSA")
    for keys in ({"ssl_protocol": "TLSv1.1"}, {"ssl_protocol": "TLSv1.2", "ssl_enabled_protocols": ("TLSv1.3",)}):
        with pytest.raises(ConfigError, match=r"speaks none of ssl\.enabled\.protocols"):
            client_context(tls(**keys))


def test_a_server_without_suites_of_a_version_does_not_speak_it():
    modern = server_context(tls(ssl_cipher_suites=TLS13_SUITES[:3]))
    with pytest.raises(ssl.SSLError):
        shake(modern, client_context(tls(ssl_enabled_protocols=("TLSv1.2",))))


def test_a_choice_among_the_suites_of_tls_13_is_a_warning(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        server_context(tls(ssl_cipher_suites=TLS13_SUITES[:1]))
    assert "cannot choose among the TLS 1.3 suites" in caplog.text


def test_suites_that_openssl_lacks_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture):
    """Java's list has suites of fixed keys, and one that is none: it says that renegotiation is secure."""
    lacking = ("TLS_ECDH_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_EMPTY_RENEGOTIATION_INFO_SCSV")
    for others in (("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",), TLS13_SUITES[:3]):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            context = server_context(tls(ssl_cipher_suites=(*lacking, *others)))
        assert caplog.messages == [f"ssl.cipher.suites: OpenSSL does not offer {suite}" for suite in lacking]
        assert shake(context, client_context(tls()))[0] == (openssl_name(others[0]) or others[0])
    with pytest.raises(ConfigError, match="OpenSSL offers none of these suites"):
        server_context(tls(ssl_cipher_suites=lacking))


CBC = "AES_256_CBC_SHA AES_128_CBC_SHA"
GCM = "AES_256_GCM_SHA384 AES_128_GCM_SHA256"
CBC_256 = f"AES_256_CBC_SHA256 AES_128_CBC_SHA256 {CBC}"
JAVAS_CIPHERS = {
    "ECDHE_ECDSA": f"{GCM} CHACHA20_POLY1305_SHA256 AES_256_CBC_SHA384 AES_128_CBC_SHA256 {CBC}",
    "ECDHE_RSA": f"{GCM} CHACHA20_POLY1305_SHA256 AES_256_CBC_SHA384 AES_128_CBC_SHA256 {CBC}",
    "DHE_RSA": f"{GCM} CHACHA20_POLY1305_SHA256 {CBC_256}",
    "DHE_DSS": f"{GCM} {CBC_256}",
    "RSA": f"{GCM} {CBC_256}",
}
"""What SSLEngine.getSupportedCipherSuites of OpenJDK 17 returns, by key exchange."""


def test_javas_whole_list_of_suites_is_taken(caplog: pytest.LogCaptureFixture):
    older = [f"TLS_{exchange}_WITH_{each}" for exchange, found in JAVAS_CIPHERS.items() for each in found.split()]
    suites = (*TLS13_SUITES[:3], *older, "TLS_EMPTY_RENEGOTIATION_INFO_SCSV")
    with caplog.at_level(logging.WARNING):
        context = server_context(tls(ssl_cipher_suites=suites))
    assert shake(context, client_context(tls()))[0] in suites
    left_out = {message.rpartition(" ")[2] for message in caplog.messages}
    assert {suite for suite in left_out if "_DSS_" not in suite} == {"TLS_EMPTY_RENEGOTIATION_INFO_SCSV"}


def test_names_of_suites_are_those_that_openssl_knows():
    output = subprocess.run(
        ["openssl", "ciphers", "-stdname", "ALL"], capture_output=True, text=True, check=True
    ).stdout
    pairs = [(fields[0], fields[2]) for fields in map(str.split, output.splitlines()) if fields[0] not in TLS13_SUITES]
    known = [(standard, name) for standard, name in pairs if openssl_name(standard) is not None]
    assert len(known) > 30
    assert [(standard, openssl_name(standard)) for standard, _ in known] == known


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"ssl_enabled_protocols": ("TLSv1.1",)}, "TLSv1.1 is not known or not safe"),
        ({"ssl_cipher_suites": ("TLS_NONSENSE",)}, "Unsupported CipherSuite: TLS_NONSENSE"),
        ({"ssl_cipher_suites": ("TLS_RSA_WITH_NULL_SHA256",)}, "Unsupported CipherSuite"),
        (
            {"ssl_cipher_suites": TLS13_SUITES[:3], "ssl_enabled_protocols": ("TLSv1.2",)},
            "no suite belongs to a version of ssl.enabled.protocols",
        ),
        ({"ssl_engine_factory_class": "com.example.Factory"}, "it cannot be honoured here"),
        ({"ssl_provider": "BCJSSE"}, "it cannot be honoured here"),
        ({"ssl_protocol": "DTLS"}, "it cannot be honoured here"),
        ({"ssl_keymanager_algorithm": "IbmX509"}, "it cannot be honoured here"),
        ({"ssl_trustmanager_algorithm": "AllowAll"}, "it cannot be honoured here"),
        ({"ssl_secure_random_implementation": "dice"}, "it cannot be honoured here"),
    ],
)
def test_what_cannot_be_honoured_stops_the_start(keys: dict[str, Any], reason: str):
    with pytest.raises(ConfigError, match=reason):
        server_context(tls(**keys))


def test_expired_locked_foreign_and_missing_keys_stop_the_start():
    with pytest.raises(ConfigError, match=r"the certificate of CN=old expired on 20\d\d-\d\d-\d\d"):
        server_context(tls(AUTHORITY.issue("old", days=-2)))
    locked = tls(password="right")
    wrong = TlsConfig(**{**_fields(locked), "ssl_key_password": Password("wrong")})
    with pytest.raises(ConfigError, match=r"is ssl.key.password right\?"):
        server_context(wrong)
    foreign = TlsConfig(**{**_fields(tls()), "ssl_keystore_key": Password(ALICE.key_pem())})
    with pytest.raises(ConfigError, match="the private key is not that of the certificate"):
        server_context(foreign)
    with pytest.raises(ConfigError, match="a listener with TLS needs a key store"):
        server_context(TlsConfig())


def _fields(config: TlsConfig) -> dict[str, Any]:
    return {field: getattr(config, field) for field in TlsConfig.keys().values()}


def test_a_trust_store_that_cannot_be_read_stops_the_start_of_a_listener_that_asks_for_no_certificate():
    broken = {**_fields(tls()), "ssl_truststore_certificates": Password("nothing")}
    with pytest.raises(ConfigError, match="At least one certificate expected, but none found"):
        server_context(TlsConfig(**broken))


def test_without_a_trust_store_the_systems_authorities_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "ca.pem").write_text(AUTHORITY.certificate_pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    untrusting = {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": None}
    server = server_context(TlsConfig(**{**_fields(tls(ssl_client_auth="required")), **untrusting}))
    client = client_context(TlsConfig(**{**_fields(tls(ALICE)), **untrusting}))
    assert shake(server, client)[1] == ALICE.certificate_der
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server, client_context(TlsConfig(**{**_fields(tls(ALICE)), **untrusting})))


def test_an_encrypted_key_is_opened_and_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert shake(server_context(tls(password="secret")), client_context(tls()))
    if hasattr(os, "memfd_create"):
        monkeypatch.delattr(os, "memfd_create")  # a system that has none
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert shake(server_context(tls(password="secret")), client_context(tls()))
    assert not list(tmp_path.iterdir())


def test_a_file_with_a_key_is_its_users_alone_and_goes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On a system without files in memory; a key that cannot be loaded leaves none, either."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    modes: list[int] = []
    unlink = os.unlink

    def noted(path: str) -> None:
        modes.append(stat.S_IMODE(os.stat(path).st_mode))
        unlink(path)

    monkeypatch.setattr(os, "unlink", noted)
    server_context(tls())
    wrong = {**_fields(tls(password="right")), "ssl_key_password": Password("wrong")}
    with pytest.raises(ConfigError, match=r"is ssl.key.password right\?"):
        server_context(TlsConfig(**wrong))
    assert modes == [0o600, 0o600]
    assert not list(tmp_path.iterdir())


WRITERS = """
import os, sys
from pathlib import Path
from kafkapy.config.definitions import Password
from kafkapy.config.tls import TlsConfig
from kafkapy.server.tls.contexts import client_context, server_context

stores, key, chain = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
password = {"ssl_keystore_password": Password("storepass")}
settings = [
    TlsConfig(
        ssl_keystore_type="PEM", ssl_keystore_key=Password(key), ssl_keystore_certificate_chain=Password(chain),
        ssl_key_password=Password("secret"),
    ),
    TlsConfig(ssl_keystore_location=str(stores / "keys.p12"), **password),
    TlsConfig(ssl_keystore_location=str(stores / "keys.jks"), ssl_key_password=Password("keypass"), **password),
]
written = []

def note(event, arguments):
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        written.append(arguments[0])

sys.addaudithook(note)
for tls in settings:
    server_context(tls)
    client_context(tls)
print(written)
with open(os.devnull, "w"):
    assert written == [os.devnull], "a file that is written is noted"
"""


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files in memory")
def test_no_key_reaches_a_disk():
    arguments = [str(STORES), BROKER.key_pem("secret"), BROKER.certificate_pem]
    command = [sys.executable, "-B", "-c", WRITERS, *arguments]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


ECDSA, RSA = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"


@pytest.mark.parametrize(
    ("name", "key_password", "suite"),
    [
        ("keys.p12", None, ECDSA),
        ("keys.jks", "keypass", ECDSA),
        ("keys.jks", "keypass", RSA),
        ("two_keys.p12", None, ECDSA),
        ("two_keys.p12", None, RSA),
    ],
)
def test_javas_key_stores_serve_with_each_kind_of_key(name: str, key_password: str | None, suite: str):
    server = TlsConfig(
        ssl_keystore_location=str(STORES / name),
        ssl_keystore_password=Password("storepass"),
        ssl_key_password=Password(key_password) if key_password else None,
    )
    client = TlsConfig(
        ssl_truststore_location=str(STORES / name),
        ssl_truststore_password=Password("storepass"),
        ssl_cipher_suites=(suite,),
    )
    assert shake(server_context(server), client_context(client))[0] == openssl_name(suite)


def test_of_two_keys_of_a_kind_the_first_is_served():
    """As Java's SunX509 does with these two of keytool."""
    path, password = str(STORES / "twin_keys.p12"), Password("storepass")
    store = {"ssl_keystore_location": path, "ssl_keystore_password": password}
    trusted = {"ssl_truststore_location": path, "ssl_truststore_password": password}
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(TlsConfig(**trusted)).wrap_bio(to_client, to_server, server_hostname="localhost")
    server = server_context(TlsConfig(**store)).wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert subject_of(client.getpeercert(binary_form=True) or b"").startswith("CN=first,")


# ---- listeners


def test_a_listener_has_its_own_keys_and_sasl_ssl_its_own_client_auth():
    properties = embedded_properties(data_dir="/logs") | {
        "listeners": "SSL://:1,IN://:2,OUT://:3,CONTROLLER://:4",
        "listener.security.protocol.map": "SSL:SSL,IN:SASL_SSL,OUT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SSL",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "listener.name.in.ssl.keystore.type": "JKS",
        "listener.name.out.ssl.client.auth": "requested",
    }
    config, _ = load(properties)
    found = {name: config.listener_tls(name) for name in ("SSL", "IN", "OUT")}
    assert {name: each.ssl_client_auth for name, each in found.items()} == {
        "SSL": "required",
        "IN": "none",
        "OUT": "requested",
    }
    assert [each.ssl_keystore_type for each in found.values()] == ["PEM", "JKS", "PEM"]


def test_principals_are_named_by_the_rules():
    named = principals(TlsConfig(ssl_principal_mapping_rules="RULE:^CN=(.*)$/$1/U"))
    assert named(ALICE.certificate_der) == "User:ALICE"
    assert named(None) == "User:ANONYMOUS"
    with pytest.raises(ConfigError, match="Invalid rule"):
        principals(TlsConfig(ssl_principal_mapping_rules="RULE:("))


HEAVY = ("cryptography", "datetime", "pathlib", "shutil", "tempfile", "kafkapy.security.jks")
"""cryptography takes 120 ms and 16 MB of a start, the others together 10 ms."""


def test_pem_is_served_without_heavy_modules(tmp_path: Path):
    path = BROKER.write(tmp_path, "broker")
    program = (
        "import sys; from kafkapy.config.tls import TlsConfig; from kafkapy.server.tls.contexts import server_context\n"
        f"server_context(TlsConfig(ssl_keystore_type='PEM', ssl_keystore_location={str(path)!r}))\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


STARTED = """
import socket, ssl, sys
from kafkapy import Broker
prefix = "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config"
properties = {
    "listeners": "SASL_SSL://127.0.0.1:0",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": sys.argv[1],
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": sys.argv[2],
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    prefix: "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
with Broker(properties=properties) as broker:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with context.wrap_socket(socket.create_connection((host, int(port)))) as connection:
        assert connection.version() == "TLSv1.3"
    heavy = ("cryptography", "jwt", "http.client", "kafkapy.server.tls.dev_certificates", "kafkapy.server.login.jwks")
    print([name for name in heavy if name in sys.modules])
"""


def test_a_secured_start_imports_no_cryptography(tmp_path: Path):
    """Nor what bearer tokens need: a start with a PEM listener is to take 0.35 s at most."""
    path = BROKER.write(tmp_path, "broker")
    trusted = tmp_path / "ca.pem"
    trusted.write_text(AUTHORITY.certificate_pem)
    command = [sys.executable, "-c", STARTED, str(path), str(trusted)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
