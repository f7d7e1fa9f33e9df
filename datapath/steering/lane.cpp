#include <algorithm>

#include "datapath/steering/edit.hpp"
#include "datapath/steering/fast_parser.hpp"
#include "datapath/steering/lane_impl.hpp"
#include "datapath/steering/parser.hpp"
#include "datapath/steering/reformat.hpp"
#include "datapath/steering/rewrite.hpp"
#include "datapath/steering/tunnel.hpp"
#include "datapath/steering/vport_metadata.hpp"
#include "datapath/steering/walk.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint32_t cache_seed = 0x9e3779b9;
constexpr std::uint64_t sample_seed = 0x2545f4914f6cdd1dULL;  ///< each lane draws a sequence, the same in every run
constexpr Key no_registers{};  ///< cached traces never copy from one

/// For a counter that only its lane writes.
void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

void apply_edits(const EditList& edits, rte_mbuf* packet, const Key& registers) noexcept {
    auto* frame = rte_pktmbuf_mtod(packet, std::uint8_t*);
    if (!edits.edits_reg_b()) return edits.apply(frame, packet->data_len, registers);
    set_reg_b(packet, edits.apply(frame, packet->data_len, registers, reg_b_of(packet)));
}

/// What packets of `outcome`, a set of one, go on with behind an op of state.
[[nodiscard]] std::span<const Op> ops_of_outcome(std::span<const Op> behind, std::uint16_t outcome) noexcept {
    while (behind.front().code == OpCode::outcome) {
        const Op& head = behind.front();
        if ((head.argument & outcome) != 0) return behind.subspan(1, head.value);
        behind = behind.subspan(1 + head.value);
    }
    return behind;
}

}  // namespace

Lane::Lane(Steering& steering, unsigned worker) : impl_(std::make_unique<Impl>(steering, worker)) {}
Lane::~Lane() = default;

void Lane::online() noexcept { impl_->steering().rcu.online(impl_->worker()); }

void Lane::offline() noexcept {
    impl_->flush();
    impl_->steering().rcu.offline(impl_->worker());
}

void Lane::quiescent() noexcept {
    impl_->flush();
    impl_->steering().rcu.quiescent(impl_->worker());
}

void Lane::from_vport(VportId vport, rte_mbuf** packets, unsigned length) noexcept {
    const Entrance entrance{.source = vport, .from_queue = false, .sqn = 0};
    impl_->process(entrance, packets, length);
}

void Lane::from_queue(std::uint32_t sqn, rte_mbuf** packets, unsigned length) noexcept {
    const Entrance entrance{.source = manager_vport, .from_queue = true, .sqn = sqn};
    impl_->process(entrance, packets, length);
}

void Lane::flush() noexcept { impl_->flush(); }

Lane::Impl::Impl(Steering& steering, unsigned worker)
    : steering_(steering.impl()),
      worker_(worker),
      random_(sample_seed + worker * 0x9e3779b97f4a7c15ULL),
      batches_(std::make_unique_for_overwrite<Batch[]>(max_destinations)) {
    steering_.rcu.add_lane(worker);
}

Lane::Impl::~Impl() {
    flush();
    steering_.rcu.offline(worker_);
    steering_.rcu.remove_lane(worker_);
}

void Lane::Impl::process(const Entrance& entrance, rte_mbuf** packets, unsigned length) noexcept {
    for (unsigned taken; length > 0; packets += taken, length -= taken) {
        taken = std::min(length, batch_length);
        process_batch(entrance, packets, taken);
    }
}

void Lane::Impl::process_batch(const Entrance& entrance, rte_mbuf** packets, unsigned length) noexcept {
    cached_by_ = &steering_.cache_key(entrance.source);
    const std::uint64_t epoch = cached_by_->epoch.load(std::memory_order_acquire);
    // Before a new key's first epoch there are no lines of its: those of the key before are laid out by other words.
    epoch_ = std::max(epoch & ~std::uint64_t{1}, cached_by_->first);
    changing_ = (epoch & 1) != 0;
    length = read_headers(entrance, packets, length);
    add(steering_.counts[worker_].looked_up, length);
    for (unsigned i = 0; i < length; ++i) lookups_[i].line = cache_.candidate(lookups_[i].hash);
    run(entrance, packets, length);
}

unsigned Lane::Impl::read_headers(const Entrance& entrance, rte_mbuf** packets, unsigned length) noexcept {
    constexpr unsigned ahead = 4;
    for (unsigned i = 0; i < std::min(ahead, length); ++i) rte_prefetch0(rte_pktmbuf_mtod(packets[i], void*));
    const auto seed = static_cast<std::uint32_t>(cache_seed ^ entrance.sqn ^ entrance.source.value << 8);
    const MaskedWords& words = cached_by_->words;
    Key whole;
    unsigned kept = 0;
    for (unsigned i = 0; i < length; ++i) {
        if (i + ahead < length) rte_prefetch0(rte_pktmbuf_mtod(packets[i + ahead], void*));
        rte_mbuf* packet = packets[i];
        set_source(packet, entrance.source);
        if (packet->nb_segs != 1 || packet->data_len < least_frame) [[unlikely]] {
            drop(DropReason::malformed, &packet, 1);
            continue;
        }
        const Key* key = &common_;
        if (words.deep || !parse_fast(rte_pktmbuf_mtod(packet, const std::uint8_t*), packet->data_len, common_)) {
            read_whole(entrance, packet, whole);
            key = &whole;
        }
        Lookup& lookup = lookups_[kept];
        lookup.hash = words.extract(*key, seed, lookup.words.data());
        cache_.prefetch_set(lookup.hash);
        packets[kept++] = packet;
    }
    return kept;
}

void Lane::Impl::read_whole(const Entrance& entrance, const rte_mbuf* packet, Key& key) const noexcept {
    const auto* frame = rte_pktmbuf_mtod(packet, const std::uint8_t*);
    static_cast<void>(parse(frame, packet->data_len, key));
    store_be32(key.bytes() + key_offset::gre_flags, entrance.sqn);  // the flags above it are parse_deep()'s
    store_be16(key.bytes() + key_offset::source_port, entrance.source.value);
    if (cached_by_->words.deep) parse_deep(frame, packet->data_len, cached_by_->parser, key);
}

/// In the order of arrival: packets of one flow never overtake each other.
void Lane::Impl::run(const Entrance& entrance, rte_mbuf** packets, unsigned length) noexcept {
    const std::uint64_t from = entrance.packed();
    const auto held_by = [&](unsigned i, FlowCache::Line* line) {
        return line->is_of(from, {lookups_[i].words.data(), cached_by_->words.length}) && counts(*line);
    };
    for (unsigned i = 0; i < length;) {
        FlowCache::Line* line = lookups_[i].line;
        if (line == nullptr || !held_by(i, line)) [[unlikely]] {
            miss(entrance, i, packets[i]);
            ++i;
            continue;
        }
        unsigned end = i + 1;
        while (end < length && line->in_turn == 0 && lookups_[end].line == line && held_by(end, line)) ++end;
        execute(line->ops(), packets + i, end - i);
        i = end;
    }
}

/// A quiet line is left as it is, but never so old that the log would not reach back to it.
bool Lane::Impl::renew(FlowCache::Line& line) const noexcept {
    if (cached_by_->quiet_since(line.epoch, line.bucket)) {
        if (epoch_ - line.epoch > ChangeLog::reach) line.epoch = epoch_;
        return true;
    }
    if (!cached_by_->still_holds(line.words(), line.rewritten, line.epoch, epoch_)) return false;
    line.epoch = epoch_;
    return true;
}

bool Lane::Impl::is_dead(const FlowCache::Line& line) const noexcept {
    const CacheKey& key = steering_.cache_key(Entrance::source_of(line.entrance));
    const std::uint64_t epoch = key.epoch.load(std::memory_order_relaxed) & ~std::uint64_t{1};
    if (line.epoch < key.first) return true;
    return epoch - line.epoch > 2 * ChangeLog::reach && !key.quiet_since(line.epoch, line.bucket);
}

void Lane::Impl::miss(const Entrance& entrance, unsigned index, rte_mbuf* packet) noexcept {
    const Lookup& lookup = lookups_[index];
    const FlowCache::Subject subject{.hash = lookup.hash,
                                     .entrance = entrance.packed(),
                                     .words = {lookup.words.data(), cached_by_->words.length}};
    const FlowCache::Line* line = cache_.find(subject, [this](FlowCache::Line& found) { return counts(found); });
    if (line != nullptr) {  // another way of the set, or an earlier packet of this batch put it there
        execute(line->ops(), &packet, 1);
        return;
    }
    add(steering_.counts[worker_].walked, 1);
    Key key;
    read_whole(entrance, packet, key);
    Walk walk(*this);
    walk.run(entrance, key, cached_by_->words.deep, packet);
    if (walk.cacheable()) remember(subject, walk);
}

void Lane::Impl::remember(const FlowCache::Subject& subject, const Walk& walk) noexcept {
    std::atomic_thread_fence(std::memory_order_acquire);
    if (changing_ || cached_by_->epoch.load(std::memory_order_relaxed) != epoch_) return;
    // A source that has got a key of its own meanwhile: its rules leave the common key's epoch as it is.
    if (&steering_.cache_key(Entrance::source_of(subject.entrance)) != cached_by_) return;
    std::uint32_t rewritten = 0;
    for (std::uint32_t i = 0; walk.rewritten() != 0 && i < cached_by_->words.length; ++i) {
        rewritten |= static_cast<std::uint32_t>(walk.rewritten() >> cached_by_->words.index[i] & 1) << i;
    }
    const std::uint16_t bucket = cached_by_->changes.bucket_of(subject.words.data(), rewritten);
    const bool in_turn = std::ranges::count_if(walk.ops(), [](const Op& op) { return is_stateful(op.code); }) > 1;
    const FlowCache::Trace trace{
        .epoch = epoch_, .rewritten = rewritten, .bucket = bucket, .in_turn = in_turn, .ops = walk.ops()};
    cache_.insert(subject, trace, [this](const FlowCache::Line& line) { return is_dead(line); });
}

void Lane::Impl::deliver(std::uint16_t destination, unsigned length) noexcept {
    rte_mbuf** packets = batches_[destination].packets.data();
    if (destination == cotenant_destination) {
        const Filter* transport = steering_.transport.load(std::memory_order_acquire);
        if (transport != nullptr) length = transport->take(transport->self, worker_, packets, length);
        if (length == 0) return;
    }
    const Sink* sink = steering_.sinks[destination].load(std::memory_order_acquire);
    if (sink == nullptr) [[unlikely]] {
        const bool cotenant = destination == cotenant_destination;
        drop(cotenant ? DropReason::nic_rx_miss : DropReason::no_vport, packets, length);
        return;
    }
    sink->deliver(sink->self, worker_, packets, length);
}

void Lane::Impl::flush() noexcept {
    for (unsigned i = 0; i < dirty_length_; ++i) {
        const std::uint16_t destination = dirty_[i];
        const unsigned length = pending_[destination];
        pending_[destination] = 0;
        deliver(destination, length);
    }
    dirty_length_ = 0;
}

void Lane::Impl::drop(DropReason reason, rte_mbuf** packets, unsigned length) noexcept {
    count_drops(reason, length);
    rte_pktmbuf_free_bulk(packets, length);
}

void Lane::Impl::count_drops(DropReason reason, unsigned length) noexcept {
    add(steering_.counts[worker_].drops[static_cast<unsigned>(reason)], length);
}

void Lane::Impl::execute(std::span<const Op> ops, rte_mbuf** packets, unsigned length) noexcept {
    for (std::size_t i = 0; i < ops.size(); ++i) {
        const Op& op = ops[i];
        switch (op.code) {
            case OpCode::output: output(op.destination, packets, length); return;
            case OpCode::drop: drop(static_cast<DropReason>(op.value), packets, length); return;
            case OpCode::copy_out:
                for (unsigned k = 0; k < length; ++k) rte_mbuf_refcnt_update(packets[k], 1);
                output(op.destination, packets, length);
                break;
            case OpCode::fork:
                copy_run(ops.subspan(i + 1, op.value), packets, length, 1);
                i += op.value;
                break;
            case OpCode::sample:
                copy_run(ops.subspan(i + 1, op.value), packets, length,
                         static_cast<const SamplerProgram*>(op.object)->ratio);
                i += op.value;
                break;
            case OpCode::first_hit:
            case OpCode::meter:
            case OpCode::flow_meter:
            case OpCode::connection:
                if (ops[i + 1].code == OpCode::outcome) return run_by_outcome(ops.subspan(i), packets, length);
                [[fallthrough]];
            default:
                length = apply(op, packets, length, &no_registers);
                if (length == 0) return;
        }
    }
}

/// Runs the op of state that `ops` begin with, and then what its outcomes lead to, in the order of the packets.
void Lane::Impl::run_by_outcome(std::span<const Op> ops, rte_mbuf** packets, unsigned length) noexcept {
    const Op& op = ops.front();
    const StatefulUse use = stateful_use(op);
    std::span<const Op> way;
    unsigned begin = 0;
    for (unsigned i = 0; i < length; ++i) {
        const std::uint8_t outcome = run_stateful(op, use, packets[i], static_cast<std::uint8_t>(op.value));
        const std::span<const Op> next = ops_of_outcome(ops.subspan(1), outcomes::of(outcome));
        if (next.data() != way.data() && i != begin) {
            execute(way, packets + begin, i - begin);
            begin = i;
        }
        way = next;
    }
    execute(way, packets + begin, length - begin);
}

/// Runs ops on references of their own to one packet in `ratio`.
void Lane::Impl::copy_run(std::span<const Op> ops, rte_mbuf** packets, unsigned length, std::uint32_t ratio) noexcept {
    std::array<rte_mbuf*, batch_length> branch;
    unsigned chosen = 0;
    for (unsigned k = 0; k < length; ++k) {
        if (ratio != 1 && !draw(ratio)) continue;
        rte_mbuf_refcnt_update(packets[k], 1);
        branch[chosen++] = packets[k];
    }
    if (chosen != 0) execute(ops, branch.data(), chosen);
}

std::uint8_t Lane::Impl::run_stateful(const Op& op, const StatefulUse& use, rte_mbuf* packet,
                                      std::uint8_t held) noexcept {
    if (!use.active) return held;
    if (use.connection != nullptr) {
        const auto direction = static_cast<ConnTrack::Direction>(op.argument & 1);
        return use.connection->track(direction, rte_pktmbuf_mtod(packet, std::uint8_t*), packet->data_len);
    }
    if (use.meter == nullptr) {
        return const_cast<AsoBulk*>(static_cast<const AsoBulk*>(op.object))->hit(op.value, (op.argument & 1) != 0);
    }
    const Colour initial = use.colour == Colour::undefined ? static_cast<Colour>(held & 3) : use.colour;
    const Colour colour =
        use.meter->mark(steering_.now(), initial, rte_pktmbuf_mtod(packet, std::uint8_t*), packet->pkt_len);
    return static_cast<std::uint8_t>(colour);
}

unsigned Lane::Impl::apply(const Op& op, rte_mbuf** packets, unsigned length, const Key* registers) noexcept {
    if (op.code == OpCode::count) {
        std::uint64_t bytes = 0;
        for (unsigned i = 0; i < length; ++i) bytes += packets[i]->pkt_len;
        auto* bulk = static_cast<CounterBulk*>(const_cast<void*>(op.object));
        bulk->add(worker_, op.value, length, bytes);
        return length;
    }
    if (is_stateful(op.code)) {  // of a cached trace, in which nobody looks at the outcome
        const StatefulUse use = stateful_use(op);
        for (unsigned i = 0; i < length; ++i) {
            static_cast<void>(run_stateful(op, use, packets[i], static_cast<std::uint8_t>(op.value)));
        }
        return length;
    }
    return edit(op, packets, length, *registers);
}

unsigned Lane::Impl::edit(const Op& op, rte_mbuf** packets, unsigned length, const Key& registers) noexcept {
    unsigned kept = 0;
    for (unsigned i = 0; i < length; ++i) {
        rte_mbuf* packet = writable(packets[i]);
        DropReason reason = DropReason::no_buffer;
        if (packet != nullptr && op.code == OpCode::push_vlan) packet = push_vlan(packet, op.value);
        if (packet != nullptr && op.code == OpCode::reformat) {
            packet = static_cast<const Reformat*>(op.object)->apply(packet, reason);
        }
        if (packet == nullptr) [[unlikely]] {
            count_drops(reason, 1);
            continue;
        }
        switch (op.code) {
            case OpCode::edit: apply_edits(*static_cast<const EditList*>(op.object), packet, registers); break;
            case OpCode::pop_vlan: pop_vlan(packet); break;
            case OpCode::tag: set_tag(packet, op.value); break;
            default: break;
        }
        packets[kept++] = packet;
    }
    return kept;
}

}  // namespace ovsdr::soft
