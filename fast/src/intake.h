/* Where routed partitions of a consumer arrive. */
#ifndef HAPAX_INTAKE_H
#define HAPAX_INTAKE_H
#include "records.h"
extern PyTypeObject Intake_Type;
#endif
