/* The datapath's tunnel ports, as the C shim sees them: all open devices know all of them (ctrl/all_devices.hpp).
 *
 * Threads: the main thread tells of ports and choices; any thread asks. Nothing throws.
 */
#ifndef CTRL_TUNNEL_PORT_H
#define CTRL_TUNNEL_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "ctrl/port.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ovsdr_tunnel_kind { OVSDR_TUNNEL_VXLAN, OVSDR_TUNNEL_GENEVE, OVSDR_TUNNEL_GRE };

struct ovsdr_tunnel_port {
    uint32_t odp_port;
    enum ovsdr_tunnel_kind kind;
    uint16_t udp_port;          /* host order; 0: GRE */
};

/* Adds a port, or changes what it is. `name` is the datapath's, for messages. */
void ovsdr_tunnel_port_set(const struct ovsdr_tunnel_port *, const char *name) OVSDR_NOEXCEPT;
/* Its megaflows go with it. Nothing happens if it is none. */
void ovsdr_tunnel_port_remove(uint32_t odp_port) OVSDR_NOEXCEPT;
/* False: no tunnel port has this number. */
bool ovsdr_tunnel_port_get(uint32_t odp_port, struct ovsdr_tunnel_port *) OVSDR_NOEXCEPT;

/* What a user chose (ctrl/shim/options.h). Megaflows that are known follow. */
struct ovsdr_choices {
    bool exact_tunnel_source_port, exact_tunnel_flags;
};
void ovsdr_choose(const struct ovsdr_choices *) OVSDR_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
