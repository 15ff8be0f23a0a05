"""Keys that sign bearer tokens, the tokens, and an IO pool that works at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from kafkapy.security.sasl import SaslServer, WorkNeeded

WALL_MS = 1_800_000_000_000
KINDS = {
    "RS256": (lambda: rsa.generate_private_key(65537, 2048), RSAAlgorithm),
    "ES256": (lambda: ec.generate_private_key(ec.SECP256R1()), ECAlgorithm),
    "EdDSA": (ed25519.Ed25519PrivateKey.generate, OKPAlgorithm),
}


class ImmediatePool:
    """seams.IoPool."""

    def submit(self, call: Callable[[], Any], on_done: Callable[[Any, BaseException | None], None]) -> None:
        try:
            result = call()
        except Exception as error:
            on_done(None, error)
        else:
            on_done(result, None)

    def resize(self, worker_count: int) -> None: ...

    def close(self) -> None: ...


class SigningKey:
    def __init__(self, key_id: str | None, algorithm: str = "ES256") -> None:
        make, self._kind = KINDS["RS256" if algorithm[:2] in ("RS", "PS") else algorithm]
        self.private: Any = make()
        self.key_id = key_id
        self.algorithm = algorithm

    @property
    def jwk(self) -> dict[str, Any]:
        public = self._kind.to_jwk(self.private.public_key(), as_dict=True)
        return {**public, "alg": self.algorithm} | ({} if self.key_id is None else {"kid": self.key_id})

    def token(self, *, now_ms: int = WALL_MS, without: str = "", key_id: str | None = None, **claims: Any) -> str:
        now_s = now_ms // 1000
        payload = {"sub": "alice", "iss": "us", "aud": "kafka", "iat": now_s, "exp": now_s + 60, **claims}
        payload.pop(without, None)
        header = {} if (key_id or self.key_id) is None else {"kid": key_id or self.key_id}
        return jwt.encode(payload, self.private, algorithm=self.algorithm, headers=header)


def jwks(*keys: SigningKey) -> bytes:
    return json.dumps({"keys": [key.jwk for key in keys]}).encode()


def write_jwks(path: Path, *keys: SigningKey) -> str:
    """Return the URL."""
    path.write_bytes(jwks(*keys))
    return path.as_uri()


def evaluate(machine: SaslServer, response: bytes, now_ms: int) -> bytes:
    """Return a mechanism's challenge, with its work done here."""
    try:
        return machine.evaluate(response, now_ms)
    except WorkNeeded as needed:
        needed.work()
    return machine.evaluate(response, now_ms)


def bearer(token: str, authorization_id: str = "") -> bytes:
    """Return what a client sends."""
    named = f"a={authorization_id}" if authorization_id else ""
    return f"n,{named},\x01auth=Bearer {token}\x01\x01".encode()
