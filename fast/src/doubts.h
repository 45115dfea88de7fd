/* What Python reads of a client's transactional requests (requests.h). */
#ifndef HAPAX_DOUBTS_H
#define HAPAX_DOUBTS_H

#include "client.h"

/* Each takes what captured() returned. */
PyObject *py_requests_lost(PyObject *module, PyObject *capsule);        /* -> list[str], each once */
PyObject *py_requests_unanswered(PyObject *module, PyObject *capsule);  /* -> list[str] */
PyObject *py_requests_disconnects(PyObject *module, PyObject *capsule); /* -> int */

#endif
