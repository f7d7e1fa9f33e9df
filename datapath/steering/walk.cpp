#include "datapath/steering/walk.hpp"

#include <algorithm>

#include "datapath/steering/edit.hpp"
#include "datapath/steering/parser.hpp"
#include "datapath/steering/reformat.hpp"
#include "datapath/steering/rewrite.hpp"
#include "datapath/steering/tunnel.hpp"
#include "datapath/steering/vport_metadata.hpp"

namespace ovsdr::soft {
namespace {

constexpr unsigned second_begin = key_offset::second_vlan;
constexpr std::uint64_t every_word = ~std::uint64_t{0};

void clear_registers(Key& key) noexcept {
    std::memset(key.bytes() + key_offset::reg_c_7, 0, key_offset::registers_end - key_offset::reg_c_7);
}

/// Whether an edit of these bits can change what the packet's other headers are taken for.
[[nodiscard]] bool names_headers(const Key& edited) noexcept {
    const std::uint8_t* bytes = edited.bytes();
    return load_be16(bytes + key_offset::ethertype) != 0 || load_be16(bytes + key_offset::udp_dport) != 0;
}

}  // namespace

const MatcherList* Walk::root(DomainType domain) const noexcept {
    return lane_.steering().root_lists[static_cast<unsigned>(domain)].load(std::memory_order_acquire);
}

void Walk::run(const Entrance& entrance, const Key& key, bool deep, rte_mbuf* packet) noexcept {
    entrance_ = entrance;
    source_ = SourceScope::of(entrance.source);
    Branch branch{.packet = packet,
                  .key = key,
                  .taint = {},
                  .domain = DomainType::nic_tx,
                  .side = entrance.source == uplink_vport ? side_wire : side_vports,
                  .deep = deep,
                  .stale = false};
    store_be32(branch.key.bytes() + key_offset::reg_b, 0);
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
    Hop hop{};
    do {
        hop.in_root = end.kind == EndKind::root_table;
        hop.rank = end.rank;
        const MatcherList* list =
            hop.in_root ? root(branch.domain) : end.table->matchers.load(std::memory_order_acquire);
        if (++hops_ > max_hops) {
            if (chosen_) cacheable_ = false;  // by another outcome there might be hops left
            return drop(branch, DropReason::loop);
        }
        hop.rule = look_up(branch, *list, hop.rank);
        if (branch.dry && !cacheable_) return;  // what it would write down is not for any packet
    } while (finish(branch, hop, end));
}

/// What is left of a hop. True when the branch goes on at `end`, which is a table.
bool Walk::finish(Branch& branch, const Hop& hop, End& end) noexcept {
    end = End{.kind = EndKind::miss};
    if (hop.rule != nullptr) {
        if (!run_ops(branch, hop)) return false;
        end = hop.rule->end;
    }
    // The device drops silently what a rule would send back to the wire (dr_action.c).
    if (end.kind == EndKind::vport && end.vport == uplink_vport && branch.side == side_wire) {
        end.kind = EndKind::drop;
    }
    if (end.kind == EndKind::array && !fork(branch, *end.array, end)) return false;
    if (end.kind == EndKind::vport && end.vport == manager_vport) {
        enter_nic_rx(branch);
        end = End{.kind = EndKind::root_table};
    } else if (end.kind == EndKind::miss && hop.in_root && goes_to_leftovers(branch, hop.rank)) {
        end = End{.kind = EndKind::root_table, .rank = rank::leftovers};
    } else if (end.kind == EndKind::miss) {
        if (!miss(branch, hop.in_root)) return false;
        end = End{.kind = EndKind::root_table};
    } else if (end.kind != EndKind::table && end.kind != EndKind::root_table) {
        leave(branch, end);
        return false;
    }
    return true;
}

/// From `hop` until the packet is gone.
void Walk::go_on(Branch& branch, const Hop& hop) noexcept {
    End end;
    if (finish(branch, hop, end)) follow(branch, end);
}

/// The co-tenant comes before those who asked for what is left over, as the kernel's own rules do; it leaves nothing.
bool Walk::goes_to_leftovers(const Branch& branch, std::uint32_t rank) const noexcept {
    if (branch.domain != DomainType::nic_rx || rank >= rank::leftovers) return false;
    return lane_.steering().sinks[cotenant_destination].load(std::memory_order_acquire) == nullptr;
}

void Walk::depart(Branch& branch, const End& end) noexcept {
    if (end.kind == EndKind::table) return follow(branch, end);
    if (end.kind != EndKind::vport || end.vport != manager_vport) return leave(branch, end);
    enter_nic_rx(branch);
    follow(branch, End{.kind = EndKind::root_table});
}

void Walk::leave(Branch& branch, const End& end) noexcept {
    switch (end.kind) {
        case EndKind::vport: return output_to_vport(branch, end.vport);
        case EndKind::destination: return output(branch, end.destination);
        default: return drop(branch, DropReason::by_rule);
    }
}

const RuleNode* Walk::look_up(Branch& branch, const MatcherList& list, std::uint32_t rank) noexcept {
    if (branch.stale) read_again(branch);
    for (const MatcherView* matcher : list.matchers) {
        if (matcher->rank < rank) continue;
        if (matcher->rank >= rank::leftovers && rank < rank::leftovers) break;
        if (!matcher->sources.concern(source_)) continue;
        const MaskedWords& mask = matcher->rules.mask();
        if (mask.deep && !branch.deep) read_deep(branch);
        looked_at_ |= mask.outcome_registers;
        if (cacheable_ && mask.overlaps(branch.taint)) cacheable_ = false;
        const RuleNode* node = matcher->rules.find(branch.key);
        if (node != nullptr && (node->sides & branch.side) != 0) return node;
    }
    return nullptr;
}

void Walk::read_again(Branch& branch) noexcept {
    Key now;
    branch.stale = false;
    rewritten_ |= branch.rewritten;
    if (branch.undone) cacheable_ = false;
    parse(rte_pktmbuf_mtod(branch.packet, std::uint8_t*), branch.packet->data_len, now);
    std::memcpy(branch.key.bytes(), now.bytes(), key_offset::gre_flags + 1);
    std::memcpy(branch.key.bytes() + second_begin, now.bytes() + second_begin, key_offset::reg_c_7 - second_begin);
    branch.deep = false;
}

void Walk::read_deep(Branch& branch) noexcept {
    parse_deep(rte_pktmbuf_mtod(branch.packet, std::uint8_t*), branch.packet->data_len, lane_.steering().parser_setup(),
               branch.key);
    branch.deep = true;
}

/// The rest of the hop's ops. False when the packet is gone.
bool Walk::run_ops(Branch& branch, const Hop& hop) noexcept {
    for (unsigned i = hop.next; i < hop.rule->op_count; ++i) {
        const Op& op = hop.rule->ops()[i];
        if ((op.sides & branch.side) == 0) continue;
        bool to_packet = true;
        const Key before = branch.key;  // what edits copy from
        switch (op.code) {
            case OpCode::first_hit:
            case OpCode::meter:
            case OpCode::flow_meter:
            case OpCode::connection:
                if (!run_stateful(branch, op, {hop.rule, i + 1, hop.in_root, hop.rank})) return false;
                continue;
            case OpCode::sample: sample(branch, *static_cast<const SamplerProgram*>(op.object)); continue;
            case OpCode::edit: {
                const auto* edits = static_cast<const EditList*>(op.object);
                edits->apply_registers(branch.key, rte_pktmbuf_mtod(branch.packet, std::uint8_t*),
                                       branch.packet->data_len);
                to_packet = edits->edits_headers() || edits->edits_reg_b();
                break;
            }
            default: break;
        }
        note_rewrite(branch, op);
        if (to_packet && !run_op(branch, op, before)) return false;
    }
    return true;
}

/// What becomes of a packet that is lost on the way is no other packet's fate.
bool Walk::run_op(Branch& branch, const Op& op, const Key& registers) noexcept {
    record(op);
    branch.undone = branch.undone || (branch.dry && op.code != OpCode::count && op.code != OpCode::tag);
    if (branch.dry || lane_.apply(op, &branch.packet, 1, &registers) != 0) return true;
    cacheable_ = false;
    return false;
}

/// Records an op of state and does it. What it returns goes into the low byte of a register. False where the branch has
/// gone on at `behind` already, and one for each other outcome before it.
bool Walk::run_stateful(Branch& branch, const Op& op, const Hop& behind) noexcept {
    const StatefulUse use = stateful_use(op);
    const auto own_register = static_cast<std::uint8_t>(1U << use.reg_c);
    std::uint8_t& byte = branch.key.bytes()[outcome_offset(use.reg_c)];
    std::uint8_t& taint = branch.taint.bytes()[outcome_offset(use.reg_c)];
    const std::uint8_t held = byte;
    Op recorded = op;
    if (use.meter != nullptr) recorded.value = reads_register(op) ? held : 0;
    if (reads_register(op)) {
        looked_at_ |= own_register;
        if (taint != 0) cacheable_ = false;
    }
    record(recorded);
    const std::uint16_t possible = outcomes::possible(op, held);
    byte = held;
    if (!branch.dry) {
        byte = lane_.run_stateful(op, use, branch.packet, held);
    } else if (possible != 0) {
        byte = outcomes::first_of(possible);
    }
    taint = 0xff;
    const unsigned begin = length_;
    const std::uint8_t looked_at_before = looked_at_ & own_register;
    const auto others = static_cast<std::uint16_t>(possible & ~outcomes::of(byte));
    bool goes_on = true;
    if (cacheable_ && possible != 0 && explore(branch, use.reg_c, others, behind)) {
        taint = 0;
        chosen_ = chosen_ || others != 0;
        goes_on = length_ == begin;
    }
    if (!goes_on) {
        const unsigned rest = length_;
        go_on(branch, behind);
        if (cacheable_) drop_outcomes_like_rest(begin, rest);
    }
    looked_at_ = static_cast<std::uint8_t>((looked_at_ & ~own_register) | looked_at_before);
    return goes_on;
}

/// Goes on at `behind` for each of the outcomes, dry. False when that tells nothing, or nothing that anybody looks at:
/// then it leaves no ops, and the outcome is as tainted as it was.
bool Walk::explore(const Branch& branch, unsigned reg_c, std::uint16_t outcomes, const Hop& behind) noexcept {
    const unsigned begin = length_;
    const auto own_register = static_cast<std::uint8_t>(1U << reg_c);
    looked_at_ &= static_cast<std::uint8_t>(~own_register);  // so far somebody looked at what was there before
    for (; outcomes != 0; outcomes &= outcomes - 1) {
        if (explored_ > max_explored) {  // asked before each branch, or they would double with each op of state
            length_ = begin;
            return false;
        }
        const unsigned head = length_, hops = hops_;
        record({.code = OpCode::outcome, .argument = static_cast<std::uint16_t>(outcomes & -outcomes)});
        Branch other = branch;
        other.dry = true;
        other.key.bytes()[outcome_offset(reg_c)] = outcomes::first_of(outcomes);
        other.taint.bytes()[outcome_offset(reg_c)] = 0;
        go_on(other, behind);
        explored_ += 1 + hops_ - hops;
        hops_ = hops;
        if (!cacheable_ || (looked_at_ & own_register) == 0) {
            length_ = begin;
            cacheable_ = true;
            return false;
        }
        ops_[head].value = length_ - head - 1;
        join_outcomes(begin, head);
    }
    return true;
}

/// Joins the last of the outcomes from `begin` on to one before it whose ops are the same.
void Walk::join_outcomes(unsigned begin, unsigned head) noexcept {
    for (unsigned at = begin; at < head; at += 1 + ops_[at].value) {
        if (ops_[at].value != ops_[head].value || !same_ops(at + 1, head + 1, ops_[at].value)) continue;
        ops_[at].argument |= ops_[head].argument;
        length_ = head;
        return;
    }
}

/// Takes out the outcomes between `begin` and `rest` whose ops are the same as those of the rest.
void Walk::drop_outcomes_like_rest(unsigned begin, unsigned rest) noexcept {
    for (unsigned at = begin; at < rest;) {
        const unsigned size = ops_[at].value, next = at + 1 + size;
        if (size != length_ - rest || !same_ops(at + 1, rest, size)) {
            at = next;
            continue;
        }
        std::copy(ops_.begin() + next, ops_.begin() + length_, ops_.begin() + at);
        length_ -= next - at;
        rest -= next - at;
    }
}

bool Walk::same_ops(unsigned a, unsigned b, unsigned length) const noexcept {
    return std::memcmp(&ops_[a], &ops_[b], length * sizeof(Op)) == 0;
}

void Walk::sample(Branch& branch, const SamplerProgram& sampler) noexcept {
    const unsigned mark = length_;
    record({.code = OpCode::sample, .object = &sampler});
    Branch copy = branch;
    copy.dry = branch.dry || !lane_.draw(sampler.ratio);
    if (!copy.dry) rte_mbuf_refcnt_update(branch.packet, 1);
    End last;
    const bool kept = !sampler.tags || run_op(copy, {.code = OpCode::tag, .value = sampler.tag}, copy.key);
    if (kept && fork(copy, sampler.array, last)) depart(copy, last);
    if (mark < ops_.size()) ops_[mark].value = length_ - mark - 1;
}

void Walk::note_rewrite(Branch& branch, const Op& op) noexcept {
    if (op.code == OpCode::edit) {
        const auto* edits = static_cast<const EditList*>(op.object);
        for (unsigned i = 0; i < Key::length; ++i) branch.taint.words[i] |= edits->taint().words[i];
        if (!edits->repeatable()) cacheable_ = false;
        branch.rewritten |= edits->edited_words();
        if (names_headers(edits->taint())) {
            taint_headers(branch.taint);
            branch.rewritten = every_word;
        }
        branch.stale = branch.stale || edits->edits_headers();
    } else if (op.code == OpCode::pop_vlan || op.code == OpCode::push_vlan) {
        // A tag more or less moves what the parser sees by more than the key can tell; the addresses stay.
        const Key before = branch.taint;
        taint_headers(branch.taint);
        std::memcpy(branch.taint.bytes() + key_offset::smac, before.bytes() + key_offset::smac, 6);
        std::memcpy(branch.taint.bytes() + key_offset::dmac, before.bytes() + key_offset::dmac, 6);
        branch.rewritten = every_word;
        branch.stale = true;
    } else if (op.code == OpCode::reformat) {
        if (static_cast<const Reformat*>(op.object)->kind() == Reformat::Kind::decap_l2) {
            taint_by_decapsulation(branch.taint);
        } else {
            taint_headers(branch.taint);
        }
        branch.rewritten = every_word;
        branch.stale = true;
    }
}

bool Walk::reformat(Branch& branch, const Reformat* reformat) noexcept {
    if (reformat == nullptr) return true;
    const Op op{.code = OpCode::reformat, .object = reformat};
    note_rewrite(branch, op);
    return run_op(branch, op, branch.key);
}

/// Gives every branch but the last a reference; `last` is what the packet itself follows. False when there is none.
bool Walk::fork(Branch& branch, const ArrayProgram& array, End& last) noexcept {
    for (const Op& op : array.counts) static_cast<void>(run_op(branch, op, branch.key));  // No count loses a packet.
    if (array.branches.empty()) {
        drop(branch, DropReason::by_rule);
        return false;
    }
    for (std::size_t i = 0; i + 1 < array.branches.size(); ++i) {
        const unsigned mark = length_;
        record({.code = OpCode::fork});
        if (!branch.dry) rte_mbuf_refcnt_update(branch.packet, 1);
        Branch copy = branch;
        if (reformat(copy, array.branches[i].reformat)) depart(copy, array.branches[i].end);
        if (mark >= ops_.size()) continue;
        ops_[mark].value = length_ - mark - 1;
        // A branch that only leaves needs no list of its own.
        if (length_ == mark + 2 && ops_[mark + 1].code == OpCode::output) {
            ops_[mark] = ops_[mark + 1];
            ops_[mark].code = OpCode::copy_out;
            length_ = mark + 1;
        }
    }
    last = array.branches.back().end;
    return reformat(branch, array.branches.back().reformat);
}

/// True when the packet goes on at the root of the domain that it is in now.
bool Walk::miss(Branch& branch, bool in_root) noexcept {
    if (branch.domain == DomainType::nic_tx) {
        enter_fdb(branch);
        return true;
    }
    if (branch.domain == DomainType::fdb) {
        if (entrance_.from_queue && lane_.steering().plain_function) {
            output_to_vport(branch, uplink_vport);
            return false;
        }
        VportId vport{0};
        if (in_root && entrance_.from_queue && lane_.steering().send_rule(entrance_.sqn, vport) &&
            vport != manager_vport) {
            output_to_vport(branch, vport);
            return false;
        }
        enter_nic_rx(branch);
        return true;
    }
    if (in_root) {
        output(branch, cotenant_destination);
    } else {
        drop(branch, DropReason::nic_rx_miss);
    }
    return false;
}

void Walk::output(Branch& branch, std::uint16_t destination) noexcept {
    record({.code = OpCode::output, .destination = destination});
    if (!branch.dry) lane_.output(destination, &branch.packet, 1);
}

void Walk::output_to_vport(Branch& branch, VportId vport) noexcept {
    const bool by_queue = vport == uplink_vport && entrance_.from_queue;
    const std::uint16_t slot =
        by_queue ? lane_.steering().uplink_slot_of(entrance_.sqn) : lane_.steering().slot_of(vport);
    if (slot == 0) return drop(branch, DropReason::no_vport);
    output(branch, slot);
}

void Walk::drop(Branch& branch, DropReason reason) noexcept {
    record({.code = OpCode::drop, .value = static_cast<std::uint32_t>(reason)});
    if (!branch.dry) lane_.drop(reason, &branch.packet, 1);
}

void Walk::record(const Op& op) noexcept {
    if (length_ >= ops_.size()) {
        cacheable_ = false;
        return;
    }
    ops_[length_++] = op;
}

}  // namespace ovsdr::soft
