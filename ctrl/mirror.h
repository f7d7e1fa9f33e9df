/* Interfaces of type `drmirror`, as the C shim sees them: what is sent to one goes to its collector by RDMA
 * (offload/mirror), and so do the copies that devices take for it.
 *
 * A mirror is made with its netdev and does nothing until it has been configured: then it has a thread, a session with
 * its collector, which is connected to in the background, and a queue in each device that dr ports are of. Nothing here
 * waits for a collector. Closing hands what is in the ring to a thread that gives it two seconds to be delivered.
 *
 * Errors: positive errno values; an `error` out-parameter gets a message for the user, which the caller frees.
 * Threads: any; one lock for all mirrors, but for ovsdr_mirror_send(), which only shares a mirror's own for the time
 * that a batch of frames takes. configure, set_odp_port and close of one mirror by one thread at a time; close when
 * nobody uses it any more. Nothing here throws.
 */
#ifndef CTRL_MIRROR_H
#define CTRL_MIRROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctrl/port.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ovsdr_mirror;

struct ovsdr_mirror_option {
    const char *key, *value;
};

struct ovsdr_mirror_frame {
    const uint8_t *data;
    uint32_t size;              /* bytes, without FCS */
    uint32_t in_port;           /* the datapath's number of the port that it came in by */
};

/* Frames. */
struct ovsdr_mirror_stats {
    uint64_t taken, taken_bytes;    /* into the ring */
    uint64_t dropped;               /* the ring had no room, or the session ended before the collector had them */
    uint64_t lost;                  /* copies for which a device's queue had no room or no buffer */
};

/* NULL: out of memory. */
struct ovsdr_mirror *ovsdr_mirror_new(const char *interface) OVSDR_NOEXCEPT;
/* What is in the ring is delivered in the background. Rules that copy to it are gone when this returns. */
void ovsdr_mirror_close(struct ovsdr_mirror *) OVSDR_NOEXCEPT;

/* EINVAL: an option is wrong. ENOSPC: there are as many mirrors as there can be. ENODEV: no such device. An error
 * leaves what is in force. Other options than filter and sampling begin another session. */
int ovsdr_mirror_configure(struct ovsdr_mirror *, const struct ovsdr_mirror_option *, size_t n, char **error)
    OVSDR_NOEXCEPT;

/* The datapath has given the mirror a number: devices copy to it from now on. */
void ovsdr_mirror_set_odp_port(struct ovsdr_mirror *, uint32_t odp_port) OVSDR_NOEXCEPT;

/* The datapath's ports, mirrors or not: a frame's interface in the collector's file has their names. A mirror whose
 * number goes has none. */
void ovsdr_mirror_port_added(uint32_t odp_port, const char *name) OVSDR_NOEXCEPT;
void ovsdr_mirror_port_deleted(uint32_t odp_port) OVSDR_NOEXCEPT;

/* Each is taken, or it counts as dropped, filtered or passed over. */
void ovsdr_mirror_send(struct ovsdr_mirror *, const struct ovsdr_mirror_frame *, size_t n) OVSDR_NOEXCEPT;

/* The row of the database's SSL table; NULL: there is none. Who connects from now on uses it. Paths are copied. */
struct ovsdr_ssl {
    const char *private_key, *certificate, *ca_cert;
    bool bootstrap_ca_cert;
};
void ovsdr_mirrors_set_ssl(const struct ovsdr_ssl *) OVSDR_NOEXCEPT;

/* The key of ovsdr_mirror_status() that says what an operator has to mend here before anything can be delivered. */
#define OVSDR_MIRROR_PROBLEM "problem"

/* What is in force, or known; `add` is called for each. Of a mirror that was never configured: nothing. */
typedef void ovsdr_add_text(void *aux, const char *key, const char *value);
typedef void ovsdr_add_number(void *aux, const char *key, uint64_t value);
void ovsdr_mirror_options(const struct ovsdr_mirror *, ovsdr_add_text *add, void *aux) OVSDR_NOEXCEPT;
void ovsdr_mirror_status(const struct ovsdr_mirror *, ovsdr_add_text *add, void *aux) OVSDR_NOEXCEPT;
void ovsdr_mirror_counters(const struct ovsdr_mirror *, ovsdr_add_number *add, void *aux) OVSDR_NOEXCEPT;
void ovsdr_mirror_get_stats(const struct ovsdr_mirror *, struct ovsdr_mirror_stats *) OVSDR_NOEXCEPT;

/* Readable after a mirror's status changed; ovsdr_mirror_changes_take() makes it unreadable and says whether it was. It
 * also asks devices again for what they refused, once a second, and says so. -1 if the process has no descriptor left
 * for it. */
int ovsdr_mirror_changes_fd(void) OVSDR_NOEXCEPT;
bool ovsdr_mirror_changes_take(void) OVSDR_NOEXCEPT;
/* What is to be written to the log: a sentence, which the caller frees. NULL: nothing (more). */
char *ovsdr_mirror_take_warning(void) OVSDR_NOEXCEPT;
/* True once when a mirror was refused for want of a device, and one has been opened since: OVS is to reconfigure. */
bool ovsdr_mirror_device_came(void) OVSDR_NOEXCEPT;

/* The process is about to end: delivers what is in the rings, and returns within the time. */
void ovsdr_mirrors_finish(unsigned milliseconds) OVSDR_NOEXCEPT;

/* dr/mirror. The caller frees it; NULL: out of memory. */
char *ovsdr_report_mirrors(bool json) OVSDR_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
