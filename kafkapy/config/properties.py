"""Java .properties text -> dict, as java.util.Properties.load reads it.

Lines end at \\n, \\r or \\r\\n. An odd number of backslashes at the end joins the next line without its leading blanks.
A key ends at the first unescaped '=', ':' or blank. Escapes: \\t \\n \\r \\f \\uXXXX; any other escaped character is
itself. Comments start with '#' or '!'. The last of several equal keys wins.
"""

from collections.abc import Iterator, Mapping

from kafkapy.errors import ConfigError

BLANKS = " \t\f"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values of a properties file. Raises ConfigError for a broken unicode escape."""
    return dict(_split_entry(line) for line in _logical_lines(text))


def format_properties(properties: Mapping[str, str]) -> str:
    """Return the text of a properties file, a line for each key; parse_properties reverses it."""
    return "".join(f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}\n" for key, value in properties.items())


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    is_continued = False
    for natural_line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural_line.lstrip(BLANKS)
        if not is_continued and (not line or line[0] in "#!"):
            continue
        is_continued = _ends_in_odd_backslash(line)
        pending += line[:-1] if is_continued else line
        if not is_continued:
            yield pending
            pending = ""
    if pending:
        yield pending


def _ends_in_odd_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split_entry(line: str) -> tuple[str, str]:
    key_end = _key_end(line)
    rest = line[key_end:].lstrip(BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(BLANKS)
    return _unescape(line[:key_end]), _unescape(rest)


def _key_end(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in "=:" + BLANKS:
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    characters: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            character, position = _escaped(text, position)
        elif character == "\\":
            character = ""  # a lone backslash at the end of the file
        characters.append(character)
    return _join_surrogates("".join(characters))


def _escaped(text: str, position: int) -> tuple[str, int]:
    if text[position] != "u":
        return ESCAPES.get(text[position], text[position]), position + 1
    digits = text[position + 1 : position + 5]
    if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise ConfigError(text, f"\\u{digits}", "Malformed \\uxxxx encoding.")
    return chr(int(digits, 16)), position + 5


def _join_surrogates(text: str) -> str:
    """Join surrogate pairs: Java writes a character beyond U+FFFF as two escapes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, is_key: bool) -> str:
    escaped = text.replace("\\", "\\\\")
    for letter, character in ESCAPES.items():
        escaped = escaped.replace(character, f"\\{letter}")
    if is_key:
        return "".join(f"\\{character}" if character in " =:#!" else character for character in escaped)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
