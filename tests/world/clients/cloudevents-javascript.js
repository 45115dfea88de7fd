// The CloudEvents SDK for JavaScript.
import { CloudEvent, Kafka } from 'cloudevents'

const { attributes, data } = JSON.parse(process.argv[3])
const event = new CloudEvent({ ...attributes, data })
const text = content => content == null
  ? null
  : Buffer.from(typeof content === 'object' ? JSON.stringify(content) : content).toString('base64')
for (const form of ['binary', 'structured']) {
  const message = Kafka[form](event)
  console.log(JSON.stringify({
    form,
    k: text(message.key),
    v: text(message.value),
    h: Object.entries(message.headers).map(([name, value]) => [name, text(value)])
  }))
}
