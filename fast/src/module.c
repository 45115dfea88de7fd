/* hapax_fast: the record path of Hapax without a Python object for each step.
 *
 *   client.c     the plugin of librdkafka: which client a capsule stands for, and its end
 *   intake.c     partitions routed to a queue of ours, and taking from it
 *   records.c    what was taken: a sequence of Record
 *   ids.c        ids and the digests of claims; blake2b.c
 *   transform.c  business code on the records
 *   outlet.c     outputs to the producer
 *   requests.c   requests that were sent and never answered; doubts.c: what Python reads of them
 *   deliveries.c messages that were not delivered, for producers without transactions
 *
 * What each does is said by the Python it stands for (core/, kafka/), which is its reference: tests
 * compare both, and what is not the rule goes through the Python.
 */
#include "deliveries.h"
#include "doubts.h"
#include "intake.h"
#include "outlet.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "only little-endian machines were tested; without hapax_fast everything works as well"
#endif

static PyObject *py_held(PyObject *module, PyObject *ignored) {
  (void)module, (void)ignored;
  return PyLong_FromSsize_t(__atomic_load_n(&records_held, __ATOMIC_RELAXED));
}

static PyMethodDef functions[] = {
    {"captured", py_captured, METH_NOARGS, "the client that this thread has just built with this plugin"},
    {"clients", py_clients, METH_NOARGS, "how many clients are not freed yet, ended ones among them"},
    {"release", py_release, METH_O, "release(client): all that keeps it from ending; may be called twice"},
    {"setup", py_setup, METH_VARARGS, "setup(Record, Output, UNSET, UNCHANGED): once a process"},
    {"digest", py_digest, METH_VARARGS, "digest(salt, id): for known answers"},
    {"send", py_send, METH_VARARGS, "send(client, topic, records, results, start): (where it stands, error code)"},
    {"preview", py_preview, METH_VARARGS, "preview(records, results, index): what send would send"},
    {"requests_lost", py_requests_lost, METH_O, "requests_lost(client): sent, and never to be answered; each once"},
    {"requests_unanswered", py_requests_unanswered, METH_O, "requests_unanswered(client): sent, and not answered yet"},
    {"requests_disconnects", py_requests_disconnects, METH_O, "requests_disconnects(client): how many since its start"},
    {"failures", py_failures, METH_O, "failures(client): codes of messages that were not delivered, each once"},
    {"held", py_held, METH_NOARGS, "how many Records hold messages: for tests of leaks"},
    {0}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", "The record path in C.", -1, functions, 0, 0,
                                        0, 0};

PyMODINIT_FUNC PyInit__native(void) {
  struct {
    const char *name;
    PyTypeObject *type;
  } made[] = {{"Intake", &Intake_Type}, {"Records", &Records_Type}, {"Ids", &Ids_Type}};
  PyObject *module = PyModule_Create(&definition);
  for (int i = 0; module && i < 3; i++)
    if (PyType_Ready(made[i].type) || PyModule_AddObjectRef(module, made[i].name, (PyObject *)made[i].type))
      Py_CLEAR(module);
  return module;
}
