"""Record what the share coordinator of Apache Kafka 4.4.0 makes of random requests, and how it merges state batches.

`python -m tools.record_share_states` writes two files of tests/golden: what was asked, and behind a tab the answer.

share_state_batches.txt.gz, what PersisterStateBatchCombiner makes of two lists and a start offset:

    5|0-9.0.1|3-4.2.1        from offset 5 on: 0 to 9 in state 0 with delivery count 1, then 3 to 4 in state 2
    5-9.0.1

share_states.txt.gz, one ShareCoordinatorShard with three share updates per snapshot, whose records are replayed at the
offsets 0, 1, ...; topics 1, 2 and 3 have as many partitions:

    N                        a new shard
    T|500                    500 ms pass
    I|g|1|0|1|-1             initialise (group g, topic 1, partition 0): state epoch 1, start offset -1
    W|g|1|0|1|2|10|3|10-14.2.1   write: state epoch, leader epoch, start offset, delivery complete count, batches
    R|g|1|0|2                read by a leader of epoch 2
    S|g|1|0                  read the summary
    D|g|1|0                  delete
    C                        snapshot cold partitions (5000 ms)
    X|1                      topic 1 was deleted
    P                        the last redundant offset

The answer: error code, message, the response's other fields; then each record as key=value in hex, of C and X sorted.
"""

import gzip
import io
import random
from pathlib import Path
from typing import Final

from tools.java_programs import run_java

GOLDEN: Final = Path(__file__).resolve().parents[1] / "tests" / "golden"
MERGES, SHARDS, STEPS = 600, 30, 80
BEGINNING: Final = tuple(f"I|{group}|{key}|1|-1" for group in ("g", "h:1") for key in ("1|0", "2|0", "2|1"))

JAVA = """
import java.io.*; import java.lang.reflect.Proxy; import java.util.*; import java.util.stream.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.coordinator.share.*;
import org.apache.kafka.coordinator.share.metrics.ShareCoordinatorMetrics;
import org.apache.kafka.server.share.persister.PersisterStateBatch;
import org.apache.kafka.timeline.SnapshotRegistry;

public class ShareStates {
  static long now, offset;
  static ShareCoordinatorShard shard;
  static final ShareCoordinatorRecordSerde SERDE = new ShareCoordinatorRecordSerde();

  static Uuid id(String topic) { return new Uuid(0L, Long.parseLong(topic)); }

  static <T> T proxy(Class<T> type, java.util.function.BiFunction<String, Object[], Object> answer) {
    return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[]{type},
        (self, method, arguments) -> answer.apply(method.getName(), arguments)));
  }

  static ShareCoordinatorShard newShard() {
    Time time = proxy(Time.class, (name, arguments) -> now);
    CoordinatorMetadataImage image = proxy(CoordinatorMetadataImage.class, (name, arguments) -> {
      long topic = ((Uuid) arguments[0]).getLeastSignificantBits();
      if (topic < 1 || topic > 3) return Optional.empty();
      return Optional.of(proxy(CoordinatorMetadataImage.TopicMetadata.class, (field, none) ->
          field.equals("name") ? "t" + topic : (Object) (int) topic));
    });
    ShareCoordinatorConfig config = new ShareCoordinatorConfig(new AbstractConfig(ShareCoordinatorConfig.CONFIG_DEF,
        Map.of("share.coordinator.snapshot.update.records.per.snapshot", "3",
               "share.coordinator.cold.partition.snapshot.interval.ms", "5000"), false));
    ShareCoordinatorShard made = new ShareCoordinatorShard.Builder(config)
        .withSnapshotRegistry(new SnapshotRegistry(new LogContext())).withTime(time)
        .withCoordinatorMetrics(new ShareCoordinatorMetrics(new Metrics()))
        .withTopicPartition(new TopicPartition("__share_group_state", 0)).build();
    made.onLoaded(image);
    return made;
  }

  static String show(CoordinatorResult<?, CoordinatorRecord> result, String response, boolean isSorted) {
    List<CoordinatorRecord> records = new ArrayList<>(result.records());
    if (isSorted) records.sort(Comparator.comparing(record -> hex(SERDE.serializeKey(record))));
    StringBuilder shown = new StringBuilder(response);
    for (CoordinatorRecord record : records) {
      byte[] value = SERDE.serializeValue(record);
      shown.append(" ").append(hex(SERDE.serializeKey(record))).append("=").append(value == null ? "" : hex(value));
      shard.replay(offset++, -1L, (short) -1, record);
    }
    return shown.toString();
  }

  static String hex(byte[] bytes) { return HexFormat.of().formatHex(bytes); }

  static List<PersisterStateBatch> batches(String text) {
    return Arrays.stream(text.split(",")).filter(each -> !each.isEmpty()).map(each -> {
      String[] parts = each.split("[-.]");
      return new PersisterStateBatch(Long.parseLong(parts[0]), Long.parseLong(parts[1]), Byte.parseByte(parts[2]),
          Short.parseShort(parts[3]));
    }).toList();
  }

  static String text(List<PersisterStateBatch> batches) {
    return batches.stream().map(each -> each.firstOffset() + "-" + each.lastOffset() + "." + each.deliveryState() + "."
        + each.deliveryCount()).collect(Collectors.joining(","));
  }

  static String error(short code, String message) { return code + "|" + (message == null ? "" : message); }

  static String answer(String[] f) {
    int partition = f.length > 3 ? Integer.parseInt(f[3]) : 0;
    switch (f[0]) {
      case "N": shard = newShard(); offset = 0; now = 1000; return "";
      case "T": now += Long.parseLong(f[1]); return "";
      case "I": {
        var result = shard.initializeState(new InitializeShareGroupStateRequestData().setGroupId(f[1]).setTopics(
            List.of(new InitializeShareGroupStateRequestData.InitializeStateData().setTopicId(id(f[2])).setPartitions(
                List.of(new InitializeShareGroupStateRequestData.PartitionData().setPartition(partition)
                    .setStateEpoch(Integer.parseInt(f[4])).setStartOffset(Long.parseLong(f[5])))))));
        var told = result.response().results().get(0).partitions().get(0);
        return show(result, error(told.errorCode(), told.errorMessage()), false);
      }
      case "W": {
        var written = batches(f[8]).stream().map(each -> new WriteShareGroupStateRequestData.StateBatch()
            .setFirstOffset(each.firstOffset()).setLastOffset(each.lastOffset())
            .setDeliveryState(each.deliveryState()).setDeliveryCount(each.deliveryCount())).toList();
        var result = shard.writeState(new WriteShareGroupStateRequestData().setGroupId(f[1]).setTopics(List.of(
            new WriteShareGroupStateRequestData.WriteStateData().setTopicId(id(f[2])).setPartitions(List.of(
                new WriteShareGroupStateRequestData.PartitionData().setPartition(partition)
                    .setStateEpoch(Integer.parseInt(f[4])).setLeaderEpoch(Integer.parseInt(f[5]))
                    .setStartOffset(Long.parseLong(f[6])).setDeliveryCompleteCount(Integer.parseInt(f[7]))
                    .setStateBatches(written))))));
        var told = result.response().results().get(0).partitions().get(0);
        return show(result, error(told.errorCode(), told.errorMessage()), false);
      }
      case "R": {
        var result = shard.readStateAndMaybeUpdateLeaderEpoch(new ReadShareGroupStateRequestData().setGroupId(f[1])
            .setTopics(List.of(new ReadShareGroupStateRequestData.ReadStateData().setTopicId(id(f[2])).setPartitions(
                List.of(new ReadShareGroupStateRequestData.PartitionData().setPartition(partition)
                    .setLeaderEpoch(Integer.parseInt(f[4])))))));
        var told = result.response().results().get(0).partitions().get(0);
        String state = told.stateEpoch() + "|" + told.startOffset() + "|"
            + text(told.stateBatches().stream().map(PersisterStateBatch::from).toList());
        return show(result, error(told.errorCode(), told.errorMessage()) + "|" + state, false);
      }
      case "S": {
        var result = shard.readStateSummary(new ReadShareGroupStateSummaryRequestData().setGroupId(f[1])
            .setTopics(List.of(new ReadShareGroupStateSummaryRequestData.ReadStateSummaryData().setTopicId(id(f[2]))
                .setPartitions(List.of(
                    new ReadShareGroupStateSummaryRequestData.PartitionData().setPartition(partition))))));
        var told = result.response().results().get(0).partitions().get(0);
        return show(result, error(told.errorCode(), told.errorMessage()) + "|" + told.stateEpoch() + "|"
            + told.leaderEpoch() + "|" + told.startOffset() + "|" + told.deliveryCompleteCount(), false);
      }
      case "D": {
        var result = shard.deleteState(new DeleteShareGroupStateRequestData().setGroupId(f[1]).setTopics(List.of(
            new DeleteShareGroupStateRequestData.DeleteStateData().setTopicId(id(f[2])).setPartitions(List.of(
                new DeleteShareGroupStateRequestData.PartitionData().setPartition(partition))))));
        var told = result.response().results().get(0).partitions().get(0);
        return show(result, error(told.errorCode(), told.errorMessage()), false);
      }
      case "C": return show(shard.snapshotColdPartitions(), "", true);
      case "X": return show(shard.maybeCleanupShareState(Set.of(id(f[1]))), "", true);
      case "P": return shard.lastRedundantOffset().response().map(String::valueOf).orElse("");
      default: return text(new PersisterStateBatchCombiner(batches(f[1]), batches(f[2]), Long.parseLong(f[0]))
          .combineStateBatches());
    }
  }

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine())
      System.out.println(answer(line.split("\\\\|", -1)));
  }
}
"""


def main() -> None:
    dice = random.Random(932)
    merges = [_merge(dice) for _ in range(MERGES)]
    steps = [step for _ in range(SHARDS) for step in ("N", *BEGINNING, *(_step(dice) for _ in range(STEPS)))]
    answers = run_java(JAVA, [*merges, *steps])
    _write(GOLDEN / "share_state_batches.txt.gz", merges, answers[:MERGES])
    _write(GOLDEN / "share_states.txt.gz", steps, answers[MERGES:])


def _write(path: Path, asked: list[str], answers: list[str]) -> None:
    data = io.BytesIO()
    with gzip.GzipFile("", mode="wb", fileobj=data, compresslevel=9, mtime=0) as out:
        out.writelines(f"{each}\t{answer}\n".encode() for each, answer in zip(asked, answers, strict=True))
    path.write_bytes(data.getvalue())


def _batches(dice: random.Random, start: int, most: int) -> str:
    """Return batches that may overlap and are in no order."""
    batches = []
    for _ in range(dice.randint(0, most)):
        first = start + dice.randint(0, 40)
        last = first + dice.choice((0, 0, 1, 3, 10, 30))
        batches.append(f"{first}-{last}.{dice.choice((0, 2, 4))}.{dice.randint(1, 3)}")
    return ",".join(batches)


def _merge(dice: random.Random) -> str:
    most = dice.choice((1, 2, 4, 12))
    return f"{dice.choice((-1, 100, 110, 130))}|{_batches(dice, 100, most)}|{_batches(dice, 100, most)}"


def _step(dice: random.Random) -> str:
    """Return a step; most name share partitions that exist and epochs that are current."""
    topic = dice.choice((1, 2)) if dice.random() < 0.95 else dice.choice((3, 4))
    partition = dice.randrange(topic) if dice.random() < 0.95 else dice.choice((-1, 2, 3))
    key = f"{dice.choice(('g', 'h:1'))}|{topic}|{partition}"
    state_epoch = dice.choice((1, 2, 3)) if dice.random() < 0.3 else 3
    leader_epoch = dice.choice((-1, 0, 1)) if dice.random() < 0.1 else dice.choice((1, 2, 2, 2, 2, 3))
    start = dice.choice((-1, 0, 10, 10, 20, 25))
    kind = dice.choice("IWWWWWWWWWWRRSDTCXPP")
    if kind in "XD" and dice.random() < 0.7:
        kind = "W"
    match kind:
        case "I":
            return f"I|{key}|{state_epoch}|{dice.choice((-1, 0, 10))}"
        case "W":
            count = dice.choice((-1, 0, 3, 7))
            return f"W|{key}|{state_epoch}|{leader_epoch}|{start}|{count}|{_batches(dice, 0, 4)}"
        case "R":
            return f"R|{key}|{leader_epoch}"
        case "T":
            return f"T|{dice.choice((10, 2000, 5000))}"
        case "X":
            return f"X|{topic}"
        case "C" | "P":
            return kind
        case _:
            return f"{kind}|{key}"


if __name__ == "__main__":
    main()
