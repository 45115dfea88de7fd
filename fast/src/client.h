/* Clients of librdkafka, as its plugin interface hands them over. */
#ifndef HAPAX_CLIENT_H
#define HAPAX_CLIENT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <unistd.h>

#include "librdkafka.h"
#include "requests.h"

struct records;

extern __thread int intake_takes; /* whether this thread takes records, in no call of confluent-kafka */

#define TOPICS_MAX 64
#define FAILURES_KEPT 16

/* One client. Whoever holds one after the client's end finds `rk` empty instead of freed memory. It is
 * freed once nothing refers to it: neither a capsule nor librdkafka, whose reference lasts until its
 * main thread has ended, the last of those that call interceptors. (A task of Spark builds two clients
 * a range, several ranges a second, in one process: without that they were 100 MB a day.)
 *
 * A process that was forked has none of librdkafka's threads, and perhaps a lock that is held for
 * ever: there a client of the parent is refused, and what is open in it is left to the parent.
 *
 * What is open in it makes rd_kafka_destroy wait for ever, so all of it is known here and released
 * when the client ends: the queue, the records that were taken, the topic handles.
 */
typedef struct client {
  rd_kafka_t *rk; /* NULL once the client has ended */
  pid_t pid;      /* of the process that built it */
  int references; /* by librdkafka and capsules; changed by client_hold and client_drop only */
  pthread_mutex_t lock;
  rd_kafka_queue_t *queue; /* where routed partitions deliver; NULL: none was made */
  struct records *taken;   /* those that hold messages */
  rd_kafka_topic_t *topics[TOPICS_MAX];
  int topic_count;
  requests_t requests; /* brokers' threads write to it after on_destroy, too */
  pthread_mutex_t failed_lock; /* held for a few instructions, by brokers' threads as well */
  rd_kafka_resp_err_t failed[FAILURES_KEPT]; /* codes of messages that were not delivered, each once */
  int failed_count;
} client_t;

/* The client behind what `captured()` returned; NULL and an exception for anything else. */
client_t *client_of(PyObject *capsule);

/* The same; an exception also when the client has ended. */
client_t *living_client(PyObject *capsule);

/* Whether a fork has copied it into a process that cannot use it. */
static inline int client_is_foreign(const client_t *client) { return client->pid != getpid(); }

/* A handle for the topic, kept until the client ends; NULL when there are too many. No GIL needed. */
rd_kafka_topic_t *client_topic(client_t *client, const char *name);

/* Releases all that keeps the client from ending. No GIL needed; may be called twice. */
void client_release(client_t *client);

PyObject *py_captured(PyObject *module, PyObject *ignored);
PyObject *py_clients(PyObject *module, PyObject *ignored);
PyObject *py_release(PyObject *module, PyObject *capsule);

#endif
