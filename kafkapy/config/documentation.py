"""The documentation of each configuration key, in a sentence or two: for DescribeConfigs and `kafkapy configs explain`.

A line is `key: text`; a key that ends in `*` is a prefix, for all keys without a line of their own. Values are in the
unit at the end of the key's name. Imported on first use. The texts are kafkapy's own: tests/compat compares them with
Apache Kafka's.
"""

from functools import cache
from typing import Final

from kafkapy.config.definitions import topic_definitions
from kafkapy.config.load import base_key
from kafkapy.config.rules import BROKER, CLIENT_METRICS, GROUP, TOPIC

_BROKER: Final = """
add.partitions.to.txn.retry.backoff.max.ms: For how long altogether a produce asks again whether its partition may be added, while the transaction before is still being ended.
add.partitions.to.txn.retry.backoff.ms: The pause between two such questions.
advertised.listeners: The addresses sent to clients and other brokers, NAME://host:port each; those of `listeners` where unset.
allow.everyone.if.no.acl.found: Lets everybody use a resource that no ACL names; read by the authorizer only.
alter.config.policy.class.name: No effect: classes of a JVM cannot be loaded.
alter.log.dirs.replication.quota.window.num: Over how many windows the rate of moves between directories is measured.
alter.log.dirs.replication.quota.window.size.seconds: How long such a window is.
authorizer.class.name: Empty: everything is allowed. org.apache.kafka.metadata.authorizer.StandardAuthorizer: ACLs of the cluster decide. Anything else stops the start.
auto.create.topics.enable: Makes a topic when a client asks for metadata of one that is not there, with num.partitions and default.replication.factor.
auto.leader.rebalance.enable: The controller hands leadership back to preferred replicas, every leader.imbalance.check.interval.seconds.
background.threads: No effect: such work runs on the event loop in slices, or in the IO pool.
broker.heartbeat.interval.ms: How often the broker reports to the active controller.
broker.id: The old name of node.id; where both are set they must agree.
broker.rack: Where this broker stands. Replicas are spread over racks, and consumers that name theirs may read near (replica.selector.class).
broker.session.timeout.ms: After so long without a heartbeat the controller fences the broker and elects other leaders.
client.quota.callback.class: Must be unset: no class is known that could decide on quotas.
config.providers: No effect: values are taken as they are written.
connection.failed.authentication.delay.ms: How long the response to a failed login is held back, against guessing.
connections.max.idle.ms: A connection on which nothing happens for so long is closed.
connections.max.reauth.ms: After so long a client has to log in again on its SASL connection (KIP-368); 0: never, except by the expiry of its token.
controlled.shutdown.enable: At a stop the controller is asked to move leaderships away first.
controller.listener.names: Which of the listeners (of the controllers, on a broker) carry the metadata quorum; the first is the one that is used.
controller.performance.*: No effect: slow controller operations show in the stall log of the event loop.
controller.quorum.append.linger.ms: How long a change of the metadata waits for others, to be synced with them. It waits only if two changes before it are not committed yet.
controller.quorum.auto.join.enable: A controller that is no voter adds itself to the quorum (KIP-853), its former directory's entry taken out first.
controller.quorum.bootstrap.servers: host:port of controllers, by which a node finds the quorum whose voters are kept in metadata (kraft.version 1).
controller.quorum.election.backoff.max.ms: The longest random pause after an election that nobody won.
controller.quorum.election.timeout.ms: How long a candidate waits for votes, with a random part on top, before it stands again.
controller.quorum.fetch.max.bytes: How much of the metadata log one fetch of it brings.
controller.quorum.fetch.snapshot.max.bytes: How much of a snapshot one FetchSnapshot brings.
controller.quorum.fetch.timeout.ms: A voter that could not fetch from the leader for so long asks for votes; a leader without a majority of fetchers for so long steps down.
controller.quorum.request.timeout.ms: How long the response of another controller is waited for.
controller.quorum.retry.backoff.ms: The pause before a request of the quorum is sent again.
controller.quorum.voters: The voters as id@host:port, where their set is fixed by configuration (kraft.version 0).
controller.quota.window.num: Over how many windows creations and deletions of partitions are counted for controller_mutation_rate.
controller.quota.window.size.seconds: How long such a window is.
controller.socket.timeout.ms: How long the active controller may take to answer a request of this node.
cordoned.log.dirs: Log directories, or `*`, in which no new replica is placed.
create.topic.policy.class.name: No effect: classes of a JVM cannot be loaded.
default.replication.factor: How many replicas a topic gets that does not say.
delegation.token.expiry.check.interval.ms: How often the controller removes delegation tokens that have expired.
delegation.token.expiry.time.ms: For how long a delegation token is valid unless it is renewed.
delegation.token.max.lifetime.ms: The age beyond which no renewal takes a delegation token.
delegation.token.secret.key: What the HMACs of delegation tokens are made with, the same on all nodes; unset: there are none.
delete.records.purgatory.purge.interval.requests: No effect: a wait that is over is forgotten at once.
delete.topic.enable: Whether topics may be deleted at all.
early.start.listeners: The listeners that serve super users before the ACLs are known; others begin then. Unset: those of controllers.
fetch.max.bytes: The most that the broker puts into one response to a fetch; a first batch that is larger goes all the same.
fetch.purgatory.purge.interval.requests: No effect: a wait that is over is forgotten at once.
follower.fetch.last.tiered.offset.enable: No effect: nothing is tiered.
follower.replication.throttled.rate: Bytes a second that this broker fetches as a follower of the partitions that follower.replication.throttled.replicas names.
group.consumer.assignment.interval.ms: The least time between two target assignments of a KIP-848 group that does not set consumer.assignment.interval.ms.
group.consumer.assignor.offload.enable: No effect: assignors run on the event loop.
group.consumer.assignors: The assignors of KIP-848 groups, the default one first: uniform, range.
group.consumer.heartbeat.interval.ms: How often members of KIP-848 groups have to send heartbeats, unless their group says otherwise.
group.consumer.max.*: The largest value that a group may set for itself.
group.consumer.max.size: How many members a KIP-848 group may have.
group.consumer.migration.policy: Which kinds of groups turn into each other when members of the other protocol join or the last one leaves: upgrade, downgrade, bidirectional, disabled.
group.consumer.min.*: The smallest value that a group may set for itself.
group.consumer.regex.refresh.interval.ms: How often regular expressions of subscriptions are matched again with the topics, apart from when these change.
group.consumer.session.timeout.ms: A member of a KIP-848 group that is silent for so long is removed, unless its group says otherwise.
group.coordinator.*: No effect: coordinators run on the event loop, what they decide in one turn is written together.
group.coordinator.append.linger.ms: 0: each commit of offsets is written by itself; other values: commits of one turn of the loop are written together, without waiting for more.
group.coordinator.rebalance.protocols: Which group protocols are served: classic always, and consumer. Others that it names are not built.
group.initial.rebalance.delay.ms: How long the first rebalance of an empty classic group waits for more members.
group.max.session.timeout.ms: The longest session that a classic member may ask for.
group.max.size: How many members a classic group may have.
group.min.session.timeout.ms: The shortest session that a classic member may ask for.
errors.deadletterqueue.auto.create.topics.enable: Whether a dead-letter topic that a share group names is created if it is missing.
errors.deadletterqueue.topic.name.prefix: What the name of each dead-letter topic must begin with; dead letters for another topic are not written.
group.share.*: Bounds of a group's own setting, or what it is where a group sets none; the group's key says what it does.
group.share.assignor.offload.enable: No effect: assignors run on the event loop.
group.share.assignors: Which assignors share groups have: simple alone.
group.share.dlq.manager.class.name: org.apache.kafka.server.share.dlq.NoOpShareGroupDLQManager, or empty: what share groups give up is archived without a dead letter. Other classes have no effect.
group.share.heartbeat.interval.ms: How often members of a share group report, where the group sets nothing.
group.share.initialize.retry.interval.ms: After so long the state of a share partition is created again, if no response came.
group.share.max.share.sessions: How many share sessions a broker keeps; a further member is answered SHARE_SESSION_LIMIT_REACHED.
group.share.max.size: How many members a share group may have.
group.share.persister.class.name: No effect: states of share partitions are kept by the share coordinator.
group.share.session.timeout.ms: After so long without a heartbeat a member is removed from its share group, where the group sets nothing.
group.streams.*: Bounds of a group's own setting, or what it is where a group sets none; the group's key says what it does.
group.streams.assignor.offload.enable: No effect: assignors run on the event loop.
group.streams.assignors: Which assignors streams groups have: sticky alone.
group.streams.max.size: How many members a streams group may have.
group.streams.topology.description.plugin.class: Must be unset: no class is known that could be loaded.
initial.broker.registration.timeout.ms: How long a start waits for the controller to take the broker's registration.
inter.broker.listener.name: The listener that brokers reach each other by; else the one that security.inter.broker.protocol stands for.
internal.metadata.delete.delay.millis: How long files of the metadata log stay after they were given up.
internal.metadata.log.segment.bytes: For tests: the size of a metadata segment, below what metadata.log.segment.bytes allows.
internal.metadata.max.batch.size.in.bytes: The largest batch of the metadata log.
kafka.metrics.*: No effect: metrics are served by kafkapy.admin.listener.
kafkapy.admin.listener: host:port for /metrics, /livez, /readyz and /buildinfo over HTTP; clients may push their metrics then (KIP-714); unset: nothing is served.
kafkapy.authentication.timeout.ms: How long a TLS handshake, and after it a login, may take.
kafkapy.imitated.release: The release of Apache Kafka whose API versions and features a single node shows to its clients, for tests; nothing if unset.
kafkapy.legacy.clients.enable: Serves the versions of APIs that Apache Kafka 4 removed (KIP-896), for clients from 0.9 on.
kafkapy.metrics.groups: A pattern (RE2) of the groups whose members, offsets and lag are in /metrics.
kafkapy.metrics.names: What the names in /metrics look like: as the rules for the JMX exporter that Strimzi ships make them, as Confluent's do, or both.
kafkapy.metrics.rules: A file of rules of Prometheus' JMX exporter (YAML) that names Kafka's metrics in /metrics instead of kafkapy.metrics.names.
kafkapy.metrics.topics: A pattern (RE2) of the topics that have series of their own in /metrics; sums are over all topics in any case.
kafkapy.producers.max: How many producers a broker keeps over all partitions, 430 bytes each; beyond half of it only those of the last ten minutes, and of each client (principal and address) a sixteenth.
kafkapy.sasl.allowed.login.modules: The login modules that sasl.jaas.config may name; empty: all that are built. The system property of Apache Kafka works, too.
kafkapy.sasl.oauthbearer.allowed.files: The files that client assertions and their keys may be read from; the system property of Apache Kafka works, too.
kafkapy.sasl.oauthbearer.allowed.urls: The URLs that bearer tokens and their keys may be read from; the system property of Apache Kafka works, too.
kafkapy.sasl.oauthbearer.unsecured.enable: Accept bearer tokens without a signature if there is no JWKS URL: anyone can log in as anyone. For development only.
kafkapy.telemetry.otlp.endpoint: An http or https URL, http://localhost:4318/v1/metrics for example: where the metrics that clients push (KIP-714) are sent as OTLP. Clients are asked for them while this or kafkapy.admin.listener is set.
leader.imbalance.check.interval.seconds: How often the controller looks whether partitions are led by others than their preferred replica.
leader.replication.throttled.rate: Bytes a second that this broker sends to followers out of sync, of the partitions that leader.replication.throttled.replicas names.
listener.security.protocol.map: Which security protocol each listener's name stands for.
listeners: What the node binds, NAME://host:port each; an empty host is all interfaces, port 0 any free one.
log.cleaner.backoff.ms: How long the cleaner sleeps when no log needs compaction.
log.cleaner.dedupe.buffer.size: How much memory all cleaners may take for the keys of the logs they compact.
log.cleaner.enable: Whether logs are compacted at all.
log.cleaner.io.buffer.load.factor: How full the cleaner's table of keys may become before it goes on with another pass.
log.cleaner.io.buffer.size: How much a cleaner reads at once.
log.cleaner.io.max.bytes.per.second: How fast cleaners may read and write, together.
log.cleaner.threads: How many logs are compacted at the same time, each in a helper process.
log.dir: Where logs are, if log.dirs does not say.
log.dir.failure.timeout.ms: A broker that cannot report a failed directory to the controller within this time stops.
log.dirs: The directories that hold the logs, separated by commas; a partition lies in one of them.
log.flush.offset.checkpoint.interval.ms: How often it is written down up to where logs are durable, which is where recovery begins.
log.flush.scheduler.interval.ms: How often flush.ms is looked at; at most each second here.
log.flush.start.offset.checkpoint.interval.ms: How often the start offsets of logs are written down.
log.initial.task.delay.ms: How long after a start retention and checkpoints begin.
log.local.retention.*: No effect: nothing is tiered.
log.remote.copy.lag.*: No effect: nothing is tiered.
log.retention.check.interval.ms: How often segments are looked for that retention deletes.
log.retention.hours: As log.retention.ms, which goes first; then log.retention.minutes.
log.retention.minutes: As log.retention.ms, which goes first.
log.roll.hours: As log.roll.ms, which goes first.
log.roll.jitter.hours: As log.roll.jitter.ms, which goes first.
max.connection.creation.rate: How many connections a second are accepted; of one listener with its prefix.
max.connections: How many connections there may be; beyond that the one idle for longest is closed, if another listener needs one.
max.connections.per.ip: How many connections one address may have.
max.connections.per.ip.overrides: Other limits for single addresses or hosts, host:count.
max.incremental.fetch.session.cache.slots: How many fetch sessions (KIP-227) are kept.
max.request.partition.size.limit: How many partitions one response to DescribeTopicPartitions has at most.
metadata.log.dir: Which directory holds __cluster_metadata; the first of log.dirs where unset. If it fails, the process ends.
metadata.log.max.record.bytes.between.snapshots: After so much metadata since the last snapshot another one is written.
metadata.log.max.snapshot.interval.ms: After so long with changes since the last snapshot another one is written; 0: not by time.
metadata.log.segment.bytes: The size at which a segment of the metadata log is closed.
metadata.log.segment.ms: The age at which a segment of the metadata log is closed.
metadata.max.idle.interval.ms: How often an idle controller writes a record that says nothing, so that followers see it live; 0: never.
metadata.max.retention.bytes: Old metadata log and snapshots beyond this size are removed, what the newest snapshot needs aside.
metadata.max.retention.ms: Metadata log and snapshots older than this are removed, what the newest snapshot needs aside.
metric.reporters: No effect: metrics are served by kafkapy.admin.listener.
metrics.*: No effect: metrics are served by kafkapy.admin.listener.
node.id: The number of this node in its cluster, different from all others'.
num.io.threads: How many threads the IO pool has: cold reads, fsync, checks of large batches.
num.network.threads: Taken, but without effect: all connections share the event loop.
num.partitions: How many partitions a topic gets that does not say.
num.recovery.threads.per.data.dir: How many logs of a directory are recovered, or closed, at the same time.
num.replica.alter.log.dirs.threads: How many moves between directories run at the same time; as many as there are directories where unset.
num.replica.fetchers: How many connections a broker follows another broker's partitions with.
offset.metadata.max.bytes: How long the text may be that a client commits with an offset.
offsets.commit.timeout.ms: How long a commit waits for the replicas of __consumer_offsets.
offsets.load.buffer.size: How much of __consumer_offsets is read at once when groups are loaded.
offsets.retention.check.interval.ms: How often offsets are looked for that nobody uses any more.
offsets.retention.minutes: An offset is kept for so long after its group became empty, or after its commit where there is no group.
offsets.topic.compression.codec: How __consumer_offsets is compressed: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
offsets.topic.num.partitions: How many partitions __consumer_offsets is made with; not to be changed once it is there.
offsets.topic.replication.factor: How many replicas __consumer_offsets is made with.
offsets.topic.segment.bytes: The segment size that __consumer_offsets is made with.
principal.builder.class: Only the default of Apache Kafka, which is built in.
process.roles: broker, controller, or both in one process.
producer.id.expiration.check.interval.ms: How often producers are removed that have written nothing for producer.id.expiration.ms.
producer.id.expiration.ms: A partition forgets a producer that has not written for so long, unless its transaction is open.
producer.purgatory.purge.interval.requests: No effect: a wait that is over is forgotten at once.
queued.max.request.bytes: How many bytes of requests may be received and not handled yet, of all connections; the last of them may exceed that. -1: 256 MiB here (unlimited in Apache Kafka).
queued.max.requests: How many requests may wait to be handled before no connection is read any more.
quota.window.num: Over how many windows a client's rates are measured.
quota.window.size.seconds: How long such a window is.
remote.*: No effect: tiered storage is not built, whatever remote.log.storage.system.enable says.
replica.alter.log.dirs.io.max.bytes.per.second: Bytes a second that moves between directories of this broker may copy.
replica.fetch.backoff.ms: How long a follower leaves a partition alone after an error.
replica.fetch.max.bytes: How much a follower asks for of one partition; a first batch that is larger comes all the same.
replica.fetch.min.bytes: How much must be there before the leader answers a follower, within replica.fetch.wait.max.ms.
replica.fetch.response.max.bytes: How much one response to a follower holds.
replica.fetch.wait.max.ms: How long the leader lets a follower wait for new data.
replica.high.watermark.checkpoint.interval.ms: How often the high watermarks of partitions are written down.
replica.lag.time.max.ms: A follower that has not been at the end of the log for so long leaves the ISR.
replica.selector.class: org.apache.kafka.common.replica.RackAwareReplicaSelector lets consumers read from replicas of their own rack (KIP-392).
replica.socket.receive.buffer.bytes: No effect: the kernel sizes the buffers of connections between nodes.
replica.socket.timeout.ms: How long a follower waits for a response before it connects again.
replication.quota.window.num: Over how many windows throttled replication is measured.
replication.quota.window.size.seconds: How long such a window is.
request.timeout.ms: How long another node's response is waited for.
sasl.client.callback.handler.class: A name of Apache Kafka's own classes; none is loaded.
sasl.enabled.mechanisms: Which mechanisms a listener takes: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. GSSAPI, its default, is not built.
sasl.jaas.config: Users and secrets of a mechanism, in the syntax of JAAS; set as listener.name.NAME.MECHANISM.sasl.jaas.config.
sasl.kerberos.*: No effect: GSSAPI is not built.
sasl.login.callback.handler.class: A name of Apache Kafka's own classes; none is loaded.
sasl.login.class: A name of Apache Kafka's own classes; none is loaded.
sasl.login.connect.timeout.ms: How long a connection to the issuer of tokens may take to be made.
sasl.login.read.timeout.ms: How long the issuer of tokens may take to answer.
sasl.login.refresh.*: When the node's own token is renewed before it expires.
sasl.login.retry.*: The pauses between tries to get a token.
sasl.mechanism.controller.protocol: What nodes log in with at controllers' SASL listeners.
sasl.mechanism.inter.broker.protocol: What brokers log in with at each other; must be one of sasl.enabled.mechanisms.
sasl.oauthbearer.*: How bearer tokens are got or checked, by the standard names of OAuth.
sasl.oauthbearer.allow.unverified.audience: Accept tokens whatever their audience is, if no sasl.oauthbearer.expected.audience is set; without either no listener with OAUTHBEARER and a JWKS starts.
sasl.oauthbearer.allow.unverified.issuer: The same for the issuer and sasl.oauthbearer.expected.issuer.
sasl.oauthbearer.clock.skew.seconds: By how much the issuer's clock and ours may differ when a token's times are checked.
sasl.oauthbearer.expected.audience: A token must be meant for one of these (claim aud).
sasl.oauthbearer.expected.issuer: A token must come from here (claim iss).
sasl.oauthbearer.jwks.endpoint.refresh.ms: How often the issuer's keys are read again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms: The longest pause between tries to read the issuer's keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms: The first pause between tries to read the issuer's keys; it doubles.
sasl.oauthbearer.jwks.endpoint.url: Where the issuer's keys are, https or a file; it must be among the allowed URLs.
sasl.oauthbearer.scope.claim.name: Which claim of a token has its scope.
sasl.oauthbearer.sub.claim.name: Which claim of a token is the name of the principal.
sasl.oauthbearer.token.endpoint.url: Where the node gets its own token.
sasl.server.callback.handler.class: A name of Apache Kafka's own classes, as none is loaded; for OAUTHBEARER the one that checks tokens.
sasl.server.max.receive.size: The longest message of a login.
security.inter.broker.protocol: How brokers talk to each other, where inter.broker.listener.name does not say.
security.providers: Must be unset: classes of a JVM cannot be loaded.
server.max.startup.time.ms: A start that takes longer is given up.
share.coordinator.append.linger.ms: 0: each write of queues' states is appended by itself; other values: writes of one turn of the loop are appended together, without waiting for more.
share.coordinator.cached.buffer.max.bytes: No effect: no write buffer is kept.
share.coordinator.cold.partition.snapshot.interval.ms: A queue's state that is not written for so long is snapshotted again, once, so that __share_group_state can be pruned.
share.coordinator.load.buffer.size: How much of __share_group_state is read at once when the states of queues are loaded.
share.coordinator.snapshot.update.records.per.snapshot: After so many updates the next write of a queue's state is a snapshot of all of it.
share.coordinator.state.topic.compression.codec: How __share_group_state is compressed: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
share.coordinator.state.topic.min.isr: min.insync.replicas of __share_group_state as it is made.
share.coordinator.state.topic.num.partitions: How many partitions __share_group_state is made with; not to be changed once it is there.
share.coordinator.state.topic.prune.interval.ms: How often those records of __share_group_state are deleted that later snapshots replace.
share.coordinator.state.topic.replication.factor: How many replicas __share_group_state is made with.
share.coordinator.state.topic.segment.bytes: The segment size that __share_group_state is made with.
share.coordinator.threads: No effect: the event loop does this work.
share.fetch.purgatory.purge.interval.requests: No effect: what has ended leaves the purgatory at once.
share.coordinator.write.timeout.ms: How long a write of a queue's state waits for the replicas of __share_group_state.
socket.connection.setup.timeout.max.ms: No effect: each try has socket.connection.setup.timeout.ms.
socket.connection.setup.timeout.ms: How long a connection to another node may take to be made.
socket.listen.backlog.size: How many connections may wait to be accepted.
socket.receive.buffer.bytes: The receive buffer of clients' sockets; -1: as the kernel likes.
socket.request.max.bytes: The largest request; a larger one closes its connection.
socket.send.buffer.bytes: The send buffer of clients' sockets; -1: as the kernel likes.
ssl.allow.dn.changes: A key store that is renewed at run time may bear another name.
ssl.allow.san.changes: A key store that is renewed at run time may lack names that the one before had.
ssl.cipher.suites: The cipher suites that are allowed; all secure ones where empty.
ssl.client.auth: Whether clients show a certificate: required, requested or none. On SASL_SSL only as the listener's own key.
ssl.enabled.protocols: Which versions of TLS are spoken.
ssl.endpoint.identification.algorithm: https: the node checks the names of those it connects to; empty: it does not.
ssl.engine.factory.class: Must be unset: classes of a JVM cannot be loaded.
ssl.key.password: What the private key in the key store is locked with.
ssl.keymanager.algorithm: No effect: OpenSSL decides.
ssl.keystore.certificate.chain: The certificate and those above it, as PEM in the configuration.
ssl.keystore.key: The private key, as PEM in the configuration.
ssl.keystore.location: The file with key and certificates.
ssl.keystore.password: What the key store is locked with.
ssl.keystore.type: PEM, PKCS12 or JKS.
ssl.principal.mapping.rules: How the name in a certificate becomes a principal: RULE:pattern/replacement/[LU], DEFAULT.
ssl.protocol: The version of TLS that connections to other nodes begin with.
ssl.provider: Must be unset: OpenSSL it is.
ssl.secure.random.implementation: No effect: OpenSSL decides.
ssl.trustmanager.algorithm: No effect: OpenSSL decides.
ssl.truststore.certificates: The certificates that are trusted, as PEM in the configuration.
ssl.truststore.location: The file with the certificates that are trusted.
ssl.truststore.password: What the trust store is locked with.
ssl.truststore.type: PEM, PKCS12 or JKS.
super.users: Principals that may do everything, separated by semicolons: User:alice;User:bob. Read by the authorizer.
telemetry.max.bytes: The most bytes of a push of metrics by a client (KIP-714), as sent and decompressed.
transaction.abort.timed.out.transaction.cleanup.interval.ms: How often transactions are looked for that took longer than their time-out, to abort them.
transaction.max.timeout.ms: The longest time-out that a transactional producer may ask for.
transaction.partition.verification.enable: A partition asks the coordinator before a transaction writes to it, so that none is left hanging (KIP-890).
transaction.remove.expired.transaction.cleanup.interval.ms: How often transactional ids are looked for that have expired.
transaction.state.log.load.buffer.size: How much of __transaction_state is read at once when transactions are loaded.
transaction.state.log.min.isr: min.insync.replicas of __transaction_state as it is made.
transaction.state.log.num.partitions: How many partitions __transaction_state is made with; not to be changed once it is there.
transaction.state.log.replication.factor: How many replicas __transaction_state is made with.
transaction.state.log.segment.bytes: The segment size that __transaction_state is made with.
transaction.two.phase.commit.enable: No effect: two-phase commit steered from outside (KIP-939) is not built.
transactional.id.expiration.ms: A transactional id that has done nothing for so long is forgotten.
unclean.leader.election.interval.ms: How often the controller looks for partitions that may be led by a replica out of sync.
unstable.api.versions.enable: No effect: versions that are not released are not served.
unstable.feature.versions.enable: No effect: levels that are not released are not known.
"""  # noqa: E501

_TOPIC: Final = """
cleanup.policy: delete: old segments go by retention; compact: the last record of each key stays; both may be named.
compression.gzip.level: How hard gzip works where compression.type asks for it.
compression.lz4.level: How hard lz4 works where compression.type asks for it.
compression.type: producer: batches stay as they came; else the broker compresses them so, which takes its CPU.
compression.zstd.level: How hard zstd works where compression.type asks for it.
delete.retention.ms: How long compaction keeps tombstones, and markers of transactions, so that readers see them.
errors.deadletterqueue.group.enable: Whether share groups may write their dead letters to this topic.
file.delete.delay.ms: How long the files of a deleted segment stay, renamed.
flush.messages: fsync after so many records, before they are acknowledged; as a rule replicas make records safe, not this.
flush.ms: fsync a log with new records after so long.
follower.replication.throttled.replicas: Which partition:broker followers follower.replication.throttled.rate holds back, or `*`.
index.interval.bytes: After so many bytes of records an index gets an entry.
internal.segment.bytes: For tests: a segment size below what segment.bytes allows.
leader.replication.throttled.replicas: For which partition:broker leaders leader.replication.throttled.rate counts, or `*`.
local.retention.*: No effect: nothing is tiered.
max.compaction.lag.ms: A record is compacted at the latest when it is so old.
max.decompressed.message.bytes: The largest single record of a compressed batch, without compression; a larger one is refused with INVALID_RECORD.
max.message.bytes: The largest batch, as it is written (compressed).
message.timestamp.after.max.ms: By how much a record's timestamp may lie in the future (CreateTime).
message.timestamp.before.max.ms: By how much a record's timestamp may lie in the past (CreateTime).
message.timestamp.type: CreateTime: the producer's timestamps stay; LogAppendTime: the broker's clock replaces them.
min.cleanable.dirty.ratio: Compaction begins when so much of the log has been written since the last one.
min.compaction.lag.ms: A record is not compacted before it is so old.
min.insync.replicas: With fewer replicas in sync acks=all is refused with NOT_ENOUGH_REPLICAS, and the high watermark stands.
preallocate: Files of a segment take their whole size on the disk at once.
remote.*: No effect: nothing is tiered.
retention.bytes: The oldest segments of a partition go while the others still have this size; -1: no limit.
retention.ms: Segments go when their newest record is so old; -1: never.
segment.bytes: The size at which a segment is closed and another begun.
segment.index.bytes: The largest size of an index file; a full index closes its segment.
segment.jitter.ms: By how much at most segment.ms is shortened at random, so that not all logs roll at once.
segment.ms: The age at which a segment is closed though it is not full.
unclean.leader.election.enable: A replica out of sync may lead where no other can: records are lost, but the partition is there.
"""  # noqa: E501

_GROUP: Final = """
consumer.assignment.interval.ms: The least time between two target assignments of this KIP-848 group.
consumer.assignor.offload.enable: No effect: assignors run on the event loop.
consumer.heartbeat.interval.ms: How often members of this KIP-848 group send heartbeats.
consumer.session.timeout.ms: A member of this KIP-848 group that is silent for so long is removed.
errors.deadletterqueue.copy.record.enable: Whether a dead letter has the key and value of its record, beside the headers that say where it was.
errors.deadletterqueue.topic.name: The topic that gets a record for each that this share group rejects or gives up; empty for none.
share.assignor.offload.enable: No effect: assignors run on the event loop.
share.assignment.interval.ms: The least time between two assignments of a share group.
share.auto.offset.reset: Where a share group begins to read a partition: latest, earliest, by_duration:PT1H.
share.delivery.count.limit: So often a record is delivered before it is archived.
share.heartbeat.interval.ms: How often the group's members report.
share.isolation.level: read_committed: records of aborted transactions are archived unseen, open ones waited for.
share.partition.max.record.locks: How many records of a partition may be in flight.
share.record.lock.duration.ms: For so long a delivered record is its member's; then it is available again.
share.renew.acknowledge.enable: Lets members extend the lock of a record (KIP-1222).
share.session.timeout.ms: After so long without a heartbeat a member is removed.
streams.acceptable.recovery.lag: How far a copy of a task may be behind to take it over; told to members.
streams.assignment.interval.ms: The least time between two assignments of a streams group.
streams.assignor.name: The assignor of the group: sticky.
streams.assignor.offload.enable: No effect: assignors run on the event loop.
streams.heartbeat.interval.ms: How often members of a streams group report.
streams.initial.rebalance.delay.ms: How long a group that had no members waits for others before its first assignment.
streams.num.standby.replicas: How many copies of its state a stateful task has beside the active one.
streams.num.warmup.replicas: How many tasks may be warmed up before they move; 4.4.0 moves them without.
streams.rack.aware.assignment.tags: The client tags that members must have; members without are told (status 6).
streams.session.timeout.ms: After so long without a heartbeat a member is removed from its streams group.
streams.task.offset.interval.ms: How often members report how far their copies of tasks are.
"""  # noqa: E501

_CLIENT_METRICS: Final = """
interval.ms: How often clients that match push their metrics, five minutes at most; while the broker has a receiver.
match: Which clients are meant, selector=regular expression (RE2) each; all of them must match.
metrics: Prefixes of the names of metrics that are asked for; `*` is all.
"""

_TABLES: Final = {TOPIC: _TOPIC, GROUP: _GROUP, CLIENT_METRICS: _CLIENT_METRICS}


def documentation_of(resource_type: int, key: str) -> str | None:
    """Return the text of a key of a resource type (rules.py), None for an unknown key."""
    if resource_type == BROKER:
        return _broker_documentation(base_key(key))
    return _find(_parsed(_TABLES[resource_type]), key)


def _broker_documentation(key: str) -> str | None:
    own = _find(_parsed(_BROKER), key)
    topic_key = _topic_key_of().get(key)
    if own is not None or topic_key is None:
        return own
    return f"What topics have that do not set {topic_key} themselves. {documentation_of(TOPIC, topic_key)}"


@cache
def _topic_key_of() -> dict[str, str]:
    """Return broker key -> the topic key whose default it sets."""
    return {definition.broker_key or key: key for key, definition in topic_definitions().items()}


@cache
def _parsed(table: str) -> dict[str, str]:
    pairs = (line.partition(": ") for line in table.strip().splitlines())
    return {key: text for key, _, text in pairs}


def _find(texts: dict[str, str], key: str) -> str | None:
    """Return the key's own text, else that of the longest matching prefix."""
    if key in texts:
        return texts[key]
    families = [name for name in texts if name.endswith("*") and key.startswith(name[:-1])]
    return texts[max(families, key=len)] if families else None
