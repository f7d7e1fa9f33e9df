#include "datapath/steering/dr_action.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "datapath/steering/steering_impl.hpp"
#include "datapath/steering/vlan.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::size_t max_array = 32;  ///< 2^log_max_destination, as the capabilities have it

/// What libmlx5 takes into an array, before the firmware has its say.
[[nodiscard]] bool takes_branch(const Domain& domain, const Action::Branch& branch) noexcept {
    switch (branch.destination->type) {
        case ActionType::vport:
        case ActionType::default_miss:
            if (domain.type() != DomainType::fdb) return false;
            break;
        case ActionType::qp:
        case ActionType::counter:
        case ActionType::table: break;
        default: return false;
    }
    if (branch.reformat == nullptr) return true;
    const bool encapsulates =
        branch.reformat->type == ActionType::encap_l2 || branch.reformat->type == ActionType::encap_l3;
    return encapsulates && !branch.reformat->root_level;
}

/// What the device has a bounded number of; nothing for other actions.
[[nodiscard]] std::optional<Resource> resource_of(ActionType type) noexcept {
    switch (type) {
        case ActionType::modify_header: return Resource::modify_headers;
        case ActionType::encap_l2:
        case ActionType::encap_l3:
        case ActionType::decap_l2:
        case ActionType::decap_l3: return Resource::reformats;
        case ActionType::dest_array: return Resource::dest_arrays;
        case ActionType::sampler: return Resource::samplers;
        default: return std::nullopt;
    }
}

}  // namespace

const Action::More Action::none;

Action::Created Action::drop() { return Created(new Action(ActionType::drop)); }
Action::Created Action::default_miss() { return Created(new Action(ActionType::default_miss)); }
Action::Created Action::pop_vlan() { return Created(new Action(ActionType::pop_vlan)); }

Action::Created Action::tag(std::uint32_t value) {
    Created action(new Action(ActionType::tag));
    action->value = value & 0xffffff;
    return action;
}

int Action::push_vlan(std::uint32_t header, Created& action) {
    if (!is_vlan(static_cast<std::uint16_t>(header >> 16))) return EINVAL;
    action.reset(new Action(ActionType::push_vlan));
    action->value = header;
    return 0;
}

Action::Created Action::receiver(const Receiver& receiver) {
    Created action(new Action(ActionType::qp));
    action->make_more().queue = receiver;
    return action;
}

int Action::counter(std::shared_ptr<CounterBulk> bulk, std::uint32_t offset, Created& action) {
    if (bulk == nullptr || offset >= bulk->length()) return EINVAL;
    action.reset(new Action(ActionType::counter));
    bulk->take_hold();
    action->bulk_ = bulk.get();
    action->value = offset;
    return 0;
}

int Action::table(Table& table, Created& action) {
    if (table.root()) return EINVAL;
    action.reset(new Action(ActionType::table));
    action->make_more().destination = &table;
    table.refer();
    return 0;
}

int Action::root_table(Table& table, std::uint16_t priority, Created& action) {
    if (!table.root()) return EINVAL;
    action.reset(new Action(ActionType::root_table));
    action->make_more().destination = &table;
    action->value = priority;
    table.refer();
    return 0;
}

int Action::vport(Domain& domain, std::uint32_t vport, Created& action) {
    if (domain.type() != DomainType::fdb) return EOPNOTSUPP;
    if (vport > uplink_vport.value) return EINVAL;
    action.reset(new Action(ActionType::vport));
    action->make_more().domain = &domain;
    action->value = vport;
    domain.refer();
    return 0;
}

int Action::modify_header(Domain& domain, bool root_level, std::span<const std::uint64_t> commands, Created& action) {
    const Profile& profile = domain.steering().profile();
    // The kernel's bound for a root action; elsewhere what libmlx5 can allocate in a piece.
    if (root_level && commands.size() > profile.max_root_edits) return EOPNOTSUPP;
    if (!root_level && commands.size() > 1ULL << profile.log_max_edits) return EINVAL;
    std::shared_ptr<const EditList> edits;
    if (const int error = EditList::compile(domain.type(), commands, edits); error != 0) return error;
    Room::Share room = domain.steering().impl().room.take(Resource::modify_headers);
    if (!room) return ENOMEM;
    action.reset(new Action(ActionType::modify_header, std::make_unique<More>()));
    room.keep();
    action->make_more().domain = &domain;
    action->root_level = root_level;
    action->make_more().edits = std::move(edits);
    domain.refer();
    return 0;
}

int Action::packet_reformat(Domain& domain, bool root_level, Reformat::Kind kind, std::span<const std::uint8_t> data,
                            Created& action) {
    using enum Reformat::Kind;
    constexpr ActionType types[] = {ActionType::encap_l2, ActionType::encap_l3, ActionType::decap_l2,
                                    ActionType::decap_l3};
    const bool encap = kind == encap_l2 || kind == encap_l3;
    if (domain.type() == (encap ? DomainType::nic_rx : DomainType::nic_tx)) return EINVAL;
    if (root_level && domain.type() == DomainType::fdb) return EOPNOTSUPP;  // the kernel reformats in NIC domains
    if (root_level && data.empty() && kind != decap_l2) return ENOENT;      // it misses the header
    std::shared_ptr<const Reformat> reformat;
    const bool opens_gtpu = domain.steering().profile().has_parser(flex_parser::gtpu);
    if (const int error = Reformat::create(kind, data, opens_gtpu, reformat); error != 0) return error;
    Room::Share room = domain.steering().impl().room.take(Resource::reformats);
    if (!room) return ENOMEM;
    action.reset(new Action(types[static_cast<unsigned>(kind)], std::make_unique<More>()));
    room.keep();
    action->make_more().domain = &domain;
    action->root_level = root_level;
    action->make_more().reformat = std::move(reformat);
    domain.refer();
    return 0;
}

int Action::dest_array(Domain& domain, std::span<const Branch> branches, Created& action) {
    if (branches.size() < 2) return EINVAL;
    if (domain.type() == DomainType::nic_tx) return EOPNOTSUPP;
    for (const Branch& branch : branches) {
        if (!takes_branch(domain, branch)) return EOPNOTSUPP;
    }
    if (branches.size() > max_array) return EINVAL;
    Room::Share room = domain.steering().impl().room.take(Resource::dest_arrays);
    if (!room) return ENOMEM;
    Created array(new Action(ActionType::dest_array, std::make_unique<More>()));
    room.keep();
    array->make_more().domain = &domain;
    domain.refer();
    array->make_more().array = std::make_shared<ArrayProgram>();
    for (const Branch& branch : branches) {
        if (const int error = array->add_branch(*branch.destination, *array->more().array); error != 0) return error;
        if (branch.reformat == nullptr) continue;
        if (const int error = array->add_reformat(*branch.reformat); error != 0) return error;
    }
    action = std::move(array);
    return 0;
}

int Action::dest_array(Domain& domain, std::span<Action* const> branches, Created& action) {
    std::vector<Branch> plain;
    for (Action* branch : branches) plain.push_back({branch});
    return dest_array(domain, std::span<const Branch>(plain), action);
}

int Action::flow_array(Domain& domain, std::span<Action* const> branches, std::optional<std::uint32_t> next_rank,
                       Created& action) {
    Room::Share room = domain.steering().impl().room.take(Resource::dest_arrays);
    if (!room) return ENOMEM;
    Created made(new Action(ActionType::dest_array, std::make_unique<More>()));
    room.keep();
    made->make_more().domain = &domain;
    domain.refer();
    More& more = made->make_more();
    more.array = std::make_shared<ArrayProgram>();
    for (Action* branch : branches) {
        if (branch->type == ActionType::qp) {
            if (const int error = made->add_receiver(*branch, *more.array); error != 0) return error;
            branch->refer();
            more.branches.push_back(branch);
        } else if (const int error = made->add_branch(*branch, *more.array); error != 0) {
            return error;
        }
    }
    // A packet goes on as itself: the last branch needs no reference of its own.
    if (next_rank) more.array->branches.push_back({.end = {.kind = EndKind::root_table, .rank = *next_rank}});
    action = std::move(made);
    return 0;
}

int Action::add_receiver(const Action& branch, ArrayProgram& program) {
    End end{.kind = EndKind::destination};
    Steering::Impl& impl = more().domain->steering().impl();
    if (const int error = impl.acquire_destination(branch.more().queue.sink, end.destination); error != 0) return error;
    make_more().destinations.push_back(end.destination);
    program.branches.push_back({.end = end});
    return 0;
}

int Action::add_branch(Action& branch, ArrayProgram& program) {
    End end;
    switch (branch.type) {
        case ActionType::counter:
            program.counts.push_back({.code = OpCode::count, .value = branch.value, .object = branch.bulk()});
            program.kept.push_back(branch.bulk()->shared_from_this());
            break;
        case ActionType::vport:
        case ActionType::default_miss:
            if (more().domain->type() != DomainType::fdb) return EOPNOTSUPP;
            // As the firmware is told: the manager's vport.
            end.kind = EndKind::vport;
            end.vport = VportId{static_cast<std::uint16_t>(branch.type == ActionType::vport ? branch.value : 0)};
            program.branches.push_back({.end = end});
            break;
        case ActionType::table:
            if (&branch.more().destination->domain() != more().domain) return EINVAL;
            end.kind = EndKind::table;
            end.table = &branch.more().destination->view();
            program.branches.push_back({.end = end});
            break;
        case ActionType::qp: {
            const bool receives = more().domain->type() == DomainType::nic_rx;
            if (!receives || branch.more().queue.sink.deliver == nullptr) return EINVAL;
            if (const int error = add_receiver(branch, program); error != 0) return error;
            break;
        }
        default: return EOPNOTSUPP;
    }
    branch.refer();
    make_more().branches.push_back(&branch);
    return 0;
}

int Action::aso(Domain& domain, std::shared_ptr<AsoBulk> bulk, std::uint32_t offset, std::uint32_t flags,
                std::uint8_t reg_c, Created& action) {
    if (!domain.steering().profile().aso || bulk == nullptr) return EOPNOTSUPP;
    AsoUse use;
    if (const int error = make_aso_use(*bulk, offset, flags, reg_c, use); error != 0) return error;
    constexpr ActionType types[] = {ActionType::aso_first_hit, ActionType::aso_flow_meter, ActionType::aso_ct};
    action.reset(new Action(types[static_cast<unsigned>(bulk->kind())]));
    More& more = action->make_more();
    more.aso_bulk = std::move(bulk);
    more.aso_use = use;
    more.aso_domain = &domain;
    return 0;
}

int Action::modify_aso(std::uint32_t offset, std::uint32_t flags, std::uint8_t reg_c) noexcept {
    if (more().aso_bulk == nullptr) return EINVAL;
    AsoBulk& aso_bulk = *more().aso_bulk;
    AsoUse& aso_use = make_more().aso_use;
    if (type != ActionType::aso_ct || !aso_bulk.linked()) {
        return make_aso_use(aso_bulk, offset, flags, reg_c, aso_use);
    }
    // Linked objects can only be exchanged for others of the bulk.
    const std::uint32_t own = aso_use.direction == ConnTrack::Direction::initiator ? 1 : 2;
    if (reg_c != aso_use.reg_c || (flags != 0 && flags != own)) return EOPNOTSUPP;
    return make_aso_use(aso_bulk, offset, own, reg_c, aso_use);
}

int Action::flow_meter(Table& next, const FlowMeterSpec& spec, Created& action) {
    if (next.root()) return EOPNOTSUPP;
    const std::uint8_t registers = next.domain().steering().profile().flow_meter_registers;
    if (spec.parameters.size() > Meter::size || spec.reg_c > 7 || (registers >> spec.reg_c & 1) == 0) return EINVAL;
    Room::Share room = next.domain().steering().impl().room.take(Resource::meters);
    if (!room) return ENOMEM;
    // It is there until the last packet has met it.
    const std::shared_ptr<FlowMeter> metering(new FlowMeter,
                                              [room = std::move(room)](FlowMeter* gone) { delete gone; });
    Meter::Image image{};
    std::copy(spec.parameters.begin(), spec.parameters.end(), image.begin());
    metering->meter.write(image, ~0U);
    metering->active = spec.active;
    metering->reg_c = spec.reg_c;
    action.reset(new Action(ActionType::meter));
    action->make_more().metering = metering;
    action->make_more().destination = &next;
    next.refer();
    return 0;
}

int Action::modify_flow_meter(const FlowMeterSpec& spec, std::uint64_t fields) noexcept {
    enum Field : std::uint64_t { active = 1, cbs = 2, cir = 4, ebs = 8, eir = 16, all = 31 };
    FlowMeter* const metering = more().metering.get();
    if (metering == nullptr || spec.parameters.size() > Meter::size || (fields & ~std::uint64_t{all}) != 0) {
        return EINVAL;
    }
    Meter::Image image{};
    std::copy(spec.parameters.begin(), spec.parameters.end(), image.begin());
    // Bit 31 selects byte 0 of the parameters.
    std::uint32_t bytes = 0;
    if ((fields & cbs) != 0) bytes |= 0x00c00000;
    if ((fields & cir) != 0) bytes |= 0x00300000;
    if ((fields & ebs) != 0) bytes |= 0x0000c000;
    if ((fields & eir) != 0) bytes |= 0x00003000;
    metering->meter.write(image, bytes);
    if ((fields & active) != 0) metering->active = spec.active;
    return 0;
}

int Action::sampler(const SamplerSpec& spec, Created& action) {
    if (spec.next == nullptr || spec.ratio == 0 || spec.actions.empty() || spec.next->root()) return EINVAL;
    Domain& domain = spec.next->domain();
    if (domain.type() == DomainType::nic_tx) return EOPNOTSUPP;
    Room::Share room = domain.steering().impl().room.take(Resource::samplers);
    if (!room) return ENOMEM;
    Created made(new Action(ActionType::sampler, std::make_unique<More>()));
    room.keep();
    made->make_more().domain = &domain;
    domain.refer();
    auto program = std::make_shared<SamplerProgram>(SamplerProgram{.ratio = spec.ratio});
    for (Action* branch : spec.actions) {
        if (const int error = made->add_sample_action(*branch, *program); error != 0) return error;
    }
    if (program->array.branches.empty()) return EINVAL;
    if (domain.type() == DomainType::fdb && domain.steering().profile().sampler_restores_reg_c_0) {
        constexpr std::uint64_t set_reg_c_0 = 0x1051;  // action type and field of set_action_in
        if (__builtin_bswap64(spec.restore) >> 48 != set_reg_c_0) return EOPNOTSUPP;
        // The restore table is one level below the next one, and a root table cannot edit.
        if (spec.next->level() < 2) return EINVAL;
        const std::array commands{spec.restore};
        More& more = made->make_more();
        if (const int error = EditList::compile(domain.type(), commands, more.edits); error != 0) return error;
    }
    made->make_more().sampling = std::move(program);
    made->make_more().destination = spec.next;
    spec.next->refer();
    action = std::move(made);
    return 0;
}

int Action::add_sample_action(Action& branch, SamplerProgram& program) {
    const bool receives = more().domain->type() == DomainType::nic_rx;
    switch (branch.type) {
        case ActionType::default_miss:
        case ActionType::vport: break;
        case ActionType::qp:
        case ActionType::counter:
            if (!receives) return EOPNOTSUPP;
            break;
        case ActionType::tag:
            if (!receives) return EOPNOTSUPP;
            program.tags = true;
            program.tag = branch.value;
            branch.refer();
            make_more().branches.push_back(&branch);
            return 0;
        default: return EOPNOTSUPP;
    }
    return add_branch(branch, program.array);
}

/// To the branch that was added last.
int Action::add_reformat(Action& reformat) {
    if (reformat.type != ActionType::encap_l2 && reformat.type != ActionType::encap_l3) return EOPNOTSUPP;
    if (reformat.root_level) return EOPNOTSUPP;
    const ActionType destination = more().branches.back()->type;
    const bool leaves = destination == ActionType::vport || destination == ActionType::default_miss;
    if (more().domain->type() != DomainType::fdb || (!leaves && destination != ActionType::table)) return EINVAL;
    More& own = make_more();
    own.array->branches.back().reformat = reformat.more().reformat.get();
    own.array->kept.push_back(reformat.more().reformat);
    reformat.refer();
    own.branches.push_back(&reformat);
    return 0;
}

void Action::keep_for_lanes(Rcu& rcu) const {
    if (type == ActionType::counter) return rcu.retire(bulk_->shared_from_this());
    const auto keep = [&rcu](const auto& share) {
        if (share != nullptr) rcu.retire(share);
    };
    keep(more().edits);
    keep(more().reformat);
    keep(more().array);
    keep(more().aso_bulk);
    keep(more().metering);
    keep(more().sampling);
}

Action::~Action() {
    if (type == ActionType::counter) {
        if (bulk_ != nullptr) bulk_->let_go();
        return;
    }
    const std::unique_ptr<More> own(more_);
    if (own == nullptr) return;
    if (const auto resource = resource_of(type)) own->domain->steering().impl().room.give_back(*resource);
    for (Action* branch : own->branches) branch->forget();
    // No lane reaches them any more: a rule that goes waits for that.
    for (const std::uint16_t reached : own->destinations) own->domain->steering().impl().release_destination(reached);
    if (own->destination != nullptr) own->destination->forget();
    if (own->domain != nullptr) own->domain->forget();
}

}  // namespace ovsdr::soft
