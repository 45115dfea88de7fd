/* Four broker threads send, lose and get answers while two readers read: for the sanitizers. */
#include <stdio.h>
#include <stdlib.h>

#include "requests.h"

#define BROKERS 4
#define READERS 2
#define ROUNDS 5000

static requests_t requests;
static int running = 1;

static void *broker(void *name) {
  static const int16_t APIS_SENT[] = {0, 22, 24, 25, 26, 28, 3};
  for (int i = 0; i < ROUNDS; i++) {
    int16_t api = APIS_SENT[i % 6];
    requests_sent(NULL, 1, name, 1, api, 1, i, 10, &requests);
    requests_sent(NULL, 1, name, 1, APIS_SENT[6], 1, i, 10, &requests);
    requests_sent(NULL, 1, name, 1, api, 1, i, 10, &requests);
    requests_received(NULL, -1, name, 1, api, 1, 0, 10, 1, 0, &requests);
    if (i % 2) {
      requests_received(NULL, -1, name, 1, api, 1, 0, 0, -1, -185, &requests);
    } else {
      requests_state(NULL, 1, "plaintext", "host", 1, "DOWN", &requests);
      requests_received(NULL, -1, name, 1, api, 1, 0, 0, -1, -195, &requests);
    }
  }
  return NULL;
}

static void *reader(void *ignored) {
  doubt_t doubt;
  api_t api;
  while (__atomic_load_n(&running, __ATOMIC_ACQUIRE)) {
    while (requests_next(&requests, &doubt))
      if (!*requests_api_name(doubt.api) || !*requests_loss_name(doubt.loss)) abort();
    requests_in_flight(&requests, &api);
    requests_downs(&requests);
  }
  return ignored;
}

int main(void) {
  pthread_t brokers[BROKERS], readers[READERS];
  api_t api;
  requests_init(&requests);
  for (int i = 0; i < READERS; i++) pthread_create(&readers[i], NULL, reader, NULL);
  for (int i = 0; i < BROKERS; i++) pthread_create(&brokers[i], NULL, broker, "TxnCoordinator");
  for (int i = 0; i < BROKERS; i++) pthread_join(brokers[i], NULL);
  __atomic_store_n(&running, 0, __ATOMIC_RELEASE);
  for (int i = 0; i < READERS; i++) pthread_join(readers[i], NULL);
  if (requests_in_flight(&requests, &api)) return 1;
  if (requests_downs(&requests) != BROKERS * ROUNDS / 2) return 2;
  printf("sent %d, lost %d, answered %d\n", 2 * BROKERS * ROUNDS, (int)requests.doubts, BROKERS * ROUNDS);
  return 0;
}
