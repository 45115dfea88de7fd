/* What Python reads of a client's transactional requests. Works after the client's end, too. */
#include "doubts.h"

#include "requests.h"

PyObject *py_requests_lost(PyObject *module, PyObject *capsule) {
  (void)module;
  client_t *client = client_of(capsule);
  if (!client) return NULL;
  PyObject *lost = PyList_New(0);
  doubt_t doubt;
  while (lost && requests_next(&client->requests, &doubt)) {
    PyObject *broker = PyUnicode_DecodeUTF8(doubt.broker, (Py_ssize_t)strlen(doubt.broker), "replace");
    PyObject *text = broker ? PyUnicode_FromFormat("%s to %U: sent, and %s before an answer",
                                                   requests_api_name(doubt.api), broker, requests_loss_name(doubt.loss))
                            : NULL;
    Py_XDECREF(broker);
    if (!text || PyList_Append(lost, text)) Py_CLEAR(lost);
    Py_XDECREF(text);
  }
  return lost;
}

PyObject *py_requests_unanswered(PyObject *module, PyObject *capsule) {
  (void)module;
  client_t *client = client_of(capsule);
  if (!client) return NULL;
  api_t api;
  int32_t count = requests_in_flight(&client->requests, &api);
  if (!count) return PyList_New(0);
  return Py_BuildValue("[N]", PyUnicode_FromFormat("%s: sent, and not answered (%d such requests)",
                                                   requests_api_name(api), (int)count));
}

PyObject *py_requests_disconnects(PyObject *module, PyObject *capsule) {
  (void)module;
  client_t *client = client_of(capsule);
  return client ? PyLong_FromUnsignedLongLong(requests_downs(&client->requests)) : NULL;
}
