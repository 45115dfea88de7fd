/* Ids of records: where they are, and the digests of their claims.
 *
 * The reference is processing/identity.py. What would need more than a look at
 * headers and key (names that are not ASCII or hold a NUL, two spellings of one name, a replay, an
 * event whose id stands in its value, or may) makes the whole take irregular: it goes through the reference.
 */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "blake2b.h"
#include "records.h"

#define REPLAY_OF "hapax-replay-of"
#define EVENT_TYPE "application/cloudevents"
#define EVENT_MEMBER "\"specversion\""

typedef struct {
  const uint8_t *value; /* NULL: there is none, or it is null */
  size_t size;
  int ambiguous; /* spelled in several ways, none of them in lower case */
} found_t;

/* Whether two names are the same but for the case of ASCII letters, in any locale. */
static int same_name(const char *name, const char *other) {
  for (; *name && *other; name++, other++) {
    unsigned char one = (unsigned char)*name, two = (unsigned char)*other;
    if ((unsigned)(one - 'A') < 26u) one |= 32;
    if ((unsigned)(two - 'A') < 26u) two |= 32;
    if (one != two) return 0;
  }
  return *name == *other;
}

/* A header by its lower-case name: the last of the exact name; else of the one other spelling. One
 * that holds nothing hides no other. */
static found_t header(rd_kafka_headers_t *headers, const char *wanted) {
  found_t found = {NULL, 0, 0};
  const char *name, *spelled = NULL;
  const void *value;
  size_t size;
  int exact = 0;
  for (size_t i = 0; !p_rd_kafka_header_get_all(headers, i, &name, &value, &size); i++) {
    if (!value || !size || !same_name(name, wanted)) continue;
    int same = !strcmp(name, wanted);
    if (exact && !same) continue;
    if (!same && spelled && strcmp(spelled, name)) found.ambiguous = 1;
    if (!same) spelled = name;
    if (same) exact = 1, found.ambiguous = 0;
    found.value = value, found.size = size;
  }
  return found;
}

/* Whether header names are as the native path takes them. Adds the bytes of all headers. */
static int plain_names(rd_kafka_headers_t *headers, uint32_t *bytes) {
  const char *name;
  const void *value;
  size_t size;
  for (size_t i = 0; !p_rd_kafka_header_get_all(headers, i, &name, &value, &size); i++) {
    for (const char *at = name; *at; at++)
      if ((unsigned char)*at > 127) return 0;
    if ((name[0] | 32) == 'h' && same_name(name, REPLAY_OF)) return 0;
    if (!whole_name(headers, name, value)) return 0;
    *bytes += (uint32_t)(strlen(name) + (value ? size : 0));
  }
  return 1;
}

static void composed(records_t *records, entry_t *entry, found_t origin, found_t number) {
  size_t size = origin.size + 1 + number.size;
  chunk_t *chunk = malloc(sizeof *chunk + size);
  if (!chunk) {
    records->regular = 0;
    return;
  }
  chunk->next = records->chunks;
  records->chunks = chunk;
  memcpy(chunk->bytes, origin.value, origin.size);
  chunk->bytes[origin.size] = 0;
  memcpy(chunk->bytes + origin.size + 1, number.value, number.size);
  entry->id = chunk->bytes;
  entry->id_len = (uint32_t)size;
}

/* Whether a media type may be one of CloudEvents: case does not count. */
static int may_be_event_type(found_t type) {
  while (type.size && memchr(" \t\r\n\v\f", *type.value, 6)) type.value++, type.size--;
  if (type.size < strlen(EVENT_TYPE)) return 0;
  for (size_t i = 0; i < strlen(EVENT_TYPE); i++)
    if ((type.value[i] | 32) != EVENT_TYPE[i]) return 0;
  return 1;
}

/* Of two spellings of one attribute: with an underscore, else as in HTTP. */
static found_t attribute(records_t *records, rd_kafka_headers_t *headers, const char *name, const char *other) {
  found_t found = header(headers, name);
  if (!found.size) found = header(headers, other);
  if (found.ambiguous) records->regular = 0;
  return found;
}

static void find_event(records_t *records, entry_t *entry, rd_kafka_headers_t *headers) {
  found_t number = attribute(records, headers, "ce_id", "ce-id");
  if (!number.size) {
    found_t type = header(headers, "content-type");
    if (type.ambiguous || may_be_event_type(type)) records->regular = 0; /* the id stands in the value */
    return;
  }
  found_t origin = attribute(records, headers, "ce_source", "ce-source");
  if (origin.size) composed(records, entry, origin, number);
}

/* Whether a value may be an event that says so by its members alone, or several of them. */
static int may_be_event(const rd_kafka_message_t *message) {
  const uint8_t *value = message->payload;
  return value && message->len && memchr("{[ \t\r\n\xef\0\1", *value, 9) &&
         memmem(value, message->len, EVENT_MEMBER, strlen(EVENT_MEMBER));
}

static void find_id(records_t *records, entry_t *entry) {
  rd_kafka_headers_t *headers;
  int none = p_rd_kafka_message_headers(entry->message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR;
  int searched = 1; /* no event is looked for in the value, or it has been */
  entry->size = (uint32_t)(entry->message->key_len + entry->message->len);
  if (!none && !plain_names(headers, &entry->size)) records->regular = 0;
  for (int i = 0; i < records->chain->count && !entry->id; i++) {
    const source_t *source = &records->chain->sources[i];
    entry->source = i;
    if (source->kind == SOURCE_CLOUDEVENTS) searched = 0;
    if (source->kind == SOURCE_KEY) {
      if (!searched && may_be_event(entry->message)) records->regular = 0;
      searched = 1;
      if (entry->message->key && entry->message->key_len)
        entry->id = entry->message->key, entry->id_len = (uint32_t)entry->message->key_len;
    } else if (none) {
      continue;
    } else if (source->kind == SOURCE_CLOUDEVENTS) {
      find_event(records, entry, headers);
    } else {
      found_t found = header(headers, source->name);
      if (found.ambiguous) records->regular = 0;
      if (found.size) entry->id = found.value, entry->id_len = (uint32_t)found.size;
    }
  }
  if (!entry->id && !searched && may_be_event(entry->message)) records->regular = 0;
}

void find_ids(records_t *records) {
  for (Py_ssize_t i = 0; i < records->count && records->regular; i++) find_id(records, &records->entries[i]);
}

/* ---- Ids: a sequence of bytes over the records ------------------------------------------------ */

typedef struct {
  PyObject_HEAD
  records_t *records;
  int tagged; /* with the tag of the source before it: the claim */
} ids_t;

PyObject *ids_new(records_t *records, int tagged) {
  ids_t *ids = PyObject_New(ids_t, &Ids_Type);
  if (!ids) return NULL;
  ids->records = records;
  ids->tagged = tagged;
  Py_INCREF(records);
  return (PyObject *)ids;
}

static void ids_dealloc(ids_t *ids) {
  Py_DECREF(ids->records);
  PyObject_Free(ids);
}

static Py_ssize_t ids_length(ids_t *ids) { return ids->records->count; }

static PyObject *ids_item(ids_t *ids, Py_ssize_t index) {
  records_t *records = ids->records;
  if (index < 0 || index >= records->count) return PyErr_Format(PyExc_IndexError, "no such id");
  if (!is_whole(records)) return NULL;
  entry_t *entry = &records->entries[index];
  if (!entry->id) return PyBytes_FromStringAndSize(NULL, 0);
  const source_t *source = &records->chain->sources[entry->source];
  size_t before = ids->tagged ? source->tag_len : 0;
  PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(before + entry->id_len));
  if (!bytes) return NULL;
  memcpy(PyBytes_AS_STRING(bytes), source->tag, before);
  memcpy(PyBytes_AS_STRING(bytes) + before, entry->id, entry->id_len);
  return bytes;
}

/* digests(salt): 16 bytes a claim; 16 zero bytes where there is no id. */
static PyObject *ids_digests(ids_t *ids, PyObject *salt) {
  records_t *records = ids->records;
  if (!PyBytes_Check(salt) || PyBytes_GET_SIZE(salt) != 16)
    return PyErr_Format(PyExc_ValueError, "a salt has 16 bytes");
  if (!is_whole(records)) return NULL;
  PyObject *digests = PyBytes_FromStringAndSize(NULL, records->count * 16);
  if (!digests) return NULL;
  uint8_t *to = (uint8_t *)PyBytes_AS_STRING(digests), *with = (uint8_t *)PyBytes_AS_STRING(salt);
  Py_BEGIN_ALLOW_THREADS;
  for (Py_ssize_t i = 0; i < records->count; i++, to += 16) {
    entry_t *entry = &records->entries[i];
    const source_t *source = &records->chain->sources[entry->source];
    if (entry->id)
      blake2b_16(with, source->tag, ids->tagged ? source->tag_len : 0, entry->id, entry->id_len, to);
    else
      memset(to, 0, 16);
  }
  Py_END_ALLOW_THREADS;
  return digests;
}

/* by_shard(digests, owners, shards): the indices of the ids in the order of their shards, how many each
 * shard has, and in that order 14 bytes of each digest and of each owner. */
static PyObject *ids_by_shard(ids_t *ids, PyObject *args) {
  (void)ids;
  const uint8_t *digests, *owners;
  Py_ssize_t size, owners_size;
  int shards;
  if (!PyArg_ParseTuple(args, "y#y#i", &digests, &size, &owners, &owners_size, &shards)) return NULL;
  Py_ssize_t count = size / 16, starts[257] = {0};
  if (size % 16 || owners_size != count * 14 || shards < 1 || shards > 256)
    return PyErr_Format(PyExc_ValueError, "16 bytes a digest, 14 an owner, and up to 256 shards");
  PyObject *order = PyBytes_FromStringAndSize(NULL, count * 4), *counts = PyList_New(shards);
  PyObject *named = PyBytes_FromStringAndSize(NULL, count * 14), *owned = PyBytes_FromStringAndSize(NULL, count * 14);
  if (!order || !counts || !named || !owned) goto failed;
  for (Py_ssize_t i = 0; i < count; i++) starts[digests[i * 16 + 15] % shards + 1]++;
  for (int shard = 0; shard < shards; shard++) {
    PyObject *number = PyLong_FromSsize_t(starts[shard + 1]);
    if (!number) goto failed;
    PyList_SET_ITEM(counts, shard, number);
    starts[shard + 1] += starts[shard];
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    Py_ssize_t place = starts[digests[i * 16 + 15] % shards]++;
    uint32_t index = (uint32_t)i;
    memcpy(PyBytes_AS_STRING(order) + place * 4, &index, 4);
    memcpy(PyBytes_AS_STRING(named) + place * 14, digests + i * 16, 14);
    memcpy(PyBytes_AS_STRING(owned) + place * 14, owners + i * 14, 14);
  }
  return Py_BuildValue("(NNNN)", order, counts, named, owned);
failed:
  Py_XDECREF(order);
  Py_XDECREF(counts);
  Py_XDECREF(named);
  Py_XDECREF(owned);
  return NULL;
}

static PyObject *ids_missing(ids_t *ids, void *closure) {
  (void)closure;
  if (!is_held(ids->records)) return NULL;
  Py_ssize_t missing = 0;
  for (Py_ssize_t i = 0; i < ids->records->count; i++) missing += !ids->records->entries[i].id;
  return PyLong_FromSsize_t(missing);
}

PyObject *py_digest(PyObject *module, PyObject *args) {
  (void)module;
  const char *salt, *id;
  Py_ssize_t salt_len, id_len;
  uint8_t out[16];
  if (!PyArg_ParseTuple(args, "y#y#", &salt, &salt_len, &id, &id_len)) return NULL;
  if (salt_len != 16) return PyErr_Format(PyExc_ValueError, "a salt has 16 bytes");
  /* In two parts, as an id with its tag is digested. */
  size_t half = (size_t)id_len / 2;
  blake2b_16((uint8_t *)salt, (uint8_t *)id, half, (uint8_t *)id + half, (size_t)id_len - half, out);
  return PyBytes_FromStringAndSize((char *)out, 16);
}

static PyMethodDef ids_methods[] = {
    {"by_shard", (PyCFunction)ids_by_shard, METH_VARARGS, "ids in the order of their shards, with their owners"},
    {"digests", (PyCFunction)ids_digests, METH_O, "16 bytes an id, of BLAKE2b with this salt of 16 bytes"},
    {0}};
static PyGetSetDef ids_fields[] = {{"missing", (getter)ids_missing, 0, "how many records have no id", 0}, {0}};
static PySequenceMethods ids_sequence = {.sq_length = (lenfunc)ids_length, .sq_item = (ssizeargfunc)ids_item};
PyTypeObject Ids_Type = {PyVarObject_HEAD_INIT(0, 0).tp_name = "hapax_fast.Ids",
                         .tp_basicsize = sizeof(ids_t),
                         .tp_dealloc = (destructor)ids_dealloc,
                         .tp_flags = Py_TPFLAGS_DEFAULT,
                         .tp_doc = "Ids of the records of one take, b\"\" where there is none.",
                         .tp_methods = ids_methods,
                         .tp_getset = ids_fields,
                         .tp_as_sequence = &ids_sequence};
