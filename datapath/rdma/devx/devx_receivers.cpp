// CREATE_TIR and CREATE_RQT: where rules lead packets, one receive queue or those of a table by a hash.
//
// The hash is Toeplitz's (XOR8 is BAD_PARAM) over outer headers, or with tunnel offloads over those of the packet that
// a tunnel carries; no LRO, no blocking of one's own packets. MODIFY_RQT replaces the list while packets come; nothing
// of a TIR can be modified (BAD_OP).
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "datapath/rdma/devx/devx_layout.hpp"
#include "datapath/rdma/devx/devx_queue_domains.hpp"
#include "datapath/rdma/devx/devx_resource.hpp"
#include "datapath/rdma/ethernet/receive_queue.hpp"
#include "datapath/rdma/ethernet/rss.hpp"

namespace ovsdr::soft::devx {

using prm::Field;
using prm::Opcode;
using prm::queue_context;
using prm::Status;

namespace {

[[nodiscard]] std::uint32_t field(Input in, Field which) {
    return static_cast<std::uint32_t>(prm::get(in, prm::within(queue_context, which)));
}

/// Receive queues that are held.
class HeldQueues {
public:
    HeldQueues() = default;
    HeldQueues(const HeldQueues&) = delete;
    HeldQueues& operator=(const HeldQueues&) = delete;
    ~HeldQueues() {
        for (ReceiveQueue* queue : queues_) queue->release();
    }
    [[nodiscard]] bool add(DeviceState& state, std::uint32_t rqn) {
        return state.with_receive_queue(rqn, [&](ReceiveQueue& queue) {
            queues_.push_back(&queue);
            queue.hold();
        });
    }
    void swap(HeldQueues& other) noexcept { queues_.swap(other.queues_); }
    [[nodiscard]] const std::vector<ReceiveQueue*>& list() const noexcept { return queues_; }

private:
    std::vector<ReceiveQueue*> queues_;
};

/// The list of a RQ table context.
[[nodiscard]] Status read_list(DeviceState& state, Input in, std::uint32_t most, HeldQueues& queues) {
    namespace rqtc = prm::rqtc;
    const std::uint32_t length = field(in, rqtc::actual_size);
    if (length == 0 || length > most || !std::has_single_bit(length)) return Status::bad_param;
    if (in.size() * 8 < queue_context + rqtc::list + length * 32ull) return Status::bad_inp_len;
    for (std::uint32_t i = 0; i < length; ++i) {
        if (!queues.add(state, field(in, {rqtc::list + 32 * i + 8, 24}))) return Status::bad_res;
    }
    return Status::ok;
}

class Rqt final : public Resource {
public:
    Rqt(DeviceState& state, std::uint32_t most, HeldQueues& queues)
        : Resource(state.queue_numbers().take()),
          state_(state),
          most_(most),
          table_(std::make_shared<QueueTable>(queues.list())) {
        queues_.swap(queues);
        state_.resources().add(number(), *this);
    }
    ~Rqt() override {
        state_.resources().remove(number());
        state_.queue_numbers().give_back(number());
    }
    [[nodiscard]] std::shared_ptr<const QueueTable> table() const noexcept { return table_; }

    bool takes(Opcode opcode) const noexcept override {
        return opcode == Opcode::modify_rqt || opcode == Opcode::query_rqt;
    }
    Status execute(Opcode opcode, Input in, Output out) override {
        return opcode == Opcode::query_rqt ? query(out) : modify(in);
    }

private:
    Status modify(Input in) {
        if (prm::get(in, prm::modify_bitmask) != prm::rqtc::modify_list) return Status::bad_param;
        HeldQueues queues;
        if (const Status status = read_list(state_, in, most_, queues); status != Status::ok) return status;
        table_->replace(queues.list());
        state_.device().steering().synchronize();  // who is on the way to the old ones
        queues_.swap(queues);
        return Status::ok;
    }
    Status query(Output out) const {
        prm::set(out, prm::within(queue_context, prm::rqtc::max_size), most_);
        prm::set(out, prm::within(queue_context, prm::rqtc::actual_size), queues_.list().size());
        return Status::ok;
    }

    DeviceState& state_;
    const std::uint32_t most_;
    HeldQueues queues_;
    const std::shared_ptr<QueueTable> table_;
};

/// `spread` is empty where the TIR leads to the queue itself and looks inside no tunnel.
class Tir final : public Resource {
public:
    Tir(DeviceState& state, HeldQueues& direct, Held table, std::unique_ptr<RssReceiver> spread, Held domain)
        : Resource(state.queue_numbers().take()),
          state_(state),
          table_(std::move(table)),
          spread_(std::move(spread)),
          domain_(std::move(domain)) {
        direct_.swap(direct);
    }
    ~Tir() override { state_.queue_numbers().give_back(number()); }

    bool takes(Opcode opcode) const noexcept override {
        return opcode == Opcode::modify_tir || opcode == Opcode::query_tir;
    }
    Status execute(Opcode, Input, Output) override { return Status::bad_op; }
    Sink sink() noexcept override { return spread_ ? spread_->sink() : direct_.list().front()->sink(); }

private:
    DeviceState& state_;
    HeldQueues direct_;
    const Held table_;
    const std::unique_ptr<RssReceiver> spread_;
    const Held domain_;
};

/// What one of the two selectors asks for; BAD_PARAM for what the device does not hash, or two things in one place.
[[nodiscard]] Status read_selector(Input in, std::uint32_t selector, RssFields& fields) {
    namespace tirc = prm::tirc;
    constexpr std::uint8_t protocol_tcp = 6, protocol_udp = 17;
    constexpr std::uint32_t ports = tirc::source_port | tirc::destination_port;
    constexpr std::uint32_t known = tirc::source | tirc::destination | ports | tirc::ipsec_spi;
    const std::uint32_t selected = field(in, prm::within(selector, tirc::selected));
    if ((selected & ~known) || ((selected & tirc::ipsec_spi) && (selected & ports))) return Status::bad_param;
    fields.source = selected & tirc::source;
    fields.destination = selected & tirc::destination;
    fields.source_port = selected & tirc::source_port;
    fields.destination_port = selected & tirc::destination_port;
    fields.spi = selected & tirc::ipsec_spi;
    if (fields.source || fields.destination) {
        fields.ip_version = field(in, prm::within(selector, tirc::l3_is_v6)) ? 6 : 4;
    }
    const bool udp = field(in, prm::within(selector, tirc::l4_is_udp));
    if (fields.source_port || fields.destination_port) fields.protocol = udp ? protocol_udp : protocol_tcp;
    return Status::ok;
}

/// The inner selector needs tunnel offloads, and no outer one beside it.
[[nodiscard]] Status read_hash(Input in, RssFields& fields) {
    namespace tirc = prm::tirc;
    RssFields inner;
    Status status = read_selector(in, tirc::outer, fields);
    if (status == Status::ok) status = read_selector(in, tirc::inner, inner);
    if (status != Status::ok) return status;
    if (inner.any()) {
        if (fields.any() || !field(in, tirc::tunneled)) return Status::bad_param;
        fields = inner;
        fields.inner = true;
    }
    fields.symmetric = field(in, tirc::symmetric);
    return Status::ok;
}

[[nodiscard]] std::unique_ptr<RssReceiver> make_spread(Input in, const RssFields& fields,
                                                       std::shared_ptr<const QueueTable> table) {
    std::array<std::uint8_t, Toeplitz::key_size> key;
    for (std::uint32_t i = 0; i < key.size(); ++i) {
        key[i] = static_cast<std::uint8_t>(field(in, {prm::tirc::key + 8 * i, 8}));
    }
    return std::make_unique<RssReceiver>(fields, key, std::move(table), field(in, prm::tirc::tunneled) != 0);
}

}  // namespace

Status create_rqt(DeviceState& state, Input in, std::unique_ptr<Resource>& made) {
    namespace rqtc = prm::rqtc;
    const std::uint32_t most = field(in, rqtc::max_size);
    if (field(in, rqtc::list_type) != 0 || most == 0 || most > rqtc::most) return Status::bad_param;
    HeldQueues queues;
    if (const Status status = read_list(state, in, most, queues); status != Status::ok) return status;
    made = std::make_unique<Rqt>(state, most, queues);
    return Status::ok;
}

Status create_tir(DeviceState& state, Input in, std::unique_ptr<Resource>& made) {
    namespace tirc = prm::tirc;
    const std::uint32_t type = field(in, tirc::disp_type);
    const std::uint32_t function = field(in, tirc::hash_function);
    if (type > tirc::indirect || field(in, tirc::lro) || field(in, tirc::self_lb_block)) return Status::bad_param;
    RssFields fields;
    if (const Status status = read_hash(in, fields); status != Status::ok) return status;
    Held domain, table;
    HeldQueues direct;
    std::unique_ptr<RssReceiver> spread;
    if (!hold_transport_domain(state, field(in, tirc::transport_domain), domain)) return Status::bad_res;
    if (type == tirc::direct) {
        if (!direct.add(state, field(in, tirc::inline_rqn))) return Status::bad_res;
        if (field(in, tirc::tunneled)) spread = make_spread(in, {}, std::make_shared<QueueTable>(direct.list()));
    } else {
        if (function != tirc::toeplitz) return Status::bad_param;
        table = find_resource<Rqt>(state, field(in, tirc::rqtn));
        if (!table.get()) return Status::bad_res;
        spread = make_spread(in, fields, static_cast<Rqt*>(table.get())->table());
    }
    made = std::make_unique<Tir>(state, direct, std::move(table), std::move(spread), std::move(domain));
    return Status::ok;
}

}  // namespace ovsdr::soft::devx
