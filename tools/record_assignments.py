"""Record what the assignors of Apache Kafka 4.4.0 make of random groups.

`python -m tools.record_assignments` writes tests/golden/group_assignments.txt.gz: a line per group, the answer behind a
tab. Topics are numbers; members are given in the order of their ids, which is the one thing that Kafka's hash maps
leave open. Of the uniform assignor only groups are recorded whose members all subscribe to the same topics: for others
Kafka's result depends on the order of hash maps.

    uniform|0:4,1:2|a;;0,1;0:3|b;;0,1;     a uniform group: topics 0 (4 partitions) and 1 (2); a has 0-3, b nothing yet
    a=0:0,0:1,0:3|b=0:2,1:0,1:1            what each is to have
"""

import gzip
import random
import subprocess
import tempfile
from pathlib import Path

from tools.kafka import JAVA_LIBS

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "group_assignments.txt.gz"
SMALL_GROUPS, LARGE_GROUPS = 600, 12

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


def main() -> None:
    dice = random.Random(848)
    groups = [_group(dice, 5, 8, 9) for _ in range(SMALL_GROUPS)]
    groups += [_group(dice, 12, 60, 50) for _ in range(LARGE_GROUPS)]
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "Assign.java"
        source.write_text(JAVA)
        command = ["java", "-cp", f"{JAVA_LIBS}/*", str(source)]
        output = subprocess.run(command, input="\n".join(groups), capture_output=True, text=True, check=True).stdout
    answers = output.splitlines()
    with gzip.open(GOLDEN, "wt", encoding="utf-8", compresslevel=9) as out:
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


if __name__ == "__main__":
    main()
