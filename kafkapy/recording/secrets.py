"""What a recording leaves out: passwords, tokens and keys. A recording is made to be sent to others.

Left out are the bytes of logins (SaslAuthenticate, and all that follows a SaslHandshake of version 0), the salted
passwords of AlterUserScramCredentials, the HMACs of delegation tokens, and values of configuration keys that hold
secrets. Records are kept: they are what a broker is asked about.
"""

import re
from typing import Any, Final

from kafkapy.errors import ProtocolError
from kafkapy.protocol.headers import RequestHeader
from kafkapy.recording.file import read_request, read_response, write_request, write_response

SECRET_FIELDS: Final = frozenset(("authBytes", "salt", "saltedPassword", "hmac"))
SECRET_KEY: Final = re.compile(r"password|secret|jaas|keystore\.key|certificate\.chain|credential", re.I)
"""Of configuration keys: their values are left out."""


def without_secrets_of_request(header: RequestHeader, frame: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return a request's frame without secrets, and the names of what was left out."""
    found = read_request(frame)
    if found is None:
        return frame, ()
    left_out = _cleared(found[1])
    return (_written(write_request, header, found[1], frame), left_out) if left_out else (frame, ())


def without_secrets_of_response(header: RequestHeader, frame: bytes) -> tuple[bytes, tuple[str, ...]]:
    fields = read_response(header, frame)
    if fields is None:
        return frame, ()
    left_out = _cleared(fields)
    return (_written(write_response, header, fields, frame), left_out) if left_out else (frame, ())


def _written(write: Any, header: RequestHeader, fields: dict[str, Any], frame: bytes) -> bytes:
    try:
        written: bytes = write(header, fields)
        return written
    except ProtocolError:
        return frame[:8]  # rather the header alone than a secret


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
