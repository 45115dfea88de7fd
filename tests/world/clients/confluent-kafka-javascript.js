// @confluentinc/kafka-javascript: the API that it has in common with KafkaJS, over librdkafka.
import { createInterface } from 'node:readline'
import { randomUUID } from 'node:crypto'
import confluent from '@confluentinc/kafka-javascript'

const { Kafka, logLevel } = confluent.KafkaJS
const [action, words] = process.argv.slice(2)
const asked = JSON.parse(words)
const kafka = new Kafka({ kafkaJS: { brokers: [asked.bootstrap], logLevel: logLevel.NOTHING } })
const text = content => content == null ? null : Buffer.from(content).toString('base64')
const content = text => text == null ? null : Buffer.from(text, 'base64')

async function consume(groupId, settings, firstS) {
  const consumer = kafka.consumer({ kafkaJS: { groupId, fromBeginning: true, ...settings } })
  let last = Date.now() + firstS * 1000
  await consumer.connect()
  await consumer.subscribe({ topics: [asked.topic] })
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      last = Date.now()
      const headers = Object.entries(message.headers ?? {})
        .flatMap(([name, values]) => [values].flat().map(value => [name, text(value)]))
      console.log(JSON.stringify({
        p: partition, o: Number(message.offset), k: text(message.key), v: text(message.value),
        h: headers, t: Number(message.timestamp)
      }))
    }
  })
  while (Date.now() < last + asked.idle_s * 1000) {
    await new Promise(resolve => setTimeout(resolve, 100))
  }
  await consumer.disconnect()
}

async function write() {
  const variants = {
    '': {},
    murmur2: { partitioner: 'murmur2_random' },
    idempotent: { 'enable.idempotence': true }
  }
  const producer = kafka.producer(variants[asked.variant])
  await producer.connect()
  const messages = []
  for await (const line of createInterface(process.stdin)) {
    const given = JSON.parse(line)
    messages.push({
      key: content(given.k),
      value: content(given.v),
      headers: (given.h ?? []).map(([name, value]) => ({ [name]: content(value) })),
      partition: given.p,
      timestamp: given.t?.toString()
    })
  }
  await producer.send({ topic: asked.topic, messages })
  await producer.disconnect()
}

const actions = {
  read: () => consume(
    randomUUID(), asked.level === 'default' ? {} : { readUncommitted: false }, 5),
  group: () => consume(asked.group, { readUncommitted: false }, 15),
  write
}
try {
  await actions[action]()
} catch (error) {
  console.error(`${error.name}: ${error.message}`)
  process.exitCode = 1
}
