"""The JAAS configuration: the login module of each mechanism and its options.

There are two formats. The key `sasl.jaas.config` has one entry, `module flag option="value" ...;`, parsed like Apache
Kafka's JaasConfig, which uses Java's StreamTokenizer. A JAAS file has several entries within `Context { ... };`, parsed
like Java's ConfigFile. Login module names are only compared with LOGIN_MODULES: no class is loaded.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import KafkapyError
from kafkapy.named_tuple import NamedTuple
from kafkapy.security.sasl import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512

_MODULES: Final = "org.apache.kafka.common.security"
USER_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
"""Names that a JAAS option can hold without quotes: what the users made here are called."""

LOGIN_MODULES: Final = {
    PLAIN: f"{_MODULES}.plain.PlainLoginModule",
    SCRAM_SHA_256: f"{_MODULES}.scram.ScramLoginModule",
    SCRAM_SHA_512: f"{_MODULES}.scram.ScramLoginModule",
    OAUTHBEARER: f"{_MODULES}.oauthbearer.OAuthBearerLoginModule",
}
"""The login module of each mechanism."""
_PLAIN_WORDS: Final = ("username", "password", "null")
"""Words that error messages may show, as they are not part of a password."""
_FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_QUOTES: Final = "\"'"
_DIGITS: Final = "0123456789.-"
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL: Final = "01234567"


_HIDDEN: Final = "[hidden]"


class JaasError(KafkapyError):
    """A text is not a valid JAAS configuration, or names an unknown login module.

    The message contains no secret. Deviation: Apache Kafka always shows the word at which parsing failed, which may be
    the rest of a password with a quote or space in it. Here it is shown only if no password can precede it, because
    logs are read by others.
    """


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module and its options, which may be secrets."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module}, [hidden])"


class Token(NamedTuple):
    """`kind`: "word", "number", a quote, or the character itself. `text` is None for numbers and characters."""

    kind: str
    text: str | None


def parse_entry(text: str) -> JaasEntry:
    """Return the one entry of a `sasl.jaas.config`. Raises JaasError with Kafka's messages."""
    tokens = list(tokenize(text))
    entries = []
    position = 0
    while position < len(tokens):
        entry, position = _entry(tokens, position)
        entries.append(entry)
    if not entries:
        raise JaasError("Login module not specified in JAAS config")
    if len(entries) != 1:
        raise JaasError(f"JAAS config property contains {len(entries)} login modules, should be 1 module")
    return entries[0]


def parse_file(text: str) -> dict[str, list[JaasEntry]]:
    """Return the entries of each context of a file. Raises JaasError."""
    tokens = list(tokenize(text, word_characters="*"))
    contexts: dict[str, list[JaasEntry]] = {}
    position = 0
    while position < len(tokens):
        name = tokens[position].text
        if name is None or _kind(tokens, position + 1) != "{":
            raise JaasError('a JAAS file must read `Context { module flag option="value"; };`')
        position += 2
        entries = []
        while _kind(tokens, position) not in ("}", ""):
            entry, position = _entry(tokens, position)
            entries.append(entry)
        if _kind(tokens, position) != "}" or _kind(tokens, position + 1) != ";":
            raise JaasError(f"the context {name} of the JAAS file must end with `}};`")
        if name in contexts:
            raise JaasError(f"the JAAS file has the context {name} twice")
        contexts[name] = entries
        position += 2
    return contexts


def expanded(value: str, property_of: Callable[[str], str | None]) -> str:
    """Return an option of a file with system properties for ${name}, as Java's ConfigFile expands them.

    ${/} is a slash, and ${{name}} stays. Raises JaasError for an unknown property; its name may be part of a password.
    """

    def replaced(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None:
            return found[0]
        text = "/" if name == "/" else property_of(name)
        if text is None:
            raise JaasError("unable to expand a property ${...} of the JAAS file: KAFKA_OPTS does not set it by -D")
        return text

    return re.sub(r"\$\{\{(?:.*?\}\}|.*)|\$\{(?P<name>[^}]*)\}", replaced, value, flags=re.DOTALL)


def check_module(entry: JaasEntry, mechanism: str) -> None:
    """Raise JaasError unless the entry's login module is the mechanism's."""
    expected = LOGIN_MODULES[mechanism]
    if entry.module != expected:
        raise JaasError(f"the login module for {mechanism} must be {expected}, not {entry.module}")


def option_text(value: str) -> str:
    """Return a value quoted and escaped for a JAAS text."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _kind(tokens: list[Token], position: int) -> str:
    return tokens[position].kind if position < len(tokens) else ""


def _entry(tokens: list[Token], position: int) -> tuple[JaasEntry, int]:
    """Return the entry at a position, and the position of the next."""
    module = tokens[position].text
    is_first = position == 0
    position += 1
    if position == len(tokens):
        raise JaasError("Login module control flag not specified in JAAS config")
    flag = tokens[position].text
    if flag is None:
        raise JaasError("Login module control flag is not available in the JAAS config")
    if flag.upper() not in _FLAGS:
        shown = flag if is_first else _HIDDEN
        raise JaasError(f"Invalid login module control flag '{shown}' in JAAS config")
    position += 1
    options: dict[str, str] = {}
    while position < len(tokens) and tokens[position].kind != ";":
        text = tokens[position].text
        key = "null" if text is None else text  # as Java prints a token that is not a word
        value = tokens[position + 2].text if position + 2 < len(tokens) else None
        if _kind(tokens, position + 1) != "=" or value is None:
            shown = key if not options or key in _PLAIN_WORDS else _HIDDEN
            raise JaasError(f"Value not specified for key '{shown}' in JAAS config")
        options[key] = value
        position += 3
    if position == len(tokens):
        raise JaasError("JAAS config entry not terminated by semi-colon")
    return JaasEntry(module or "", options), position + 1


def tokenize(text: str, *, word_characters: str = "") -> Iterator[Token]:
    """Yield tokens like Java's StreamTokenizer with // and /* */ comments, and with -, _ and $ as word characters."""
    position = 0
    while position < len(text):
        letter = text[position]
        if letter <= " ":
            position += 1
        elif letter in _DIGITS and (letter != "-" or text[position + 1 : position + 2] in tuple(_DIGITS[:-1])):
            position = _end_of_number(text, position)
            yield Token("number", None)
        elif letter != "-" and _is_in_word(letter, word_characters):
            end = position + 1
            while end < len(text) and (_is_in_word(text[end], word_characters) or text[end] in _DIGITS):
                end += 1
            yield Token("word", text[position:end])
            position = end
        elif letter in _QUOTES:
            value, position = _quoted(text, position)
            yield Token(letter, value)
        elif letter == "/":
            position = _end_of_comment(text, position)
        else:
            yield Token(letter, None)
            position += 1


def _is_in_word(letter: str, more: str) -> bool:
    return (letter.isascii() and letter.isalpha()) or letter >= "\xa0" or letter in "-_$" or letter in more


def _end_of_number(text: str, position: int) -> int:
    """Return the position after a number: an optional sign, then digits and at most one point."""
    has_point = False
    position += text[position] == "-"
    while position < len(text) and text[position] in "0123456789.":
        if text[position] == ".":
            if has_point:
                break
            has_point = True
        position += 1
    return position


def _end_of_comment(text: str, position: int) -> int:
    """Return the end of the comment that starts with a slash: after */ if it starts with /*, else the end of the line.

    As in Java, the character after the slash is skipped: a slash at the end of a line also comments out the next line.
    """
    if text.startswith("/*", position):
        end = text.find("*/", position + 2)
        return len(text) if end < 0 else end + 2
    ends = [end for end in (text.find("\n", position + 2), text.find("\r", position + 2)) if end >= 0]
    return min(ends, default=len(text))


def _quoted(text: str, position: int) -> tuple[str, int]:
    """Return the text of a quoted string, and the position after it; the end of the line also ends it."""
    quote = text[position]
    value = []
    position += 1
    while position < len(text) and text[position] not in (quote, "\n", "\r"):
        letter = text[position]
        position += 1
        if letter == "\\" and position < len(text):
            letter, position = _escaped(text, position)
        value.append(letter)
    if position < len(text) and text[position] == quote:
        position += 1
    return "".join(value), position


def _escaped(text: str, position: int) -> tuple[str, int]:
    letter = text[position]
    if letter not in _OCTAL:
        return _ESCAPES.get(letter, letter), position + 1
    most = 3 if letter <= "3" else 2
    end = position + 1
    while end < len(text) and end - position < most and text[end] in _OCTAL:
        end += 1
    return chr(int(text[position:end], 8)), end
