/* OVS's own printing, which drcompile has to read: OVS's headers are not C++. */
#ifndef TESTS_UNIT_TOOLS_DUMP_PROBE_H
#define TESTS_UNIT_TOOLS_DUMP_PROBE_H

#include "ctrl/shim/dump_text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads actions as drcompile does, and prints them as OVS does. NULL: they were not understood. The caller frees
 * both. */
char *probe_print_actions(const char *actions, const struct ovsdr_dump_reader *, char **error);

/* How OVS prints clone() with an empty list, and with a drop. The caller frees it. */
char *probe_print_empty_clone(bool with_drop);

#ifdef __cplusplus
}
#endif
#endif
