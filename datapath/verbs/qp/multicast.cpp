// Membership of datagram queue pairs in multicast groups.
// Source: ibv_attach_mcast(3); the kernel's ib_attach_mcast() and uverbs, whose errors these are.
#include <algorithm>
#include <cstring>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/roce/transport.hpp"
#include "datapath/verbs/objects.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"

using namespace ovsdr::soft;

namespace {

/// Raw packet queues too: what they receive is decided by steering.
[[nodiscard]] bool may_join(const ibv_qp& qp, const ibv_gid& gid) {
    return qp.qp_type == IBV_QPT_UD && roce::is_multicast(gid);
}

[[nodiscard]] auto find(std::vector<ibv_gid>& groups, const ibv_gid& gid) {
    return std::find_if(groups.begin(), groups.end(),
                        [&gid](const ibv_gid& group) { return std::memcmp(&group, &gid, sizeof gid) == 0; });
}

}  // namespace

extern "C" {

/// `lid` says nothing on Ethernet ports. A queue that is in the group already stays in it.
int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t) {
    if (const int error = injected_fault("ibv_attach_mcast")) return failed(error);
    if (!may_join(*qp, *gid)) return failed(EINVAL);
    RdmaQp& rdma = *Qp::of(qp).rdma;
    const std::lock_guard guard(rdma.groups_mutex);
    if (find(rdma.groups, *gid) != rdma.groups.end()) return 0;
    try {
        rdma.groups.reserve(rdma.groups.size() + 1);
        if (const int error = rdma.state->transport().multicast().attach(*gid, rdma.number)) return failed(error);
    } catch (const std::bad_alloc&) {
        return failed(ENOMEM);
    }
    rdma.groups.push_back(*gid);
    return 0;
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t) {
    if (const int error = injected_fault("ibv_detach_mcast")) return failed(error);
    if (!may_join(*qp, *gid)) return failed(EINVAL);
    RdmaQp& rdma = *Qp::of(qp).rdma;
    const std::lock_guard guard(rdma.groups_mutex);
    const auto group = find(rdma.groups, *gid);
    if (group == rdma.groups.end()) return failed(EINVAL);
    try {
        rdma.state->transport().multicast().detach(*gid, rdma.number);
    } catch (const std::bad_alloc&) {
        return failed(ENOMEM);
    }
    rdma.groups.erase(group);
    return 0;
}

}  // extern "C"
