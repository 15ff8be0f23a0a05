"""What a recording leaves out: passwords, tokens and keys. A recording is made to be sent to others.

Left out are the bytes of logins (SaslAuthenticate, and all that follows a SaslHandshake of version 0), the salted
passwords of AlterUserScramCredentials, the HMACs of delegation tokens, and values of configuration keys that hold
secrets; the whole body of a frame of such an API that is not understood, as one of a later version, and of an Envelope.
Records are kept: they are what a broker is asked about.
"""

import re
from typing import Any, Final

from kafkapy.errors import ProtocolError
from kafkapy.protocol.headers import RequestHeader
from kafkapy.recording.file import read_request, read_response, write_request, write_response

SECRET_FIELDS: Final = frozenset(("authBytes", "salt", "saltedPassword", "hmac"))
SECRET_KEY: Final = re.compile(r"pass(word|phrase)|secret|jaas|keystore\.key|certificate\.chain|credential", re.I)
"""Configuration keys whose values are left out."""
WITH_SECRETS: Final = frozenset((32, 33, 36, 38, 39, 40, 41, 44, 51, 58))
"""DescribeConfigs, AlterConfigs, SaslAuthenticate, the APIs of delegation tokens, IncrementalAlterConfigs,
AlterUserScramCredentials and Envelope, which has a whole request in it."""
ENVELOPE: Final = 58
BODY: Final = "body"
REQUEST_START_BYTES: Final = 8
"""Of a request's header: the API's key and version, and the correlation id."""
RESPONSE_START_BYTES: Final = 4
"""Of a response's header: the correlation id."""


def without_secrets_of_request(header: RequestHeader, frame: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return a request's frame without secrets, and the names of what was left out."""
    found = read_request(frame)
    if found is None or header.api_key == ENVELOPE:
        return _not_understood(header, frame, REQUEST_START_BYTES)
    left_out = _cleared(found[1])
    if not left_out:
        return frame, ()
    try:
        return write_request(header, found[1]), left_out
    except ProtocolError:
        return frame[:REQUEST_START_BYTES], (BODY,)


def without_secrets_of_response(header: RequestHeader, frame: bytes) -> tuple[bytes, tuple[str, ...]]:
    fields = read_response(header, frame)
    if fields is None or header.api_key == ENVELOPE:
        return _not_understood(header, frame, RESPONSE_START_BYTES)
    left_out = _cleared(fields)
    if not left_out:
        return frame, ()
    try:
        return write_response(header, fields), left_out
    except ProtocolError:
        return frame[:RESPONSE_START_BYTES], (BODY,)


def _not_understood(header: RequestHeader, frame: bytes, start_bytes: int) -> tuple[bytes, tuple[str, ...]]:
    """Return the frame, or only the start of it if it may have secrets."""
    return (frame[:start_bytes], (BODY,)) if header.api_key in WITH_SECRETS else (frame, ())


def _cleared(value: Any) -> tuple[str, ...]:
    """Empty the secrets within fields; return their names."""
    found: list[str] = []
    if isinstance(value, list):
        for each in value:
            found += _cleared(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in SECRET_FIELDS and each:
                value[name] = ""
                found.append(name)
            else:
                found += _cleared(each)
        if value.get("value") and isinstance(value.get("name"), str) and SECRET_KEY.search(value["name"]):
            value["value"] = ""
            found.append(value["name"])
    return tuple(dict.fromkeys(found))
