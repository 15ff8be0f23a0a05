import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/**
 * Makes calls of Java's Admin twice, the first time on a broker that refuses them: bootstrap and log directory.
 * Prints a line for each item of a response: the call, the item, a tab, and what came of it.
 */
class FailedAdmin {
    private static final ClientQuotaEntity ALICE = new ClientQuotaEntity(Map.of("user", "alice"));
    private static final ClientQuotaEntity ANY_CLIENT = new ClientQuotaEntity(Map.of("client-id", "shop", "user", "bob"));
    private static final ScramCredentialInfo INFO = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
    private static final TopicPartition FIRST = new TopicPartition("orders", 0);
    private static final TopicPartition SECOND = new TopicPartition("orders", 1);

    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0], "default.api.timeout.ms", "60000"))) {
            for (int time = 1; time <= 2; time++) {
                quotas(admin);
                credentials(admin);
                directories(admin, args[1]);
                transactions(admin);
            }
        }
        System.exit(0);
    }

    private static void quotas(Admin admin) throws Exception {
        ClientQuotaAlteration.Op rate = new ClientQuotaAlteration.Op("producer_byte_rate", 1000.0);
        Map<ClientQuotaEntity, KafkaFuture<Void>> results = admin.alterClientQuotas(List.of(
            new ClientQuotaAlteration(ALICE, List.of(rate)), new ClientQuotaAlteration(ANY_CLIENT, List.of(rate)))).values();
        say("quotas alice", results.get(ALICE)::get);
        say("quotas bob", results.get(ANY_CLIENT)::get);
        say("quotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size());
    }

    private static void credentials(Admin admin) throws Exception {
        Map<String, KafkaFuture<Void>> results = admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("alice", INFO, "secret"),
            new UserScramCredentialUpsertion("bob", INFO, "secret"))).values();
        say("credentials alice", results.get("alice")::get);
        say("credentials bob", results.get("bob")::get);
        say("credentials", () -> admin.describeUserScramCredentials().all().get().size());
    }

    private static void directories(Admin admin, String directory) throws Exception {
        TopicPartitionReplica first = new TopicPartitionReplica("orders", 0, 1);
        TopicPartitionReplica second = new TopicPartitionReplica("orders", 1, 1);
        Map<TopicPartitionReplica, KafkaFuture<Void>> results =
            admin.alterReplicaLogDirs(Map.of(first, directory, second, directory)).values();
        say("directories 0", results.get(first)::get);
        say("directories 1", results.get(second)::get);
    }

    private static void transactions(Admin admin) throws Exception {
        say("transactions 0", () -> admin.abortTransaction(new AbortTransactionSpec(FIRST, 9, (short) 0, 0)).all().get());
        say("transactions 1", () -> admin.abortTransaction(new AbortTransactionSpec(SECOND, 9, (short) 0, 0)).all().get());
    }

    private static void say(String name, Callable<Object> call) throws Exception {
        try {
            Object result = call.call();
            System.out.println(name + "\t" + (result == null ? "done" : result));
        } catch (ExecutionException error) {
            System.out.println(name + "\t" + error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage());
        }
    }
}
