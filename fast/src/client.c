/* The plugin: librdkafka loads this file by `plugin.library.paths` and calls conf_init.
 *
 * confluent-kafka does not give its handles away. librdkafka does: an interceptor that is added to
 * the configuration learns of the client that is made of it, on the thread that makes it. So
 * `captured()`, called right after a client was built, returns that very client.
 */
#define _GNU_SOURCE
#include "client.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deliveries.h"
#include "records.h"

#define HAPAX_DEFINE(name, result, arguments) result(*p_##name) arguments;
LIBRDKAFKA_FUNCTIONS(HAPAX_DEFINE)
#undef HAPAX_DEFINE

#define CAPSULE "hapax_fast.client"
#define INTERCEPTOR "hapax"

static void *bound; /* the library whose functions are bound */
static __thread client_t *captured; /* holds a reference */
static pthread_key_t ended; /* of a client's main thread: the client, dropped when the thread has ended */

static int clients; /* that are not freed yet */

static void client_hold(client_t *client) { __atomic_add_fetch(&client->references, 1, __ATOMIC_RELAXED); }

static void client_drop(void *held) {
  client_t *client = held;
  if (!client || __atomic_sub_fetch(&client->references, 1, __ATOMIC_ACQ_REL)) return;
  pthread_mutex_destroy(&client->lock);
  pthread_mutex_destroy(&client->failed_lock);
  free(client);
  __atomic_sub_fetch(&clients, 1, __ATOMIC_RELEASE);
}

/* Binds the functions of the library that contains `caller`. Returns what is wrong, or NULL. */
static const char *bind_library(void *caller) {
  Dl_info info;
  void *library;
  if (!dladdr(caller, &info) || !(library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD)))
    return "hapax_fast: librdkafka cannot be found in this process";
  if (bound) return bound == library ? NULL : "hapax_fast: a second librdkafka is in this process";
#define HAPAX_BIND(name, result, arguments)                                                              \
  if (!(p_##name = (__typeof__(p_##name))dlsym(library, #name))) return "hapax_fast: librdkafka lacks " #name;
  LIBRDKAFKA_FUNCTIONS(HAPAX_BIND)
#undef HAPAX_BIND
  if (pthread_key_create(&ended, client_drop)) return "hapax_fast: no key for a value of threads is left";
  bound = library;
  return NULL;
}

/* On the client's main thread, while those of its brokers still run: it ends after them. A client that
 * could not be built is ended on the thread that tried to, and perhaps reported twice. */
static rd_kafka_resp_err_t on_destroy(rd_kafka_t *rk, void *opaque) {
  (void)rk;
  client_t *client = opaque;
  if (!client->rk) return RD_KAFKA_RESP_ERR_NO_ERROR;
  client_release(client);
  client->rk = NULL;
  if (captured == client) {
    captured = NULL;
    client_drop(client);
  }
  client_t *former = pthread_getspecific(ended); /* built in vain by this thread, long over */
  if (pthread_setspecific(ended, client)) return RD_KAFKA_RESP_ERR_NO_ERROR; /* never freed, then */
  client_drop(former);
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* With a transaction its end tells; a call for each message would be wasted. */
static int needs_failures(const rd_kafka_conf_t *conf) {
  size_t size = 0;
  return p_rd_kafka_conf_get(conf, "transactional.id", NULL, &size) || size <= 1;
}

/* That a partition is no longer in its topic comes between its records, as an error for a callback. That of
 * confluent-kafka aborts the process outside of a call of its own; the client's log says the same. */
__thread int intake_takes;
static error_cb_f report_error;

static void on_error(rd_kafka_t *rk, int error, const char *reason, void *opaque) {
  if (!intake_takes) report_error(rk, error, reason, opaque);
}

static void guard_errors(rd_kafka_conf_t *conf) {
  char place[32];
  size_t size = sizeof place;
  void *found = NULL;
  if (p_rd_kafka_conf_get(conf, "error_cb", place, &size) || sscanf(place, "%p", &found) != 1 || !found) return;
  report_error = (error_cb_f)found; /* one function for all clients */
  p_rd_kafka_conf_set_error_cb(conf, on_error);
}

static rd_kafka_resp_err_t on_new(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *opaque, char *text, size_t size) {
  (void)opaque, (void)text, (void)size;
  client_drop(captured); /* one that was built before is not this one, even if this fails */
  captured = NULL;
  client_t *client = calloc(1, sizeof *client);
  if (!client) return RD_KAFKA_RESP_ERR__FAIL;
  client->rk = rk;
  client->pid = getpid();
  __atomic_add_fetch(&clients, 1, __ATOMIC_RELAXED);
  client->references = 1; /* librdkafka's */
  pthread_mutex_init(&client->lock, NULL);
  pthread_mutex_init(&client->failed_lock, NULL);
  requests_init(&client->requests);
  if (needs_failures(conf) &&
      p_rd_kafka_interceptor_add_on_acknowledgement(rk, INTERCEPTOR, deliveries_acknowledged, client))
    return RD_KAFKA_RESP_ERR__FAIL;
  if (p_rd_kafka_interceptor_add_on_destroy(rk, INTERCEPTOR, on_destroy, client) ||
      p_rd_kafka_interceptor_add_on_request_sent(rk, INTERCEPTOR, requests_sent, &client->requests) ||
      p_rd_kafka_interceptor_add_on_response_received(rk, INTERCEPTOR, requests_received, &client->requests) ||
      p_rd_kafka_interceptor_add_on_broker_state_change(rk, INTERCEPTOR, requests_state, &client->requests))
    return RD_KAFKA_RESP_ERR__FAIL;
  client_hold(captured = client);
  guard_errors((rd_kafka_conf_t *)conf); /* the client's own: there is no call for it once one is made */
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* What librdkafka calls for each configuration that names this file. */
__attribute__((visibility("default"))) rd_kafka_resp_err_t conf_init(rd_kafka_conf_t *conf, void **opaque, char *text,
                                                                     size_t size) {
  (void)opaque;
  const char *problem = bind_library(__builtin_return_address(0));
  if (problem) {
    snprintf(text, size, "%s", problem);
    return RD_KAFKA_RESP_ERR__FAIL;
  }
  return p_rd_kafka_conf_interceptor_add_on_new(conf, INTERCEPTOR, on_new, NULL);
}

void client_release(client_t *client) {
  pthread_mutex_lock(&client->lock);
  while (client->taken) records_release(client->taken); /* takes itself off the list */
  if (client->queue) p_rd_kafka_queue_destroy(client->queue);
  client->queue = NULL;
  for (int i = 0; i < client->topic_count; i++) p_rd_kafka_topic_destroy(client->topics[i]);
  client->topic_count = 0;
  pthread_mutex_unlock(&client->lock);
}

rd_kafka_topic_t *client_topic(client_t *client, const char *name) {
  for (int i = 0; i < client->topic_count; i++)
    if (!strcmp(p_rd_kafka_topic_name(client->topics[i]), name)) return client->topics[i];
  if (client->topic_count == TOPICS_MAX) return NULL;
  rd_kafka_topic_t *topic = p_rd_kafka_topic_new(client->rk, name, NULL);
  if (topic) client->topics[client->topic_count++] = topic;
  return topic;
}

client_t *client_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, CAPSULE); }

client_t *living_client(PyObject *capsule) {
  client_t *client = client_of(capsule);
  const char *problem = !client                      ? NULL
                        : client_is_foreign(client)  ? "the client is of the process that was forked"
                        : !client->rk                ? "the client has ended"
                                                     : NULL;
  if (problem) PyErr_SetString(PyExc_RuntimeError, problem);
  return problem ? NULL : client;
}

static void capsule_end(PyObject *capsule) { client_drop(PyCapsule_GetPointer(capsule, CAPSULE)); }

PyObject *py_captured(PyObject *module, PyObject *ignored) {
  (void)module, (void)ignored;
  client_t *client = captured;
  captured = NULL;
  if (!client) {
    PyErr_SetString(PyExc_RuntimeError, "this thread has built no client with this plugin");
    return NULL;
  }
  PyObject *capsule = PyCapsule_New(client, CAPSULE, capsule_end); /* has the reference from now on */
  if (!capsule) client_drop(client);
  return capsule;
}

PyObject *py_clients(PyObject *module, PyObject *ignored) {
  (void)module, (void)ignored;
  return PyLong_FromLong(__atomic_load_n(&clients, __ATOMIC_ACQUIRE));
}

PyObject *py_release(PyObject *module, PyObject *capsule) {
  (void)module;
  client_t *client = client_of(capsule);
  if (!client) return NULL;
  if (client->rk && !client_is_foreign(client)) {
    Py_BEGIN_ALLOW_THREADS;
    client_release(client);
    Py_END_ALLOW_THREADS;
  }
  Py_RETURN_NONE;
}
