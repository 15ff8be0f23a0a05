"""Whatever a client sends, and whatever stands in a JAAS text, is understood or refused: nothing else is raised."""

import contextlib
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.errors import ProtocolError
from kafkapy.metadata.scram_types import MECHANISMS
from kafkapy.security.authentication import Login, LoginSettings, VersionsRequested
from kafkapy.security.jaas import JaasError, option_text, parse_entry, parse_file
from kafkapy.security.jwt_validator import JwtValidator, parse_jwks
from kafkapy.security.oauthbearer import JwtError, OAuthBearerServer
from kafkapy.security.plain import PlainServer
from kafkapy.security.sasl import SaslError
from kafkapy.security.scram import ScramServer
from tests.support.bearer_tokens import WALL_MS, SigningKey, bearer, evaluate, jwks

SHA_256 = MECHANISMS["SCRAM-SHA-256"]
KEYS = parse_jwks(jwks(SigningKey("one")))
SCRAM_TEXT = st.text(st.sampled_from("nmarcpsvi=,2CD3abz+/\0\x01é "), max_size=40)
JAAS_TEXT = st.text(st.sampled_from("abR1-.=;{}/*\"'\\ \n#$_ä"), max_size=40)
WORD = re.compile("[abcXYZ_$é][abcXYZ_$é0.-]*")
TOKENS = st.one_of(
    st.binary(max_size=64),
    SCRAM_TEXT.map(str.encode),
    SCRAM_TEXT.map(lambda text: f"n,,n=a,r=b{text}".encode()),
    SCRAM_TEXT.map(lambda text: f"c=biws,r=bnonce{text},p=AAAA".encode()),
    st.text(st.sampled_from("eyJhbGciOiJFUzI1NiJ9._-\x01"), max_size=60).map(bearer),
)


def servers():
    yield PlainServer({"a": "b"})
    yield ScramServer(SHA_256, {}.get, nonce="nonce", secret=b"secret")
    validate = JwtValidator(
        lambda key_id, now_ms: KEYS,
        issuer=None,
        audiences=(),
        clock_skew_seconds=30,
        scope_claim="scope",
        name_claim="sub",
    )
    yield OAuthBearerServer(validate, lambda reason: None)


@settings(max_examples=300, deadline=None)
@given(st.lists(TOKENS, min_size=1, max_size=3))
def test_no_token_breaks_a_mechanism_or_logs_anybody_in(tokens: list[bytes]) -> None:
    for server in servers():
        with contextlib.suppress(SaslError):
            for token in tokens:
                evaluate(server, token, WALL_MS)
        assert not server.is_complete or tokens[-1] in (b"\0a\0b", b"a\0a\0b")


FRAMES = st.one_of(
    st.binary(max_size=64),
    st.builds(
        lambda key, version, rest: key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + rest,
        st.sampled_from((3, 17, 18, 36)),
        st.integers(0, 3),
        st.one_of(st.binary(max_size=20), st.just(b"\0\5PLAIN")),
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(FRAMES, min_size=1, max_size=4))
def test_no_frame_breaks_a_login(frames: list[bytes]) -> None:
    login = Login(LoginSettings(servers={"PLAIN": lambda: PlainServer({})}, max_reauth_ms={}))
    for frame in frames:
        try:
            outcome = login.receive(memoryview(frame), now_ms=0, wall_ms=WALL_MS)
        except VersionsRequested:
            continue
        except ProtocolError:
            return
        assert not login.is_complete
        if outcome.failure is not None:
            return


@settings(max_examples=300, deadline=None)
@given(JAAS_TEXT)
def test_no_text_breaks_the_reader_of_jaas(text: str) -> None:
    for read in (parse_entry, parse_file):
        for written in (text, f"Module required {text};", f"Context {{ Module required {text}; }};"):
            with contextlib.suppress(JaasError):
                read(written)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_value_can_be_written_into_a_jaas_text(value: str) -> None:
    assert parse_entry(f"Module required password={option_text(value)};").options == {"password": value}


WORDS = st.text(st.sampled_from("abcXYZ_$-é0."), min_size=1, max_size=8).filter(lambda text: text[0] not in "0.-")
GAPS = st.text(st.sampled_from(" \t\n"), min_size=1, max_size=3) | st.sampled_from([" /* ;a=b */ ", " // ;\n", " /**/"])
OPTIONS = st.dictionaries(WORDS, WORDS | st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=4)


@settings(max_examples=200, deadline=None)
@given(WORDS, st.sampled_from(["required", "OPTIONAL"]), OPTIONS, st.data())
def test_an_entry_is_read_as_it_was_written(
    module: str, flag: str, options: dict[str, str], data: st.DataObject
) -> None:
    written = [module, flag]
    for key, value in options.items():
        is_bare = bool(value) and WORD.fullmatch(value) is not None and data.draw(st.booleans())
        written += [key, "=", value if is_bare else option_text(value)]
    text = "".join(f"{token}{data.draw(GAPS)}" for token in [*written, ";"])
    entry = parse_entry(text)
    assert (entry.module, dict(entry.options)) == (module, options)
    assert parse_file(f"Context {{ {text} }};") == {"Context": [entry]}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_no_bytes_break_the_reader_of_key_sets(data: bytes) -> None:
    for text in (data, b'{"keys": [{"kty": "RSA", "n": "' + data.hex().encode() + b'", "e": "AQAB"}]}'):
        with contextlib.suppress(JwtError):
            parse_jwks(text)
