/* See deliveries.h for why they are counted. */
#include "deliveries.h"

rd_kafka_resp_err_t deliveries_acknowledged(rd_kafka_t *rk, rd_kafka_message_t *message, void *opaque) {
  (void)rk;
  client_t *client = opaque;
  if (!message->err) return RD_KAFKA_RESP_ERR_NO_ERROR;
  pthread_mutex_lock(&client->failed_lock);
  int known = 0;
  for (int i = 0; i < client->failed_count; i++) known |= client->failed[i] == message->err;
  if (!known && client->failed_count < FAILURES_KEPT) client->failed[client->failed_count++] = message->err;
  pthread_mutex_unlock(&client->failed_lock);
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

PyObject *py_failures(PyObject *module, PyObject *capsule) {
  (void)module;
  client_t *client = client_of(capsule);
  if (!client) return NULL;
  pthread_mutex_lock(&client->failed_lock);
  int count = client->failed_count;
  rd_kafka_resp_err_t failed[FAILURES_KEPT];
  for (int i = 0; i < count; i++) failed[i] = client->failed[i];
  client->failed_count = 0;
  pthread_mutex_unlock(&client->failed_lock);
  PyObject *codes = PyList_New(count);
  for (int i = 0; codes && i < count; i++) {
    PyObject *code = PyLong_FromLong(failed[i]);
    if (!code) Py_CLEAR(codes);
    else PyList_SET_ITEM(codes, i, code);
  }
  return codes;
}
