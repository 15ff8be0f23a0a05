"""Record how Apache Kafka 4.4.0 configures random topologies of streams groups against random topics.

`python -m tools.record_streams_topologies` writes tests/golden/streams_topologies.txt.gz: a line per topology, the
answer behind a tab. The topology is a StreamsGroupTopologyValue in hexadecimal; then the topics that exist. In the
answer all is in the order in which Kafka's maps iterate, but for sets, which are sorted.

    0000...|a:4,b:2
    error 130 Failed to compute ...         refused; of error -1, which is a failure inside Kafka, there is no text
    2 Following topics ...                  the status and its text if the topics do not fit; nothing is configured
    3 Internal topics are missing: c|0:4;a,b;r:4:0:-;w;c:4:2:k=v&x=y|c:4:-1:k=v&x=y
                                            else each subtopology with its number of tasks: sources, repartition
                                            sources (partitions, replication factor, configs), sinks, changelogs;
                                            then the topics to create. `-`: no status
"""

import gzip
import random
from pathlib import Path

from kafkapy.protocol.messages.streams_group_topology_value import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from tools.java_programs import NO_LOG, run_java

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "streams_topologies.txt.gz"
TOPOLOGIES = 900

JAVA = """
import java.io.*; import java.nio.ByteBuffer; import java.util.*; import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopic;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValue;
import org.apache.kafka.coordinator.group.streams.StreamsTopology;
import org.apache.kafka.coordinator.group.streams.topics.*;

public class Configure {
  record Topic(String name, Uuid id, int partitionCount) implements CoordinatorMetadataImage.TopicMetadata {
    public List<String> partitionRacks(int partition) { return List.of(); }
  }

  record Image(Map<String, Topic> topics) implements CoordinatorMetadataImage {
    public Set<Uuid> topicIds() { return Set.of(); }
    public Set<String> topicNames() { return topics.keySet(); }
    public Optional<TopicMetadata> topicMetadata(String name) { return Optional.ofNullable(topics.get(name)); }
    public Optional<TopicMetadata> topicMetadata(Uuid id) { return Optional.empty(); }
    public CoordinatorMetadataDelta emptyDelta() { return null; }
    public long version() { return 0; }
    public boolean isEmpty() { return topics.isEmpty(); }
  }

  static String configs(Stream<String> configs) {
    String joined = configs.collect(Collectors.joining("&"));
    return joined.isEmpty() ? "-" : joined;
  }

  static String internal(Map<String, ConfiguredInternalTopic> topics) {
    return topics.values().stream().map(topic -> topic.name() + ":" + topic.numberOfPartitions() + ":" +
        topic.replicationFactor().orElse((short) 0) + ":" + configs(topic.topicConfigs().entrySet().stream()
            .map(each -> each.getKey() + "=" + each.getValue()))).collect(Collectors.joining(","));
  }

  static String subtopology(String id, ConfiguredSubtopology each) {
    return id + ":" + each.numberOfTasks() + ";" + String.join(",", new TreeSet<>(each.sourceTopics())) + ";" +
        internal(each.repartitionSourceTopics()) + ";" +
        String.join(",", new TreeSet<>(each.repartitionSinkTopics())) + ";" + internal(each.stateChangelogTopics());
  }

  static String created(CreatableTopic topic) {
    return topic.name() + ":" + topic.numPartitions() + ":" + topic.replicationFactor() + ":" +
        configs(topic.configs().stream().map(each -> each.name() + "=" + each.value()));
  }

  static String answer(StreamsTopology topology, Image image, org.slf4j.Logger log) {
    ConfiguredTopology configured =
        InternalTopicManager.configureTopics(log, "g", "m", 0, topology, image, Time.SYSTEM);
    String status = configured.topicConfigurationException().map(each ->
        each.status().code() + " " + each.getMessage()).orElse("-");
    if (configured.subtopologies().isEmpty()) return status;
    return status + "|" + configured.subtopologies().get().entrySet().stream()
        .map(each -> subtopology(each.getKey(), each.getValue())).collect(Collectors.joining(" ")) + "|" +
        configured.internalTopicsToBeCreated().values().stream().map(each -> created(each))
            .collect(Collectors.joining(","));
  }

  public static void main(String[] arguments) throws Exception {
    org.slf4j.Logger log = org.slf4j.LoggerFactory.getLogger(Configure.class);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] fields = line.split("\\\\|", -1);
      Map<String, Topic> topics = new HashMap<>();
      for (String field : fields[1].split(",")) {
        if (field.isEmpty()) continue;
        String[] words = field.split(":");
        topics.put(words[0], new Topic(words[0], Uuid.randomUuid(), Integer.parseInt(words[1])));
      }
      ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(fields[0]));
      StreamsGroupTopologyValue value = new StreamsGroupTopologyValue(new ByteBufferAccessor(bytes), (short) 0);
      try {
        System.out.println(answer(StreamsTopology.fromRecord(value), new Image(topics), log));
      } catch (RuntimeException error) {
        Errors code = Errors.forException(error);
        String text = code == Errors.UNKNOWN_SERVER_ERROR ? "" : " " + error.getMessage();
        System.out.println("error " + code.code() + text);
      }
    }
  }
}
"""


def main() -> None:
    dice = random.Random(1071)
    questions = [topology_question(dice) for _ in range(TOPOLOGIES)]
    answers = run_java(JAVA, questions, log4j=NO_LOG)
    with gzip.open(GOLDEN, "wt", encoding="utf-8", compresslevel=9) as out:
        out.writelines(f"{question}\t{answer}\n" for question, answer in zip(questions, answers, strict=True))


def topology_question(dice: random.Random) -> str:
    """Return a random topology with topics that it may run on, mostly."""
    count = dice.choice((1, 1, 2, 2, 3, 4, 6, 14))
    prefix = "" if dice.random() < 0.7 else "sub-"
    subtopologies = [Subtopology(f"{prefix}{each}") for each in range(count)]
    sources = list(dict.fromkeys(f"in-{dice.choice('abcdef')}{each}" for each in range(dice.randint(1, 4))))
    common = dice.randint(1, 6)
    for each in subtopologies:
        each.source_topics = dice.sample(sources, dice.randint(0 if count > 1 else 1, min(2, len(sources))))
        each.state_changelog_topics = [_changelog(dice) for _ in range(dice.choice((0, 0, 1, 2)))]
    _add_repartition_topics(dice, subtopologies, common)
    for each in subtopologies:
        if not each.source_topics and not each.repartition_source_topics and dice.random() < 0.98:
            each.source_topics = [dice.choice(sources)]
        each.copartition_groups = [_copartition_group(dice, each) for _ in range(dice.choice((0, 0, 1, 1, 2)))]
    topics = _topics(dice, subtopologies, sources, common)
    if dice.random() < 0.03:
        _damage(dice, dice.choice(subtopologies))
    dice.shuffle(subtopologies)
    value = StreamsGroupTopologyValue(epoch=dice.randint(0, 3), subtopologies=subtopologies)
    return f"{value.encode(0).hex()}|{','.join(f'{each}:{partitions}' for each, partitions in topics.items())}"


def _changelog(dice: random.Random) -> TopicInfo:
    configs = dice.sample(("cleanup.policy", "retention.ms", "message.timestamp.type", "x"), dice.randint(0, 3))
    return TopicInfo(
        f"app-STATE-{dice.randrange(10**6)}-changelog",
        replication_factor=dice.choice((0, 0, 1, 3)),
        topic_configs=[TopicConfig(key, value=f"v{dice.randrange(9)}") for key in configs],
    )


def _add_repartition_topics(dice: random.Random, subtopologies: list[Subtopology], common: int) -> None:
    """Connect subtopologies by topics that one writes, nearly always, and one or two read; with loops now and then."""
    fixed_share = dice.choice((0.0, 0.0, 0.2, 1.0))
    for _ in range(dice.randint(0, len(subtopologies) * 2)):
        writer, *readers = dice.choices(range(len(subtopologies)), k=dice.choice((2, 2, 2, 3)))
        if dice.random() < 0.9:
            writer, readers = min(writer, *readers), sorted({writer, *readers})[1:] or readers
        partitions = 0
        if dice.random() < fixed_share:
            partitions = common if dice.random() < 0.9 else dice.randint(1, 6)
        name = f"app-KSTREAM-{dice.randrange(10**6)}-repartition"
        if dice.random() < 0.99:
            subtopologies[writer].repartition_sink_topics.append(name)
        for reader in set(readers):
            topic = TopicInfo(name, partitions=partitions, replication_factor=dice.choice((0, 2)))
            subtopologies[reader].repartition_source_topics.append(topic)


def _copartition_group(dice: random.Random, subtopology: Subtopology) -> CopartitionGroup:
    inputs, repartition = range(len(subtopology.source_topics)), range(len(subtopology.repartition_source_topics))
    share = dice.choice((0.5, 1.0))
    return CopartitionGroup(
        [each for each in inputs if dice.random() < share],
        repartition_source_topics=[each for each in repartition if dice.random() < share],
    )


def _topics(dice: random.Random, subtopologies: list[Subtopology], sources: list[str], common: int) -> dict[str, int]:
    """Return the topics that exist: most sources with the common count, and perhaps some internal topics."""
    topics = {each: common if dice.random() < 0.85 else dice.randint(1, 6) for each in sources if dice.random() < 0.99}
    if dice.random() < 0.4:
        internal = [
            topic.name
            for each in subtopologies
            for topic in (*each.repartition_source_topics, *each.state_changelog_topics)
        ]
        share = dice.choice((0.5, 1.0))
        topics |= {each: common for each in internal if dice.random() < share}
        if internal and dice.random() < 0.2:
            topics[dice.choice(internal)] = dice.randint(1, 8)
    return topics


def _damage(dice: random.Random, subtopology: Subtopology) -> None:
    """Make a topology that does not fit together."""
    kind = dice.randrange(4)
    if kind == 0:
        subtopology.copartition_groups.append(CopartitionGroup([dice.choice((-1, 9))]))
    elif kind == 1:
        subtopology.repartition_source_topics.append(TopicInfo("negative", partitions=-2))
    elif kind == 2:
        subtopology.state_changelog_topics += [TopicInfo("twice"), TopicInfo("twice")]
    else:
        configs = [TopicConfig("a", value="1"), TopicConfig("a", value="2")]
        subtopology.state_changelog_topics.append(TopicInfo("configs", topic_configs=configs))


if __name__ == "__main__":
    main()
