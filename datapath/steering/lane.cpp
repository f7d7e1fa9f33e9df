#include <algorithm>

#include "datapath/steering/edit.hpp"
#include "datapath/steering/lane_impl.hpp"
#include "datapath/steering/parser.hpp"
#include "datapath/steering/rewrite.hpp"
#include "datapath/steering/vport_metadata.hpp"
#include "datapath/steering/walk.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint32_t cache_seed = 0x9e3779b9;
constexpr Key no_registers{};  ///< cached traces never copy from one

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
    for (; length > batch_length; packets += batch_length, length -= batch_length) {
        impl_->process(entrance, packets, batch_length);
    }
    impl_->process(entrance, packets, length);
}

void Lane::from_queue(std::uint32_t sqn, rte_mbuf** packets, unsigned length) noexcept {
    const Entrance entrance{.source = manager_vport, .from_queue = true, .sqn = sqn};
    for (; length > batch_length; packets += batch_length, length -= batch_length) {
        impl_->process(entrance, packets, batch_length);
    }
    impl_->process(entrance, packets, length);
}

void Lane::flush() noexcept { impl_->flush(); }

Lane::Impl::Impl(Steering& steering, unsigned worker)
    : steering_(steering.impl()), worker_(worker), batches_(std::make_unique_for_overwrite<Batch[]>(max_destinations)) {
    steering_.rcu.add_lane(worker);
}

Lane::Impl::~Impl() {
    flush();
    steering_.rcu.offline(worker_);
    steering_.rcu.remove_lane(worker_);
}

void Lane::Impl::process(const Entrance& entrance, rte_mbuf** packets, unsigned length) noexcept {
    if (length == 0) return;
    epoch_ = steering_.epoch.load(std::memory_order_acquire);
    cached_by_ = steering_.cache_words.load(std::memory_order_acquire);
    length = read_headers(entrance, packets, length);
    for (unsigned i = 0; i < length; ++i) lookups_[i].line = cache_.candidate(lookups_[i].hash);
    run(entrance, packets, length);
}

unsigned Lane::Impl::read_headers(const Entrance& entrance, rte_mbuf** packets, unsigned length) noexcept {
    constexpr unsigned ahead = 4;
    for (unsigned i = 0; i < std::min(ahead, length); ++i) rte_prefetch0(rte_pktmbuf_mtod(packets[i], void*));
    const auto seed = static_cast<std::uint32_t>(cache_seed ^ entrance.sqn ^ entrance.source.value << 8);
    unsigned kept = 0;
    for (unsigned i = 0; i < length; ++i) {
        if (i + ahead < length) rte_prefetch0(rte_pktmbuf_mtod(packets[i + ahead], void*));
        rte_mbuf* packet = packets[i];
        set_source(packet, entrance.source);
        Key& key = keys_[kept];
        if (packet->nb_segs != 1 || !parse(rte_pktmbuf_mtod(packet, std::uint8_t*), packet->data_len, key)) [[unlikely]] {
            drop(DropReason::malformed, &packet, 1);
            continue;
        }
        set_source_words(entrance, key);
        Lookup& lookup = lookups_[kept];
        lookup.hash = cached_by_->extract(key, seed, lookup.words.data());
        cache_.prefetch_set(lookup.hash);
        packets[kept++] = packet;
    }
    return kept;
}

void Lane::Impl::set_source_words(const Entrance& entrance, Key& key) const noexcept {
    store_be32(key.bytes() + key_offset::source_sqn, entrance.sqn);
    store_be16(key.bytes() + key_offset::source_port, entrance.source.value);
}

/// In the order of arrival: packets of one flow never overtake each other.
void Lane::Impl::run(const Entrance& entrance, rte_mbuf** packets, unsigned length) noexcept {
    const std::uint64_t from = entrance.packed();
    const auto held_by = [&](unsigned i, const FlowCache::Line* line) {
        return FlowCache::holds(*line, epoch_, from, {lookups_[i].words.data(), cached_by_->length});
    };
    for (unsigned i = 0; i < length;) {
        const FlowCache::Line* line = lookups_[i].line;
        if (line == nullptr || !held_by(i, line)) [[unlikely]] {
            miss(entrance, i, packets[i]);
            ++i;
            continue;
        }
        unsigned end = i + 1;
        while (end < length && lookups_[end].line == line && held_by(end, line)) ++end;
        execute({line->ops, line->op_count}, packets + i, end - i);
        i = end;
    }
}

void Lane::Impl::miss(const Entrance& entrance, unsigned index, rte_mbuf* packet) noexcept {
    const Lookup& lookup = lookups_[index];
    const std::span<const std::uint64_t> words{lookup.words.data(), cached_by_->length};
    const FlowCache::Line* line = cache_.find(lookup.hash, epoch_, entrance.packed(), words);
    if (line != nullptr) {  // another way of the set, or an earlier packet of this batch put it there
        execute({line->ops, line->op_count}, &packet, 1);
        return;
    }
    Walk walk(*this);
    walk.run(entrance, keys_[index], packet);
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool still = (epoch_ & 1) == 0 && steering_.epoch.load(std::memory_order_relaxed) == epoch_;
    if (walk.cacheable() && still && cached_by_->length <= FlowCache::max_words) {
        cache_.insert(lookup.hash, epoch_, entrance.packed(), words, walk.ops());
    }
}

void Lane::Impl::deliver(std::uint16_t destination, unsigned length) noexcept {
    rte_mbuf** packets = batches_[destination].packets.data();
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
        if (length != 0) deliver(destination, length);
    }
    dirty_length_ = 0;
}

void Lane::Impl::drop(DropReason reason, rte_mbuf** packets, unsigned length) noexcept {
    std::atomic<std::uint64_t>& count = steering_.drops[worker_].count[static_cast<unsigned>(reason)];
    count.store(count.load(std::memory_order_relaxed) + length, std::memory_order_relaxed);
    rte_pktmbuf_free_bulk(packets, length);
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
            case OpCode::fork: {
                std::array<rte_mbuf*, batch_length> branch;
                for (unsigned k = 0; k < length; ++k) {
                    rte_mbuf_refcnt_update(packets[k], 1);
                    branch[k] = packets[k];
                }
                execute(ops.subspan(i + 1, op.value), branch.data(), length);
                i += op.value;
                break;
            }
            default:
                length = apply(op, packets, length, &no_registers);
                if (length == 0) return;
        }
    }
}

unsigned Lane::Impl::apply(const Op& op, rte_mbuf** packets, unsigned length, const Key* registers) noexcept {
    if (op.code == OpCode::count) {
        std::uint64_t bytes = 0;
        for (unsigned i = 0; i < length; ++i) bytes += packets[i]->pkt_len;
        auto* bulk = static_cast<CounterBulk*>(const_cast<void*>(op.object));
        bulk->add(worker_, op.value, length, bytes);
        return length;
    }
    return edit(op, packets, length, *registers);
}

unsigned Lane::Impl::edit(const Op& op, rte_mbuf** packets, unsigned length, const Key& registers) noexcept {
    unsigned kept = 0;
    for (unsigned i = 0; i < length; ++i) {
        rte_mbuf* packet = writable(packets[i]);
        if (packet != nullptr && op.code == OpCode::push_vlan) packet = push_vlan(packet, op.value);
        if (packet == nullptr) [[unlikely]] {
            std::atomic<std::uint64_t>& count =
                steering_.drops[worker_].count[static_cast<unsigned>(DropReason::no_buffer)];
            count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
            continue;
        }
        switch (op.code) {
            case OpCode::edit:
                static_cast<const EditList*>(op.object)
                    ->apply(rte_pktmbuf_mtod(packet, std::uint8_t*), packet->data_len, registers);
                break;
            case OpCode::pop_vlan: pop_vlan(packet); break;
            case OpCode::tag: set_tag(packet, op.value); break;
            default: break;
        }
        packets[kept++] = packet;
    }
    return kept;
}

}  // namespace ovsdr::soft
