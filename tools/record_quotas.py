"""Record how long Apache Kafka's quota managers throttle clients while quotas come and go.

`python -m tools.record_quotas` writes tests/golden/quotas.txt.gz. Each line is a step of a script, for a request with
the throttle time in ms after a tab. `-` is no user, client-id or value, `*` the default entity.

    # 11 1                        new managers: quota.window.num, quota.window.size.seconds
    = u c p 1000                  user u with client-id c gets a quota (p, f, r, m: the letters below), `-` removes it
    = 10.0.0.1 5                  an address gets a connection_creation_rate
    p 1000000 u c 500     0       at 1,000,000 ms, 500 bytes are produced by user u with client-id c
    f 1000000 u c 500     0       fetched: taken back if throttled, as by Kafka's handler
    r 1000000 u c 5.5     0       percent of a second that requests took
    m 1000000 u c 3       0       partitions, by a request that is throttled and not refused
    s 1000000 u c 3       X 70    partitions, by one that is refused
    w 1000000 u c         -       the most that a Fetch may return: `-` for no bound
    i 1000000 10.0.0.1    0       a connection
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tools.java_programs import NO_LOG, run_java

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "quotas.txt.gz"
EPISODES = 48
STEPS = 300
WINDOWS = ((11, 1), (11, 1), (3, 1), (2, 2), (5, 3), (1, 1))
USERS, CLIENTS, HOSTS = ("u", "v", "w"), ("c", "d", "e"), ("10.0.0.1", "10.0.0.2", "10.0.0.3")
BASE = "- *"
"""A default for client-ids: with it every client has a limit, whatever else comes and goes. Clients without one are not
measured here, which Apache Kafka does."""
LIMITS = {"p": (500, 1000, 3000), "f": (500, 1000, 3000), "r": (1.5, 10.0, 50.0), "m": (0.5, 2.0, 5.0)}
MOST = {"p": 4000, "f": 4000, "r": 60, "m": 9}

JAVA = """
import java.io.*; import java.net.InetAddress; import java.util.*; import java.util.function.Supplier;
import kafka.network.ConnectionQuotas;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.*;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.*;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.*;

public class Throttle {
  static long nowMs = 0;
  static final Time TIME = new Time() {
    public long milliseconds() { return nowMs; }
    public long nanoseconds() { return nowMs * 1000000; }
    public void sleep(long ms) { throw new AssertionError("a sleep"); }
    public void waitObject(Object o, Supplier<Boolean> done, long ms) { throw new AssertionError("a wait"); }
  };
  static final ListenerName LISTENER = new ListenerName("PLAINTEXT");

  static Optional<ClientQuotaEntity.ConfigEntity> part(String name, ClientQuotaEntity.ConfigEntity any, boolean user) {
    if (name.equals("-")) return Optional.empty();
    if (name.equals("*")) return Optional.of(any);
    return Optional.of(user ? new ClientQuotaManager.UserEntity(name) : new ClientQuotaManager.ClientIdEntity(name));
  }

  static String text(String field) { return field.equals("-") ? "" : field; }

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    Map<String, ClientQuotaManager> managers = new HashMap<>();
    ConnectionQuotas connections = null;
    PrintStream out = System.out;
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] f = line.split(" ");
      if (f[0].equals("#")) {
        managers.values().forEach(ClientQuotaManager::initiateShutdown);
        ClientQuotaManagerConfig windows =
            new ClientQuotaManagerConfig(Integer.parseInt(f[1]), Integer.parseInt(f[2]));
        managers.clear();
        managers.put("p", new ClientQuotaManager(windows, metrics(), QuotaType.PRODUCE, TIME, ""));
        managers.put("f", new ClientQuotaManager(windows, metrics(), QuotaType.FETCH, TIME, ""));
        managers.put("r", new ClientRequestQuotaManager(windows, metrics(), TIME, "", Optional.empty()));
        managers.put("m", new ControllerMutationQuotaManager(windows, metrics(), TIME, "", Optional.empty()));
        Properties keys = new Properties();
        keys.putAll(Map.of("process.roles", "broker,controller", "node.id", "1", "listeners",
            "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093", "controller.listener.names", "CONTROLLER",
            "controller.quorum.voters", "1@127.0.0.1:9093", "quota.window.num", f[1],
            "quota.window.size.seconds", f[2]));
        KafkaConfig config = new KafkaConfig(keys, false);
        connections = new ConnectionQuotas(config, TIME, metrics());
        connections.addListener(config, LISTENER);
      } else if (f[0].equals("=") && f.length == 3) {
        InetAddress address = f[1].equals("*") ? null : InetAddress.getByName(f[1]);
        Object rate = f[2].equals("-") ? null : Integer.valueOf(f[2]);
        connections.updateIpConnectionRateQuota(scala.Option.apply(address), scala.Option.apply(rate));
      } else if (f[0].equals("=")) {
        managers.get(f[3]).updateQuota(part(f[1], ClientQuotaManager.DEFAULT_USER_ENTITY, true),
            part(f[2], ClientQuotaManager.DEFAULT_USER_CLIENT_ID, false),
            f[4].equals("-") ? Optional.empty() : Optional.of(Quota.upperBound(Double.parseDouble(f[4]))));
      } else if (f[0].equals("i")) {
        nowMs = Long.parseLong(f[1]);
        out.println(connected(connections, InetAddress.getByName(f[2])));
      } else {
        nowMs = Long.parseLong(f[1]);
        KafkaPrincipal who = new KafkaPrincipal("User", f[2]);
        Session session = new Session(who, InetAddress.getLoopbackAddress());
        out.println(throttle(managers, f[0], session, text(f[3]), f.length > 4 ? Double.parseDouble(f[4]) : 0));
      }
    }
    out.flush();
    System.exit(0);
  }

  static Metrics metrics() { return new Metrics(new MetricConfig(), new ArrayList<>(), TIME); }

  static String connected(ConnectionQuotas connections, InetAddress address) {
    try {
      connections.inc(LISTENER, address, null);
      return "0";
    } catch (ConnectionThrottledException e) {
      return "" + e.throttleTimeMs;
    }
  }

  static String throttle(Map<String, ClientQuotaManager> managers, String kind, Session session, String client,
      double value) {
    switch (kind) {
      case "w":
        double most = managers.get("f").maxValueInQuotaWindow(session, client);
        return most == Double.MAX_VALUE ? "-" : "" + most;
      case "s":
      case "m":
        ControllerMutationQuotaManager manager = (ControllerMutationQuotaManager) managers.get("m");
        ControllerMutationQuota quota = kind.equals("s")
            ? manager.newStrictQuotaFor(session, client) : manager.newPermissiveQuotaFor(session, client);
        try {
          quota.record(value);
          return "" + quota.throttleTime();
        } catch (ThrottlingQuotaExceededException e) {
          return "X " + quota.throttleTime();
        }
      default:
        ClientQuotaManager rates = managers.get(kind);
        if (!rates.quotasEnabled()) return "0";
        int throttleMs = rates.recordAndGetThrottleTimeMs(session, client, value, nowMs);
        if (kind.equals("f") && throttleMs > 0) rates.unrecordQuotaSensor(session, client, value, nowMs);
        return "" + throttleMs;
    }
  }
}
"""


def main() -> None:
    steps = [step for seed in range(EPISODES) for step in script(seed)]
    answers = iter(run_java(JAVA, steps, log4j=NO_LOG))
    with gzip.open(GOLDEN, "wt", encoding="utf-8", compresslevel=9) as out:
        out.writelines(f"{step}\n" if step[0] in "#=" else f"{step}\t{next(answers)}\n" for step in steps)


def script(seed: int) -> Iterator[str]:
    """Yield an episode: quotas that stay as they are at even seeds, and that come and go at odd ones."""
    dice = Random(seed)
    window_num, window_s = WINDOWS[seed % len(WINDOWS)]
    yield f"# {window_num} {window_s}"
    is_changing = seed % 2 == 1
    for letter in LIMITS:
        if is_changing:
            yield quota(dice, letter, BASE)
        for entity in dice.sample(entities(), dice.randrange(8)):
            yield quota(dice, letter, entity)
    for host in dice.sample(("*", *HOSTS), dice.randrange(4)):
        yield f"= {host} {dice.choice((1, 2, 5))}"
    now_ms = 1_000_000
    clients = CLIENTS if is_changing else (*CLIENTS, "-")
    for _ in range(STEPS):
        if is_changing and dice.random() < 0.1:
            yield changed(dice)
        now_ms += dice.choice((0, 0, 1, 10, 100, 400, 1000, 1001, dice.randrange(3000), dice.randrange(20_000)))
        yield request(dice, now_ms, clients)


def entities() -> list[str]:
    """Return the entities that may have quotas: names of users and client-ids, defaults, and without either."""
    users, clients = ("-", "*", "u", "v"), ("-", "*", "c", "d")
    return [f"{user} {client}" for user in users for client in clients if (user, client) != ("-", "-")]


def quota(dice: Random, letter: str, entity: str) -> str:
    return f"= {entity} {letter} {dice.choice(LIMITS[letter])}"


def changed(dice: Random) -> str:
    if dice.random() < 0.1:
        return f"= {dice.choice(HOSTS)} {dice.choice(('-', 1, 5))}"
    letter, entity = dice.choice([*LIMITS]), dice.choice(entities())
    return f"= {entity} {letter} -" if dice.random() < 0.4 and entity != BASE else quota(dice, letter, entity)


def request(dice: Random, now_ms: int, clients: tuple[str, ...]) -> str:
    kind = dice.choice("ppffrrmmssiw")
    if kind == "i":
        return f"i {now_ms} {dice.choice(HOSTS)}"
    who = f"{kind} {now_ms} {dice.choice(USERS)} {dice.choice(clients)}"
    if kind == "w":
        return who
    most = MOST["m" if kind == "s" else kind]
    return f"{who} {dice.randrange(2 * most) / 2 if kind == 'r' else dice.randrange(most)}"


if __name__ == "__main__":
    main()
