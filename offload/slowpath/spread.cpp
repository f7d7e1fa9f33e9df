#include "offload/slowpath/spread.hpp"

#include <array>
#include <bit>
#include <cerrno>

namespace ovsdr::slowpath {

namespace {

constexpr std::uint8_t tcp = 6, udp = 17;
constexpr std::uint64_t ipv4 = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
constexpr std::uint64_t ipv6 = IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
constexpr std::uint64_t tcp_ports = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
constexpr std::uint64_t udp_ports = IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;

struct Kind {
    std::uint8_t ip_version, ip_protocol;   ///< 0: any
    std::uint64_t hashed;
};
constexpr std::array<Kind, 6> kinds{{{4, tcp, ipv4 | tcp_ports},
                                     {4, udp, ipv4 | udp_ports},
                                     {4, 0, ipv4},
                                     {6, tcp, ipv6 | tcp_ports},
                                     {6, udp, ipv6 | udp_ports},
                                     {6, 0, ipv6}}};

/// Any key does that mixes well, and the same one always: a flow stays in its queue when queues are replaced.
constexpr std::array<std::uint8_t, 40> key = [] {
    std::array<std::uint8_t, 40> bytes{};
    std::uint32_t state = 0x2545F491;
    for (std::uint8_t& byte : bytes) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        byte = static_cast<std::uint8_t>(state >> 24);
    }
    return bytes;
}();

/// So that shares differ by little when the number of queues is no power of two.
constexpr unsigned log_table_length = 7;

Result<Owner<ibv_rwq_ind_table>> make_table(ibv_context* context, std::span<ibv_wq* const> queues,
                                            unsigned log_length) {
    std::vector<ibv_wq*> entries(std::size_t{1} << log_length);
    for (std::size_t i = 0; i < entries.size(); ++i) entries[i] = queues[i % queues.size()];
    ibv_rwq_ind_table_init_attr attributes{};
    attributes.log_ind_tbl_size = log_length;
    attributes.ind_tbl = entries.data();
    Owner<ibv_rwq_ind_table> table(ibv_create_rwq_ind_table(context, &attributes));
    if (table == nullptr) return tl::unexpected(failure_of(errno, "ibv_create_rwq_ind_table"));
    return table;
}

Result<Owner<ibv_qp>> make_receiver(const PortQueueSpec& spec, ibv_rwq_ind_table* table, std::uint64_t hashed) {
    auto bytes = key;
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_RAW_PACKET;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    attributes.pd = spec.pd;
    attributes.rwq_ind_tbl = table;
    attributes.rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
                               .rx_hash_key_len = static_cast<std::uint8_t>(bytes.size()),
                               .rx_hash_key = bytes.data(),
                               .rx_hash_fields_mask = hashed};
    Owner<ibv_qp> receiver(ibv_create_qp_ex(spec.context, &attributes));
    if (receiver == nullptr) return tl::unexpected(failure_of(errno, "ibv_create_qp_ex(RSS)"));
    return receiver;
}

}  // namespace

Result<Spread> Spread::create(const PortQueueSpec& spec, std::span<ibv_wq* const> queues) {
    Spread spread;
    auto first = make_table(spec.context, queues.first(1), 0);
    if (!first) return tl::unexpected(std::move(first.error()));
    spread.first_ = std::move(*first);
    auto all = make_table(spec.context, queues, log_table_length);
    if (!all) return tl::unexpected(std::move(all.error()));
    spread.all_ = std::move(*all);
    auto to_first = make_receiver(spec, spread.first_.get(), 0);
    if (!to_first) return tl::unexpected(std::move(to_first.error()));
    spread.to_first_ = std::move(*to_first);
    for (const Kind& kind : kinds) {
        auto receiver = make_receiver(spec, spread.all_.get(), kind.hashed);
        if (!receiver) return tl::unexpected(std::move(receiver.error()));
        spread.by_kind_.push_back({receiver->get(), kind.ip_version, kind.ip_protocol});
        spread.owned_.push_back(std::move(*receiver));
    }
    return spread;
}

}  // namespace ovsdr::slowpath
