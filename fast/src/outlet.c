/* Steps 5 and 6 for the rule: one output a record, stamped, handed to the producer.
 *
 * The reference is processing/plan.py with kafka/produce/producer.py. An output has the record's key and
 * timestamp unless its Output says otherwise, the record's headers without those of a Hapax upstream,
 * and two headers of its own: hapax-id and hapax-source.
 */
#include "outlet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "hapax-"
#define SOURCE_MAX 600 /* librdkafka takes names of up to 512 bytes; Kafka's have up to 249 */

/* One output, as it goes out. */
typedef struct {
  int present; /* 0: the record has no output */
  const void *value, *key;
  size_t value_len, key_len;
  int64_t timestamp_ms;
  int32_t partition;
} output_t;

/* What an output says, with the record's own where it says nothing; -1 with an exception. */
static int read_output(const entry_t *entry, PyObject *result, output_t *out) {
  rd_kafka_timestamp_type_t kind;
  rd_kafka_message_t *message = entry->message;
  *out = (output_t){1, message->payload, message->key, message->len, message->key_len,
                    p_rd_kafka_message_timestamp(message, &kind), RD_KAFKA_PARTITION_UA};
  if (PyTuple_Check(result)) {
    if (!PyTuple_GET_SIZE(result)) return out->present = 0;
    result = PyTuple_GET_ITEM(result, 0);
  }
  if (result == Py_None) return out->present = 0;
  if (result == types.unchanged) return 0;
  if ((PyObject *)Py_TYPE(result) != types.output || !is_plain(result)) {
    PyErr_SetString(PyExc_TypeError, "a result that is not the rule");
    return -1;
  }
  PyObject *value = FIELD(result, types.value), *key = FIELD(result, types.key);
  PyObject *timestamp_ms = FIELD(result, types.timestamp_ms), *partition = FIELD(result, types.partition);
  out->value = value == Py_None ? NULL : PyBytes_AS_STRING(value);
  out->value_len = value == Py_None ? 0 : (size_t)PyBytes_GET_SIZE(value);
  if (key != types.unset) {
    out->key = key == Py_None ? NULL : PyBytes_AsString(key);
    out->key_len = key == Py_None ? 0 : (size_t)PyBytes_Size(key);
  }
  if (timestamp_ms != Py_None) out->timestamp_ms = PyLong_AsLongLong(timestamp_ms);
  if (partition != Py_None) out->partition = (int32_t)PyLong_AsLong(partition);
  return PyErr_Occurred() ? -1 : 0;
}

static size_t decimal(char *to, int64_t number) {
  char digits[20];
  size_t count = 0;
  do digits[count++] = (char)('0' + number % 10);
  while (number /= 10);
  for (size_t i = 0; i < count; i++) to[i] = digits[count - 1 - i];
  return count;
}

static void remove_upstream(rd_kafka_headers_t *headers) {
  const char *name;
  const void *value;
  size_t size, i = 0;
  while (!p_rd_kafka_header_get_all(headers, i, &name, &value, &size)) {
    if (strncmp(name, PREFIX, sizeof PREFIX - 1)) {
      i++;
      continue;
    }
    char *copy = strdup(name); /* removing frees the name */
    if (!copy) return;
    p_rd_kafka_header_remove(headers, copy); /* all of this name, earlier ones of it are none */
    free(copy);
  }
}

/* topic/partition/offset of the record; `prefix` bytes are there for its run already. */
static size_t source_of(const entry_t *entry, char *text, size_t prefix) {
  return prefix + decimal(text + prefix, entry->message->offset);
}

static size_t source_prefix(const run_t *run, char *text) {
  return (size_t)snprintf(text, SOURCE_MAX, "%s/%d/", p_rd_kafka_topic_name(run->rkt), run->partition);
}

static void stamp(rd_kafka_headers_t *headers, const entry_t *entry, const char *source, size_t source_len) {
  remove_upstream(headers);
  if (entry->id)
    p_rd_kafka_header_add(headers, "hapax-id", 8, entry->id, (ssize_t)entry->id_len);
  else
    p_rd_kafka_header_add(headers, "hapax-id", 8, source, (ssize_t)source_len);
  p_rd_kafka_header_add(headers, "hapax-source", 12, source, (ssize_t)source_len);
}

static rd_kafka_resp_err_t produce(client_t *client, rd_kafka_topic_t *topic, const output_t *out,
                                   rd_kafka_headers_t *headers) {
  return p_rd_kafka_producev(client->rk, VTYPE_RKT, topic, VTYPE_PARTITION, (int)out->partition, VTYPE_MSGFLAGS,
                             (int)RD_KAFKA_MSG_F_COPY, VTYPE_VALUE, (void *)out->value, out->value_len, VTYPE_KEY,
                             (void *)out->key, out->key_len, VTYPE_TIMESTAMP,
                             out->timestamp_ms ? out->timestamp_ms : 1, /* to the client 0 is "now" */
                             VTYPE_HEADERS, headers,
                             VTYPE_END);
}

typedef struct {
  client_t *client;
  rd_kafka_topic_t *topic;
  records_t *records;
  output_t *outputs;
  Py_ssize_t from, to;
} sending_t;

/* Sends until the end or an error; `from` is where it stands then. No GIL needed. */
static rd_kafka_resp_err_t send_all(sending_t *sending) {
  char source[SOURCE_MAX + 24];
  size_t prefix = 0;
  int run = -1;
  for (; sending->from < sending->to; sending->from++) {
    entry_t *entry = &sending->records->entries[sending->from];
    if (!sending->outputs[sending->from].present) continue;
    if (entry->run != run) prefix = source_prefix(&sending->records->runs[run = entry->run], source);
    if (!entry->headers) {
      if (p_rd_kafka_message_detach_headers(entry->message, &entry->headers)) entry->headers = p_rd_kafka_headers_new(2);
      stamp(entry->headers, entry, source, source_of(entry, source, prefix));
    }
    rd_kafka_resp_err_t error =
        produce(sending->client, sending->topic, &sending->outputs[sending->from], entry->headers);
    if (error) return error; /* the headers wait for the next try */
    entry->headers = NULL;
  }
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* send(client, topic, records, results, start): (where it stands, code of the error or 0). */
PyObject *py_send(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *capsule, *results;
  const char *topic;
  sending_t sending = {0};
  if (!PyArg_ParseTuple(args, "OsO!O!n", &capsule, &topic, &Records_Type, &sending.records, &PyList_Type, &results,
                        &sending.from))
    return NULL;
  if (!is_held(sending.records) || !(sending.client = living_client(capsule))) return NULL;
  sending.to = PyList_GET_SIZE(results);
  if (sending.to > sending.records->count || sending.from < 0)
    return PyErr_Format(PyExc_ValueError, "more results than records");
  if (sending.from < sending.records->handed)
    return PyErr_Format(PyExc_RuntimeError, "these records have been handed to the producer");
  if (!(sending.topic = client_topic(sending.client, topic)))
    return PyErr_Format(PyExc_RuntimeError, "no handle for topic %s", topic);
  if (!(sending.outputs = malloc(((size_t)sending.to + 1) * sizeof *sending.outputs))) return PyErr_NoMemory();
  for (Py_ssize_t i = sending.from; i < sending.to; i++)
    if (read_output(&sending.records->entries[i], PyList_GET_ITEM(results, i), &sending.outputs[i])) {
      free(sending.outputs);
      return NULL;
    }
  rd_kafka_resp_err_t error;
  sending.records->sent = 1;
  Py_BEGIN_ALLOW_THREADS;
  error = send_all(&sending);
  Py_END_ALLOW_THREADS;
  free(sending.outputs);
  sending.records->handed = sending.from;
  return Py_BuildValue("(ni)", sending.from, (int)error);
}

static PyObject *pairs_of(rd_kafka_headers_t *headers) {
  PyObject *pairs = PyList_New(0);
  const char *name;
  const void *value;
  size_t size;
  for (size_t i = 0; pairs && !p_rd_kafka_header_get_all(headers, i, &name, &value, &size); i++) {
    PyObject *pair = Py_BuildValue("(sN)", name, bytes_or_none(value, size));
    if (!pair || PyList_Append(pairs, pair)) Py_CLEAR(pairs);
    Py_XDECREF(pair);
  }
  return pairs;
}

/* preview(records, results, index): value, key, partition, timestamp and headers as send would send
 * them; None: no output. For the comparison with the reference. */
PyObject *py_preview(PyObject *module, PyObject *args) {
  (void)module;
  records_t *records;
  PyObject *results;
  Py_ssize_t index;
  if (!PyArg_ParseTuple(args, "O!O!n", &Records_Type, &records, &PyList_Type, &results, &index)) return NULL;
  if (!is_whole(records)) return NULL;
  if (index < 0 || index >= records->count || index >= PyList_GET_SIZE(results))
    return PyErr_Format(PyExc_IndexError, "no such record");
  entry_t *entry = &records->entries[index];
  output_t out;
  if (read_output(entry, PyList_GET_ITEM(results, index), &out)) return NULL;
  if (!out.present) Py_RETURN_NONE;
  char source[SOURCE_MAX + 24];
  size_t source_len = source_of(entry, source, source_prefix(&records->runs[entry->run], source));
  rd_kafka_headers_t *headers;
  if (p_rd_kafka_message_headers(entry->message, &headers))
    headers = p_rd_kafka_headers_new(2);
  else
    headers = p_rd_kafka_headers_copy(headers);
  stamp(headers, entry, source, source_len);
  PyObject *pairs = pairs_of(headers);
  p_rd_kafka_headers_destroy(headers);
  return Py_BuildValue("(NNiLN)", bytes_or_none(out.value, out.value_len), bytes_or_none(out.key, out.key_len),
                       (int)out.partition, (long long)out.timestamp_ms, pairs);
}
