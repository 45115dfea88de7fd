/* Transactional requests that were sent and never answered, as librdkafka's interceptors report them.
 *
 * Brokers take a late request of one transaction inside the next (KAFKA-17754), so a request that may
 * still arrive costs the producer. What may still arrive: a request that was written to a connection
 * and has no answer, because the connection is gone, because its time was up, or not yet.
 *
 * How librdkafka 2.16 calls its interceptors, as read in its source and seen in our tests:
 *
 * - on_request_sent: on the broker's own thread, when the last byte has been written. Requests that
 *   wait in a queue, or were written in part, do not come here, and cannot be executed.
 * - on_response_received: on the same thread, for answers and for whatever else ends a request. Then
 *   once more on the main thread for requests whose answers are handled there (all but Produce). The
 *   number of the request is always 0, and the error of one that was purged from a queue can be that
 *   of one that was sent. So neither the number nor the error tells what was sent: a count does, by
 *   thread and API, and the second report is known by its thread, which sends nothing.
 * - on_broker_state_change: on the same thread, with "DOWN" before the requests of the connection are
 *   given up. What is counted as sent at that time will never be answered.
 * - on_destroy comes before the threads of the brokers end, so calls can come after it. What they
 *   write to has to live on.
 *
 * A request that ends in a way that is not known here stays counted as in flight. That is a doubt at
 * the end of each transaction from then on: a false alarm at worst, never a missed one.
 */
#ifndef HAPAX_REQUESTS_H
#define HAPAX_REQUESTS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "librdkafka.h"

/* The requests that count: those that change a transaction on the broker. InitProducerId is among
 * them because librdkafka also sends it inside abort_transaction, to get a new epoch. */
typedef enum { PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, OFFSET_COMMIT, APIS } api_t;

typedef enum { CONNECTION_LOST, TIME_IS_UP, GIVEN_UP } loss_t;

#define BROKER_NAME_MAX 64
#define DOUBTS_KEPT 8

typedef struct doubt {
  api_t api;
  loss_t loss;
  char broker[BROKER_NAME_MAX]; /* as librdkafka names it, cut to fit */
} doubt_t;

/* Of one client. All of it is guarded by `lock`, which is held for a few instructions. */
typedef struct requests {
  pthread_mutex_t lock;
  int32_t in_flight[APIS];
  uint64_t doubts; /* all there ever were */
  uint64_t read;   /* of these, those that requests_next has passed */
  uint64_t downs;  /* how often a connection, or an attempt at one, has ended */
  doubt_t kept[DOUBTS_KEPT]; /* the youngest; doubt n is at n % DOUBTS_KEPT */
} requests_t;

void requests_init(requests_t *requests);

/* The interceptors; `opaque` is a requests_t. Called on librdkafka's threads. They take no GIL and
 * call nothing of librdkafka. */
rd_kafka_resp_err_t requests_sent(rd_kafka_t *rk, int socket, const char *broker, int32_t broker_id, int16_t api_key,
                                  int16_t api_version, int32_t number, size_t size, void *opaque);
rd_kafka_resp_err_t requests_received(rd_kafka_t *rk, int socket, const char *broker, int32_t broker_id,
                                      int16_t api_key, int16_t api_version, int32_t number, size_t size, int64_t rtt,
                                      rd_kafka_resp_err_t error, void *opaque);
rd_kafka_resp_err_t requests_state(rd_kafka_t *rk, int32_t broker_id, const char *protocol, const char *name, int port,
                                   const char *state, void *opaque);

/* Copies the oldest doubt that was not read yet; 0 when there is none. Of more than DOUBTS_KEPT the
 * oldest are passed over: one is as good as ten. */
int requests_next(requests_t *requests, doubt_t *doubt);

/* Returns how many are sent and have no answer yet, and sets `api` to that of one of them. */
int32_t requests_in_flight(requests_t *requests, api_t *api);

/* Returns how often a connection, or an attempt at one, has ended since the client was made. */
uint64_t requests_downs(requests_t *requests);

const char *requests_api_name(api_t api);
const char *requests_loss_name(loss_t loss);

#endif
