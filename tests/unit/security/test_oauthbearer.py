"""OAUTHBEARER: which messages and tokens are accepted; each way in which a token is not."""

import base64
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed448, ed25519, rsa

from kafkapy.security.jwt_validator import JwtValidator, parse_jwks
from kafkapy.security.oauthbearer import INVALID_TOKEN, MAX_TOKEN_BYTES, JwtError, OAuthBearerClient, OAuthBearerServer
from kafkapy.security.sasl import SaslError, VisibleSaslError, WorkNeeded
from tests.support.bearer_tokens import WALL_MS, SigningKey, bearer, evaluate, jwks

KEY = SigningKey("one")
OTHER = SigningKey("two")
EXPIRES_MS = WALL_MS + 60_000


def validator(*keys: SigningKey, **settings) -> JwtValidator:
    found = parse_jwks(jwks(*(keys or (KEY, OTHER))))
    settings = {"issuer": "us", "audiences": ("kafka", "others"), "clock_skew_seconds": 30, **settings}
    return JwtValidator(
        lambda key_id, now_ms: [key for key in found if key_id in (None, key.key_id)],
        scope_claim="scope",
        name_claim="sub",
        **settings,
    )


def server(refusals: list[str] | None = None, **settings) -> OAuthBearerServer:
    return OAuthBearerServer(validator(**settings), (refusals if refusals is not None else []).append)


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256", "EdDSA"])
def test_a_signed_token_logs_its_subject_in(algorithm) -> None:
    key = SigningKey("key", algorithm)
    machine = OAuthBearerServer(validator(key), [].append)
    assert evaluate(machine, bearer(key.token()), WALL_MS) == b""
    assert machine.is_complete
    assert (machine.authorization_id, machine.expires_at_ms) == ("alice", EXPIRES_MS)


def test_a_token_without_key_id_is_tried_with_each_key() -> None:
    nameless = SigningKey(None)
    machine = OAuthBearerServer(validator(KEY, SigningKey("rsa", "RS256"), nameless), [].append)
    evaluate(machine, bearer(nameless.token()), WALL_MS)
    assert machine.is_complete


def unsigned(**header: object) -> str:
    claims = {"sub": "alice", "iss": "us", "aud": "kafka", "iat": WALL_MS // 1000, "exp": WALL_MS // 1000 + 60}
    parts = ({"alg": "none", **header}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def signed_with_the_public_key() -> str:
    """The old trick: HS256 with what everybody knows as its secret."""
    secret = base64.urlsafe_b64encode(jwks(KEY)).decode()
    return jwt.encode({"sub": "alice", "exp": WALL_MS // 1000 + 60}, secret, algorithm="HS256", headers={"kid": "one"})


def of_text(claims: bytes, **header: object) -> str:
    """Return a token of any text, signed with the right key."""
    return jwt.PyJWS().encode(claims, KEY.private, algorithm=KEY.algorithm, headers={"kid": "one", **header})


def critical() -> str:
    """RFC 7515, section 4.1.11: who does not know an extension that is critical must refuse the token."""
    claims = {"sub": "alice", "iss": "us", "aud": "kafka", "iat": WALL_MS // 1000, "exp": WALL_MS // 1000 + 60}
    headers = {"kid": "one", "crit": ["bound-to"], "bound-to": "10.0.0.7"}
    return jwt.encode(claims, KEY.private, algorithm=KEY.algorithm, headers=headers)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (KEY.token(exp=WALL_MS // 1000 - 30), "expired"),
        (KEY.token(iat=WALL_MS // 1000 + 61), "exp cannot be before iat or nbf"),
        (KEY.token(nbf=WALL_MS // 1000 + 20, exp=WALL_MS // 1000 + 10), "exp cannot be before iat or nbf"),
        (KEY.token(nbf=WALL_MS // 1000 + 31), "not valid yet"),
        (KEY.token(iss="them"), "issuer"),
        (KEY.token(without="iss"), "issuer"),
        (KEY.token(aud="elsewhere"), "audience"),
        (KEY.token(aud=["elsewhere", "nowhere"]), "audience"),
        (KEY.token(without="aud"), "audience"),
        (KEY.token(aud=["kafka", 5]), "audience"),
        (of_text(b'{"sub":"alice","sub":"bob"}'), "no JSON object"),
        (of_text(b'{"sub":"alice","x":{"y":1,"y":2}}'), "no JSON object"),
        (of_text(b'{"x":NaN}'), "no JSON object"),
        (of_text(b"[]"), "no JSON object"),
        (of_text(b"\xff"), "no JSON object"),
        (of_text(b"{}", cty="JWT"), "contains another token"),
        (of_text(b"{}", cty="application/jwt"), "contains another token"),
        (KEY.token(without="exp"), "exp must be a time"),
        (KEY.token(without="iat"), "iat must be a time"),
        (KEY.token(nbf=True), "nbf must be a time"),
        (KEY.token(exp=10.0**30), "exp must be a time"),
        (KEY.token(without="sub"), "sub value must be a non-empty string"),
        (KEY.token(sub=" "), "sub value must be a non-empty string"),
        (KEY.token(sub="\x01 \x1f"), "sub value must be a non-empty string"),
        (of_text(b'{"sub":5}'), "sub must be a string"),
        (of_text(b'{"jti":5}'), "jti must be a string"),
        (of_text(b'{"iss":["us"]}'), "iss must be a string"),
        (KEY.token(sub="a" * 4097), "sub value is longer than 4096 characters"),
        (KEY.token(scope=["a", "a"]), "duplicates"),
        (KEY.token(scope=["a", ""]), "non-empty"),
        (KEY.token(key_id="two"), "no key of the JWKS has signed it"),
        (KEY.token(key_id="three"), "no key of the JWKS has signed it"),
        (KEY.token(key_id="k" * 1001), "algorithm or key id is not allowed"),
        (SigningKey("one").token(), "no key of the JWKS has signed it"),
        (SigningKey("one", "RS256").token(), "no key of the JWKS has signed it"),
        (unsigned(), "algorithm or key id is not allowed"),
        (unsigned(alg="ES256", kid="one"), "no key of the JWKS has signed it"),
        (signed_with_the_public_key(), "algorithm or key id is not allowed"),
        (critical(), "InvalidTokenError"),
        ("a.b.c", "Could not validate the access token"),
        ("abc", "Could not validate the access token"),
        ("a~b+c/d==", "Could not validate the access token"),
    ],
)
def test_a_token_that_is_not_right_is_challenged_then_refused(token, reason) -> None:
    refusals: list[str] = []
    machine = server(refusals)
    assert evaluate(machine, bearer(token), WALL_MS) == INVALID_TOKEN.encode()
    assert not machine.is_complete
    (output,) = refusals
    assert reason in output
    with pytest.raises(VisibleSaslError, match="invalid_token"):
        evaluate(machine, b"\x01", WALL_MS)


@pytest.mark.parametrize(
    ("sub", "name"),
    [(" alice\t", "alice"), ("\x00alice\x1f", "alice"), ("\xa0alice", "\xa0alice"), ("\u3000", "\u3000")],
)
def test_a_name_is_trimmed_as_by_java_so_that_no_two_become_one(sub, name) -> None:
    assert validator()(KEY.token(sub=sub), WALL_MS)().name == name


def test_a_time_that_is_null_counts_as_missing_and_seconds_are_whole() -> None:
    assert validator()(KEY.token(nbf=None, exp=WALL_MS / 1000 + 60.9), WALL_MS)().expires_at_ms == EXPIRES_MS
    with pytest.raises(JwtError, match="iat must be a time"):
        validator()(KEY.token(iat=None), WALL_MS)()


def test_clocks_may_differ_by_some_seconds() -> None:
    s = WALL_MS // 1000
    for token in (KEY.token(iat=s - 60, exp=s - 29), KEY.token(nbf=s + 30), KEY.token(iat=s - 9, nbf=s - 1, exp=s - 1)):
        machine = server()
        evaluate(machine, bearer(token), WALL_MS)
        assert machine.is_complete


def test_a_token_for_somebody_is_refused_where_nobody_is_expected() -> None:
    check = validator(audiences=(), issuer=None)
    for audience in ("kafka", ["kafka"], []):
        with pytest.raises(JwtError, match="audience"):
            check(KEY.token(aud=audience), WALL_MS)()
    assert check(KEY.token(without="aud", iss="any"), WALL_MS)().name == "alice"


def test_the_authorization_id_must_be_the_subject() -> None:
    machine = server()
    evaluate(machine, bearer(KEY.token(), "alice"), WALL_MS)
    assert machine.is_complete
    with pytest.raises(VisibleSaslError, match=r"authorization id \(bob\) that is different"):
        evaluate(server(), bearer(KEY.token(), "bob"), WALL_MS)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "client first message"),
        (b"\x01", "client first message"),
        (b"n,,\x01\x01", "'auth' not specified"),
        (b"n,,\x01auth=Basic abc\x01\x01", "Invalid scheme"),
        (b"n,,\x01auth=Bearer\x01\x01", "invalid 'auth' format"),
        (b"n,,\x01auth=Bearer a b\x01\x01", "invalid 'auth' format"),
        (b"y,,\x01auth=Bearer a\x01\x01", "client first message"),
        (b"n,,\x01auth=Bearer a\x01", "client first message"),
    ],
)
def test_messages_that_are_none_are_refused(message, reason) -> None:
    with pytest.raises(SaslError, match=reason):
        evaluate(server(), message, WALL_MS)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"{}", b'{"keys": 1}', b'{"keys": [1]}', b'{"keys": [{}]}', b"\xff", b"[" * 200_000],
    ids=range(9),
)
def test_a_key_set_that_is_none_is_refused(text) -> None:
    with pytest.raises(JwtError, match="the JWKS cannot be read"):
        parse_jwks(text)


def test_symmetric_and_broken_keys_are_left_out() -> None:
    entries = [{"kty": "oct", "k": "AAAA", "kid": "a"}, {"kty": "RSA", "kid": "b"}, {**KEY.jwk, "use": "enc"}, KEY.jwk]
    entries += [
        {**KEY.jwk, "alg": "none"},
        {**KEY.jwk, "key_ops": ["sign"]},
        {**OTHER.jwk, "key_ops": ["sign", "verify"]},
    ]
    assert [key.key_id for key in parse_jwks(json.dumps({"keys": entries}).encode())] == ["one", "two"]


@pytest.mark.parametrize(("bits", "count"), [(1024, 0), (2040, 0), (2048, 1)])
def test_small_rsa_keys_are_left_out(bits, count) -> None:
    """jose4j refuses them at the login; RFC 7518, section 3.3."""
    key = jwt.algorithms.RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, bits).public_key(), as_dict=True)
    assert len(parse_jwks(json.dumps({"keys": [key]}).encode())) == count


def test_edwards_curves_need_no_algorithm_in_the_key_set() -> None:
    for private in (ed25519.Ed25519PrivateKey.generate(), ed448.Ed448PrivateKey.generate()):
        key = jwt.algorithms.OKPAlgorithm.to_jwk(private.public_key(), as_dict=True)
        (found,) = parse_jwks(json.dumps({"keys": [key]}).encode())
        token = jwt.encode(
            {"sub": "a", "exp": WALL_MS // 1000, "iat": 0, "iss": "us", "aud": "kafka"}, private, "EdDSA"
        )
        check = JwtValidator(
            lambda key_id, now_ms, found=found: [found],
            issuer="us",
            audiences=["kafka"],
            clock_skew_seconds=30,
            scope_claim="scope",
            name_claim="sub",
        )
        assert check(token, WALL_MS)().name == "a"


def test_a_control_a_is_a_response_only_to_a_refusal() -> None:
    machine = server()
    evaluate(machine, bearer("a.b.c"), WALL_MS)
    with pytest.raises(SaslError, match="client first message"):
        evaluate(machine, b"n", WALL_MS)
    with pytest.raises(SaslError, match="client first message"):
        evaluate(machine, b"\x01", WALL_MS)


def test_a_client_logs_in_with_its_token() -> None:
    client, machine = OAuthBearerClient(KEY.token()), server()
    challenge = evaluate(machine, client.evaluate(b""), WALL_MS)
    assert (client.is_complete, client.evaluate(challenge), client.is_complete) == (False, b"", True)
    assert machine.authorization_id == "alice"


def test_a_client_answers_a_refusal_and_then_gives_up() -> None:
    client, machine = OAuthBearerClient("a.b.c"), server()
    response = client.evaluate(evaluate(machine, client.evaluate(b""), WALL_MS))
    assert response == b"\x01"
    for challenge in (b"", b"more"):
        with pytest.raises(SaslError, match=r"the server refused the token: .*invalid_token"):
            client.evaluate(challenge)
    assert not client.is_complete


def test_a_token_that_is_too_long_is_refused_before_it_is_parsed() -> None:
    def unreachable(token, now_ms):
        raise AssertionError("a token that is too long is not looked at")

    machine = OAuthBearerServer(unreachable, [].append)
    assert machine.evaluate(bearer("a" * (MAX_TOKEN_BYTES + 1)), WALL_MS) == INVALID_TOKEN.encode()
    assert machine.is_refused
    with pytest.raises(SaslError, match="too long"):
        machine.evaluate(bearer("a" * 380_000), WALL_MS)


def test_a_header_is_read_up_to_its_bound() -> None:
    long = unsigned(alg="ES256", kid="one", padding="a" * 4096)
    with pytest.raises(JwtError, match="header is missing or too long"):
        validator()(long, WALL_MS)


def test_a_token_without_key_id_is_tried_with_four_keys_of_its_type_at_most() -> None:
    nameless = [SigningKey(None) for _ in range(5)]
    check = validator(SigningKey("rsa", "RS256"), *nameless)
    assert check(nameless[3].token(), WALL_MS)().name == "alice"
    with pytest.raises(JwtError, match="no key of the JWKS has signed it"):
        check(nameless[4].token(), WALL_MS)()


def test_a_signature_is_verified_by_the_work_that_the_driver_runs() -> None:
    machine = server()
    with pytest.raises(WorkNeeded) as needed:
        machine.evaluate(bearer(KEY.token()), WALL_MS)
    assert not machine.is_complete
    needed.value.work()
    assert machine.evaluate(bearer(KEY.token()), WALL_MS) == b""
    assert machine.is_complete
