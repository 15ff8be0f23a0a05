"""Record what Apache Kafka's StandardAuthorizer answers while ACLs come and go.

`python -m tools.record_authorizations` writes tests/golden/authorizations.txt.gz. Each line is a step of a script, for
a question with the response behind a tab: A or D (allowed, denied), and the id of the ACL that Kafka's audit log names,
or the name of another rule. Names below `*` and beginning with `*` are left out: Kafka 4.3.1 fails at them.

    # DENIED User:root                       a new authorizer: its default result, its super users
    + 3 2 ab 4 User:a * 3 2                  ACL 3: type, name, pattern type, principal, host, operation, permission
    - 3                                      ACL 3 is removed
    =                                        all ACLs are loaded anew, as from a snapshot
    ? User:a 10.0.0.1 3 2 abc     D 3        may User:a do operation 3 to resource abc of type 2?
    * User:a 10.0.0.1 4 2         A          and operation 4 to any resource of type 2?
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from random import Random

from kafkapy.metadata.acl_types import Acl
from tools.java_programs import run_java

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "authorizations.txt.gz"
QUESTIONS_PER_SEED = 10_000
SEEDS = (("DENIED", 1), ("ALLOWED", 2), ("DENIED", 3))
PRINCIPALS = ("User:a", "User:b", "User:c", "Other:a", "User:root")
HOSTS = ("10.0.0.1", "10.0.0.2")
NAMES = ("a", "ab", "abc", "abcd", "abd", "b", "ba", "bab", "+", "Z", "zz", "kafka-cluster")
TYPES = (2, 2, 2, 3, 5)
OPERATIONS = (3, 4, 5, 6, 7, 8, 8, 10, 11, 12)

LOG4J = """<Configuration><Appenders><Console name="out"><PatternLayout pattern="%m%n"/></Console></Appenders>
<Loggers><Root level="OFF"/><Logger name="kafka.authorizer.logger" level="TRACE"><AppenderRef ref="out"/></Logger>
</Loggers></Configuration>"""

JAVA = """
import java.io.*; import java.net.InetAddress; import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.*;
import org.apache.kafka.metadata.authorizer.*;
import org.apache.kafka.server.authorizer.*;

public class Authorize {
  static AuthorizableRequestContext from(String principal, String host) throws Exception {
    KafkaPrincipal who = new KafkaPrincipal(principal.split(":")[0], principal.split(":")[1]);
    InetAddress address = InetAddress.getByName(host);
    return new AuthorizableRequestContext() {
      public String listenerName() { return "PLAINTEXT"; }
      public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
      public KafkaPrincipal principal() { return who; }
      public InetAddress clientAddress() { return address; }
      public int requestType() { return 0; }
      public int requestVersion() { return 12; }
      public String clientId() { return "c"; }
      public int correlationId() { return 0; }
    };
  }

  static byte code(String text) { return Byte.parseByte(text); }

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    Map<Uuid, StandardAcl> acls = new HashMap<>();
    StandardAuthorizer authorizer = null;
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] f = line.split(" ");
      switch (f[0]) {
        case "#":
          acls.clear();
          authorizer = new StandardAuthorizer();
          authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
          authorizer.configure(Map.of("super.users", f[2], "node.id", "1",
              "allow.everyone.if.no.acl.found", f[1].equals("ALLOWED")));
          authorizer.completeInitialLoad();
          break;
        case "+":
          StandardAcl acl = new StandardAcl(ResourceType.fromCode(code(f[2])), f[3], PatternType.fromCode(code(f[4])),
              f[5], f[6], AclOperation.fromCode(code(f[7])), AclPermissionType.fromCode(code(f[8])));
          acls.put(new Uuid(0, Long.parseLong(f[1])), acl);
          authorizer.addAcl(new Uuid(0, Long.parseLong(f[1])), acl);
          break;
        case "-":
          acls.remove(new Uuid(0, Long.parseLong(f[1])));
          authorizer.removeAcl(new Uuid(0, Long.parseLong(f[1])));
          break;
        case "=":
          authorizer.loadSnapshot(acls);
          break;
        case "?":
          authorizer.authorize(from(f[1], f[2]), List.of(new Action(AclOperation.fromCode(code(f[3])),
              new ResourcePattern(ResourceType.fromCode(code(f[4])), f[5], PatternType.LITERAL), 1, true, true)));
          break;
        default:
          System.out.println(authorizer.authorizeByResourceType(from(f[1], f[2]), AclOperation.fromCode(code(f[3])),
              ResourceType.fromCode(code(f[4]))));
      }
    }
  }
}
"""


def main() -> None:
    steps = [step for default, seed in SEEDS for step in script(default, seed)]
    responses = run_java(JAVA, steps, log4j=LOG4J)
    with gzip.open(GOLDEN, "wt", encoding="utf-8", compresslevel=9) as out:
        out.writelines(f"{line}\n" for line in answered(steps, iter(responses)))


def script(default: str, seed: int) -> Iterator[str]:
    """Yield steps in which ACLs come and go, a few dozen at a time, and questions about them."""
    dice = Random(seed)
    yield f"# {default} User:root;User:other"
    present: dict[int, str] = {}
    next_id = question_count = 0
    while question_count < QUESTIONS_PER_SEED:
        random = dice.random()
        if random < 0.04 or not present:
            acl = random_acl(dice)
            if acl not in present.values():
                present[next_id] = acl
                yield f"+ {next_id} {acl}"
                next_id += 1
        elif random < 0.04 + 0.001 * len(present):
            removed = dice.choice(sorted(present))
            del present[removed]
            yield f"- {removed}"
        elif random < 0.082:
            yield "="
        else:
            question_count += 1
            yield question(dice)


def random_acl(dice: Random) -> str:
    resource_type = dice.choice(TYPES)
    name, pattern = dice.choice((*((name, dice.choice((3, 4))) for name in NAMES), ("*", 3), ("*", 3)))
    principal = dice.choice((*PRINCIPALS[:4], "User:*", "User:*"))
    host = dice.choice((*HOSTS, "*", "*", "*"))
    return (
        f"{resource_type} {name} {pattern} {principal} {host} {dice.choice((*OPERATIONS, 2))} {dice.choice((2, 3, 3))}"
    )


def question(dice: Random) -> str:
    who = f"{dice.choice(PRINCIPALS)} {dice.choice(HOSTS)} {dice.choice(OPERATIONS)} {dice.choice(TYPES)}"
    return f"* {who}" if dice.random() < 0.1 else f"? {who} {dice.choice(NAMES)}"


def answered(steps: list[str], output: Iterator[str]) -> Iterator[str]:
    """Yield the steps with what Kafka said: for a question a line of its audit log, for `*` another line behind it."""
    ids: dict[str, str] = {}
    for step in steps:
        kind, *fields = step.split(" ")
        if kind == "+":
            ids[str(acl_of(fields[1:]))] = fields[0]
        elif kind == "?":
            audit = next(output)
            rule = audit.partition(" based on rule ")[2].removeprefix("MatchingAcl(acl=")
            step = f"{step}\t{'A' if ' is Allowed ' in audit else 'D'} {ids.get(rule.removesuffix(')'), rule)}"
        elif kind == "*":
            next(output)
            step = f"{step}\t{next(output)[0]}"
        yield step


def acl_of(fields: list[str]) -> Acl:
    resource_type, name, pattern_type, principal, host, operation, permission_type = fields
    return Acl(int(resource_type), name, int(pattern_type), principal, host, int(operation), int(permission_type))


if __name__ == "__main__":
    main()
