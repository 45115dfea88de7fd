// @platformatic/kafka: the settings of its guide, keys and values as Buffers.
import { createInterface } from 'node:readline'
import { randomUUID } from 'node:crypto'
import { Consumer, FetchIsolationLevels, Producer, compatibilityPartitioner } from '@platformatic/kafka'

const [action, words] = process.argv.slice(2)
const asked = JSON.parse(words)
const cluster = { clientId: 'world', bootstrapBrokers: [asked.bootstrap] }
const text = content => content == null ? null : content.toString('base64')
const content = text => text == null ? undefined : Buffer.from(text, 'base64')

async function consume(groupId, settings, firstS) {
  const consumer = new Consumer({ groupId, ...cluster })
  const stream = await consumer.consume({
    topics: [asked.topic], mode: 'committed', fallbackMode: 'earliest', autocommit: true, ...settings
  })
  let last = Date.now() + firstS * 1000
  let failure = null
  stream.on('error', error => { failure = error })
  stream.on('data', message => {
    last = Date.now()
    const headers = [...message.headerEntries].map(([name, value]) => [String(name), text(value)])
    console.log(JSON.stringify({
      p: message.partition, o: Number(message.offset), k: text(message.key), v: text(message.value),
      h: headers, t: Number(message.timestamp)
    }))
  })
  while (!failure && Date.now() < last + asked.idle_s * 1000) {
    await new Promise(resolve => setTimeout(resolve, 100))
  }
  await stream.close()
  await consumer.close()
  if (failure) throw failure
}

async function write() {
  const variants = {
    '': {},
    idempotent: { idempotent: true },
    compatibilityPartitioner: { partitioner: compatibilityPartitioner }
  }
  const producer = new Producer({ ...cluster, ...variants[asked.variant] })
  const messages = []
  for await (const line of createInterface(process.stdin)) {
    const given = JSON.parse(line)
    messages.push({
      topic: asked.topic,
      key: content(given.k),
      value: content(given.v),
      headers: new Map((given.h ?? []).map(([name, value]) => [Buffer.from(name), content(value)])),
      ...('p' in given && { partition: given.p }),
      ...('t' in given && { timestamp: BigInt(given.t) })
    })
  }
  await producer.send({ messages })
  await producer.close()
}

const level = { isolationLevel: FetchIsolationLevels.READ_COMMITTED }
const actions = {
  read: () => consume(randomUUID(), asked.level === 'default' ? {} : level, 5),
  group: () => consume(asked.group, level, 15),
  write
}
try {
  await actions[action]()
} catch (error) {
  console.error(`${error.name}: ${error.message}`)
  process.exitCode = 1
}
process.exit()
