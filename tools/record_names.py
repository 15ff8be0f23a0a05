"""Record how Java prints certificates' names, and what Apache Kafka 4.3.1 makes users of them.

`python -m tools.record_names` writes tests/golden/distinguished_names.tsv.gz (a name as DER in hex, and what
X500Principal.getName() says of it, or ! where it refuses; the last DAMAGED_NAMES may be no DER) and
tests/golden/principal_mappings.tsv (rules, a name, and the user that SslPrincipalMapper makes of it, or ! where it
refuses). Tabs, line ends and all that is not ASCII are written as Java's \\uXXXX.
"""

import gzip
import random
import re
from collections.abc import Iterator
from pathlib import Path

from tools.java_programs import run_java

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"
NAMES = GOLDEN / "distinguished_names.tsv.gz"
MAPPINGS = GOLDEN / "principal_mappings.tsv"
RANDOM_NAMES = 1000
DAMAGED_NAMES = 4000

JAVA = """
import java.io.*; import java.nio.charset.StandardCharsets; import java.util.*; import java.util.regex.*;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class Names {
  static String escape(String text) {
    StringBuilder out = new StringBuilder();
    for (char c : text.toCharArray())
      if (c < 32 || c == 127 || c > 126) out.append(String.format("\\\\u%04x", (int) c)); else out.append(c);
    return out.toString();
  }

  static String unescape(String text) {
    return Pattern.compile("\\\\\\\\u([0-9a-f]{4})").matcher(text).replaceAll(
        found -> Matcher.quoteReplacement("" + (char) Integer.parseInt(found.group(1), 16)));
  }

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] fields = line.split("\\t", -1);
      String said;
      try {
        said = fields.length == 1
            ? escape(new X500Principal(HexFormat.of().parseHex(line)).getName())
            : escape(SslPrincipalMapper.fromRules(unescape(fields[0])).getName(unescape(fields[1])));
      } catch (Exception error) {
        said = "!";
      }
      System.out.println(said);
    }
  }
}
"""

OIDS = {
    "CN": "550403",
    "C": "550406",
    "L": "550407",
    "ST": "550408",
    "STREET": "550409",
    "O": "55040a",
    "OU": "55040b",
    "UID": "0992268993f22c640101",
    "DC": "0992268993f22c640119",
    "serialNumber": "550405",
    "title": "55040c",
    "givenName": "55042a",
    "surname": "550404",
    "emailAddress": "2a864886f70d010901",
    "postalCode": "550411",
    "dnQualifier": "55042e",
    "generationQualifier": "55042c",
    "initials": "55042b",
    "pseudonym": "550441",
    "organizationIdentifier": "550461",
    "unstructuredName": "2a864886f70d010902",
    "private": "2b0601040182371401",
    "arc of two": "883703",
}
TEXTS = (
    "alice", "Alice Example", "", " ", "  two  ", " lead", "trail ", "a  b", "#hash", "a#b", "a,b", "a+b", 'a"b',
    "a\\b",
    "a<b>", "a;b", "a=b", "a/b", "a:b", "a'b", "*.example.com", "User:x", "ü", "日本", "a\u0301", "\U0001f600", "a\0b",
    "a\nb", "a\rb", "\ra\r", "a\tb", "\x7f", "\u00a0a\u00a0", ",", "\\", "#", "=", "\\,", " ,", ", ", "x" * 300,
    "\u2028", "a@b.example", "RULE:a/b/", "$1",
)  # fmt: skip
TAGS = {
    0x0C: "utf-8",
    0x13: "utf-8",
    0x14: "latin-1",
    0x16: "utf-8",
    0x1E: "utf-16-be",
    0x1C: "utf-32-be",
    0x1B: "utf-8",
}
OTHER_VALUES = (
    b"\x02\x01\x05",
    b"\x05\x00",
    b"\x03\x02\x00\x80",
    b"\x04\x03abc",
    b"\x30\x03\x02\x01\x07",
    b"\x12\x03123",
)
BROKEN_TEXTS = (b"\xff", b"a\xc3", b"\xe2\x82", b"\xc0\x80", b"\xed\xa0\x80", b"a\x80\x80b")

RULES = (
    "DEFAULT",
    "",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, DEFAULT",
    "RULE:^CN=([a-zA-Z0-9.]*).*$/$1/L",
    "RULE:^CN=(.*?),.*$/$1/U,DEFAULT",
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U , RULE:^CN=(.*?)$/$1/",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT",
    "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
    "RULE:^CN=(.*?)$/$1@$4/",
    "RULE:^CN=(.*?)$/$12/",
    "RULE:^CN=(?<user>.*?)$/${user}/",
    "RULE:^CN=(.*?)$/\\\\$1/",
    "RULE:^CN=(.*?)$/a\\\\/b/",
    "RULE:.*/const/",
    "RULE:.*/$0/",
    "RULE:(.*)/<$1>/",
    "RULE:^CN=(a)?(.*)$/$1-$2/",
    "RULE:CN=(.*)/$/",
    "RULE:a/b",
    "RULE:^CN=(.*?)$/$1/X",
    "DEFAULT,",
    ",DEFAULT",
    "DEFAULTX",
    "RULE:(/x/",
    "RULE:^CN=(\\\\w+)$/$1/L",
    "RULE:^CN=(\\w+)(,.*)?$/$1/L",
    "RULE:^.*?CN=([\\w\\s.]+)\\b.*$/$1$2$10/",
    "RULE:(?i)^.*cn=([^,\\d]+).*$/\\$1$0/U",
    "RULE:(?s)^CN=(.*)$/[$1]/",
    "RULE:^CN=(.)(.*)$/$2.$1/",
    "RULE:^CN=([^.]*)[.]?([.]?.*)$/$1|$2/",
    "RULE:^(?:CN|O)=(a|A|b).*$/$1/, RULE:^.*$/rest/",
    "RULE:^CN=\\.?(.+)\\/?$/\\/$1/",
    "RULE:^(C)(N)(=)(a)(.)(.?)()()()(.?)(.*)$/$11-$10-$1-$111-$12/",
)
PARTS = (
    "CN=", "(.*)", "(.*?)", ".", "(\\w+)", "\\w*", "[^,]*", "([^,=]+)", "(?:a|b)?", "(a|x)", ",", "$", "^", "O=",
    "\\.", "=", "(?<n>.+)", ".*", "\\\\", "(\\d)", "a{1,2}", "\\s?", "\\S+", "(CN|O)", "[.]",
)  # fmt: skip
TEXTS_BETWEEN = ("$0", "x", "\\$", "\\/", "@", "-", "\\\\", ".")
RANDOM_MAPPINGS = 1200
MAPPED = (
    "CN=alice", "CN=Alice,OU=Dev,O=Example,L=Paris,ST=IDF,C=FR",
    "CN=a\\,b,O=x", "O=x,CN=bob", "cn=x,ou=y,dc=z,dc=w", "",
    "CN=", "CN=x.y,EMAIL=z", "CN=\u00fc", "const", "CN=user1,O=1", "CN=aa",
    "CN=a\rb", "CN=a\nb", "CN=a\x85b", "CN=a\u2028b", "CN=a\u2029b", "CN=\U0001f600", "CN=\\ two\\ ,O=\\#x", "CN=a\tb",
)  # fmt: skip


def tlv(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def attribute(oid: str, value: bytes) -> bytes:
    return tlv(0x30, tlv(6, bytes.fromhex(oid)) + value)


def name(*relative: list[bytes]) -> str:
    return tlv(0x30, b"".join(tlv(0x31, b"".join(each)) for each in relative)).hex()


def names() -> Iterator[str]:
    yield name()
    for oid in OIDS.values():
        for text in TEXTS:
            yield name([attribute(oid, tlv(0x0C, text.encode()))])
    for tag, encoding in TAGS.items():
        for text in TEXTS:
            yield name([attribute(OIDS["CN"], tlv(tag, text.encode(encoding, "replace")))])
    for value in (*OTHER_VALUES, *(tlv(0x0C, text) for text in BROKEN_TEXTS)):
        yield name([attribute(OIDS["O"], value)], [attribute(OIDS["title"], value)])
    dice = random.Random(2253)
    for _ in range(RANDOM_NAMES):
        yield name(*(_relative(dice) for _ in range(dice.randint(1, 6))))


def damaged_names(undamaged: list[str]) -> Iterator[str]:
    """Yield names with bytes that are changed, left out or put in."""
    dice = random.Random(690)
    for _ in range(DAMAGED_NAMES):
        name = bytearray.fromhex(dice.choice(undamaged))
        for _ in range(dice.choice((1, 1, 2))):
            at, how = dice.randrange(len(name)), dice.random()
            if how < 0.6:
                name[at] = dice.choice((dice.randrange(256), 0x80, 0x81, 0xFF, 0, 1, 6, 0x30, name[at] ^ 1))
            elif how < 0.8:
                name.insert(at, dice.choice((0x80, 0, dice.randrange(256))))
            elif len(name) > 1:
                del name[at]
        yield name.hex()


def _relative(dice: random.Random) -> list[bytes]:
    count = dice.choice((1, 1, 1, 2, 3))
    return [attribute(dice.choice(list(OIDS.values())), _value(dice)) for _ in range(count)]


def _value(dice: random.Random) -> bytes:
    tag = dice.choice((0x0C, 0x0C, 0x13, 0x16, 0x1E))
    text = "".join(dice.choice(TEXTS[:-1])[:20] for _ in range(dice.randint(1, 3)))
    return tlv(tag, text.encode(TAGS[tag], "replace"))


def random_mappings() -> Iterator[tuple[str, str]]:
    dice = random.Random(371)
    for _ in range(RANDOM_MAPPINGS):
        yield ",".join(random_rule(dice) for _ in range(dice.choice((1, 1, 2)))), dice.choice(MAPPED)


def random_rule(dice: random.Random) -> str:
    """Return a rule. A reference to no group stops the start here, but fails in Apache Kafka when the rule applies.

    So does a second number above all groups; one is literal.
    """
    pattern = "".join(dice.choices(PARTS, k=dice.randint(1, 4)))
    anchored = dice.choice((pattern, f"{pattern}.*", f"CN={pattern}.*", f"^(CN|O)={pattern}"))
    group_count = re.compile(anchored.replace("(?<n>", "(")).groups
    numbers = [1, 1, *range(2, group_count + 1), 12] if group_count else []
    replacements = [*TEXTS_BETWEEN, *(f"${number}" for number in numbers)]
    replacement = "".join(dice.choices(replacements, k=dice.randint(0, 3))) + dice.choice(
        ("", "", "$9"[: 2 * bool(numbers)])
    )
    return f"RULE:{anchored}/{replacement}/{dice.choice(('', '', 'L', 'U'))}"


def escaped(text: str) -> str:
    """Return a text in which characters that are not printable ASCII are Java's escapes."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)


def main() -> None:
    encoded = list(names())
    encoded += damaged_names([each for each in encoded if len(each) < 200])
    pairs = [*((rules, each) for rules in RULES for each in MAPPED), *random_mappings()]
    mappings = [f"{escaped(rules)}\t{escaped(each)}" for rules, each in pairs]
    output = run_java(JAVA, [*encoded, *mappings])
    with gzip.open(NAMES, "wt", encoding="utf-8", compresslevel=9) as out:
        out.writelines(f"{each}\t{answer}\n" for each, answer in zip(encoded, output[: len(encoded)], strict=True))
    lines = [f"{each}\t{answer}\n" for each, answer in zip(mappings, output[len(encoded) :], strict=True)]
    MAPPINGS.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
