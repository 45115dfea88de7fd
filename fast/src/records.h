/* The records of one take, as librdkafka delivered them, and what is found in them. */
#ifndef HAPAX_RECORDS_H
#define HAPAX_RECORDS_H

#include "client.h"

#define SOURCES_MAX 8

/* Where ids are looked for, in order: the chain of HAPAX_DEDUP__ID. */
typedef enum { SOURCE_HEADER, SOURCE_KEY, SOURCE_CLOUDEVENTS } source_kind_t;
typedef struct {
  source_kind_t kind;
  char *name; /* of the header, lower case */
  uint8_t *tag; /* what precedes an id of this source in its claim */
  size_t tag_len;
} source_t;
typedef struct {
  int count;
  source_t sources[SOURCES_MAX];
} chain_t;

/* One record. */
typedef struct {
  union {
    rd_kafka_message_t *message;
    int64_t offset; /* in its place once the messages were given back */
  };
  rd_kafka_headers_t *headers; /* stamped, and not handed over yet; else NULL */
  const uint8_t *id; /* NULL: none was found */
  uint32_t id_len;
  uint32_t size;      /* of key, value and headers, in bytes; 0: they were not looked at */
  int32_t source : 8; /* whose tag precedes the id */
  int32_t run : 24;
} entry_t;
#define RUNS_MAX ((1 << 23) - 1)

/* Records of one partition that follow each other in the take. */
typedef struct {
  PyObject *topic;
  rd_kafka_topic_t *rkt;
  int32_t partition;
  Py_ssize_t start, count;
  int64_t first, last;
} run_t;

typedef struct chunk {
  struct chunk *next;
  uint8_t bytes[];
} chunk_t;

typedef struct records {
  PyObject_HEAD
  client_t *client;               /* NULL once the messages were given back */
  struct records *before, *after; /* among those of the client that hold messages */
  PyObject *intake;               /* owns the chain */
  const chain_t *chain;
  rd_kafka_message_t **messages; /* all that was taken, errors among them, in order */
  Py_ssize_t message_count;
  entry_t *entries;
  Py_ssize_t count;
  run_t *runs;
  int run_count, run_capacity;
  PyObject *ends;  /* list of (topic, partition, offset): ends of partitions that were met */
  chunk_t *chunks; /* ids that are put together of two headers */
  int regular;     /* whether all of it may take the native path */
  int sent;        /* headers, and ids in them, may have been handed over */
  Py_ssize_t handed; /* how many of the first went through the outlet: nothing is sent twice */
} records_t;

extern PyTypeObject Records_Type, Ids_Type;

/* Whether the messages are still there; an exception otherwise. A batch whose client has ended must
 * not look like one without records: its progress would be committed without its outputs. */
static inline int is_held(const records_t *records) {
  if (records->client) return 1;
  PyErr_SetString(PyExc_RuntimeError, "these records were given back: their client has ended");
  return 0;
}

/* Whether they are as they were taken, too. */
static inline int is_whole(const records_t *records) {
  if (!is_held(records)) return 0;
  if (!records->sent) return 1;
  PyErr_SetString(PyExc_RuntimeError, "these records have been handed to the producer");
  return 0;
}

/* How many Records hold messages, in all clients: for tests, which look for leaks. */
extern Py_ssize_t records_held;

/* The project's own types, by setup(). */
typedef struct {
  PyObject *record, *output, *unset, *unchanged, *empty;
  Py_ssize_t value, key, topic, headers, timestamp_ms, partition; /* fields of Output */
  Py_ssize_t event_id;                                            /* field of Record */
} types_t;
extern types_t types;
#define FIELD(object, at) (*(PyObject **)((char *)(object) + (at)))

/* Whether a result is one Output that needs nothing but the native path. processing/transform.py does not
 * look at what is false (a timestamp of 0.0), so each field is looked at here. */
static inline int is_plain(PyObject *output) {
  PyObject *value = FIELD(output, types.value), *headers = FIELD(output, types.headers);
  PyObject *key = FIELD(output, types.key), *at = FIELD(output, types.timestamp_ms);
  PyObject *partition = FIELD(output, types.partition);
  return (value == Py_None || PyBytes_CheckExact(value)) && FIELD(output, types.topic) == Py_None &&
         (headers == types.empty || (PyTuple_CheckExact(headers) && !PyTuple_GET_SIZE(headers))) &&
         (key == types.unset || key == Py_None || PyBytes_CheckExact(key)) &&
         (at == Py_None || PyLong_CheckExact(at)) && (partition == Py_None || PyLong_CheckExact(partition));
}

/* Takes over the messages; finds runs and ids. NULL and an exception when memory is short. */
records_t *records_new(client_t *client, PyObject *intake, const chain_t *chain, rd_kafka_message_t **messages,
                       Py_ssize_t count);
/* Gives the messages back to librdkafka. The client's lock is held by the caller. */
void records_release(records_t *records);
/* Finds ids of all entries (ids.c). No GIL needed. */
void find_ids(records_t *records);

PyObject *ids_new(records_t *records, int tagged);
/* Whether no header that reads as this name was cut: librdkafka hands names out as C strings, which end at a NUL. */
int whole_name(rd_kafka_headers_t *headers, const char *name, const void *value);
PyObject *headers_of(rd_kafka_message_t *message);
PyObject *bytes_or_none(const void *bytes, size_t size);
PyObject *py_setup(PyObject *module, PyObject *args);
PyObject *py_digest(PyObject *module, PyObject *args);
PyObject *records_apply(records_t *records, PyObject *args);
PyObject *records_tally(records_t *records, PyObject *results);
/* A new Record of the project for the entry. */
PyObject *record_at(records_t *records, Py_ssize_t index);

#endif
