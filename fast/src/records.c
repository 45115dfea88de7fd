/* See records.h. Records are made as the project's own `Record`, when one is asked for. */
#include "records.h"

#include <stdlib.h>
#include <string.h>

types_t types;
Py_ssize_t records_held;

/* ---- values for Python -------------------------------------------------------------------------- */

PyObject *bytes_or_none(const void *bytes, size_t size) {
  if (!bytes) Py_RETURN_NONE;
  return PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
}

/* Programs use a few header names again and again: their strings are kept in a small table. */
#define NAMES 32
#define NAME_MAX_KEPT 32
static PyObject *name_of(const char *name) {
  static struct {
    char text[NAME_MAX_KEPT];
    PyObject *string;
  } kept[NAMES];
  size_t size = strlen(name);
  if (size >= NAME_MAX_KEPT) return PyUnicode_DecodeUTF8(name, (Py_ssize_t)size, NULL);
  unsigned slot = (unsigned)size * 7;
  if (size) slot += (unsigned char)name[0] * 3 + (unsigned char)name[size - 1];
  slot %= NAMES;
  if (!kept[slot].string || strcmp(kept[slot].text, name)) {
    PyObject *string = PyUnicode_DecodeUTF8(name, (Py_ssize_t)size, NULL);
    if (!string) return NULL;
    Py_XSETREF(kept[slot].string, string);
    memcpy(kept[slot].text, name, size + 1);
  }
  Py_INCREF(kept[slot].string);
  return kept[slot].string;
}

/* librdkafka looks a header up by a name and its length, so of those that read alike it finds only the whole ones.
 * It keeps a value right behind the NUL that ends its name: where that is so, nothing has to be looked up. Names of
 * nulls are looked up where there are few headers: with n of them it takes n * n steps. */
#define LOOKED_UP_MAX 64
int whole_name(rd_kafka_headers_t *headers, const char *name, const void *value) {
  if (value && (const char *)value == name + strlen(name) + 1) return 1;
  int is_null = !value;
  const char *other;
  size_t size, i = 0, alike = 0;
  for (; !p_rd_kafka_header_get_all(headers, i, &other, &value, &size); i++) {
    if (is_null && i == LOOKED_UP_MAX) return 1;
    if (!strcmp(other, name)) alike++;
  }
  return alike && !p_rd_kafka_header_get(headers, alike - 1, name, &value, &size);
}

static void refuse_cut(const char *name) {
  Py_ssize_t size = (Py_ssize_t)strlen(name);
  PyObject *error = PyUnicodeDecodeError_Create("utf-8", name, size, 0, size, "a NUL follows");
  if (error) PyErr_SetObject(PyExc_UnicodeDecodeError, error);
  Py_XDECREF(error);
}

/* A tuple of pairs; UnicodeDecodeError for a name that is not UTF-8 or holds a NUL. */
PyObject *headers_of(rd_kafka_message_t *message) {
  rd_kafka_headers_t *headers;
  const char *name;
  const void *value;
  size_t size;
  Py_ssize_t count = 0;
  if (p_rd_kafka_message_headers(message, &headers)) {
    Py_INCREF(types.empty);
    return types.empty;
  }
  while (!p_rd_kafka_header_get_all(headers, (size_t)count, &name, &value, &size)) count++;
  PyObject *pairs = PyTuple_New(count);
  for (Py_ssize_t i = 0; pairs && i < count; i++) {
    p_rd_kafka_header_get_all(headers, (size_t)i, &name, &value, &size);
    PyObject *text = NULL, *bytes = NULL;
    if (!whole_name(headers, name, value))
      refuse_cut(name);
    else if ((text = name_of(name)))
      bytes = bytes_or_none(value, size);
    PyObject *pair = bytes ? PyTuple_New(2) : NULL;
    if (!pair) {
      Py_XDECREF(text);
      Py_XDECREF(bytes);
      Py_CLEAR(pairs);
      break;
    }
    PyTuple_SET_ITEM(pair, 0, text);
    PyTuple_SET_ITEM(pair, 1, bytes);
    PyTuple_SET_ITEM(pairs, i, pair);
  }
  return pairs;
}

PyObject *record_at(records_t *records, Py_ssize_t index) {
  rd_kafka_timestamp_type_t kind;
  entry_t *entry = &records->entries[index];
  rd_kafka_message_t *message = entry->message;
  PyObject *fields[7] = {records->runs[entry->run].topic,
                         PyLong_FromLong(message->partition),
                         PyLong_FromLongLong(message->offset),
                         bytes_or_none(message->key, message->key_len),
                         bytes_or_none(message->payload, message->len),
                         headers_of(message),
                         PyLong_FromLongLong(p_rd_kafka_message_timestamp(message, &kind))};
  PyObject *record = NULL;
  if (fields[1] && fields[2] && fields[3] && fields[4] && fields[5] && fields[6])
    record = PyObject_Vectorcall(types.record, fields, 7, NULL);
  for (int i = 1; i < 7; i++) Py_XDECREF(fields[i]);
  return record;
}

/* ---- from the messages of one take ------------------------------------------------------------- */

static run_t *run_of(records_t *records, rd_kafka_message_t *message) {
  run_t *run = records->run_count ? &records->runs[records->run_count - 1] : NULL;
  if (run && run->rkt == message->rkt && run->partition == message->partition) return run;
  if (records->run_count == RUNS_MAX) return NULL;
  if (records->run_count == records->run_capacity) {
    int capacity = records->run_capacity * 2 + 8;
    run_t *grown = realloc(records->runs, (size_t)capacity * sizeof *grown);
    if (!grown) return NULL;
    records->runs = grown;
    records->run_capacity = capacity;
  }
  PyObject *topic = PyUnicode_FromString(p_rd_kafka_topic_name(message->rkt));
  if (!topic) return NULL;
  PyUnicode_InternInPlace(&topic);
  run = &records->runs[records->run_count++];
  *run = (run_t){topic, message->rkt, message->partition, records->count, 0, message->offset, message->offset - 1};
  return run;
}

static int note_event(records_t *records, rd_kafka_message_t *message) {
  if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF || !message->rkt) {
    records->regular = 0;
    return 0;
  }
  PyObject *end = Py_BuildValue("(siL)", p_rd_kafka_topic_name(message->rkt), (int)message->partition,
                                (long long)message->offset);
  int failed = !end || PyList_Append(records->ends, end);
  Py_XDECREF(end);
  return failed ? -1 : 0;
}

static int sort_out(records_t *records) {
  for (Py_ssize_t i = 0; i < records->message_count; i++) {
    rd_kafka_message_t *message = records->messages[i];
    if (message->err) {
      if (note_event(records, message)) return -1;
      continue;
    }
    run_t *run = run_of(records, message);
    if (!run) return -1;
    if (message->offset <= run->last) records->regular = 0; /* offsets of a partition ascend */
    run->last = message->offset;
    run->count++;
    records->entries[records->count++] = (entry_t){.message = message, .run = records->run_count - 1};
  }
  return 0;
}

records_t *records_new(client_t *client, PyObject *intake, const chain_t *chain, rd_kafka_message_t **messages,
                       Py_ssize_t count) {
  records_t *records = PyObject_New(records_t, &Records_Type);
  if (!records) {
    for (Py_ssize_t i = 0; i < count; i++) p_rd_kafka_message_destroy(messages[i]);
    return NULL;
  }
  memset((char *)records + offsetof(records_t, client), 0, sizeof *records - offsetof(records_t, client));
  records->client = client;
  records->intake = intake;
  Py_INCREF(intake);
  records->chain = chain;
  records->regular = 1;
  records->ends = PyList_New(0);
  size_t slots = count > 0 ? (size_t)count : 1;
  records->messages = malloc(slots * sizeof *records->messages);
  records->entries = malloc(slots * sizeof *records->entries);
  pthread_mutex_lock(&client->lock);
  records->after = client->taken;
  if (client->taken) client->taken->before = records;
  client->taken = records;
  __atomic_add_fetch(&records_held, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&client->lock);
  if (!records->messages || !records->entries || !records->ends) goto failed;
  memcpy(records->messages, messages, (size_t)count * sizeof *messages);
  records->message_count = count;
  if (sort_out(records)) goto failed;
  Py_BEGIN_ALLOW_THREADS;
  find_ids(records);
  Py_END_ALLOW_THREADS;
  return records;
failed:
  if (!records->message_count)
    for (Py_ssize_t i = 0; i < count; i++) p_rd_kafka_message_destroy(messages[i]);
  Py_DECREF(records);
  if (!PyErr_Occurred()) PyErr_NoMemory();
  return NULL;
}

void records_release(records_t *records) {
  client_t *client = records->client;
  if (!client) return;
  if (records->before)
    records->before->after = records->after;
  else
    client->taken = records->after;
  if (records->after) records->after->before = records->before;
  for (Py_ssize_t i = 0; i < records->count; i++) {
    entry_t *entry = &records->entries[i];
    if (entry->headers) p_rd_kafka_headers_destroy(entry->headers);
    entry->headers = NULL;
    entry->offset = entry->message->offset;
  }
  for (Py_ssize_t i = 0; i < records->message_count; i++) p_rd_kafka_message_destroy(records->messages[i]);
  records->message_count = 0;
  records->client = NULL;
  __atomic_sub_fetch(&records_held, 1, __ATOMIC_RELAXED);
}

static void release(records_t *records) {
  client_t *client = records->client;
  if (!client || client_is_foreign(client)) return;
  pthread_mutex_lock(&client->lock);
  records_release(records);
  pthread_mutex_unlock(&client->lock);
}

static void records_dealloc(records_t *records) {
  release(records);
  for (int i = 0; i < records->run_count; i++) Py_DECREF(records->runs[i].topic);
  while (records->chunks) {
    chunk_t *chunk = records->chunks;
    records->chunks = chunk->next;
    free(chunk);
  }
  free(records->messages);
  free(records->entries);
  free(records->runs);
  Py_XDECREF(records->ends);
  Py_XDECREF(records->intake);
  PyObject_Free(records);
}

/* ---- the sequence ------------------------------------------------------------------------------- */

static Py_ssize_t records_length(records_t *records) { return records->count; }

static PyObject *records_item(records_t *records, Py_ssize_t index) {
  if (index < 0 || index >= records->count) return PyErr_Format(PyExc_IndexError, "no such record");
  return is_whole(records) ? record_at(records, index) : NULL;
}

static PyObject *records_subscript(records_t *records, PyObject *key) {
  if (PyIndex_Check(key)) {
    Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (index == -1 && PyErr_Occurred()) return NULL;
    return records_item(records, index < 0 ? index + records->count : index);
  }
  if (!PySlice_Check(key)) return PyErr_Format(PyExc_TypeError, "an index is a number or a slice");
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(key, &start, &stop, &step)) return NULL;
  Py_ssize_t count = PySlice_AdjustIndices(records->count, &start, &stop, step);
  PyObject *list = PyList_New(count);
  for (Py_ssize_t i = 0; list && i < count; i++) {
    PyObject *record = records_item(records, start + i * step);
    if (!record)
      Py_CLEAR(list);
    else
      PyList_SET_ITEM(list, i, record);
  }
  return list;
}

static PyObject *records_runs(records_t *records, void *closure) {
  (void)closure;
  if (!is_held(records)) return NULL;
  PyObject *runs = PyList_New(records->run_count);
  for (int i = 0; runs && i < records->run_count && records->count; i++) {
    run_t *run = &records->runs[i];
    int32_t first = p_rd_kafka_message_leader_epoch(records->entries[run->start].message);
    int32_t last = p_rd_kafka_message_leader_epoch(records->entries[run->start + run->count - 1].message);
    PyObject *tuple = Py_BuildValue("(OinnLLii)", run->topic, (int)run->partition, run->start, run->count,
                                    (long long)run->first, (long long)run->last + 1, (int)first, (int)last);
    if (!tuple)
      Py_CLEAR(runs);
    else
      PyList_SET_ITEM(runs, i, tuple);
  }
  return runs;
}

/* owners(heads): for each record the head of its run and its offset, big endian. */
static PyObject *records_owners(records_t *records, PyObject *heads) {
  if (!is_held(records)) return NULL;
  if (!PyList_Check(heads) || PyList_GET_SIZE(heads) != (records->count ? records->run_count : 0))
    return PyErr_Format(PyExc_ValueError, "one head for each run");
  Py_ssize_t size = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(heads); i++) {
    PyObject *head = PyList_GET_ITEM(heads, i);
    if (!PyBytes_Check(head) || (i && PyBytes_GET_SIZE(head) != size))
      return PyErr_Format(PyExc_ValueError, "heads are bytes of one length");
    size = PyBytes_GET_SIZE(head);
  }
  PyObject *owners = PyBytes_FromStringAndSize(NULL, records->count * (size + 8));
  if (!owners) return NULL;
  char *to = PyBytes_AS_STRING(owners);
  for (Py_ssize_t i = 0; i < records->count; i++) {
    const entry_t *entry = &records->entries[i];
    uint64_t offset = __builtin_bswap64((uint64_t)entry->message->offset);
    memcpy(to, PyBytes_AS_STRING(PyList_GET_ITEM(heads, entry->run)), (size_t)size);
    memcpy(to + size, &offset, 8);
    to += size + 8;
  }
  return owners;
}

static PyObject *records_ids(records_t *records, void *tagged) { return ids_new(records, tagged != NULL); }

static PyObject *records_regular(records_t *records, void *closure) {
  (void)closure;
  return PyBool_FromLong(records->regular);
}

static PyObject *records_ends(records_t *records, void *closure) {
  (void)closure;
  Py_INCREF(records->ends);
  return records->ends;
}

/* facts(done): bytes of keys, values and headers, oldest and newest timestamp, ids found,
 * of the first so many. */
static PyObject *records_facts(records_t *records, PyObject *arg) {
  Py_ssize_t done = PyLong_AsSsize_t(arg), ids = 0;
  if ((done == -1 && PyErr_Occurred()) || !is_held(records)) return NULL;
  long long bytes = 0;
  int64_t oldest = 0, newest = 0;
  rd_kafka_timestamp_type_t kind;
  for (Py_ssize_t i = 0; i < done && i < records->count; i++) {
    int64_t at = p_rd_kafka_message_timestamp(records->entries[i].message, &kind);
    const rd_kafka_message_t *message = records->entries[i].message;
    bytes += records->entries[i].size ? records->entries[i].size : (long long)(message->key_len + message->len);
    if (!i || at < oldest) oldest = at;
    if (!i || at > newest) newest = at;
    ids += records->entries[i].id != NULL;
  }
  return Py_BuildValue("(LLLn)", bytes, (long long)oldest, (long long)newest, ids);
}

/* messages(): all that was taken, in order, for the reference: code of the error or 0 and its text,
 * topic, partition, offset, leader epoch, key, value, timestamp, and its place for headers(). */
static PyObject *records_messages(records_t *records, PyObject *ignored) {
  (void)ignored;
  if (!is_held(records)) return NULL;
  PyObject *list = PyList_New(records->message_count);
  for (Py_ssize_t i = 0; list && i < records->message_count; i++) {
    rd_kafka_message_t *message = records->messages[i];
    rd_kafka_timestamp_type_t kind;
    int bad = message->err != RD_KAFKA_RESP_ERR_NO_ERROR;
    PyObject *tuple = Py_BuildValue(
        "(isziLiNNLn)", (int)message->err, bad ? p_rd_kafka_message_errstr(message) : "",
        message->rkt ? p_rd_kafka_topic_name(message->rkt) : NULL, (int)message->partition, (long long)message->offset,
        bad ? -1 : (int)p_rd_kafka_message_leader_epoch(message), bytes_or_none(message->key, message->key_len),
        bad ? (Py_INCREF(Py_None), Py_None) : bytes_or_none(message->payload, message->len),
        (long long)p_rd_kafka_message_timestamp(message, &kind), i);
    if (!tuple)
      Py_CLEAR(list);
    else
      PyList_SET_ITEM(list, i, tuple);
  }
  return list;
}

static PyObject *records_coordinates(records_t *records, PyObject *arg) {
  Py_ssize_t index = PyLong_AsSsize_t(arg);
  if (index == -1 && PyErr_Occurred()) return NULL;
  if (index < 0 || index >= records->count) return PyErr_Format(PyExc_IndexError, "no such record");
  entry_t *entry = &records->entries[index];
  run_t *run = &records->runs[entry->run];
  int64_t offset = records->client ? entry->message->offset : entry->offset;
  return Py_BuildValue("(OiL)", run->topic, (int)run->partition, (long long)offset);
}

static PyObject *records_headers(records_t *records, PyObject *arg) {
  Py_ssize_t index = PyLong_AsSsize_t(arg);
  if ((index == -1 && PyErr_Occurred()) || !is_held(records)) return NULL;
  if (index < 0 || index >= records->message_count) return PyErr_Format(PyExc_IndexError, "no such message");
  return headers_of(records->messages[index]);
}

static PyObject *records_close(records_t *records, PyObject *ignored) {
  (void)ignored;
  Py_BEGIN_ALLOW_THREADS;
  release(records);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

static PyMethodDef records_methods[] = {
    {"apply", (PyCFunction)records_apply, METH_VARARGS, "apply(function, judge, interrupt, preset): results by index"},
    {"tally", (PyCFunction)records_tally, METH_O, "tally(results): (outputs, filtered, duplicates), None: not the rule"},
    {"facts", (PyCFunction)records_facts, METH_O, "facts(done): (bytes, oldest, newest timestamp, ids)"},
    {"coordinates", (PyCFunction)records_coordinates, METH_O, "coordinates(index): topic, partition, offset"},
    {"messages", (PyCFunction)records_messages, METH_NOARGS, "all that was taken, one tuple a message"},
    {"headers", (PyCFunction)records_headers, METH_O, "headers(place): those of one of the messages"},
    {"owners", (PyCFunction)records_owners, METH_O, "owners(heads): the head of its run and its offset, each"},
    {"close", (PyCFunction)records_close, METH_NOARGS, "give the messages back"},
    {0}};
static PyGetSetDef records_fields[] = {
    {"runs", (getter)records_runs, 0, "(topic, partition, start, count, first, next, epochs) by partition", 0},
    {"ids", (getter)records_ids, 0, "ids by index", 0},
    {"claims", (getter)records_ids, 0, "ids with the tags of their sources", (void *)1},
    {"regular", (getter)records_regular, 0, "whether all of it may take the native path", 0},
    {"ends", (getter)records_ends, 0, "(topic, partition, offset) of ends that were met", 0},
    {0}};
static PySequenceMethods records_sequence = {.sq_length = (lenfunc)records_length,
                                             .sq_item = (ssizeargfunc)records_item};
static PyMappingMethods records_mapping = {.mp_length = (lenfunc)records_length,
                                           .mp_subscript = (binaryfunc)records_subscript};
PyTypeObject Records_Type = {PyVarObject_HEAD_INIT(0, 0).tp_name = "hapax_fast.Records",
                             .tp_basicsize = sizeof(records_t),
                             .tp_dealloc = (destructor)records_dealloc,
                             .tp_flags = Py_TPFLAGS_DEFAULT,
                             .tp_doc = "The records of one take; a Record is made when one is asked for.",
                             .tp_methods = records_methods,
                             .tp_getset = records_fields,
                             .tp_as_sequence = &records_sequence,
                             .tp_as_mapping = &records_mapping};
