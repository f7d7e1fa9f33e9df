/* See ssl_row.h. */
#include <config.h>

#include "shim/ssl_row.h"

#include <stdbool.h>

#include "ctrl/mirror.h"
#include "ovsdb-idl.h"
#include "vswitch-idl.h"

void
ssl_row_look(const struct ovsdb_idl *idl, const struct ovsrec_open_vswitch *row)
{
    static bool looked = false;
    static unsigned int seen;
    unsigned int now = ovsdb_idl_get_seqno(idl);

    if (looked && seen == now) {
        return;
    }
    looked = true;
    seen = now;
    if (row && row->ssl) {
        const struct ovsrec_ssl *ssl = row->ssl;

        ovsdr_mirrors_set_ssl(&(struct ovsdr_ssl) {
            .private_key = ssl->private_key,
            .certificate = ssl->certificate,
            .ca_cert = ssl->ca_cert,
            .bootstrap_ca_cert = ssl->bootstrap_ca_cert,
        });
    } else {
        ovsdr_mirrors_set_ssl(NULL);
    }
}
