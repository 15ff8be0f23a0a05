"""Client assertions: signed tokens by which a client proves its identity to a token endpoint. RFC 7523, KIP-1139,
KIP-1258.

Either the content of sasl.oauthbearer.assertion.file, or made here and signed by the key in .private.key.file. Claims
and header come from .claim.aud, .iss and .sub, then from the JSON file .template.file, then from the clock; later ones
win. Files must be in the list of allowed files.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ConfigError
from kafkapy.security.client_jwt import read_part
from kafkapy.security.oauthbearer import JwtError
from kafkapy.server.login.bearer_tokens import (
    ALLOWED_FILES_KEY,
    ASSERTION_PREFIX,
    OAUTH,
    RETRIEVER_KEY,
    check_file_allowed,
)
from kafkapy.server.login.web_request import MAX_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

FILE_KEY: Final = f"{ASSERTION_PREFIX}file"
ALGORITHM_KEY: Final = f"{ASSERTION_PREFIX}algorithm"
PRIVATE_KEY_KEY: Final = f"{ASSERTION_PREFIX}private.key.file"
PASSPHRASE_KEY: Final = f"{ASSERTION_PREFIX}private.key.passphrase"
TEMPLATE_KEY: Final = f"{ASSERTION_PREFIX}template.file"
KEYS: Final = (
    RETRIEVER_KEY,
    FILE_KEY,
    ALGORITHM_KEY,
    PRIVATE_KEY_KEY,
    PASSPHRASE_KEY,
    TEMPLATE_KEY,
    *(f"{ASSERTION_PREFIX}claim.{name}" for name in ("aud", "exp.seconds", "iss", "jti.include", "nbf.seconds", "sub")),
)
DEFAULT_EXP_SECONDS: Final = 300
DEFAULT_NBF_SECONDS: Final = 60
ES256_CURVE: Final = "secp256r1"
ES256_BYTES: Final = 32


def uses_assertion(properties: Mapping[str, str]) -> bool:
    """Whether a client proves its identity by an assertion instead of its secret, as Apache Kafka decides it."""
    return bool(properties.get(FILE_KEY) or properties.get(f"{ASSERTION_PREFIX}claim.iss"))


def is_jwt_bearer(properties: Mapping[str, str]) -> bool:
    """Whether the assertion itself is the grant (RFC 7523, 2.1)."""
    return properties.get(RETRIEVER_KEY, "") == f"{OAUTH}.JwtBearerJwtRetriever"


def new_assertion(properties: Mapping[str, str], now_ms: int, new_id: Callable[[], str]) -> str:
    """Return an assertion. `new_id` returns a unique id. Blocks. Raises ConfigError, whose message has no secret."""
    path = properties.get(FILE_KEY)
    if path:
        return _of_file(path, properties)
    header, claims = _template(properties)
    header |= {"alg": properties.get(ALGORITHM_KEY) or "RS256", "typ": "JWT"}
    claims = _fixed_claims(properties) | claims | _times(properties, now_ms // 1000)
    if properties.get(f"{ASSERTION_PREFIX}claim.jti.include", "").strip().lower() == "true":
        claims["jti"] = new_id()
    unsigned = b".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
    return (unsigned + b"." + _base64(_signature(properties, unsigned))).decode()


def _of_file(path: str, properties: Mapping[str, str]) -> str:
    text = _read(FILE_KEY, path, properties).decode(errors="replace").strip()
    try:
        read_part(text, 0)
        read_part(text, 1)
    except JwtError as error:
        raise ConfigError(FILE_KEY, path, f"it holds no assertion: {error}") from error
    return text


def _fixed_claims(properties: Mapping[str, str]) -> dict[str, Any]:
    given = {name: properties.get(f"{ASSERTION_PREFIX}claim.{name}") for name in ("aud", "iss", "sub")}
    return {name: value.strip() for name, value in given.items() if value}


def _template(properties: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims of the template file, empty without one."""
    path = properties.get(TEMPLATE_KEY)
    if not path:
        return {}, {}
    try:
        found = json.loads(_read(TEMPLATE_KEY, path, properties))
    except (ValueError, RecursionError) as error:
        raise ConfigError(TEMPLATE_KEY, path, "it is no JSON") from error
    parts = [found.get(name, {}) if isinstance(found, dict) else None for name in ("header", "payload")]
    if not all(isinstance(part, dict) for part in parts):
        raise ConfigError(TEMPLATE_KEY, path, "it must be a JSON object whose header and payload are objects")
    return parts[0] or {}, parts[1] or {}


def _times(properties: Mapping[str, str], now_s: int) -> dict[str, Any]:
    after = _seconds(properties, f"{ASSERTION_PREFIX}claim.exp.seconds", DEFAULT_EXP_SECONDS)
    before = _seconds(properties, f"{ASSERTION_PREFIX}claim.nbf.seconds", DEFAULT_NBF_SECONDS)
    return {"iat": now_s, "exp": now_s + after, "nbf": now_s - before}


def _seconds(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key) or str(default)
    if not text.strip().isdecimal():
        raise ConfigError(key, text, "it must be a number of seconds")
    return int(text)


def _signature(properties: Mapping[str, str], unsigned: bytes) -> bytes:
    """Return the JWS signature (RFC 7515). Raises ConfigError."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    path = properties.get(PRIVATE_KEY_KEY)
    if not path:
        raise ConfigError(PRIVATE_KEY_KEY, None, "it is needed to sign a client assertion")
    key = _private_key(path, properties)
    algorithm = (properties.get(ALGORITHM_KEY) or "RS256").upper()
    if algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return _rsa_signature(key, unsigned)
    if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == ES256_CURVE:
        return _ec_signature(key, unsigned)
    raise ConfigError(PRIVATE_KEY_KEY, path, f"its key is of another kind than {ALGORITHM_KEY}={algorithm} needs")


def _private_key(path: str, properties: Mapping[str, str]) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    passphrase = properties.get(PASSPHRASE_KEY)
    data = _read(PRIVATE_KEY_KEY, path, properties)
    try:
        return load_pem_private_key(data, passphrase.encode() if passphrase else None)
    except (
        ValueError,
        TypeError,
        UnsupportedAlgorithm,
    ) as error:  # TypeError: a passphrase is missing, or given for a key that needs none
        raise ConfigError(PRIVATE_KEY_KEY, path, "its key cannot be read with this passphrase, or is no key") from error


def _rsa_signature(key: "RSAPrivateKey", data: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    return key.sign(data, PKCS1v15(), SHA256())


def _ec_signature(key: "EllipticCurvePrivateKey", data: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    return b"".join(part.to_bytes(ES256_BYTES, "big") for part in decode_dss_signature(key.sign(data, ECDSA(SHA256()))))


def _read(key: str, path: str, properties: Mapping[str, str]) -> bytes:
    check_file_allowed(key, path, tuple(each.strip() for each in properties.get(ALLOWED_FILES_KEY, "").split(",")))
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES)
    except OSError as error:
        raise ConfigError(key, path, f"it cannot be read: {error.strerror}") from error


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
