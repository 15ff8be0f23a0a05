"""Record what the streams groups' assignor `sticky` of Apache Kafka 4.4.0 makes of random groups.

`python -m tools.record_streams_assignments` writes tests/golden/streams_assignments.txt.gz: a line per group, the
answer behind a tab. Members are put into a HashMap in the order given, as the group coordinator does.

    1|0:4:s,1:2:-|b;p1;0_1,1_0;;0_1@7|a;p1;;0_1;     one standby replica; subtopology 0 has 4 tasks and is stateful;
                                                     b, in process p1, runs 0_1 and 1_0, and reported 0_1's offset 7;
                                                     a, in the same process, has a standby of 0_1
    b=0_1,1_0/0_2|a=0_0,0_2,0_3,1_1/0_1              active tasks, then standbys
"""

import gzip
import random
from pathlib import Path

from tools.java_programs import NO_LOG, run_java

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "streams_assignments.txt.gz"
SMALL_GROUPS, LARGE_GROUPS = 1000, 6

JAVA = """
import java.io.*; import java.util.*; import java.util.stream.*;
import org.apache.kafka.coordinator.group.api.streams.assignor.*;
import org.apache.kafka.coordinator.group.streams.assignor.*;

public class Assign {
  static Map<String, Set<Integer>> tasks(String text) {
    Map<String, Set<Integer>> found = new HashMap<>();
    for (String task : text.split(",")) {
      if (task.isEmpty()) continue;
      String[] words = task.split("_");
      found.computeIfAbsent(words[0], id -> new HashSet<>()).add(Integer.parseInt(words[1]));
    }
    return found;
  }

  static Map<String, Map<Integer, Long>> offsets(String text) {
    Map<String, Map<Integer, Long>> found = new HashMap<>();
    for (String offset : text.split(",")) {
      if (offset.isEmpty()) continue;
      String[] words = offset.split("[_@]");
      found.computeIfAbsent(words[0], id -> new HashMap<>()).put(Integer.parseInt(words[1]), Long.parseLong(words[2]));
    }
    return found;
  }

  static String text(Map<String, Set<Integer>> tasks) {
    return new TreeMap<>(tasks).entrySet().stream().flatMap(each -> new TreeSet<>(each.getValue()).stream()
        .map(partition -> each.getKey() + "_" + partition)).collect(Collectors.joining(","));
  }

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] fields = line.split("\\\\|", -1);
      SortedMap<String, Integer> counts = new TreeMap<>();
      Set<String> stateful = new HashSet<>();
      for (String field : fields[1].split(",")) {
        String[] words = field.split(":");
        counts.put(words[0], Integer.parseInt(words[1]));
        if (words[2].equals("s")) stateful.add(words[0]);
      }
      List<String> ids = new ArrayList<>();
      Map<String, MemberMetadataAndStateImpl> members = new HashMap<>();
      for (String field : Arrays.copyOfRange(fields, 2, fields.length)) {
        String[] member = field.split(";", -1);
        ids.add(member[0]);
        members.put(member[0], new MemberMetadataAndStateImpl(Optional.empty(), Optional.empty(), member[1], Map.of(),
            tasks(member[2]), tasks(member[3]), Map.of(), offsets(member[4]), Map.of()));
      }
      TopologyDescriber describer = new TopologyDescriber() {
        public List<String> subtopologies() { return counts.keySet().stream().toList(); }
        public int maxNumInputPartitions(String id) { return counts.get(id); }
        public boolean isStateful(String id) { return stateful.contains(id); }
      };
      AssignmentConfigsImpl configs = new AssignmentConfigsImpl(Integer.parseInt(fields[0]), List.of());
      GroupAssignment assigned = new StickyTaskAssignor().assign(new GroupSpecImpl(members, configs), describer);
      System.out.println(ids.stream().map(id -> id + "=" + text(assigned.members().get(id).activeTasks()) + "/" +
          text(assigned.members().get(id).standbyTasks())).collect(Collectors.joining("|")));
    }
  }
}
"""


def main() -> None:
    dice = random.Random(1071)
    groups = [_group(dice, 4, 10, 7, 6) for _ in range(SMALL_GROUPS)]
    groups += [_group(dice, 6, 60, 40, 25) for _ in range(LARGE_GROUPS)]
    answers = run_java(JAVA, groups, log4j=NO_LOG)
    with gzip.open(GOLDEN, "wt", encoding="utf-8", compresslevel=9) as out:
        out.writelines(f"{group}\t{answer}\n" for group, answer in zip(groups, answers, strict=True))


def _group(dice: random.Random, max_subtopologies: int, max_members: int, max_tasks: int, max_processes: int) -> str:
    """Return a random group; members had tasks of members that are gone, standbys are several, processes are shared."""
    ids = ["a", "b", "0", "1", "10", "K", "é"] if dice.random() < 0.2 else [str(each) for each in range(20)]
    topology = {each: dice.randint(1, max_tasks) for each in ids[: dice.randint(1, max_subtopologies)]}
    stateful = {each for each in topology if dice.random() < 0.7}
    members = [f"{dice.randrange(16**12):012x}" for _ in range(dice.randint(1, max_members))]
    processes = [f"p{dice.randrange(10**6)}" for _ in range(dice.randint(1, max_processes))]
    process_of = {each: dice.choice(processes) for each in members}
    active: dict[str, list[str]] = {each: [] for each in [*members, "gone"]}
    standby: dict[str, list[str]] = {each: [] for each in [*members, "gone"]}
    offsets: dict[str, list[str]] = {each: [] for each in [*members, "gone"]}
    had, standby_share, offset_share = dice.random(), dice.random(), dice.random() * dice.choice((0, 1))
    for task in (f"{each}_{partition}" for each, count in topology.items() for partition in range(count + 1)):
        if dice.random() < had:
            active[dice.choice(list(active))].append(task)
        if dice.random() < standby_share:
            for each in dice.sample(list(standby), dice.randint(1, min(3, len(standby)))):
                standby[each].append(task)
        if dice.random() < offset_share:
            for each in dice.sample(list(offsets), dice.randint(1, min(4, len(offsets)))):
                offsets[each].append(f"{task}@{dice.choice((0, 5, dice.randrange(10**6)))}")
    described = [f"{each}:{count}:{'s' if each in stateful else '-'}" for each, count in topology.items()]
    fields = [
        f"{each};{process_of[each]};{','.join(active[each])};{','.join(standby[each])};{','.join(offsets[each])}"
        for each in members
    ]
    return "|".join([str(dice.choice((0, 0, 1, 1, 2, 3))), ",".join(described), *fields])


if __name__ == "__main__":
    main()
