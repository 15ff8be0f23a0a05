import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/**
 * Makes every call of Java's Admin, once or more, on one node that is as it was formatted: bootstrap.
 * Prints a line for each: its name, a tab, and what came of it. Lines have nothing that differs between two clusters.
 */
class AdminCalls {
    private static final TopicPartition FIRST = new TopicPartition("orders", 0);
    private static final ConfigResource TOPIC = new ConfigResource(ConfigResource.Type.TOPIC, "orders");
    private static final ConfigResource BROKER = new ConfigResource(ConfigResource.Type.BROKER, "1");
    private static final ConfigResource LOGGER = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "1");
    private static final Set<String> NONE = Set.of("missing");
    private static final Set<String> CALLED = new HashSet<>();
    private static final Set<String> LOCAL = Set.of(
        "create", "close", "registerMetricForSubscription", "unregisterMetricFromSubscription");

    public static void main(String[] args) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0], "default.api.timeout.ms", "60000");
        try (Admin admin = Admin.create(settings)) {
            topics(admin);
            configs(admin);
            directoriesAndRecords(admin);
            security(admin);
            groups(admin);
            otherGroups(admin);
            partitions(admin);
            cluster(admin);
            transactions(admin);
            say("deleteTopics", () -> admin.deleteTopics(List.of("orders")).all().get());
            say("deleteTopics again", () -> admin.deleteTopics(NONE).all().get());
            say("metrics", () -> admin.metrics().isEmpty());
            say("not called", () -> Stream.of(Admin.class.getMethods()).map(Method::getName)
                .filter(name -> !CALLED.contains(name) && !LOCAL.contains(name)).collect(Collectors.toSet()));
        }
        System.exit(0);
    }

    private static void topics(Admin admin) {
        NewTopic topic = new NewTopic("orders", 2, (short) 1);
        say("createTopics", () -> {
            CreateTopicsResult result = admin.createTopics(List.of(topic));
            return result.numPartitions("orders").get() + " " + result.replicationFactor("orders").get();
        });
        say("createTopics again", () -> admin.createTopics(List.of(topic)).all().get());
        say("createTopics of too many replicas",
            () -> admin.createTopics(List.of(new NewTopic("more", 1, (short) 2))).all().get());
        sayOnce("orders", "listTopics", () -> admin.listTopics().names().get());
        sayOnce("1 led by 1", "describeTopics",
            () -> admin.describeTopics(List.of("orders")).allTopicNames().get().get("orders")
            .partitions().stream().map(each -> each.partition() + " led by " + each.leader().id()).toList());
        say("describeTopics of none", () -> admin.describeTopics(NONE).allTopicNames().get());
        say("createPartitions",
            () -> admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(3))).all().get());
        say("createPartitions of fewer",
            () -> admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(1))).all().get());
    }

    private static void configs(Admin admin) {
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", "1000"), AlterConfigOp.OpType.SET);
        AlterConfigOp wrong = new AlterConfigOp(new ConfigEntry("retention.ms", "x"), AlterConfigOp.OpType.SET);
        AlterConfigOp level = new AlterConfigOp(
            new ConfigEntry("kafka.request.logger", "DEBUG"), AlterConfigOp.OpType.SET);
        say("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(TOPIC, List.of(set))).all().get());
        say("incrementalAlterConfigs to a wrong value",
            () -> admin.incrementalAlterConfigs(Map.of(TOPIC, List.of(wrong))).all().get());
        say("incrementalAlterConfigs of a logger",
            () -> admin.incrementalAlterConfigs(Map.of(LOGGER, List.of(level))).all().get());
        DescribeConfigsOptions all = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        sayOnce("retention.ms=1000", "describeConfigs of a topic",
            () -> admin.describeConfigs(List.of(TOPIC), all).all().get().get(TOPIC)
            .entries().stream().filter(each -> each.documentation() != null && !each.documentation().isEmpty())
            .map(each -> each.name() + "=" + each.value() + " " + each.source() + " " + each.isReadOnly())
            .sorted().toList());
        say("describeConfigs of a broker", () -> admin.describeConfigs(List.of(BROKER), all).all().get().get(BROKER)
            .entries().stream().map(each -> each.name() + " " + each.type() + " " + each.isSensitive())
            .filter(each -> !each.startsWith("kafkapy.")).sorted().toList());
        say("describeConfigs of a logger", () -> admin.describeConfigs(List.of(LOGGER)).all().get().get(LOGGER)
            .get("kafka.request.logger").value());
        say("describeConfigs of none", () -> admin.describeConfigs(
            List.of(new ConfigResource(ConfigResource.Type.TOPIC, "missing"))).all().get());
        sayOnce("orders", "listConfigResources", () -> admin.listConfigResources().all().get().stream()
            .filter(each -> each.type() != ConfigResource.Type.BROKER_LOGGER).map(Object::toString).sorted().toList());
        say("listClientMetricsResources", () -> admin.listClientMetricsResources().all().get());
    }

    private static void directoriesAndRecords(Admin admin) {
        TopicPartitionReplica replica = new TopicPartitionReplica("orders", 0, 1);
        sayOnce("orders-2", "describeLogDirs",
            () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().stream()
            .map(each -> each.error() + " " + each.replicaInfos().keySet().stream()
                .filter(found -> found.topic().equals("orders")).map(Object::toString).sorted().toList()).toList());
        sayOnce("0", "describeReplicaLogDirs",
            () -> admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica)
            .getCurrentReplicaOffsetLag());
        say("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all().get());
        sayOnce("0", "listOffsets",
            () -> admin.listOffsets(Map.of(FIRST, OffsetSpec.latest())).all().get().get(FIRST).offset());
        sayOnce("0", "deleteRecords", () -> admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(0)))
            .lowWatermarks().get(FIRST).get().lowWatermark());
        say("deleteRecords beyond the end",
            () -> admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(9))).all().get());
    }

    private static void security(Admin admin) {
        AclBinding binding = new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL),
            new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));
        say("createAcls", () -> admin.createAcls(List.of(binding)).all().get());
        say("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        say("deleteAcls", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get());
        say("createDelegationToken", () -> admin.createDelegationToken().delegationToken().get());
        say("renewDelegationToken", () -> admin.renewDelegationToken(new byte[] {1}).expiryTimestamp().get());
        say("expireDelegationToken", () -> admin.expireDelegationToken(new byte[] {1}).expiryTimestamp().get());
        say("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens().get());
        say("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all().get());
        say("describeUserScramCredentials of none",
            () -> admin.describeUserScramCredentials(List.of("missing")).all().get());
        UserScramCredentialAlteration made = new UserScramCredentialUpsertion(
            "alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret");
        say("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(made)).all().get());
        sayOnce("alice", "describeUserScramCredentials of one", () -> admin.describeUserScramCredentials().all().get());
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "alice"));
        ClientQuotaAlteration.Op rate = new ClientQuotaAlteration.Op("producer_byte_rate", 1000.0);
        ClientQuotaAlteration.Op unknown = new ClientQuotaAlteration.Op("no_such_rate", 1000.0);
        say("alterClientQuotas",
            () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(rate)))).all().get());
        say("alterClientQuotas of none",
            () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(unknown)))).all().get());
        sayOnce("alice", "describeClientQuotas",
            () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
    }

    private static void groups(Admin admin) {
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(FIRST, new OffsetAndMetadata(0));
        say("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets("group", offsets).all().get());
        sayOnce("orders-0", "listConsumerGroupOffsets",
            () -> admin.listConsumerGroupOffsets("group").partitionsToOffsetAndMetadata().get());
        say("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of("group")).all().get().values().stream()
            .map(each -> each.groupState() + " " + each.type() + " " + each.members().size()).toList());
        say("describeConsumerGroups of none", () -> admin.describeConsumerGroups(NONE).all().get());
        say("describeClassicGroups", () -> admin.describeClassicGroups(List.of("group")).all().get().values().stream()
            .map(each -> each.state() + " " + each.protocol() + " " + each.members().size()).toList());
        sayOnce("group", "listGroups", () -> admin.listGroups().all().get().stream().map(Object::toString).toList());
        sayOnce("group", "listConsumerGroups", () -> admin.listConsumerGroups().all().get().stream()
            .map(each -> each.groupId() + " " + each.groupState()).toList());
        say("removeMembersFromConsumerGroup", () -> admin.removeMembersFromConsumerGroup(
            "group", new RemoveMembersFromConsumerGroupOptions()).all().get());
        say("removeMembersFromConsumerGroup of none", () -> admin.removeMembersFromConsumerGroup("group",
            new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("instance")))).all().get());
        say("deleteConsumerGroupOffsets",
            () -> admin.deleteConsumerGroupOffsets("group", Set.of(FIRST)).all().get());
        say("deleteConsumerGroupOffsets of none",
            () -> admin.deleteConsumerGroupOffsets("missing", Set.of(FIRST)).all().get());
        say("alterConsumerGroupOffsets again", () -> admin.alterConsumerGroupOffsets("group", offsets).all().get());
        say("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("group")).all().get());
        say("deleteConsumerGroups of none", () -> admin.deleteConsumerGroups(NONE).all().get());
    }

    private static void otherGroups(Admin admin) {
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(FIRST, new OffsetAndMetadata(0));
        say("describeStreamsGroups", () -> admin.describeStreamsGroups(NONE).all().get());
        say("listStreamsGroupOffsets", () -> admin.listStreamsGroupOffsets(
            Map.of("missing", new ListStreamsGroupOffsetsSpec())).all().get());
        say("alterStreamsGroupOffsets", () -> admin.alterStreamsGroupOffsets("missing", offsets).all().get());
        say("deleteStreamsGroupOffsets",
            () -> admin.deleteStreamsGroupOffsets("missing", Set.of(FIRST)).all().get());
        say("deleteStreamsGroups", () -> admin.deleteStreamsGroups(NONE).all().get());
        say("describeShareGroups", () -> admin.describeShareGroups(NONE).all().get());
        say("listShareGroupOffsets", () -> admin.listShareGroupOffsets(
            Map.of("missing", new ListShareGroupOffsetsSpec())).all().get());
        say("alterShareGroupOffsets", () -> admin.alterShareGroupOffsets("missing", Map.of(FIRST, 0L)).all().get());
        say("deleteShareGroupOffsets",
            () -> admin.deleteShareGroupOffsets("missing", Set.of("orders")).all().get());
        say("deleteShareGroups", () -> admin.deleteShareGroups(NONE).all().get());
    }

    private static void partitions(Admin admin) {
        say("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(FIRST)).partitions().get());
        say("electLeaders of none", () -> admin.electLeaders(
            ElectionType.UNCLEAN, Set.of(new TopicPartition("missing", 0))).partitions().get());
        say("alterPartitionReassignments", () -> admin.alterPartitionReassignments(
            Map.of(FIRST, Optional.of(new NewPartitionReassignment(List.of(1))))).all().get());
        say("alterPartitionReassignments to an unknown broker", () -> admin.alterPartitionReassignments(
            Map.of(FIRST, Optional.of(new NewPartitionReassignment(List.of(9))))).all().get());
        say("alterPartitionReassignments canceled",
            () -> admin.alterPartitionReassignments(Map.of(FIRST, Optional.empty())).all().get());
        say("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get());
    }

    private static void cluster(Admin admin) {
        say("describeCluster", () -> {
            DescribeClusterResult found = admin.describeCluster();
            return found.nodes().get().size() + " " + found.controller().get().id() + " "
                + found.clusterId().get().length() + " " + found.authorizedOperations().get();
        });
        for (String name : List.of("metadata.version", "kraft.version", "transaction.version", "group.version",
            "eligible.leader.replicas.version", "share.version", "streams.version")) {
            say("describeFeatures: " + name, () -> {
                FeatureMetadata found = admin.describeFeatures().featureMetadata().get();
                return found.finalizedFeatures().get(name) + " of " + found.supportedFeatures().get(name);
            });
        }
        say("updateFeatures", () -> admin.updateFeatures(
            Map.of("transaction.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)),
            new UpdateFeaturesOptions().validateOnly(true)).all().get());
        say("updateFeatures of none", () -> admin.updateFeatures(
            Map.of("no.such.feature", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)),
            new UpdateFeaturesOptions()).all().get());
        say("describeMetadataQuorum", () -> {
            QuorumInfo found = admin.describeMetadataQuorum().quorumInfo().get();
            return found.leaderId() + " " + found.voters().size() + " " + found.observers().size();
        });
        say("unregisterBroker", () -> admin.unregisterBroker(9).all().get());
        say("unregisterController", () -> admin.unregisterController(9).all().get());
        say("addRaftVoter", () -> admin.addRaftVoter(
            1, new Uuid(1, 2), Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 9))).all().get());
        say("removeRaftVoter", () -> admin.removeRaftVoter(9, new Uuid(1, 2)).all().get());
        say("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(1)));
    }

    private static void transactions(Admin admin) {
        say("describeProducers", () -> admin.describeProducers(Set.of(FIRST)).all().get().get(FIRST).activeProducers());
        say("describeTransactions", () -> admin.describeTransactions(NONE).all().get());
        say("listTransactions", () -> admin.listTransactions().all().get());
        say("abortTransaction", () -> admin.abortTransaction(
            new AbortTransactionSpec(FIRST, 9, (short) 0, 0)).all().get());
        say("fenceProducers", () -> admin.fenceProducers(Set.of("transactions")).epochId("transactions").get());
        sayOnce("transactions", "listTransactions after it", () -> admin.listTransactions().all().get().stream()
            .map(each -> each.transactionalId() + " " + each.state()).toList());
        say("describeTransactions of one", () -> admin.describeTransactions(Set.of("transactions")).all().get().values()
            .stream().map(each -> each.state() + " " + each.topicPartitions()).toList());
        say("forceTerminateTransaction", () -> admin.forceTerminateTransaction("transactions").result().get());
        say("forceTerminateTransaction of none", () -> admin.forceTerminateTransaction("missing").result().get());
    }

    /** As say, but asked again until the broker, which hears of changes a little later, tells of them. */
    private static void sayOnce(String expected, String name, Callable<Object> call) {
        String came = outcome(call);
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (!came.contains(expected) && System.nanoTime() < deadline) {
            came = outcome(call);
        }
        print(name, came);
    }

    private static void say(String name, Callable<Object> call) {
        print(name, outcome(call));
    }

    private static void print(String name, String came) {
        CALLED.add(name.split("[ :]")[0]);
        System.out.println(name + "\t" + came.replace("\n", " ").replaceAll("directoryId=[\\w-]{22}", "directoryId"));
    }

    private static String outcome(Callable<Object> call) {
        try {
            Object result = call.call();
            return result == null ? "done" : text(result);
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage();
        } catch (Exception error) {
            return error.getClass().getSimpleName() + ": " + error.getMessage();
        }
    }

    private static String text(Object result) {
        if (result instanceof Map<?, ?> map) {
            return "{" + map.entrySet().stream().map(each -> each.getKey() + "=" + each.getValue()).sorted()
                .collect(Collectors.joining(", ")) + "}";
        }
        if (result instanceof Collection<?> found) {
            return "[" + found.stream().map(Object::toString).sorted().collect(Collectors.joining(", ")) + "]";
        }
        return result.toString();
    }
}
