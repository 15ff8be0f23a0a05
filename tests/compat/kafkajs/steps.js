// kafkajs against a broker: `node steps.js BOOTSTRAP TOPIC GROUP` prints what it found as one JSON object.
// NODE_PATH names the directory with its modules.

const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const [bootstrap, topic, group] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.ERROR });
const found = {};

async function administer() {
  const admin = kafka.admin();
  await admin.connect();
  const configEntries = [{ name: "retention.ms", value: "123456789" }];
  found.created = await admin.createTopics({ topics: [{ topic, numPartitions: 3, configEntries }] });
  found.createdAgain = await admin.createTopics({ topics: [{ topic, numPartitions: 3 }] });
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  found.partitions = topics[0].partitions.map((each) => each.partitionId).sort();
  const { resources } = await admin.describeConfigs({
    resources: [{ type: 2, name: topic, configNames: ["retention.ms"] }],
  });
  found.retention = resources[0].configEntries[0].configValue;
  return admin;
}

async function produce() {
  const producer = kafka.producer({ idempotent: true, transactionalId: `${group}-id`, maxInFlightRequests: 1 });
  await producer.connect();
  const committed = await producer.transaction();
  const messages = [...Array(10).keys()].map((number) => ({
    key: `key ${number}`,
    value: `value ${number}`,
    headers: { number: String(number) },
    partition: number % 3,
  }));
  await committed.send({ topic, messages, compression: CompressionTypes.GZIP });
  await committed.commit();
  const aborted = await producer.transaction();
  await aborted.send({ topic, messages: [{ value: "aborted", partition: 0 }] });
  await aborted.abort();
  await producer.disconnect();
}

async function consume() {
  const consumer = kafka.consumer({ groupId: group, readUncommitted: false });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const values = [];
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
    consumer
      .run({
        eachMessage: async ({ message }) => {
          values.push(`${message.key}, ${message.value}, ${message.headers.number}`);
          if (values.length === 10) resolve();
        },
      })
      .catch(reject);
  });
  await consumer.disconnect(); // commits what was read
  found.values = values.sort();
}

async function main() {
  const admin = await administer();
  await produce();
  await consume();
  const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
  found.offsets = [0, 1, 2].map((number) => partitions.find((each) => each.partition === number).offset);
  const { groups } = await admin.describeGroups([group]);
  found.group = [groups[0].state, groups[0].protocolType];
  await admin.deleteGroups([group]);
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
  console.log(JSON.stringify(found));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
