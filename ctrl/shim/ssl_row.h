/* The SSL table of the database (`ovs-vsctl set-ssl`), for storage mirrors.
 *
 * vswitchd gives it to its own streams (stream-ssl.h) while there is such a row, and tells them nothing when it goes. A
 * mirror has to know both, so that the row itself is looked at, as often as vswitchd does.
 *
 * Options of ovs-vswitchd (--private-key and the others) are for its connection to the database; no mirror uses them.
 *
 * Threads: the main thread.
 */
#ifndef CTRL_SHIM_SSL_ROW_H
#define CTRL_SHIM_SSL_ROW_H

struct ovsdb_idl;
struct ovsrec_open_vswitch;

/* `row`: the first of its table, or NULL. Does nothing while the database is as it was. */
void ssl_row_look(const struct ovsdb_idl *, const struct ovsrec_open_vswitch *row);

#endif
