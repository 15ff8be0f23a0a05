"""Record what the assignors of Apache Kafka 4.4.0 make of random groups.

`python -m tools.record_assignments` writes tests/golden/group_assignments.txt.gz: a line per group, the answer behind a
tab. Topics are numbers; members are given in the order of their ids, which is the one thing that Kafka's hash maps
leave open. Of the uniform assignor only groups are recorded whose members all subscribe to the same topics: for others
Kafka's result depends on the order of hash maps.

    uniform|0:4,1:2|a;;0,1;0:3|b;;0,1;     a uniform group: topics 0 (4 partitions) and 1 (2); a has 0-3, b nothing yet
    a=0:0,0:1,0:3|b=0:2,1:0,1:1            what each is to have

The assignor of share groups goes into share_assignments.txt.gz (`python -m tools.record_assignments share` records this
file alone). There the order of members and topics is part of the input, a topic has the list of those partitions that
may be assigned, and topic n has a random-looking id (TOPIC_ID_FACTOR), because results depend on its hash. `-` in an
answer: the member has an entry without partitions for that topic.

    simple|0:4:0.1.3|b;;0;|a;;0;0:1        partition 2 of topic 0 is not initialised
    b=0:0,0:3|a=0:1
"""

import gzip
import random
import sys
from pathlib import Path

from tools.java_programs import run_java

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "group_assignments.txt.gz"
SHARE_GOLDEN = GOLDEN.with_name("share_assignments.txt.gz")
SMALL_GROUPS, LARGE_GROUPS = 600, 12
TOPIC_ID_FACTOR = 0x9E3779B97F4A7C15
"""A share group's topic n has the id (n + 1) * this, modulo 2**64, then n + 1: both as int64."""

JAVA = """
import java.io.*; import java.util.*; import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.modern.*;

public class Assign {
  static Uuid id(String topic) { return new Uuid(0L, Integer.parseInt(topic) + 1); }

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] fields = line.split("\\\\|", -1);
      Map<Uuid, Integer> counts = new HashMap<>();
      for (String topic : fields[1].split(","))
        counts.put(id(topic.split(":")[0]), Integer.parseInt(topic.split(":")[1]));
      Map<String, MemberSubscriptionAndAssignmentImpl> members = new TreeMap<>();
      Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
      for (String field : Arrays.copyOfRange(fields, 2, fields.length)) {
        String[] member = field.split(";", -1);
        Set<Uuid> topics = new LinkedHashSet<>();
        for (String topic : member[2].split(",")) if (!topic.isEmpty()) topics.add(id(topic));
        Map<Uuid, Set<Integer>> owned = new TreeMap<>();
        for (String partition : member[3].split(",")) {
          if (partition.isEmpty()) continue;
          Uuid topic = id(partition.split(":")[0]);
          int number = Integer.parseInt(partition.split(":")[1]);
          owned.computeIfAbsent(topic, key -> new TreeSet<>()).add(number);
          owners.computeIfAbsent(topic, key -> new HashMap<>()).put(number, member[0]);
        }
        Optional<String> instance = member[1].isEmpty() ? Optional.empty() : Optional.of(member[1]);
        members.put(member[0], new MemberSubscriptionAndAssignmentImpl(
            Optional.empty(), instance, topics, new Assignment(owned)));
      }
      SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
        public int numPartitions(Uuid topic) { return counts.get(topic); }
        public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
      };
      boolean isSame = members.values().stream().map(member -> member.subscribedTopicIds()).distinct().count() == 1;
      SubscriptionType type = isSame ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
      ConsumerGroupPartitionAssignor assignor = fields[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
      GroupAssignment assigned = assignor.assign(new GroupSpecImpl(members, type, owners), describer);
      System.out.println(new TreeMap<>(assigned.members()).entrySet().stream().map(member ->
          member.getKey() + "=" + new TreeMap<>(member.getValue().partitions()).entrySet().stream().flatMap(topic ->
              new TreeSet<>(topic.getValue()).stream().map(partition ->
                  (topic.getKey().getLeastSignificantBits() - 1) + ":" + partition))
          .collect(Collectors.joining(","))).collect(Collectors.joining("|")));
    }
  }
}
"""


SHARE_JAVA = """
import java.io.*; import java.util.*; import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.modern.*;

public class Share {
  static Uuid id(int topic) { return new Uuid((topic + 1) * 0x9E3779B97F4A7C15L, topic + 1); }

  static String partitions(Map.Entry<Uuid, Set<Integer>> topic) {
    long number = topic.getKey().getLeastSignificantBits() - 1;
    if (topic.getValue().isEmpty()) return number + ":-";
    return new TreeSet<>(topic.getValue()).stream().map(each -> number + ":" + each).collect(Collectors.joining(","));
  }

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] fields = line.split("\\\\|", -1);
      Map<Uuid, Integer> counts = new HashMap<>();
      Map<Uuid, Set<Integer>> assignable = new HashMap<>();
      for (String field : fields[1].split(",")) {
        String[] topic = field.split(":", -1);
        Uuid id = id(Integer.parseInt(topic[0]));
        counts.put(id, Integer.parseInt(topic[1]));
        for (String partition : topic[2].split("\\\\."))
          if (!partition.isEmpty())
            assignable.computeIfAbsent(id, key -> new HashSet<>()).add(Integer.parseInt(partition));
      }
      Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
      for (String field : Arrays.copyOfRange(fields, 2, fields.length)) {
        String[] member = field.split(";", -1);
        Set<Uuid> topics = new LinkedHashSet<>();
        for (String topic : member[2].split(",")) if (!topic.isEmpty()) topics.add(id(Integer.parseInt(topic)));
        Map<Uuid, List<Integer>> owned = new LinkedHashMap<>();
        for (String partition : member[3].split(",")) {
          if (partition.isEmpty()) continue;
          Uuid topic = id(Integer.parseInt(partition.split(":")[0]));
          owned.computeIfAbsent(topic, key -> new ArrayList<>()).add(Integer.parseInt(partition.split(":")[1]));
        }
        Map<Uuid, Set<Integer>> had = new LinkedHashMap<>();
        owned.forEach((topic, list) -> had.put(topic, new HashSet<>(list)));
        members.put(member[0], new MemberSubscriptionAndAssignmentImpl(
            Optional.empty(), Optional.empty(), topics, new Assignment(had)));
      }
      SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
        public int numPartitions(Uuid topic) { return counts.get(topic); }
        public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
      };
      boolean isSame = members.values().stream().map(member -> member.subscribedTopicIds()).distinct().count() == 1;
      SubscriptionType type = isSame ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
      GroupAssignment assigned = new SimpleAssignor().assign(
          new GroupSpecImpl(members, type, Map.of(), Optional.of(assignable)), describer);
      System.out.println(members.keySet().stream().map(member -> member + "=" +
          new TreeMap<>(assigned.members().get(member).partitions()).entrySet().stream().map(Share::partitions)
          .collect(Collectors.joining(","))).collect(Collectors.joining("|")));
    }
  }
}
"""


def main() -> None:
    if "share" not in sys.argv[1:]:
        dice = random.Random(848)
        groups = [_group(dice, 5, 8, 9) for _ in range(SMALL_GROUPS)]
        groups += [_group(dice, 12, 60, 50) for _ in range(LARGE_GROUPS)]
        _record(GOLDEN, groups, JAVA)
    dice = random.Random(932)
    groups = [_share_group(dice, 5, 8, 9) for _ in range(SMALL_GROUPS)]
    groups += [_share_group(dice, 3, 200, 5) for _ in range(LARGE_GROUPS)]
    groups += [_share_group(dice, 12, 60, 50) for _ in range(LARGE_GROUPS)]
    _record(SHARE_GOLDEN, groups, SHARE_JAVA)


def _record(golden: Path, groups: list[str], java: str) -> None:
    answers = run_java(java, groups)
    with gzip.open(golden, "wt", encoding="utf-8", compresslevel=9) as out:
        out.writelines(f"{group}\t{answer}\n" for group, answer in zip(groups, answers, strict=True))


def _group(dice: random.Random, max_topics: int, max_members: int, max_partitions: int) -> str:
    """Return a random group; what its members had is not all theirs any more, or of no use to them."""
    assignor = dice.choice(("uniform", "uniform", "range"))
    counts = {topic: dice.randint(1, max_partitions) for topic in range(dice.randint(1, max_topics))}
    ids = [f"m{index:02}" for index in range(dice.randint(1, max_members))]
    owners = [*ids, "gone", ""]
    owned: dict[str, list[str]] = {member_id: [] for member_id in owners}
    for topic, count in counts.items():
        for partition in range(count):
            owned[dice.choice(owners)].append(f"{topic}:{partition}")
    newcomers = {member_id for member_id in ids if dice.random() < 0.2}
    members = []
    for member_id in ids:
        is_partial = assignor == "range" and dice.random() < 0.5
        topics = sorted(dice.sample(list(counts), dice.randint(1, len(counts)))) if is_partial else list(counts)
        instance = f"i{member_id}" if dice.random() < 0.2 else ""
        had = [] if member_id in newcomers else owned[member_id]
        members.append(f"{member_id};{instance};{','.join(map(str, topics))};{','.join(had)}")
    return "|".join([assignor, ",".join(f"{topic}:{count}" for topic, count in counts.items()), *members])


def _share_group(dice: random.Random, max_topics: int, max_members: int, max_partitions: int) -> str:
    """Return a random share group: partitions have several owners, members and topics no order."""
    counts = {topic: dice.randint(1, max_partitions) for topic in range(dice.randint(1, max_topics))}
    is_all = dice.random() < 0.5
    assignable = {
        topic: [each for each in range(count) if is_all or dice.random() < 0.8] for topic, count in counts.items()
    }
    ids = [f"m{dice.randrange(10**6):06}" for _ in range(dice.randint(1, max_members))]
    is_partial, newcomers, share = dice.random() < 0.5, dice.random(), dice.random()
    members = []
    for member_id in dict.fromkeys(ids):
        topics = dice.sample(list(counts), dice.randint(1, len(counts))) if is_partial else list(counts)
        had = []
        if dice.random() >= newcomers:
            for topic in dice.sample(list(counts), len(counts)):
                had += [f"{topic}:{each}" for each in assignable[topic] if dice.random() < share]
        members.append(f"{member_id};;{','.join(map(str, topics))};{','.join(had)}")
    described = [f"{topic}:{count}:{'.'.join(map(str, assignable[topic]))}" for topic, count in counts.items()]
    return "|".join(["simple", ",".join(described), *members])


if __name__ == "__main__":
    main()
