/* Messages that were not delivered, as librdkafka gives them up.
 *
 * Without a transaction nothing else tells: flush only says that none is on its way any more, and a
 * delivery report for each message costs as much as sending it. librdkafka passes each message to
 * on_acknowledgement before it counts as done, so once flush has returned all failures are known.
 */
#ifndef HAPAX_DELIVERIES_H
#define HAPAX_DELIVERIES_H

#include "client.h"

/* The interceptor; `opaque` is a client_t. On a broker's thread, or on the one that purges. */
rd_kafka_resp_err_t deliveries_acknowledged(rd_kafka_t *rk, rd_kafka_message_t *message, void *opaque);

/* Takes what captured() returned; codes since the last call, each once: list[int]. */
PyObject *py_failures(PyObject *module, PyObject *capsule);

#endif
