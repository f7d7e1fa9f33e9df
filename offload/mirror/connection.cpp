#include "offload/mirror/connection.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

namespace ovsdr::mirror {
namespace {

// Two pieces of layout, repeated, with the device's head in front: what is kept takes 4 entries of an MKEY.
constexpr std::uint16_t mkey_entries = 4;
// Bytes of a configuration in a work request: the layout and the signature of one MKEY.
constexpr std::uint32_t inline_size = 256;
// A segment takes two requests. Nobody has more under way than the ring has slots, or than this.
constexpr std::uint32_t most_under_way = 128;
constexpr int completions_at_once = 32;

constexpr std::uint8_t answer_timeout = 14;   // 67 ms
constexpr std::uint8_t retries = 7, endless = 7;
constexpr std::uint8_t receiver_not_ready_timer = 12;   // 0.64 ms
constexpr std::uint8_t hop_limit = 64;

bool is_link_local(const ibv_gid& gid) noexcept { return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80; }

}  // namespace

Result<int> gid_index_of(const dr::Device& device, const PortAddress& address) noexcept try {
    ibv_port_attr port{};
    const auto ib_port = static_cast<std::uint8_t>(address.ib_port);
    if (const int code = ibv_query_port(device.context(), ib_port, &port); code != 0) {
        return tl::unexpected(failure_of(code, "ibv_query_port"));
    }
    int found = -1;
    for (int index = 0; index < port.gid_tbl_len; ++index) {
        if (address.gid_index >= 0 && index != address.gid_index) continue;
        ibv_gid_entry entry{};
        if (ibv_query_gid_ex(device.context(), ib_port, static_cast<std::uint32_t>(index), &entry, 0) != 0) continue;
        if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
        if (!is_link_local(entry.gid)) return index;
        if (found < 0) found = index;
    }
    if (found >= 0) return found;
    return tl::unexpected(Error{EADDRNOTAVAIL, "the port has no RoCEv2 address: GID index " +
                                                   (address.gid_index >= 0 ? std::to_string(address.gid_index)
                                                                           : std::string("any"))});
} catch (const std::bad_alloc&) {
    return tl::unexpected(Error{ENOMEM, "out of memory"});
}

Result<std::unique_ptr<Connection>> Connection::create(std::shared_ptr<dr::Device> device, const PortAddress& address,
                                                       const Geometry& geometry) noexcept try {
    std::unique_ptr<Connection> made(new Connection(std::move(device), geometry));
    auto done = made->find_address(address);
    if (done) done = made->create_queues();
    if (done) done = made->create_mkeys();
    if (!done) return tl::unexpected(std::move(done.error()));
    return made;
} catch (const std::bad_alloc&) {
    return tl::unexpected(Error{ENOMEM, "out of memory"});
}

Result<void> Connection::find_address(const PortAddress& address) {
    ibv_port_attr port{};
    ib_port_ = static_cast<std::uint8_t>(address.ib_port);
    if (const int code = ibv_query_port(device_->context(), ib_port_, &port); code != 0) {
        return tl::unexpected(failure_of(code, "ibv_query_port"));
    }
    local_.mtu = port.active_mtu;
    const auto index = gid_index_of(*device_, address);
    if (!index) return tl::unexpected(index.error());
    ibv_gid_entry entry{};
    if (const int code = ibv_query_gid_ex(device_->context(), ib_port_, static_cast<std::uint32_t>(*index), &entry, 0);
        code != 0) {
        return tl::unexpected(failure_of(code, "ibv_query_gid_ex"));
    }
    std::copy(std::begin(entry.gid.raw), std::end(entry.gid.raw), local_.gid.begin());
    gid_index_ = static_cast<std::uint8_t>(*index);
    return {};
}

Result<void> Connection::create_queues() {
    channel_.reset(ibv_create_comp_channel(device_->context()));
    if (channel_ == nullptr) return tl::unexpected(failure_of(errno, "ibv_create_comp_channel"));
    if (fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0) {
        return tl::unexpected(failure_of(errno, "fcntl(completion channel)"));
    }
    const std::uint32_t requests = 2 * std::min<std::uint32_t>(geometry_.slots, most_under_way);
    const std::uint32_t receives = 2 * geometry_.slots;
    cq_.reset(ibv_create_cq(device_->context(), static_cast<int>(requests + receives), nullptr, channel_.get(), 0));
    if (cq_ == nullptr) return tl::unexpected(failure_of(errno, "ibv_create_cq"));

    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = attributes.recv_cq = cq_.get();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {requests, receives, 1, 1, inline_size};
    attributes.pd = device_->pd();
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    mlx5dv_qp_init_attr mlx5{};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
    qp_.reset(mlx5dv_create_qp(device_->context(), &attributes, &mlx5));
    if (qp_ == nullptr) return tl::unexpected(failure_of(errno, "mlx5dv_create_qp(RC)"));
    ex_ = ibv_qp_to_qp_ex(qp_.get());
    mlx5_ = mlx5dv_qp_ex_from_ibv_qp_ex(ex_);
    completions_.resize(completions_at_once);

    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_INIT;
    state.port_num = ib_port_;
    state.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    const int code = ibv_modify_qp(qp_.get(), &state,
                                   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (code != 0) return tl::unexpected(failure_of(code, "ibv_modify_qp(INIT)"));
    local_.qpn = qp_->qp_num;
    // Packets of a connection that was there before must not be taken for this one's.
    if (getrandom(&local_.psn, sizeof local_.psn, 0) != sizeof local_.psn) {
        return tl::unexpected(failure_of(errno, "getrandom"));
    }
    local_.psn &= 0xFFFFFF;
    return {};
}

Result<void> Connection::create_mkeys() {
    mlx5dv_mkey_init_attr attributes{device_->pd(),
                                     MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
                                     mkey_entries};
    for (unsigned slot = 0; slot < geometry_.slots; ++slot) {
        mkeys_.emplace_back(mlx5dv_create_mkey(&attributes));
        if (mkeys_.back() == nullptr) return tl::unexpected(failure_of(errno, "mlx5dv_create_mkey(signature)"));
    }
    return {};
}

Result<void> Connection::connect(const Endpoint& peer) noexcept {
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_RTR;
    state.path_mtu = std::min(local_.mtu, peer.mtu);
    state.dest_qp_num = peer.qpn;
    state.rq_psn = peer.psn;
    state.max_dest_rd_atomic = 0;   // nobody reads
    state.min_rnr_timer = receiver_not_ready_timer;
    state.ah_attr.is_global = 1;
    state.ah_attr.port_num = ib_port_;
    state.ah_attr.grh.sgid_index = gid_index_;
    state.ah_attr.grh.hop_limit = hop_limit;
    std::copy(peer.gid.begin(), peer.gid.end(), state.ah_attr.grh.dgid.raw);
    int code = ibv_modify_qp(qp_.get(), &state,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (code != 0) return tl::unexpected(failure_of(code, "ibv_modify_qp(RTR)"));
    state = {};
    state.qp_state = IBV_QPS_RTS;
    state.sq_psn = local_.psn;
    state.timeout = answer_timeout;
    state.retry_cnt = retries;
    state.rnr_retry = endless;
    code = ibv_modify_qp(qp_.get(), &state,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC);
    if (code != 0) return tl::unexpected(failure_of(code, "ibv_modify_qp(RTS)"));
    return {};
}

/// One MKEY, in a batch that has been started. What is wrong with it, ibv_wr_complete() says.
void Connection::configure(std::uint64_t sequence, const SlotMemory& memory, std::uint32_t blocks,
                           std::uint16_t application_tag, bool to_be_written) noexcept {
    const Signature& signature = geometry_.signature;
    const SignatureDomain domain(signature, {application_tag, geometry_.first_reference(sequence)});
    mlx5dv_mkey_conf_attr attributes{};
    // What the MKEY had of the segment before is set anew, or forgotten.
    attributes.conf_flags = MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR;
    mlx5dv_wr_mkey_configure(mlx5_, mkeys_[geometry_.slot_of(sequence)].get(), 3, &attributes);
    mlx5dv_wr_set_mkey_access_flags(mlx5_, to_be_written ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0);
    if (memory.fields != 0) {
        const mlx5dv_mr_interleaved parts[] = {{memory.data, signature.block_size, 0, memory.data_key},
                                               {memory.fields, signature.field_size(), 0, memory.fields_key}};
        mlx5dv_wr_set_mkey_layout_interleaved(mlx5_, blocks, std::size(parts), parts);
    } else {
        const ibv_sge whole{memory.data, blocks * signature.block_size, memory.data_key};
        mlx5dv_wr_set_mkey_layout_list(mlx5_, 1, &whole);
    }
    mlx5dv_sig_block_attr block{};
    block.mem = memory.fields != 0 ? domain.get() : nullptr;
    block.wire = domain.get();
    block.check_mask = signature.check_mask();
    mlx5dv_wr_set_mkey_sig_block(mlx5_, &block);
}

Result<void> Connection::post_write(std::uint64_t sequence, const SlotMemory& memory, std::uint32_t blocks,
                                    std::uint16_t application_tag, std::uint32_t peer_key) noexcept {
    ibv_wr_start(ex_);
    ex_->wr_id = sequence;
    ex_->wr_flags = IBV_SEND_INLINE;
    configure(sequence, memory, blocks, application_tag, false);
    ex_->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write_imm(ex_, peer_key, 0, htonl(static_cast<std::uint32_t>(sequence)));
    ibv_wr_set_sge(ex_, mkeys_[geometry_.slot_of(sequence)]->lkey, 0,
                   static_cast<std::uint32_t>(geometry_.signature.protected_size(blocks)));
    if (const int code = ibv_wr_complete(ex_); code != 0) {
        return tl::unexpected(failure_of(code, "ibv_wr_complete(write of a segment)"));
    }
    return {};
}

Result<void> Connection::post_open(std::uint64_t first, std::span<const SlotMemory> memories,
                                   std::uint16_t application_tag) noexcept {
    ibv_wr_start(ex_);
    for (std::size_t i = 0; i < memories.size(); ++i) {
        ex_->wr_id = first + i;
        ex_->wr_flags = IBV_SEND_INLINE | (i + 1 == memories.size() ? IBV_SEND_SIGNALED : 0);
        configure(first + i, memories[i], geometry_.blocks(), application_tag, true);
    }
    if (const int code = ibv_wr_complete(ex_); code != 0) {
        return tl::unexpected(failure_of(code, "ibv_wr_complete(configuration of MKEYs)"));
    }
    return {};
}

Result<void> Connection::post_receives(std::uint32_t length) noexcept {
    for (; length > 0; --length) {
        ibv_recv_wr request{}, *bad = nullptr;   // a write with immediate value needs no memory of its own
        if (const int code = ibv_post_recv(qp_.get(), &request, &bad); code != 0) {
            return tl::unexpected(failure_of(code, "ibv_post_recv"));
        }
    }
    return {};
}

Result<mlx5dv_mkey_err> Connection::check(std::uint16_t slot) noexcept {
    mlx5dv_mkey_err error{};
    if (const int code = mlx5dv_mkey_check(mkeys_[slot].get(), &error); code != 0) {
        return tl::unexpected(failure_of(code, "mlx5dv_mkey_check"));
    }
    return error;
}

Result<std::span<const ibv_wc>> Connection::poll() noexcept {
    const int length = ibv_poll_cq(cq_.get(), completions_at_once, completions_.data());
    if (length < 0) return tl::unexpected(failure_of(-length, "ibv_poll_cq"));
    return std::span<const ibv_wc>(completions_).first(static_cast<std::size_t>(length));
}

Result<void> Connection::arm() noexcept {
    if (const int code = ibv_req_notify_cq(cq_.get(), 0); code != 0) {
        return tl::unexpected(failure_of(code, "ibv_req_notify_cq"));
    }
    return {};
}

void Connection::drain_wake_ups() noexcept {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(channel_.get(), &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
}

}  // namespace ovsdr::mirror
