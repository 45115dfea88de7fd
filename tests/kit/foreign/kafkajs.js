// A consumer group of KafkaJS: BROKERS TOPIC GROUP earliest|latest COUNT.
const { Kafka, logLevel } = require("kafkajs");

const [broker, topic, groupId, start, count] = process.argv.slice(2);
const consumer = new Kafka({ brokers: [broker], logLevel: logLevel.ERROR }).consumer({ groupId });

async function main() {
  let left = Number(count);
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: start === "earliest" });
  await new Promise((resolve, reject) => {
    const eachMessage = async ({ partition, message }) => {
      console.log(`${partition} ${message.offset}`);
      if (--left === 0) resolve();
    };
    consumer.run({ eachMessage }).catch(reject);
  });
  await consumer.disconnect();
}

main().catch((error) => { console.error(error); process.exit(1); });
