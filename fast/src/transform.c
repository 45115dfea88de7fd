/* Step 4 and the count of its results: business code on the records of one take.
 *
 * The reference is processing/transform.py. The rule is one plain Output a record; every other answer, and
 * every error, is judged there by the same Python as without this file.
 */
#include "records.h"

#include <structmember.h>

static PyObject *name_due, *name_record, *name_bytes, *name_bytes_max;

static PyObject *raised(void) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyErr_GetRaisedException();
#else
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace) PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return value;
#endif
}

static int is_rule(PyObject *answer) {
  return (PyObject *)Py_TYPE(answer) == types.output && is_plain(answer) && FIELD(answer, types.key) == types.unset &&
         FIELD(answer, types.timestamp_ms) == Py_None && FIELD(answer, types.partition) == Py_None;
}

/* The result for one record; NULL with what the judge has raised. */
static PyObject *result_of(PyObject *function, PyObject *judge, PyObject *record) {
  PyObject *answer = PyObject_CallOneArg(function, record), *error = NULL, *result;
  if (answer && is_rule(answer)) return answer;
  if (answer == Py_None) {
    Py_DECREF(answer);
    Py_INCREF(types.empty);
    return types.empty;
  }
  if (!answer) error = raised();
  result = PyObject_CallFunctionObjArgs(judge, record, answer ? answer : Py_None, error ? error : Py_None, NULL);
  Py_XDECREF(answer);
  Py_XDECREF(error);
  return result;
}

/* A number that the interrupt has; -1 with an exception. */
static Py_ssize_t number_of(PyObject *interrupt, PyObject *name) {
  PyObject *number = PyObject_GetAttr(interrupt, name);
  Py_ssize_t is = number ? PyLong_AsSsize_t(number) : -1;
  Py_XDECREF(number);
  return is;
}

static int set_bytes(PyObject *interrupt, Py_ssize_t size) {
  PyObject *number = PyLong_FromSsize_t(size);
  int failed = !number || PyObject_SetAttr(interrupt, name_bytes, number);
  Py_XDECREF(number);
  return failed;
}

/* Adds the bytes of a result: here where it is the rule, else the judge has. -1 with an exception. */
static int weigh(PyObject *interrupt, PyObject *result, Py_ssize_t *plain, Py_ssize_t *judged) {
  if ((PyObject *)Py_TYPE(result) == types.output) {
    PyObject *value = FIELD(result, types.value);
    if (value != Py_None) *plain += PyBytes_GET_SIZE(value);
  } else if (PyTuple_Check(result) && PyTuple_GET_SIZE(result)) {
    *judged = number_of(interrupt, name_bytes);
  }
  return *judged < 0 ? -1 : 0;
}

/* Whether the interrupt is due; -1 with an exception. */
static int is_due(PyObject *interrupt) {
  PyObject *due = PyObject_GetAttr(interrupt, name_due);
  if (!due) return -1;
  int is = due == Py_True ? 1 : due == Py_False ? 0 : PyObject_IsTrue(due);
  Py_DECREF(due);
  return is;
}

/* Gives a new record the id that business code may ask for (Record.id). Takes it over on failure. */
static int name_event(PyObject *record, const entry_t *entry) {
  if (!entry->id_len) return 0;
  PyObject *id = bytes_or_none(entry->id, entry->id_len), *none = FIELD(record, types.event_id);
  if (!id) {
    Py_DECREF(record);
    return -1;
  }
  FIELD(record, types.event_id) = id;
  Py_XDECREF(none);
  return 0;
}

static int one(records_t *records, Py_ssize_t index, PyObject *const *with, PyObject *results) {
  PyObject *function = with[0], *judge = with[1], *interrupt = with[2], *record, *result;
  if (!is_whole(records)) return -1;
  if (function == Py_None) return PyList_Append(results, types.unchanged);
  if (!(record = record_at(records, index)) || name_event(record, &records->entries[index])) return -1;
  result = PyObject_SetAttr(interrupt, name_record, record) ? NULL : result_of(function, judge, record);
  Py_DECREF(record);
  if (!result) return -1;
  int failed = PyList_Append(results, result);
  Py_DECREF(result);
  return failed;
}

/* apply(function or None, judge, interrupt, preset): results by index, of all or of a prefix.
 * None passes every record on unchanged. Records in `preset` have their result there. */
PyObject *records_apply(records_t *records, PyObject *args) {
  PyObject *with[3], *preset, *results = PyList_New(0);
  if (!results) return NULL;
  if (!PyArg_ParseTuple(args, "OOOO!", &with[0], &with[1], &with[2], &PyDict_Type, &preset)) goto failed;
  int any = PyDict_GET_SIZE(preset) > 0, called = 0, due;
  Py_ssize_t plain = 0, judged = number_of(with[2], name_bytes), most = number_of(with[2], name_bytes_max);
  if (judged < 0 || most < 0) goto failed;
  for (Py_ssize_t i = 0; i < records->count; i++) {
    if (any) {
      PyObject *index = PyLong_FromSsize_t(i);
      PyObject *known = index ? PyDict_GetItemWithError(preset, index) : NULL;
      Py_XDECREF(index);
      if (known) {
        if (PyList_Append(results, known)) goto failed;
        continue;
      }
      if (PyErr_Occurred()) goto failed;
    }
    if (called && (due = plain + judged > most ? 1 : is_due(with[2]))) {
      if (due < 0) goto failed;
      break;
    }
    if (one(records, i, with, results)) goto failed;
    if (weigh(with[2], PyList_GET_ITEM(results, i), &plain, &judged)) goto failed;
    called = 1;
  }
  if (PyObject_SetAttr(with[2], name_record, Py_None)) goto failed;
  if (set_bytes(with[2], plain + judged)) goto failed;
  return results;
failed:
  Py_DECREF(results);
  return NULL;
}

/* tally(results): (outputs, filtered, duplicates); None when a result is not the rule. */
PyObject *records_tally(records_t *records, PyObject *results) {
  if (!is_held(records)) return NULL;
  if (!PyList_Check(results)) return PyErr_Format(PyExc_TypeError, "results are a list");
  Py_ssize_t outputs = 0, filtered = 0, duplicates = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(results); i++) {
    PyObject *result = PyList_GET_ITEM(results, i);
    if (result == Py_None) {
      duplicates++;
    } else if (result == types.unchanged || (PyObject *)Py_TYPE(result) == types.output) {
      outputs++;
    } else if (PyTuple_Check(result) && !PyTuple_GET_SIZE(result)) {
      filtered++;
    } else if (PyTuple_Check(result) && PyTuple_GET_SIZE(result) == 1 &&
               (PyObject *)Py_TYPE(PyTuple_GET_ITEM(result, 0)) == types.output &&
               is_plain(PyTuple_GET_ITEM(result, 0))) {
      outputs++;
    } else {
      Py_RETURN_NONE;
    }
  }
  return Py_BuildValue("(nnn)", outputs, filtered, duplicates);
}

static Py_ssize_t slot_of(PyObject *type, const char *field) {
  PyObject *descriptor = PyObject_GetAttrString(type, field);
  if (!descriptor) return -1;
  Py_ssize_t at = -1;
  if (Py_TYPE(descriptor) == &PyMemberDescr_Type)
    at = ((PyMemberDescrObject *)descriptor)->d_member->offset;
  else
    PyErr_Format(PyExc_TypeError, "field %s is no slot", field);
  Py_DECREF(descriptor);
  return at;
}

/* setup(Record, Output, UNSET, UNCHANGED): the types to make and to read; once a process. */
PyObject *py_setup(PyObject *module, PyObject *args) {
  (void)module;
  if (!PyArg_ParseTuple(args, "OOOO", &types.record, &types.output, &types.unset, &types.unchanged)) return NULL;
  Py_INCREF(types.record), Py_INCREF(types.output), Py_INCREF(types.unset), Py_INCREF(types.unchanged);
  types.empty = PyTuple_New(0);
  name_due = PyUnicode_InternFromString("due");
  name_record = PyUnicode_InternFromString("record");
  name_bytes = PyUnicode_InternFromString("bytes");
  name_bytes_max = PyUnicode_InternFromString("bytes_max");
  struct {
    const char *field;
    Py_ssize_t *at;
  } slots[] = {{"value", &types.value},     {"key", &types.key},
               {"topic", &types.topic},     {"headers", &types.headers},
               {"timestamp_ms", &types.timestamp_ms}, {"partition", &types.partition}};
  for (int i = 0; i < 6; i++)
    if ((*slots[i].at = slot_of(types.output, slots[i].field)) < 0) return NULL;
  if ((types.event_id = slot_of(types.record, "event_id")) < 0) return NULL;
  Py_RETURN_NONE;
}
