// What a device and its ports are: attributes, states, GIDs, P_Keys.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/ethernet/segmentation.hpp"
#include "datapath/rdma/roce/gid_table.hpp"
#include "datapath/rdma/roce/link_mtu.hpp"
#include "datapath/rdma/roce/multicast.hpp"
#include "datapath/rdma/roce/tag_matching.hpp"
#include "datapath/verbs/limits.hpp"
#include "datapath/verbs/objects.hpp"

#undef ibv_query_port

namespace ovsdr::soft {

namespace {

constexpr std::uint32_t vendor_mellanox = 0x02c9;
constexpr std::uint8_t acknowledge_delay = 16;  // 4.096 µs * 2^16: a worker sleeps for some milliseconds at most

[[nodiscard]] ibv_device_attr base_attributes(DeviceState& state) {
    ibv_device_attr attr{};
    std::snprintf(attr.fw_ver, sizeof attr.fw_ver, "0.1.0");
    attr.node_guid = attr.sys_image_guid = htobe64(state.device().guid());
    attr.max_mr_size = ~std::uint64_t{0};
    attr.page_size_cap = ~std::uint64_t{0xfff};
    attr.vendor_id = vendor_mellanox;
    attr.vendor_part_id = state.device().profile().pci_device_id;
    attr.max_qp = attr.max_raw_ethy_qp = limits::qps;
    attr.max_qp_wr = limits::work_requests;
    attr.max_sge = attr.max_sge_rd = limits::send_sges;
    attr.max_cq = limits::cqs;
    attr.max_cqe = limits::completions;
    attr.max_mr = MemoryTable::max_regions;
    attr.max_mw = MemoryTable::max_regions;
    attr.device_cap_flags = IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                            IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_XRC | IBV_DEVICE_MEM_MGT_EXTENSIONS |
                            IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_RAW_IP_CSUM | IBV_DEVICE_MANAGED_FLOW_STEERING;
    attr.max_pd = limits::pds;
    attr.atomic_cap = IBV_ATOMIC_HCA;
    attr.max_qp_rd_atom = attr.max_qp_init_rd_atom = limits::reads;
    attr.max_res_rd_atom = limits::reads * limits::qps;
    attr.max_mcast_grp = roce::MulticastGroups::most_groups;
    attr.max_mcast_qp_attach = roce::MulticastGroups::most_members;
    attr.max_total_mcast_qp_attach = attr.max_mcast_grp * attr.max_mcast_qp_attach;
    attr.max_ah = std::numeric_limits<int>::max();
    attr.max_srq = limits::srqs;
    attr.max_srq_wr = limits::shared_receives;
    attr.max_srq_sge = limits::shared_receive_sges;
    attr.max_pkeys = 1;
    attr.local_ca_ack_delay = acknowledge_delay;
    attr.phys_port_cnt = static_cast<std::uint8_t>(std::min(state.ports(), 255u));
    return attr;
}

constexpr std::uint64_t rss_fields = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6 |
                                     IBV_RX_HASH_DST_IPV6 | IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP |
                                     IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;

/// Memory is the process's own and is paged as it is, whoever touches it: every transport can use regions on demand.
/// Said of what ConnectX says it of.
[[nodiscard]] ibv_odp_caps odp_capabilities() {
    ibv_odp_caps caps{};
    caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
    caps.per_transport_caps.rc_odp_caps = limits::odp_reliable;
    caps.per_transport_caps.ud_odp_caps = IBV_ODP_SUPPORT_SEND;
    return caps;
}

/// An Ethernet link's speed as InfiniBand's lanes and signalling rate, in the way in which the kernel's mlx5_ib puts
/// it.
struct LinkSpeed {
    std::uint32_t up_to;  ///< Mb/s
    std::uint8_t width, speed;
};
constexpr std::uint8_t width_1x = 1, width_4x = 2;
constexpr std::uint8_t sdr = 1, qdr = 4, fdr = 16, edr = 32, hdr = 64, ndr = 128;
constexpr std::array link_speeds{LinkSpeed{1'000, width_1x, sdr},   LinkSpeed{10'000, width_1x, qdr},
                                 LinkSpeed{25'000, width_1x, edr},  LinkSpeed{40'000, width_4x, qdr},
                                 LinkSpeed{50'000, width_1x, hdr},  LinkSpeed{56'000, width_4x, fdr},
                                 LinkSpeed{100'000, width_4x, edr}, LinkSpeed{200'000, width_4x, hdr},
                                 LinkSpeed{400'000, width_4x, ndr}};
constexpr LinkSpeed unknown_speed{0, width_4x, qdr};

[[nodiscard]] LinkSpeed link_speed(std::uint32_t megabits) {
    if (megabits == 0) return unknown_speed;
    const auto* const found = std::find_if(link_speeds.begin(), link_speeds.end(),
                                           [megabits](const LinkSpeed& link) { return megabits <= link.up_to; });
    return found == link_speeds.end() ? link_speeds.back() : *found;
}

[[nodiscard]] ibv_port_attr port_attributes(const VportInfo& vport) {
    constexpr std::uint8_t disabled = 3, link_up = 5;
    ibv_port_attr attr{};
    const bool active = vport.admin_up && vport.link_up;
    attr.state = active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    attr.phys_state = active ? link_up : disabled;
    attr.max_mtu = IBV_MTU_4096;
    attr.active_mtu = roce::link_mtu(vport.mtu);
    attr.gid_tbl_len = roce::gid_table_length;
    attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    attr.max_msg_sz = 1u << 30;
    attr.pkey_tbl_len = 1;
    attr.max_vl_num = 0;
    const LinkSpeed link = link_speed(vport.speed);
    attr.active_width = link.width;
    attr.active_speed = link.speed;
    attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    return attr;
}

/// EINVAL for no such port. A port whose vport is gone is there, and down.
[[nodiscard]] int port_info(DeviceState& state, unsigned port, VportInfo& info) {
    const auto vport = state.vport_of(port);
    if (!vport) return EINVAL;
    if (state.device().query(*vport, info) != 0) {
        info = VportInfo{};
        info.id = *vport;
    }
    return 0;
}

/// ENODATA for empty entries.
[[nodiscard]] int gid_entry(DeviceState& state, unsigned port, std::uint32_t index, ibv_gid_entry& entry) {
    VportInfo info{};
    if (const int error = port_info(state, port, info)) return error;
    if (index >= roce::gid_table_length) return EINVAL;
    const auto found = roce::gid_entry(state, port, index);
    if (!found) return ENODATA;
    entry = ibv_gid_entry{};
    entry.gid = found->gid;
    entry.gid_index = index;
    entry.port_num = port;
    entry.gid_type = IBV_GID_TYPE_ROCE_V2;
    return 0;
}

/// For the functions that return -1 and errno.
[[nodiscard]] int minus_one(int error) {
    if (error == 0) return 0;
    errno = error;
    return -1;
}

}  // namespace

int query_device_op(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    std::size_t size) {
    if (const int error = injected_fault("ibv_query_device_ex")) return failed(error);
    if ((input && input->comp_mask) || size < sizeof attr->orig_attr) return failed(EINVAL);
    DeviceState& state = Context::of(context).state;
    ibv_device_attr_ex full{};
    full.orig_attr = base_attributes(state);
    full.odp_caps = odp_capabilities();
    full.xrc_odp_caps = limits::odp_reliable;
    full.completion_timestamp_mask = ~std::uint64_t{0};
    full.hca_core_clock = 1'000'000;  // kHz: completion timestamps are nanoseconds
    full.rss_caps = {.supported_qpts = 1u << IBV_QPT_RAW_PACKET,
                     .max_rwq_indirection_tables = limits::qps,
                     .max_rwq_indirection_table_size = 1u << limits::log_indirection_table,
                     .rx_hash_fields_mask = rss_fields,
                     .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ};
    full.tso_caps = {.max_tso = most_segmented, .supported_qpts = 1u << IBV_QPT_RAW_PACKET};
    full.packet_pacing_caps = {.qp_rate_limit_min = RateTable::slowest,
                               .qp_rate_limit_max = RateTable::fastest,
                               .supported_qpts = 1u << IBV_QPT_RAW_PACKET};
    full.raw_packet_caps =
        IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_SCATTER_FCS | IBV_RAW_PACKET_CAP_IP_CSUM;
    full.max_wq_type_rq = limits::qps;
    full.device_cap_flags_ex = full.orig_attr.device_cap_flags | IBV_DEVICE_RAW_SCATTER_FCS;
    full.tm_caps = {.max_rndv_hdr_size = roce::TagMatcher::most_rendezvous_size,
                    .max_num_tags = roce::TagMatcher::most_tags,
                    .flags = IBV_TM_CAP_RC,
                    .max_ops = roce::TagMatcher::most_ops,
                    .max_sge = roce::TagMatcher::most_pieces};
    full.max_dm_size = DeviceMemory::device_size;
    full.phys_port_cnt_ex = state.ports();
    std::memset(attr, 0, size);
    std::memcpy(attr, &full, std::min(size, sizeof full));
    return 0;
}

int query_port_op(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t size) {
    if (const int error = injected_fault("ibv_query_port")) return failed(error);
    VportInfo info{};
    if (const int error = port_info(Context::of(context).state, port, info)) return failed(error);
    // The manager function's netdev is the uplink's, and mlx5_ib reports the MTU of a port's netdev.
    VportInfo uplink{};
    if (info.id == manager_vport && Context::of(context).state.device().query(uplink_vport, uplink) == 0) {
        info.speed = uplink.speed;
        info.mtu = uplink.mtu;
    }
    const ibv_port_attr full = port_attributes(info);
    std::memset(attr, 0, size);
    std::memcpy(attr, &full, std::min(size, sizeof full));
    return 0;
}

}  // namespace ovsdr::soft

using namespace ovsdr::soft;

extern "C" {

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
    if (const int error = injected_fault("ibv_query_device")) return failed(error);
    *attr = base_attributes(Context::of(context).state);
    return 0;
}

/// For programs built before ibv_query_port() became an operation of the context; their structure is a prefix.
int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attr) {
    return query_port_op(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                         offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
    if (const int error = injected_fault("ibv_query_gid")) return minus_one(error);
    ibv_gid_entry entry{};
    const int error = gid_entry(Context::of(context).state, port, static_cast<std::uint32_t>(index), entry);
    if (error && error != ENODATA) return minus_one(error);
    *gid = entry.gid;
    return 0;
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry,
                      std::uint32_t flags, std::size_t size) {
    if (const int error = injected_fault("ibv_query_gid_ex")) return failed(error);
    if (flags || size < sizeof *entry) return failed(EINVAL);
    ibv_gid_entry found{};
    if (const int error = gid_entry(Context::of(context).state, port, index, found)) return failed(error);
    std::memset(entry, 0, size);
    *entry = found;
    return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t length, std::uint32_t flags,
                             std::size_t size) {
    if (const int error = injected_fault("ibv_query_gid_table")) return -failed(error);
    if (flags || size < sizeof *entries) return -failed(EINVAL);
    DeviceState& state = Context::of(context).state;
    std::size_t count = 0;
    for (unsigned port = 1; port <= state.ports(); ++port) {
        ibv_gid_entry found{};
        for (std::uint32_t index = 0; gid_entry(state, port, index, found) == 0; ++index) {
            if (count == length) return -failed(EINVAL);
            auto* const place = reinterpret_cast<std::byte*>(entries) + count++ * size;
            std::memset(place, 0, size);
            std::memcpy(place, &found, sizeof found);
        }
    }
    return static_cast<ssize_t>(count);
}

/// A private name of rdma-core that its own tools bind: 0 is RoCE v1, 1 RoCE v2.
int ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, int* type) {
    ibv_gid_entry entry{};
    const int error = gid_entry(Context::of(context).state, port, index, entry);
    if (error && error != ENODATA) return minus_one(error);
    *type = error == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2;
    return 0;
}

int ibv_query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) {
    VportInfo info{};
    if (const int error = port_info(Context::of(context).state, port, info)) return minus_one(error);
    if (index != 0) return minus_one(EINVAL);
    *pkey = htobe16(0xffff);
    return 0;
}

int ibv_get_pkey_index(ibv_context* context, std::uint8_t port, __be16 pkey) {
    __be16 only = 0;
    if (ibv_query_pkey(context, port, 0, &only)) return -1;
    return minus_one(pkey == only ? 0 : ENOENT);
}

}  // extern "C"
