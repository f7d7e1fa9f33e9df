/* What unixctl commands print. The caller frees the text; NULL: out of memory.
 *
 * `json` is for programs: the same facts as one JSON document.
 */
#ifndef CTRL_REPORT_H
#define CTRL_REPORT_H

#include "ctrl/flow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dr/show: per device totals, and domains, tables, matchers, rules and hits. */
char *ovsdr_report_devices(bool verbose, bool json) OVSDR_NOEXCEPT;

/* dr/ports: one line per port, with traffic and how much of it took the slow path. */
char *ovsdr_report_ports(bool json) OVSDR_NOEXCEPT;

/* dr/explain without argument: how many megaflows per reason. */
char *ovsdr_report_reasons(bool json) OVSDR_NOEXCEPT;

/* dr/explain UFID: the megaflow's rules, or why there are none. NULL also if no device knows it. */
char *ovsdr_report_megaflow(const struct ovsdr_ufid *, bool json) OVSDR_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
