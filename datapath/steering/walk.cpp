#include "datapath/steering/walk.hpp"

#include "datapath/steering/edit.hpp"
#include "datapath/steering/parser.hpp"
#include "datapath/steering/rewrite.hpp"
#include "datapath/steering/vport_metadata.hpp"

namespace ovsdr::soft {
namespace {

/// What reading a frame again may change: all but the addresses, the source and the registers.
constexpr unsigned parsed_begin = key_offset::first_vlan, second_begin = key_offset::second_vlan;

void clear_registers(Key& key) noexcept {
    std::memset(key.bytes() + key_offset::reg_c_7, 0, sizeof(Key) - key_offset::reg_c_7);
}

[[nodiscard]] bool overlap(const Key& mask, const Key& taint) noexcept {
    std::uint64_t common = 0;
    for (unsigned i = 0; i < Key::length; ++i) common |= mask.words[i] & taint.words[i];
    return common != 0;
}

}  // namespace

const MatcherList* Walk::root(DomainType domain) const noexcept {
    return lane_.steering().root_lists[static_cast<unsigned>(domain)].load(std::memory_order_acquire);
}

void Walk::run(const Entrance& entrance, const Key& key, rte_mbuf* packet) noexcept {
    entrance_ = entrance;
    Branch branch{.packet = packet,
                  .key = key,
                  .taint = {},
                  .domain = DomainType::nic_tx,
                  .side = entrance.source == uplink_vport ? side_wire : side_vports,
                  .stale = false};
    if (!entrance.from_queue) enter_fdb(branch);
    follow(branch, End{.kind = EndKind::root_table});
}

void Walk::enter_fdb(Branch& branch) noexcept {
    const std::uint32_t reg_a = load_be32(branch.key.bytes() + key_offset::reg_a);
    clear_registers(branch.key);
    store_be32(branch.key.bytes() + key_offset::reg_a, reg_a);
    store_be32(branch.key.bytes() + key_offset::reg_c_0, vport_metadata(entrance_.source));
    const std::uint32_t taint_a = load_be32(branch.taint.bytes() + key_offset::reg_a);
    clear_registers(branch.taint);
    store_be32(branch.taint.bytes() + key_offset::reg_a, taint_a);
    branch.domain = DomainType::fdb;
}

/// Of what the FDB set, reg_c_1 and reg_c_0 but for the source's bits arrive.
void Walk::enter_nic_rx(Branch& branch) noexcept {
    for (Key* key : {&branch.key, &branch.taint}) {
        const std::uint32_t reg_c_0 = load_be32(key->bytes() + reg_c_offset(0));
        const std::uint32_t reg_c_1 = load_be32(key->bytes() + reg_c_offset(1));
        const std::uint32_t source = key == &branch.key ? vport_metadata(entrance_.source) : 0;
        clear_registers(*key);
        store_be32(key->bytes() + reg_c_offset(0), (reg_c_0 & ~vport_metadata_mask) | source);
        store_be32(key->bytes() + reg_c_offset(1), reg_c_1);
    }
    branch.domain = DomainType::nic_rx;
}

/// Follows `end` until the packet is gone. A root_table end stands for the root of the branch's domain.
void Walk::follow(Branch& branch, End end) noexcept {
    while (true) {
        const bool in_root = end.kind == EndKind::root_table;
        const MatcherList* list = in_root ? root(branch.domain) : end.table->matchers.load(std::memory_order_acquire);
        if (++hops_ > max_hops) {
            cacheable_ = false;
            return drop(branch, DropReason::loop);
        }
        const RuleNode* node = look_up(branch, *list, in_root ? end.priority : 0);
        end = End{.kind = EndKind::miss};
        if (node != nullptr) {
            if (!run_ops(branch, node->program)) return;
            end = node->program.end;
        }
        if (end.kind == EndKind::array && !fork(branch, *end.array, end)) return;
        if (end.kind == EndKind::vport && end.vport == manager_vport) {
            enter_nic_rx(branch);
            end = End{.kind = EndKind::root_table};
        } else if (end.kind == EndKind::miss) {
            if (!miss(branch, in_root)) return;
            end = End{.kind = EndKind::root_table};
        } else if (end.kind != EndKind::table && end.kind != EndKind::root_table) {
            return leave(branch, end);
        }
    }
}

void Walk::leave(Branch& branch, const End& end) noexcept {
    switch (end.kind) {
        case EndKind::vport: return output_to_vport(branch, end.vport);
        case EndKind::destination: return output(branch, end.destination);
        default: return drop(branch, DropReason::by_rule);
    }
}

const RuleNode* Walk::look_up(Branch& branch, const MatcherList& list, unsigned priority) noexcept {
    if (branch.stale) read_again(branch);
    for (const MatcherView* matcher : list.matchers) {
        if (matcher->priority < priority) continue;
        if (cacheable_ && overlap(matcher->mask, branch.taint)) cacheable_ = false;
        const RuleNode* node = matcher->rules.find(branch.key);
        if (node != nullptr && (node->sides & branch.side) != 0) return node;
    }
    return nullptr;
}

void Walk::read_again(Branch& branch) noexcept {
    Key now;
    branch.stale = false;
    if (!parse(rte_pktmbuf_mtod(branch.packet, std::uint8_t*), branch.packet->data_len, now)) return;
    std::memcpy(branch.key.bytes(), now.bytes(), key_offset::source_sqn);
    std::memcpy(branch.key.bytes() + second_begin, now.bytes() + second_begin, key_offset::reg_c_7 - second_begin);
}

bool Walk::run_ops(Branch& branch, const Program& program) noexcept {
    for (unsigned i = 0; i < program.length; ++i) {
        const Op& op = program.ops[i];
        if ((op.sides & branch.side) == 0) continue;
        bool to_packet = true;
        if (op.code == OpCode::edit) {
            const auto* edits = static_cast<const EditList*>(op.object);
            edits->apply_registers(branch.key, rte_pktmbuf_mtod(branch.packet, std::uint8_t*), branch.packet->data_len);
            to_packet = edits->edits_headers();
        }
        note_rewrite(branch, op);
        if (!to_packet) continue;
        record(op);
        if (lane_.apply(op, &branch.packet, 1, &branch.key) == 0) return false;
    }
    return true;
}

void Walk::note_rewrite(Branch& branch, const Op& op) noexcept {
    if (op.code == OpCode::edit) {
        const auto* edits = static_cast<const EditList*>(op.object);
        for (unsigned i = 0; i < Key::length; ++i) branch.taint.words[i] |= edits->taint().words[i];
        if (!edits->repeatable()) cacheable_ = false;
        branch.stale = branch.stale || edits->edits_headers();
    } else if (op.code == OpCode::pop_vlan || op.code == OpCode::push_vlan) {
        // A tag more or less moves what the parser sees by more than the key can tell.
        std::memset(branch.taint.bytes() + parsed_begin, 0xff, key_offset::source_sqn - parsed_begin);
        std::memset(branch.taint.bytes() + key_offset::ethertype, 0xff, 2);
        std::memset(branch.taint.bytes() + second_begin, 0xff, key_offset::reg_c_7 - second_begin);
        branch.stale = true;
    }
}

/// Gives every branch but the last a reference; `last` is what the packet itself follows. False when there is none.
bool Walk::fork(Branch& branch, const ArrayProgram& array, End& last) noexcept {
    for (const Op& op : array.counts) {
        record(op);
        if (lane_.apply(op, &branch.packet, 1, &branch.key) == 0) return false;
    }
    if (array.branches.empty()) {
        drop(branch, DropReason::by_rule);
        return false;
    }
    for (std::size_t i = 0; i + 1 < array.branches.size(); ++i) {
        const End& end = array.branches[i];
        const unsigned mark = length_;
        record({.code = OpCode::fork});
        rte_mbuf_refcnt_update(branch.packet, 1);
        Branch copy = branch;
        if (end.kind == EndKind::table) {
            follow(copy, end);
        } else if (end.kind == EndKind::vport && end.vport == manager_vport) {
            enter_nic_rx(copy);
            follow(copy, End{.kind = EndKind::root_table});
        } else {
            leave(copy, end);
        }
        if (mark >= ops_.size()) continue;
        ops_[mark].value = length_ - mark - 1;
        // A branch that only leaves needs no list of its own.
        if (length_ == mark + 2 && ops_[mark + 1].code == OpCode::output) {
            ops_[mark] = ops_[mark + 1];
            ops_[mark].code = OpCode::copy_out;
            length_ = mark + 1;
        }
    }
    last = array.branches.back();
    return true;
}

/// True when the packet goes on at the root of the domain that it is in now.
bool Walk::miss(Branch& branch, bool in_root) noexcept {
    switch (branch.domain) {
        case DomainType::nic_tx: enter_fdb(branch); return true;
        case DomainType::fdb: {
            VportId vport{0};
            if (in_root && entrance_.from_queue && lane_.steering().send_rule(entrance_.sqn, vport) &&
                vport != manager_vport) {
                output_to_vport(branch, vport);
                return false;
            }
            enter_nic_rx(branch);
            return true;
        }
        case DomainType::nic_rx:
            if (in_root) {
                output(branch, cotenant_destination);
            } else {
                drop(branch, DropReason::nic_rx_miss);
            }
            return false;
    }
    return false;
}

void Walk::output(Branch& branch, std::uint16_t destination) noexcept {
    record({.code = OpCode::output, .destination = destination});
    lane_.output(destination, &branch.packet, 1);
}

void Walk::output_to_vport(Branch& branch, VportId vport) noexcept {
    const std::uint16_t slot = lane_.steering().slot_of(vport);
    if (slot == 0) return drop(branch, DropReason::no_vport);
    output(branch, slot);
}

void Walk::drop(Branch& branch, DropReason reason) noexcept {
    record({.code = OpCode::drop, .value = static_cast<std::uint32_t>(reason)});
    lane_.drop(reason, &branch.packet, 1);
}

void Walk::record(const Op& op) noexcept {
    if (length_ >= ops_.size()) {
        cacheable_ = false;
        return;
    }
    ops_[length_++] = op;
}

}  // namespace ovsdr::soft
