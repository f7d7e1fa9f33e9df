// The requester's sessions, of a DC initiator's streams.
#include <algorithm>
#include <cstring>

#include "datapath/rdma/roce/pair.hpp"
#include "datapath/rdma/roce/requester.hpp"

namespace ovsdr::soft::roce {

namespace {

/// A session that was not used for so long the target may have given up: see DcTarget::silence.
constexpr std::uint64_t longest_idle = 1'000'000'000;  // ns
constexpr unsigned log_session_unit = 17;              // sessions count time in units of 2^17 ns: 131 µs

}  // namespace

/// Of the entry in `entry_`.
bool Requester::is_new_target(std::uint64_t now) noexcept {
    const bool is_same = dc_->has_target && std::memcmp(&dc_->target, &entry_.address, sizeof dc_->target) == 0;
    const bool is_stale = idle() && now - std::min(now, dc_->last_used) > longest_idle;
    dc_->target = entry_.address;
    dc_->has_target = true;
    return !is_same || is_stale;
}

/// Everything before the entry is complete, and it is open.
Requester::Step Requester::begin_session(Burst& burst, Entry& entry, std::uint64_t now) noexcept {
    if (dc_->connected && !send_session_packet(burst, Kind::disconnect)) return Step::blocked;
    dc_->connected = false;
    Peer& peer = dc_->peer;
    if (!set_path(peer.path)) {
        local_failure(entry, IBV_WC_LOC_QP_OP_ERR);
        return Step::stop;
    }
    const mlx5_wqe_av& address = entry_.address;
    peer.set_own(pair_.transport().addresses().gids[be32toh(address.grh_gid_fl) >> 20 & 0xff]);
    std::memcpy(peer.gid.raw, address.rgid, sizeof peer.gid.raw);
    peer.qpn = be32toh(address.dqp_dct) & mask24;
    // A number that no packet of an earlier session has, also of a queue pair that had our number before.
    const auto by_clock = static_cast<std::uint32_t>(now >> log_session_unit);
    const bool is_later = static_cast<std::int32_t>(by_clock - peer.session) > 0;
    peer.session = is_later ? by_clock : peer.session + 1;
    dc_->access_key = address.key.dc_key;
    dc_->first_psn = entry.psn;
    dc_->last_used = now;
    dc_->connected = true;
    pace_ = {};
    entry.begins_session = false;
    return Step::again;
}

DcEth Requester::dc_header() const noexcept {
    return {htobe32(peer_.stream), htobe32(peer_.session), htobe32(spec_.qpn)};
}

bool Requester::send_session_packet(Burst& burst, Kind kind) noexcept {
    const std::uint8_t low = opcode_of(kind, true, true);
    Burst::Packet packet;
    if (!burst.begin({.path = peer_.path,
                      .opcode = static_cast<std::uint8_t>(static_cast<std::uint8_t>(ServiceType::dc) | low),
                      .qpn = peer_.qpn,
                      .psn = next_psn_,
                      .extensions = extensions_size(ServiceType::dc, operations[low]),
                      .payload = 0},
                     packet)) {
        return false;
    }
    HeaderWriter writer{packet.extensions};
    writer.put(dc_header());
    if (kind == Kind::connect) writer.put(DcConnectEth{dc_->access_key});
    burst.finish(packet);
    return true;
}

void Requester::fail_stream() noexcept {
    dc_->failed = true;
    dc_->has_target = dc_->connected = false;
    flush_taken();
}

void Requester::recover() noexcept {
    dc_->failed = false;
    retries_ = pair_.attr().retry_cnt;
    rnr_retries_ = pair_.attr().rnr_retry;
    recovering_ = false;
}

}  // namespace ovsdr::soft::roce
