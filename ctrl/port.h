/* Ports of type `dr`, as the C shim sees them: a vport of a device, its slow-path queue, and the device's eSwitch. A
 * device that manages no eSwitch has one port, which is the function itself.
 *
 * The shim speaks OVS, what is behind this header speaks offload/; neither includes the other's headers. A port is
 * opened when an interface's options are accepted and closed when the interface goes or moves to another vport. Ports
 * of one device share its eSwitch, which stays open as long as one of them does.
 *
 * Errors: positive errno values; an `error` out-parameter gets a message for the user, which the caller frees.
 * Threads: refresh, set_mtu, set_receive_queues, restart_in_ms and close by one thread, the owner's; receive and arm of
 * one receive queue by one thread at a time, which is the owner's where there is one queue; everything else from any.
 * Nothing here throws.
 */
#ifndef CTRL_PORT_H
#define CTRL_PORT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
#define OVSDR_NOEXCEPT noexcept
extern "C" {
#else
#define OVSDR_NOEXCEPT
#endif

struct ovsdr_port;

enum { OVSDR_BATCH = 32, OVSDR_MAX_RECEIVE_QUEUES = 32 };
#define OVSDR_NO_ODP_PORT UINT32_MAX

struct ovsdr_port_options {
    const char *interface;      /* name, for messages */
    const char *device;         /* "mlx5_0" */
    bool function;              /* not a vport, but the function itself: `vport` is 0 */
    uint16_t vport;
    uint16_t vlan;              /* of a function: the tag that its packets have outside of it, 1 to 4094; 0: none */
    uint32_t odp_port;          /* OVSDR_NO_ODP_PORT while unknown */
    bool policed;               /* as ovsdr_port_set_policed() says */
    unsigned receive_queues;    /* 1 to OVSDR_MAX_RECEIVE_QUEUES */
    bool segments;              /* a batch to be sent may be packets of 64 KB, each as many frames */
};

/* What the port's owner sees, as last asked of the device. */
struct ovsdr_port_state {
    uint8_t mac[6];
    uint16_t mtu;               /* payload bytes */
    bool admin_up;
    bool link_up;
};

/* The switch's view: received is what came from the vport, in the NIC and by the slow path together. */
struct ovsdr_port_stats {
    uint64_t rx_packets, rx_bytes, rx_errors;
    uint64_t tx_packets, tx_bytes, tx_errors;
    /* Frames. Errors: lost in the queue. Missed: they found no buffer, or a queue that had failed; told when that queue
     * is replaced. Drops: they found the ring full. */
    uint64_t slow_path_rx, slow_path_rx_errors, slow_path_rx_missed;
    uint64_t slow_path_tx, slow_path_tx_drops, slow_path_tx_errors;
    uint64_t slow_path_restarts;    /* Queues that failed and were replaced. */
    bool function;                  /* It is one, and these are not 0 for that: */
    uint64_t nic_rx_dropped, nic_rx_marked, nic_rx_down;    /* By megaflows; while it was down. */
    uint64_t nic_tx_sent, nic_tx_down;
};

struct ovsdr_frame {
    const uint8_t *data;
    uint32_t size;              /* bytes, without FCS */
    uint32_t tag;               /* received: the table that missed, 0 for none */
};

/* ENODEV: no such device (the message lists those there are), or it has gone and not all of its ports are closed.
 * EINVAL: the options are for the other kind of device. ENOENT: no such vport. EBUSY: the vport is taken (the message
 * names the interface). The vport is up when this returns, or ovsdr_port_take_notice() says why it is not. */
int ovsdr_port_open(const struct ovsdr_port_options *, struct ovsdr_port **, char **error) OVSDR_NOEXCEPT;

/* Rules that name the port are gone when this returns. */
void ovsdr_port_close(struct ovsdr_port *) OVSDR_NOEXCEPT;

/* Tells or changes the datapath's number of the port. An error: nothing comes in from the vport. */
int ovsdr_port_set_odp_port(struct ovsdr_port *, uint32_t odp_port) OVSDR_NOEXCEPT;
/* Lets nothing in from the vport until ovsdr_port_set_odp_port() tells a number again: what the NIC has counted of the
 * port's megaflows grows no more when this returns. */
void ovsdr_port_close_entrance(struct ovsdr_port *) OVSDR_NOEXCEPT;

/* Whether no other port of its device is open. */
bool ovsdr_port_is_last_of_device(const struct ovsdr_port *) OVSDR_NOEXCEPT;

/* The caller polices what it receives: all that comes in from the vport has to come up. When this returns no megaflow
 * of the port is in the NIC; `false` lets them in again. */
void ovsdr_port_set_policed(struct ovsdr_port *, bool policed) OVSDR_NOEXCEPT;

/* As many receive queues from now on, numbered from 0, while traffic goes on; nobody receives meanwhile. An error:
 * those there were stay. */
int ovsdr_port_set_receive_queues(struct ovsdr_port *, unsigned receive_queues, char **error) OVSDR_NOEXCEPT;

/* At most OVSDR_BATCH frames, valid until the next receive or arm of this queue, or close. */
unsigned ovsdr_port_receive(struct ovsdr_port *, unsigned queue, struct ovsdr_frame *frames) OVSDR_NOEXCEPT;
/* Asks for one wake-up of the descriptor; false when frames wait already. */
bool ovsdr_port_arm(struct ovsdr_port *, unsigned queue) OVSDR_NOEXCEPT;
int ovsdr_port_receive_fd(const struct ovsdr_port *, unsigned queue) OVSDR_NOEXCEPT;

/* How many of `n` (at most OVSDR_BATCH) frames were taken; the rest found the ring full. */
unsigned ovsdr_port_transmit(struct ovsdr_port *, const struct ovsdr_frame *frames, unsigned n) OVSDR_NOEXCEPT;
/* The longest frame that fits the vport's MTU, two VLAN tags included. */
uint32_t ovsdr_port_max_frame_size(const struct ovsdr_port *) OVSDR_NOEXCEPT;

/* Asks the device, and mends the slow path if it has stopped. True if something differs from last time. A vport that
 * the device has no more has no link, nor has any of a device that was taken out. */
bool ovsdr_port_refresh(struct ovsdr_port *) OVSDR_NOEXCEPT;
/* Whether the device had the vport no more when it was last asked, or had gone itself. */
bool ovsdr_port_is_gone(const struct ovsdr_port *) OVSDR_NOEXCEPT;
/* A slow path that has stopped makes ovsdr_changes_fd() readable once. In how many milliseconds ovsdr_port_refresh()
 * will try to start it again; -1: it works. */
long long ovsdr_port_restart_in_ms(const struct ovsdr_port *) OVSDR_NOEXCEPT;
/* What does not work although the port does; NULL: everything works. The caller frees it. */
char *ovsdr_port_problem(const struct ovsdr_port *) OVSDR_NOEXCEPT;
/* What has happened since the last call, for the log: the slow path stopped, a change was refused, the device is a poor
 * one. NULL: nothing. The caller frees it. */
char *ovsdr_port_take_notice(struct ovsdr_port *) OVSDR_NOEXCEPT;
void ovsdr_port_get_state(const struct ovsdr_port *, struct ovsdr_port_state *) OVSDR_NOEXCEPT;
int ovsdr_port_get_stats(const struct ovsdr_port *, struct ovsdr_port_stats *) OVSDR_NOEXCEPT;
/* Of the device's physical port, in Mb/s; 0 unknown. */
uint32_t ovsdr_port_speed(const struct ovsdr_port *) OVSDR_NOEXCEPT;

/* EOPNOTSUPP of the three: the kernel keeps such changes to itself, as Linux does with a card's vports; the notice says
 * what to do instead. Any other refusal has a notice as well; the same one is told once. */
int ovsdr_port_set_mac(struct ovsdr_port *, const uint8_t mac[6]) OVSDR_NOEXCEPT;
/* An MTU that the slow path's buffers cannot hold makes a new queue, while traffic goes on. EINVAL outside of what the
 * device takes. Another error: the MTU is set, the old buffers stay, and the same call tries again. */
int ovsdr_port_set_mtu(struct ovsdr_port *, uint16_t mtu) OVSDR_NOEXCEPT;
int ovsdr_port_set_admin_state(struct ovsdr_port *, bool up) OVSDR_NOEXCEPT;

/* Readable after a vport of some open device changed; ovsdr_changes_take() makes it unreadable and says whether it was.
 * -1 if the process has no descriptor left for it. */
int ovsdr_changes_fd(void) OVSDR_NOEXCEPT;
bool ovsdr_changes_take(void) OVSDR_NOEXCEPT;

/* Vports that ovsdr_port_open() did not find (ENOENT): whether OVS is to reconfigure, so that interfaces ask for them
 * again. `changed`: ovsdr_changes_take() said so. See ctrl/missing_vports.hpp. */
bool ovsdr_missing_vports_check(bool changed) OVSDR_NOEXCEPT;
/* Milliseconds until the next check although nothing changes, -1 for never. */
int ovsdr_missing_vports_timeout(void) OVSDR_NOEXCEPT;
/* The process ends: lets go of their devices. */
void ovsdr_missing_vports_forget(void) OVSDR_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
