#include <config.h>

#include <string.h>

#include "flow.h"
#include "openvswitch/match.h"
#include "shim/megaflow.h"
#include "tests/differential/judge/ovs.h"

void
ovs_judge_read(const struct ovs_judge_seen *seen, struct ovsdr_flow_fields *fields, struct ovsdr_tunnel_fields *tunnel)
{
    struct ovsdr_megaflow megaflow;
    struct match match;

    match.flow = *(const struct flow *) seen;
    memset(&match.wc, 0xFF, sizeof match.wc);
    match.tun_md.valid = false;
    memset(&megaflow, 0, sizeof megaflow);
    megaflow_from_match(&match, &megaflow);
    *fields = megaflow.key;
    *tunnel = megaflow.tunnel_key;
}
