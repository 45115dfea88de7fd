/* See requests.h for what is counted and why by thread. */
#include "requests.h"

#include <string.h>

#define RD_KAFKA_RESP_ERR__TIMED_OUT (-185)
#define RD_KAFKA_RESP_ERR__PURGE_INFLIGHT (-151)

static const char *const API_NAMES[APIS] = {"Produce",         "InitProducerId", "AddPartitionsToTxn",
                                            "AddOffsetsToTxn", "EndTxn",         "TxnOffsetCommit"};
static const char *const LOSS_NAMES[] = {"the connection was lost", "its time was up", "it was given up"};

/* What the thread of one broker's connection has sent. A thread serves one connection of one client
 * for all its life. */
typedef struct lane {
  requests_t *of; /* NULL: this thread has sent nothing that counts */
  int32_t in_flight[APIS];
  char broker[BROKER_NAME_MAX];
} lane_t;

static __thread lane_t lane;

/* The numbers are those of the protocol; APIS for all that does not count. */
static api_t api_of(int16_t api_key) {
  switch (api_key) {
    case 0:
      return PRODUCE;
    case 22:
      return INIT_PRODUCER_ID;
    case 24:
      return ADD_PARTITIONS;
    case 25:
      return ADD_OFFSETS;
    case 26:
      return END_TXN;
    case 28:
      return OFFSET_COMMIT;
    default:
      return APIS;
  }
}

static void copy_name(char to[BROKER_NAME_MAX], const char *name) {
  size_t length = name ? strlen(name) : 0;
  if (length >= BROKER_NAME_MAX) length = BROKER_NAME_MAX - 1;
  if (length) memcpy(to, name, length);
  to[length] = '\0';
}

/* Takes one request of this thread from those in flight. The lock is held. */
static void settle(requests_t *requests, api_t api) {
  lane.in_flight[api]--;
  requests->in_flight[api]--;
}

/* Settles one request of this thread as lost. The lock is held. */
static void lose(requests_t *requests, api_t api, loss_t loss) {
  doubt_t *doubt = &requests->kept[requests->doubts++ % DOUBTS_KEPT];
  doubt->api = api;
  doubt->loss = loss;
  memcpy(doubt->broker, lane.broker, sizeof doubt->broker);
  settle(requests, api);
}

void requests_init(requests_t *requests) {
  memset(requests, 0, sizeof *requests);
  pthread_mutex_init(&requests->lock, NULL);
}

rd_kafka_resp_err_t requests_sent(rd_kafka_t *rk, int socket, const char *broker, int32_t broker_id, int16_t api_key,
                                  int16_t api_version, int32_t number, size_t size, void *opaque) {
  (void)rk, (void)socket, (void)broker_id, (void)api_version, (void)number, (void)size;
  requests_t *requests = opaque;
  api_t api = api_of(api_key);
  if (api == APIS) return RD_KAFKA_RESP_ERR_NO_ERROR;
  if (lane.of != requests) {
    memset(&lane, 0, sizeof lane);
    lane.of = requests;
  }
  copy_name(lane.broker, broker); /* that of the coordinator's connection names a broker only later */
  pthread_mutex_lock(&requests->lock);
  lane.in_flight[api]++;
  requests->in_flight[api]++;
  pthread_mutex_unlock(&requests->lock);
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

rd_kafka_resp_err_t requests_received(rd_kafka_t *rk, int socket, const char *broker, int32_t broker_id,
                                      int16_t api_key, int16_t api_version, int32_t number, size_t size, int64_t rtt,
                                      rd_kafka_resp_err_t error, void *opaque) {
  (void)rk, (void)socket, (void)broker, (void)broker_id, (void)api_version, (void)number, (void)size, (void)rtt;
  requests_t *requests = opaque;
  api_t api = api_of(api_key);
  /* Another thread: the second report. None in flight: it was never sent, or is lost already. */
  if (api == APIS || lane.of != requests || lane.in_flight[api] == 0) return RD_KAFKA_RESP_ERR_NO_ERROR;
  pthread_mutex_lock(&requests->lock);
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
    settle(requests, api);
  else if (error == RD_KAFKA_RESP_ERR__TIMED_OUT)
    lose(requests, api, TIME_IS_UP);
  else if (error == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT)
    lose(requests, api, GIVEN_UP);
  /* Any other error is that of a request that still waited in a queue, or of an answer that cannot be
   * read, after which the connection is closed. */
  pthread_mutex_unlock(&requests->lock);
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

rd_kafka_resp_err_t requests_state(rd_kafka_t *rk, int32_t broker_id, const char *protocol, const char *name, int port,
                                   const char *state, void *opaque) {
  (void)rk, (void)broker_id, (void)protocol, (void)name, (void)port;
  requests_t *requests = opaque;
  if (!state || strcmp(state, "DOWN")) return RD_KAFKA_RESP_ERR_NO_ERROR;
  pthread_mutex_lock(&requests->lock);
  requests->downs++;
  if (lane.of == requests)
    for (api_t api = 0; api < APIS; api++)
      while (lane.in_flight[api] > 0) lose(requests, api, CONNECTION_LOST);
  pthread_mutex_unlock(&requests->lock);
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

int requests_next(requests_t *requests, doubt_t *doubt) {
  pthread_mutex_lock(&requests->lock);
  if (requests->doubts - requests->read > DOUBTS_KEPT) requests->read = requests->doubts - DOUBTS_KEPT;
  int found = requests->read < requests->doubts;
  if (found) *doubt = requests->kept[requests->read++ % DOUBTS_KEPT];
  pthread_mutex_unlock(&requests->lock);
  return found;
}

int32_t requests_in_flight(requests_t *requests, api_t *api) {
  int32_t count = 0;
  pthread_mutex_lock(&requests->lock);
  for (api_t each = 0; each < APIS; each++)
    if (requests->in_flight[each] > 0) {
      count += requests->in_flight[each];
      *api = each;
    }
  pthread_mutex_unlock(&requests->lock);
  return count;
}

uint64_t requests_downs(requests_t *requests) {
  pthread_mutex_lock(&requests->lock);
  uint64_t downs = requests->downs;
  pthread_mutex_unlock(&requests->lock);
  return downs;
}

const char *requests_api_name(api_t api) { return API_NAMES[api]; }

const char *requests_loss_name(loss_t loss) { return LOSS_NAMES[loss]; }
