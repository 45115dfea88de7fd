/* Outputs of taken records, to a producer. */
#ifndef HAPAX_OUTLET_H
#define HAPAX_OUTLET_H
#include "records.h"
PyObject *py_send(PyObject *module, PyObject *args);
PyObject *py_preview(PyObject *module, PyObject *args);
#endif
