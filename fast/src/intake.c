/* Taking records from a consumer whose control stays with confluent-kafka.
 *
 * Each partition's queue is routed to a queue of ours. Rebalances, errors, logs and statistics stay
 * in the consumer's own queue, which confluent-kafka serves: its callbacks need a state of the thread
 * that only its own calls set, so serving that queue here would abort the process (client.c: the one error that is not in it).
 *
 * librdkafka keeps a partition marked as "routed by the application" but resets the route itself when
 * the partition is unassigned and assigned again. Its records then pile up unseen. `lost` finds that:
 * a partition's queue that is routed tells the length of ours, one that lost its route its own.
 */
#include "intake.h"

#include <stdlib.h>
#include <string.h>

#include "records.h"

typedef struct {
  PyObject_HEAD
  PyObject *capsule;
  client_t *client;
  chain_t chain;
  rd_kafka_message_t **messages; /* room for one take */
  Py_ssize_t room;
} intake_t;

static int add_source(chain_t *chain, PyObject *item) {
  const char *kind, *name, *tag;
  Py_ssize_t tag_len;
  if (chain->count == SOURCES_MAX) {
    PyErr_Format(PyExc_ValueError, "more than %d sources of ids", SOURCES_MAX);
    return -1;
  }
  if (!PyArg_ParseTuple(item, "ssy#", &kind, &name, &tag, &tag_len)) return -1;
  if (!strncmp(name, "hapax-", 6)) { /* stamping removes such headers, and the id with them */
    PyErr_Format(PyExc_ValueError, "%s cannot be a native source of ids", name);
    return -1;
  }
  source_t *source = &chain->sources[chain->count];
  source->kind = !strcmp(kind, "key") ? SOURCE_KEY : !strcmp(kind, "cloudevents") ? SOURCE_CLOUDEVENTS : SOURCE_HEADER;
  source->name = strdup(name);
  source->tag = malloc((size_t)tag_len + 1);
  source->tag_len = (size_t)tag_len;
  if (!source->name || !source->tag) {
    PyErr_NoMemory();
    return -1;
  }
  memcpy(source->tag, tag, (size_t)tag_len);
  chain->count++;
  return 0;
}

/* Intake(client, [(kind, header, tag)]): kinds are header, key and cloudevents. */
static PyObject *intake_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  (void)kwargs;
  PyObject *capsule, *sources;
  if (!PyArg_ParseTuple(args, "OO!", &capsule, &PyList_Type, &sources)) return NULL;
  client_t *client = living_client(capsule);
  if (!client) return NULL;
  if (!types.record) return PyErr_Format(PyExc_RuntimeError, "setup comes first");
  intake_t *intake = (intake_t *)type->tp_alloc(type, 0);
  if (!intake) return NULL;
  intake->client = client;
  intake->capsule = capsule;
  Py_INCREF(capsule);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(sources); i++)
    if (add_source(&intake->chain, PyList_GET_ITEM(sources, i))) {
      Py_DECREF(intake);
      return NULL;
    }
  if (!client->queue) client->queue = p_rd_kafka_queue_new(client->rk);
  return (PyObject *)intake;
}

static void intake_dealloc(intake_t *intake) {
  for (int i = 0; i < intake->chain.count; i++) {
    free(intake->chain.sources[i].name);
    free(intake->chain.sources[i].tag);
  }
  free(intake->messages);
  Py_XDECREF(intake->capsule);
  Py_TYPE(intake)->tp_free((PyObject *)intake);
}

static int is_open(intake_t *intake) {
  if (!living_client(intake->capsule)) return 0;
  if (intake->client->queue) return 1;
  PyErr_SetString(PyExc_RuntimeError, "the intake was closed");
  return 0;
}

/* route(topic, partition): deliver here; the same again does no harm. */
static PyObject *intake_route(intake_t *intake, PyObject *args) {
  const char *topic;
  int partition;
  if (!PyArg_ParseTuple(args, "si", &topic, &partition) || !is_open(intake)) return NULL;
  rd_kafka_queue_t *queue = p_rd_kafka_queue_get_partition(intake->client->rk, topic, partition);
  if (!queue) return PyErr_Format(PyExc_ValueError, "%s/%d has no queue", topic, partition);
  p_rd_kafka_queue_forward(queue, intake->client->queue);
  p_rd_kafka_queue_destroy(queue);
  Py_RETURN_NONE;
}

/* lost(topic, partition): whether records lie in the partition's own queue while ours is empty. */
static PyObject *intake_lost(intake_t *intake, PyObject *args) {
  const char *topic;
  int partition;
  if (!PyArg_ParseTuple(args, "si", &topic, &partition) || !is_open(intake)) return NULL;
  rd_kafka_queue_t *queue = p_rd_kafka_queue_get_partition(intake->client->rk, topic, partition);
  size_t waiting = queue ? p_rd_kafka_queue_length(queue) : 0;
  if (waiting && p_rd_kafka_queue_length(intake->client->queue)) waiting = 0;
  if (queue) p_rd_kafka_queue_destroy(queue);
  return PyBool_FromLong(waiting > 0);
}

static int make_room(intake_t *intake, Py_ssize_t max) {
  if (max <= intake->room) return 0;
  rd_kafka_message_t **grown = realloc(intake->messages, (size_t)max * sizeof *grown);
  if (!grown) {
    PyErr_NoMemory();
    return -1;
  }
  intake->messages = grown;
  intake->room = max;
  return 0;
}

/* take(max, wait_ms): Records, or None when nothing arrived; waits for the first record only. */
static PyObject *intake_take(intake_t *intake, PyObject *args) {
  Py_ssize_t max;
  int wait_ms;
  if (!PyArg_ParseTuple(args, "ni", &max, &wait_ms) || !is_open(intake)) return NULL;
  if (max < 1) return PyErr_Format(PyExc_ValueError, "a take is of at least one record");
  if (make_room(intake, max)) return NULL;
  rd_kafka_queue_t *queue = intake->client->queue;
  ssize_t count;
  Py_BEGIN_ALLOW_THREADS;
  intake_takes = 1;
  count = p_rd_kafka_consume_batch_queue(queue, 0, intake->messages, (size_t)max);
  if (count <= 0 && wait_ms > 0) {
    /* For a full batch librdkafka waits all of its time; for one message only until it is there. */
    count = p_rd_kafka_consume_batch_queue(queue, wait_ms, intake->messages, 1);
    if (count == 1 && max > 1) {
      ssize_t more = p_rd_kafka_consume_batch_queue(queue, 0, intake->messages + 1, (size_t)max - 1);
      if (more > 0) count += more;
    }
  }
  intake_takes = 0;
  Py_END_ALLOW_THREADS;
  if (count <= 0) Py_RETURN_NONE;
  return (PyObject *)records_new(intake->client, (PyObject *)intake, &intake->chain, intake->messages, count);
}

/* close(): before the client is closed, which would wait for ever for what is still held. */
static PyObject *intake_close(intake_t *intake, PyObject *ignored) {
  (void)ignored;
  return py_release(NULL, intake->capsule);
}

static PyMethodDef intake_methods[] = {
    {"route", (PyCFunction)intake_route, METH_VARARGS, "route(topic, partition): deliver its records here"},
    {"lost", (PyCFunction)intake_lost, METH_VARARGS, "lost(topic, partition): whether its route was reset"},
    {"take", (PyCFunction)intake_take, METH_VARARGS, "take(max, wait_ms): what is there, or None"},
    {"close", (PyCFunction)intake_close, METH_NOARGS, "release all that keeps the client from closing"},
    {0}};
PyTypeObject Intake_Type = {PyVarObject_HEAD_INIT(0, 0).tp_name = "hapax_fast.Intake",
                            .tp_basicsize = sizeof(intake_t),
                            .tp_dealloc = (destructor)intake_dealloc,
                            .tp_flags = Py_TPFLAGS_DEFAULT,
                            .tp_doc = "Intake(client, sources): where routed partitions arrive.",
                            .tp_methods = intake_methods,
                            .tp_new = intake_new};
