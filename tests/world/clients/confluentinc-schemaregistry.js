// @confluentinc/schemaregistry: the serdes of Confluent's Node client, newest schema of the subject.
import { createInterface } from 'node:readline'
import { create, createFileRegistry, createMutableRegistry, fromBinary, toJson } from '@bufbuild/protobuf'
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import {
  AvroDeserializer, AvroSerializer, HeaderSchemaIdSerializer, JsonDeserializer, JsonSerializer,
  ProtobufDeserializer, ProtobufSerializer, SchemaRegistryClient, SerdeType
} from '@confluentinc/schemaregistry'

const asked = JSON.parse(process.argv[3])
const client = new SchemaRegistryClient({ baseURLs: [asked.url] })
const kinds = {
  avro: [AvroSerializer, AvroDeserializer],
  'json-schema': [JsonSerializer, JsonDeserializer],
  protobuf: [ProtobufSerializer, ProtobufDeserializer]
}
const [Writer, Reader] = kinds[asked.format]
const file = fromBinary(FileDescriptorProtoSchema, Buffer.from(asked.descriptor, 'base64'))
const files = createFileRegistry(create(FileDescriptorSetSchema, { file: [file] }))
const message = files.getMessage(asked.message)

async function written(data) {
  const settings = { autoRegisterSchemas: false, useLatestVersion: true }
  if (asked.form === 'header') settings.schemaIdSerializer = HeaderSchemaIdSerializer
  if (message) {
    settings.registry = createMutableRegistry(message)
    data = create(message, data)
  }
  const headers = {}
  const value = await new Writer(client, SerdeType.VALUE, settings)
    .serialize(asked.topic, data, headers)
  const pairs = Object.entries(headers).map(([name, told]) => [name, told.toString('base64')])
  return { v: value.toString('base64'), h: pairs }
}

async function read(given) {
  const headers = Object.fromEntries(
    given.h.map(([name, told]) => [name, Buffer.from(told, 'base64')]))
  const data = await new Reader(client, SerdeType.VALUE, {})
    .deserialize(asked.topic, Buffer.from(given.v, 'base64'), headers)
  return { d: message ? toJson(message, data) : data }
}

try {
  for await (const line of createInterface(process.stdin)) {
    const given = JSON.parse(line)
    console.log(JSON.stringify('d' in given ? await written(given.d) : await read(given)))
  }
} catch (error) {
  console.error(`${error.name}: ${error.message}`)
  process.exitCode = 1
}
