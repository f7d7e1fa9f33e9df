/* See classifier.h. */
#include <config.h>

#include "shim/classifier.h"

#include "ctrl/flow.h"
#include "dpif-netdev-private-dpcls.h"
#include "dpif-netdev-private-flow.h"
#include "flow.h"
#include "shim/modification.h"
#include "shim/real.h"
#include "util.h"

static bool
is_of_its_port(const struct dpcls_rule *rule, const struct netdev_flow_key *key)
{
    const struct dp_netdev_flow *flow = CONTAINER_OF(rule, struct dp_netdev_flow, cr);

    return odp_to_u32(flow->flow.in_port.odp_port) == MINIFLOW_GET_U32(&key->mf, in_port.odp_port);
}

bool
classifier_find_own(struct dpcls *classifier, const struct netdev_flow_key *keys[], struct dpcls_rule **rules, size_t n,
                    int *n_lookups)
{
    bool all = real_dpcls_lookup(classifier, keys, rules, n, n_lookups);

    if (n == 1) {
        rules[0] = modification_find(rules[0]);
        all = rules[0] != NULL;
    }
    if (!ovsdr_recirculates()) {
        return all;
    }
    for (size_t i = 0; i < n; i++) {
        if (rules[i] && !is_of_its_port(rules[i], keys[i])) {
            rules[i] = NULL;
            all = false;
        }
    }
    return all;
}
