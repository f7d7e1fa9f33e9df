// The requester's sending: entries from the ring, packets of entries.
#include "datapath/rdma/roce/requester.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "datapath/rdma/aso_access.hpp"
#include "datapath/rdma/roce/address.hpp"
#include "datapath/rdma/roce/dc_initiator.hpp"
#include "datapath/rdma/roce/local_operations.hpp"
#include "datapath/rdma/roce/pair.hpp"

namespace ovsdr::soft::roce {

namespace {

constexpr std::uint64_t nothing = ~std::uint64_t{0};
constexpr std::uint64_t most_message = std::uint64_t{1} << 31;
/// Sequence numbers on their way at most: a quarter of the circle, so that old and new are told apart.
constexpr std::uint32_t most_span = 1 << 22;
constexpr unsigned atomic_size = 8;
/// An acknowledgement is asked for at least this often.
constexpr std::uint32_t ack_interval = Pace::widest / 4;

[[nodiscard]] bool is_read_or_atomic(std::uint8_t opcode) noexcept {
    return opcode == MLX5_OPCODE_RDMA_READ || opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA;
}

[[nodiscard]] bool is_write(std::uint8_t opcode) noexcept {
    return opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
}

}  // namespace

Requester::Requester(Pair& pair, const QueuePairSpec& spec, std::uint32_t stream)
    : pair_(pair),
      spec_(spec),
      dc_(spec_.is_dc(MLX5DV_DCTYPE_DCI) ? std::make_unique<Dc>(Dc{.peer = {.stream = stream}}) : nullptr),
      peer_(dc_ ? dc_->peer : pair.peer()),
      length_(std::max(1u, spec_.send.length)),
      entries_(std::make_unique<Entry[]>(length_)),
      next_block_(pair.next_block()) {
    reset();
}

void Requester::reset() noexcept {
    first_ = last_ = cursor_ = 0;
    cursor_packet_ = 0;
    start(0);
}

void Requester::start(std::uint32_t psn) noexcept {
    una_ = next_psn_ = highest_psn_ = fetched_psn_ = psn & mask24;
    reads_ = 0;
    recovering_ = signature_failed_ = false;
    retries_ = pair_.attr().retry_cnt;
    rnr_retries_ = pair_.attr().rnr_retry;
    wait_until_ = 0;
    deadline_ = retry_at_ = Service::never;
    pace_ = {};
    opened_ = answering_ = nothing;
    if (dc_) *dc_ = Dc{.peer = {.stream = dc_->peer.stream, .session = dc_->peer.session}};
    copy_.cancel();
    ready_ = true;
}

std::uint64_t Requester::posted() const noexcept {
    if (spec_.send.length == 0) return next_block_;
    const std::uint32_t counter = be32toh(spec_.send.doorbell->load(std::memory_order_acquire));
    const auto ahead = static_cast<std::uint16_t>(counter - static_cast<std::uint32_t>(next_block_));
    // More than the ring holds is no count of posts.
    return ahead > spec_.send.length ? next_block_ : next_block_ + ahead;
}

bool Requester::has_posts() const noexcept {
    return posted() != next_block_;
}

void Requester::send(Burst& burst, std::uint64_t now) noexcept {
    ready_ = false;
    if (wait_until_ != 0) return;
    const ibv_qp_state state = pair_.state();
    if (state != IBV_QPS_RTS && state != IBV_QPS_SQD) return;
    const bool was_idle = una_ == highest_psn_;
    Step step = Step::again;
    while (step == Step::sent || step == Step::again) step = burst.full() ? Step::blocked : this->step(burst, now);
    if (step == Step::blocked) ready_ = true;
    if (was_idle && una_ != highest_psn_) restart_timer(now);
}

Requester::Step Requester::step(Burst& burst, std::uint64_t now) noexcept {
    if (cursor_ == last_) {
        const Step step = fetch(now);
        if (step != Step::again) return step;
        if (cursor_ == last_) return Step::again;  // a local entry, executed
    }
    Entry& entry = at(cursor_);
    if (entry.failure != IBV_WC_SUCCESS) {
        settle();
        return Step::stop;
    }
    if (!may_send(entry)) return Step::stop;
    if (opened_ != cursor_ && !open(cursor_)) return Step::stop;
    if (entry.begins_session) {
        if (const Step step = begin_session(burst, entry, now); step != Step::again) return step;
    }
    if (dc_ && next_psn_ == dc_->first_psn && !send_session_packet(burst, Kind::connect)) return Step::blocked;
    const Step step = pair_.is_datagram() ? send_datagram(burst, entry) : send_packet(burst, entry, now);
    if (step == Step::sent && !pair_.is_reliable()) complete_until(next_psn_, now);
    return step;
}

/// Takes the next entry of the ring into the list. `again`: look once more; `stop`: nothing to begin now.
Requester::Step Requester::fetch(std::uint64_t now) noexcept {
    if (copy_.under_way()) return copy_memory();
    if (signature_failed_) {
        signature_failed_ = false;
        pair_.stop_sending();
    }
    if (pair_.state() != IBV_QPS_RTS || !has_posts()) {
        if (pair_.state() == IBV_QPS_SQD && idle()) pair_.drained();
        return Step::stop;
    }
    if (!dc_) return take(now);
    Requester& owner = pair_.initiator().owner_of_head();
    const Step step = owner.take(now);
    if (&owner != this && step == Step::again) owner.wake();
    return step;
}

Requester::Step Requester::take(std::uint64_t now) noexcept {
    opened_ = nothing;
    const bool good = read_entry(spec_.send, next_block_, spec_.type, entry_);
    if (good && entry_.fence == Fence::strong && !idle()) return Step::stop;
    if (good && (entry_.fence == Fence::reads || entry_.fence == Fence::small_and_reads) && reads_ != 0) {
        return Step::stop;
    }
    Entry entry{.block = next_block_,
                .psn = fetched_psn_,
                .blocks = static_cast<std::uint16_t>(entry_.blocks),
                .opcode = entry_.opcode,
                .signaled = entry_.signaled,
                .failure = good ? IBV_WC_SUCCESS : IBV_WC_LOC_QP_OP_ERR};
    if (good && !is_read_or_atomic(entry.opcode) && completion_opcode(entry.opcode) != IBV_WC_RDMA_WRITE &&
        entry.opcode != MLX5_OPCODE_SEND && entry.opcode != MLX5_OPCODE_SEND_IMM &&
        entry.opcode != MLX5_OPCODE_SEND_INVAL && !failed()) {
        return execute_locally();
    }
    if (failed()) {
        next_block_ += entry.blocks;
        complete(entry, IBV_WC_WR_FLUSH_ERR);
        return Step::again;
    }
    if (good) entry.failure = measure(entry);
    if (entry.failure == IBV_WC_SUCCESS && !idle() && psn_distance(una_, fetched_psn_) + entry.packets > most_span) {
        return Step::stop;
    }
    if (dc_ && entry.failure == IBV_WC_SUCCESS) entry.begins_session = is_new_target(now);
    at(last_) = entry;
    if (entry.failure == IBV_WC_SUCCESS) opened_ = last_;
    ++last_;
    next_block_ += entry.blocks;
    fetched_psn_ = psn_add(fetched_psn_, entry.packets);
    return Step::again;
}

/// `entry_` is open afterwards, unless the entry fails.
ibv_wc_status Requester::measure(Entry& entry) noexcept {
    entry.answers = is_read_or_atomic(entry.opcode);
    if (entry.answers && pair_.attr().max_rd_atomic == 0) return IBV_WC_LOC_QP_OP_ERR;
    if (entry_.is_inline) {
        entry.size = entry_.inline_size;
    } else {
        const Transfer::Spec spec{.memory = spec_.state.memory(),
                                  .domain = spec_.domain,
                                  .access = entry.answers ? static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE) : 0u,
                                  .remote = false,
                                  .stripe = pair_.engine().worker()};
        if (transfer_.begin(spec, entry_.sges()) != Transfer::Fault::none) return IBV_WC_LOC_PROT_ERR;
        entry.size = transfer_.size();
    }
    if (entry.size > most_message) return IBV_WC_LOC_LEN_ERR;
    if (pair_.is_datagram() && entry.size > pair_.mtu()) return IBV_WC_LOC_LEN_ERR;
    const bool atomic = entry.answers && entry.opcode != MLX5_OPCODE_RDMA_READ;
    if (atomic && entry.size != atomic_size) return IBV_WC_LOC_LEN_ERR;
    entry.packets = atomic ? 1
                           : std::max<std::uint32_t>(
                                 1, static_cast<std::uint32_t>((entry.size + pair_.mtu() - 1) / pair_.mtu()));
    return IBV_WC_SUCCESS;
}

/// The entry in `entry_`, once all before it are complete.
Requester::Step Requester::execute_locally() noexcept {
    if (!idle()) return Step::stop;
    int error = 0;
    switch (entry_.opcode) {
        case MemoryCopy::opcode: return copy_memory();
        case MLX5_OPCODE_UMR:
            error = configure_mkey(spec_.state, spec_.domain, spec_.qpn, {entry_.bytes.data(), entry_.size});
            break;
        case MLX5_OPCODE_LOCAL_INVAL:
            error = invalidate_locally(spec_.state, spec_.domain, spec_.qpn, be32toh(entry_.immediate));
            break;
        case opcode_access_aso:
            error = access_aso(spec_.state,
                               {.pdn = spec_.domain_number, .domain = spec_.domain, .stripe = pair_.engine().worker()},
                               {entry_.bytes.data(), entry_.size});
            break;
        default: break;
    }
    return finish_locally(error == 0        ? IBV_WC_SUCCESS
                          : error == EACCES ? IBV_WC_MW_BIND_ERR
                          : error == EFAULT ? IBV_WC_LOC_PROT_ERR
                                            : IBV_WC_LOC_QP_OP_ERR);
}

/// A slice of the copy in `entry_`; the rest in later turns.
Requester::Step Requester::copy_memory() noexcept {
    if (!MemoryCopy::there_is(spec_.state.device().profile())) return finish_locally(IBV_WC_LOC_QP_OP_ERR);
    opened_ = answering_ = nothing;
    const ibv_wc_status status = copy_.advance({.memory = spec_.state.memory(),
                                                .domain = spec_.domain,
                                                .access = 0,
                                                .remote = false,
                                                .stripe = pair_.engine().worker()},
                                               {entry_.bytes.data(), entry_.size});
    if (!copy_.under_way()) return finish_locally(status);
    ready_ = true;
    return Step::stop;
}

/// Takes the local entry in `entry_` off the ring.
Requester::Step Requester::finish_locally(ibv_wc_status status) noexcept {
    const Entry entry{.block = next_block_,
                      .blocks = static_cast<std::uint16_t>(entry_.blocks),
                      .opcode = entry_.opcode,
                      .signaled = entry_.signaled};
    next_block_ += entry.blocks;
    complete(entry, status);
    if (status == IBV_WC_SUCCESS) return Step::again;
    pair_.send_queue_failed(*this);
    return Step::stop;
}

/// Reads an entry again, to send it again.
bool Requester::open(std::uint64_t index) noexcept {
    Entry& entry = at(index);
    opened_ = nothing;
    ibv_wc_status status = IBV_WC_LOC_QP_OP_ERR;
    Entry now = entry;
    if (read_entry(spec_.send, entry.block, spec_.type, entry_) && entry_.opcode == entry.opcode) {
        status = measure(now);
        if (status == IBV_WC_SUCCESS && now.size != entry.size) status = IBV_WC_LOC_QP_OP_ERR;
    }
    if (status == IBV_WC_SUCCESS) {
        opened_ = index;
        return true;
    }
    local_failure(entry, status);
    return false;
}

bool Requester::may_send(const Entry& entry) const noexcept {
    if (!pair_.is_reliable()) return true;
    if (entry.begins_session && cursor_ != first_) return false;
    if (entry.answers && reads_ >= pair_.attr().max_rd_atomic) return false;
    return psn_distance(una_, next_psn_) < static_cast<std::int32_t>(pace_.window());
}

bool Requester::fill(std::uint64_t offset, std::span<std::byte> to) noexcept {
    if (entry_.is_inline) {
        std::memcpy(to.data(), entry_.inline_bytes.data() + offset, to.size());
        return true;
    }
    const Transfer::Fault fault = transfer_.gather(offset, to);
    signature_failed_ |= spec_.stops_at_signature_errors && transfer_.signature_failed();
    if (fault == Transfer::Fault::none) return true;
    local_failure(at(cursor_), IBV_WC_LOC_PROT_ERR);
    return false;
}

Requester::Step Requester::send_packet(Burst& burst, Entry& entry, std::uint64_t now) noexcept {
    if (entry.answers) return send_request(burst, entry, now);
    const bool write = is_write(entry.opcode);
    const bool first = cursor_packet_ == 0, last = cursor_packet_ + 1 == entry.packets;
    const bool immediate = last && (entry.opcode == MLX5_OPCODE_SEND_IMM || entry.opcode == MLX5_OPCODE_RDMA_WRITE_IMM);
    const bool invalidate = last && entry.opcode == MLX5_OPCODE_SEND_INVAL;
    const std::uint8_t low = opcode_of(write ? Kind::write : Kind::send, first, last, immediate, invalidate);
    const std::uint64_t offset = std::uint64_t{cursor_packet_} * pair_.mtu();
    const auto size = static_cast<unsigned>(std::min<std::uint64_t>(entry.size - offset, pair_.mtu()));
    const bool window_ends = psn_distance(una_, next_psn_) + 1 >= static_cast<std::int32_t>(pace_.window());
    const bool asks =
        pair_.is_reliable() && (last || window_ends || next_psn_ % ack_interval == 0 || burst.ends_with(size));
    Burst::Packet packet;
    if (!burst.begin({.path = peer_.path,
                      .opcode = static_cast<std::uint8_t>(static_cast<std::uint8_t>(pair_.service()) | low),
                      .qpn = peer_.qpn,
                      .psn = next_psn_,
                      .ack_request = asks,
                      .solicited = last && entry_.solicited,
                      .extensions = extensions_size(pair_.service(), operations[low]),
                      .payload = size},
                     packet)) {
        return Step::blocked;
    }
    HeaderWriter writer{packet.extensions};
    if (pair_.service() == ServiceType::xrc) writer.put(htobe32(entry_.xrc_srq));
    if (dc_) writer.put(dc_header());
    if (write && first) {
        writer.put(Reth{.address = htobe64(entry_.remote_address),
                        .rkey = htobe32(entry_.rkey),
                        .size = htobe32(static_cast<std::uint32_t>(entry.size))});
    }
    if (immediate || invalidate) writer.put(entry_.immediate);
    if (!fill(offset, {packet.payload, size})) {
        burst.abandon(packet);
        return Step::stop;
    }
    burst.finish(packet);
    if (asks && next_psn_ == highest_psn_) pace_.sent(next_psn_, now);
    advance(entry, 1);
    return Step::sent;
}

/// The next piece of a read, or an atomic.
Requester::Step Requester::send_request(Burst& burst, Entry& entry, std::uint64_t now) noexcept {
    const bool read = entry.opcode == MLX5_OPCODE_RDMA_READ;
    const std::uint32_t end = std::min(entry.packets, (cursor_packet_ / read_piece + 1) * read_piece);
    const Kind kind = read                                     ? Kind::read
                      : entry.opcode == MLX5_OPCODE_ATOMIC_CS ? Kind::compare_swap
                                                               : Kind::fetch_add;
    const std::uint8_t low = opcode_of(kind, true, true);
    Burst::Packet packet;
    if (!burst.begin({.path = peer_.path,
                      .opcode = static_cast<std::uint8_t>(static_cast<std::uint8_t>(pair_.service()) | low),
                      .qpn = peer_.qpn,
                      .psn = next_psn_,
                      .ack_request = true,
                      .solicited = entry_.solicited,
                      .extensions = extensions_size(pair_.service(), operations[low]),
                      .payload = 0},
                     packet)) {
        return Step::blocked;
    }
    HeaderWriter writer{packet.extensions};
    if (pair_.service() == ServiceType::xrc) writer.put(htobe32(entry_.xrc_srq));
    if (dc_) writer.put(dc_header());
    if (read) {
        const std::uint64_t offset = std::uint64_t{cursor_packet_} * pair_.mtu();
        writer.put(Reth{.address = htobe64(entry_.remote_address + offset),
                        .rkey = htobe32(entry_.rkey),
                        .size = htobe32(static_cast<std::uint32_t>(
                            std::min<std::uint64_t>(entry.size, std::uint64_t{end} * pair_.mtu()) - offset))});
    } else {
        writer.put(AtomicEth{.address = htobe64(entry_.remote_address),
                             .rkey = htobe32(entry_.rkey),
                             .swap_add = htobe64(entry_.swap_add),
                             .compare = htobe64(entry_.compare)});
    }
    burst.finish(packet);
    ++reads_;
    if (next_psn_ == highest_psn_) pace_.sent(next_psn_, now);
    advance(entry, end - cursor_packet_);
    return Step::sent;
}

/// To what the entry's address vector says; false: it says nothing that can be.
bool Requester::set_path(Path& path) noexcept {
    const mlx5_wqe_av& address = entry_.address;
    const std::uint32_t grh = be32toh(address.grh_gid_fl);
    const Addresses& own = pair_.transport().addresses();
    const std::uint32_t source = grh >> 20 & 0xff;
    ibv_gid destination;
    std::memcpy(destination.raw, address.rgid, sizeof destination.raw);
    if (!(grh & 1u << 30) || source >= own.gids.size() || is_ipv4(own.gids[source].gid) != is_ipv4(destination)) {
        return false;
    }
    PathSpec spec{.source_mac = own.mac,
                  .source = own.gids[source].gid,
                  .destination = destination,
                  .traffic_class = address.tclass,
                  .hop_limit = address.hop_limit,
                  .flow_label = grh & 0xfffff,
                  .udp_source = be16toh(address.rlid),
                  .local = own.holds(destination, own.gids[source].vlan),
                  .multicast = is_multicast(destination),
                  .blocked = spec_.create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB ? spec_.qpn : 0,
                  .vlan = own.gids[source].vlan,
                  .priority = priority_of(address)};
    std::copy(std::begin(address.rmac), std::end(address.rmac), spec.destination_mac.begin());
    path = make_path(spec);
    return true;
}

Requester::Step Requester::send_datagram(Burst& burst, Entry& entry) noexcept {
    const mlx5_wqe_av& address = entry_.address;
    if (!set_path(datagram_path_)) {
        local_failure(entry, IBV_WC_LOC_QP_OP_ERR);
        return Step::stop;
    }
    const bool immediate = entry.opcode == MLX5_OPCODE_SEND_IMM;
    const std::uint8_t low = opcode_of(Kind::send, true, true, immediate);
    const auto size = static_cast<unsigned>(entry.size);
    Burst::Packet packet;
    if (!burst.begin({.path = datagram_path_,
                      .opcode = static_cast<std::uint8_t>(static_cast<std::uint8_t>(ServiceType::ud) | low),
                      .qpn = be32toh(address.dqp_dct) & mask24,
                      .psn = next_psn_,
                      .solicited = entry_.solicited,
                      .extensions = extensions_size(ServiceType::ud, operations[low]),
                      .payload = size},
                     packet)) {
        return Step::blocked;
    }
    const std::uint32_t asked = be32toh(address.key.qkey.qkey);
    HeaderWriter writer{packet.extensions};
    // A Q_Key with its highest bit set stands for the queue's own (IBTA 10.2.5).
    writer.put(Deth{.qkey = htobe32(asked & 0x80000000 ? pair_.attr().qkey : asked), .source = htobe32(spec_.qpn)});
    if (immediate) writer.put(entry_.immediate);
    if (!fill(0, {packet.payload, size})) {
        burst.abandon(packet);
        return Step::stop;
    }
    burst.finish(packet);
    advance(entry, 1);
    return Step::sent;
}

void Requester::advance(const Entry& entry, std::uint32_t packets) noexcept {
    next_psn_ = psn_add(next_psn_, packets);
    cursor_packet_ += packets;
    if (cursor_packet_ >= entry.packets) {
        ++cursor_;
        cursor_packet_ = 0;
    }
    if (psn_distance(highest_psn_, next_psn_) > 0) highest_psn_ = next_psn_;
}

}  // namespace ovsdr::soft::roce
