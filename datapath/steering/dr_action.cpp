#include "datapath/steering/dr_action.hpp"

#include <cerrno>

#include "datapath/steering/steering_impl.hpp"

namespace ovsdr::soft {

Action::Created Action::drop() { return Created(new Action(ActionType::drop)); }
Action::Created Action::default_miss() { return Created(new Action(ActionType::default_miss)); }
Action::Created Action::pop_vlan() { return Created(new Action(ActionType::pop_vlan)); }

Action::Created Action::tag(std::uint32_t value) {
    Created action(new Action(ActionType::tag));
    action->value = value & 0xffffff;
    return action;
}

int Action::push_vlan(std::uint32_t header, Created& action) {
    const std::uint32_t ethertype = header >> 16;
    if (ethertype != 0x8100 && ethertype != 0x88a8) return EINVAL;
    action.reset(new Action(ActionType::push_vlan));
    action->value = header;
    return 0;
}

Action::Created Action::receiver(const Receiver& receiver) {
    Created action(new Action(ActionType::qp));
    action->queue = receiver;
    return action;
}

int Action::counter(std::shared_ptr<CounterBulk> bulk, std::uint32_t offset, Created& action) {
    if (bulk == nullptr || offset >= bulk->length()) return EINVAL;
    action.reset(new Action(ActionType::counter));
    action->bulk = std::move(bulk);
    action->value = offset;
    return 0;
}

int Action::table(Table& table, Created& action) {
    if (table.root()) return EINVAL;
    action.reset(new Action(ActionType::table));
    action->destination = &table;
    table.refer();
    return 0;
}

int Action::root_table(Table& table, std::uint16_t priority, Created& action) {
    if (!table.root()) return EINVAL;
    action.reset(new Action(ActionType::root_table));
    action->destination = &table;
    action->value = priority;
    table.refer();
    return 0;
}

int Action::vport(Domain& domain, std::uint32_t vport, Created& action) {
    if (domain.type() != DomainType::fdb) return EOPNOTSUPP;
    if (vport > uplink_vport.value) return EINVAL;
    action.reset(new Action(ActionType::vport));
    action->domain = &domain;
    action->value = vport;
    domain.refer();
    return 0;
}

int Action::modify_header(Domain& domain, bool root_level, std::span<const std::uint64_t> commands, Created& action) {
    std::shared_ptr<const EditList> edits;
    if (const int error = EditList::compile(domain.type(), commands, edits); error != 0) return error;
    action.reset(new Action(ActionType::modify_header));
    action->domain = &domain;
    action->root_level = root_level;
    action->edits = std::move(edits);
    domain.refer();
    return 0;
}

int Action::dest_array(Domain& domain, std::span<Action* const> branches, Created& action) {
    if (branches.size() < 2) return EINVAL;
    if (domain.type() == DomainType::nic_tx) return EOPNOTSUPP;
    Created array(new Action(ActionType::dest_array));
    array->domain = &domain;
    domain.refer();
    array->array = std::make_shared<ArrayProgram>();
    for (Action* branch : branches) {
        if (const int error = array->add_branch(*branch); error != 0) return error;
    }
    action = std::move(array);
    return 0;
}

int Action::add_branch(Action& branch) {
    End end;
    switch (branch.type) {
        case ActionType::counter:
            array->counts.push_back({.code = OpCode::count, .value = branch.value, .object = branch.bulk.get()});
            array->kept.push_back(branch.bulk);
            break;
        case ActionType::vport:
        case ActionType::default_miss:
            if (domain->type() != DomainType::fdb) return EOPNOTSUPP;
            // As the firmware is told: the manager's vport.
            end.kind = EndKind::vport;
            end.vport = VportId{static_cast<std::uint16_t>(branch.type == ActionType::vport ? branch.value : 0)};
            array->branches.push_back(end);
            break;
        case ActionType::table:
            if (&branch.destination->domain() != domain) return EINVAL;
            end.kind = EndKind::table;
            end.table = &branch.destination->view();
            array->branches.push_back(end);
            break;
        case ActionType::qp: {
            if (domain->type() != DomainType::nic_rx || branch.queue.sink.deliver == nullptr) return EINVAL;
            end.kind = EndKind::destination;
            Steering::Impl& impl = domain->steering().impl();
            if (const int error = impl.acquire_destination(branch.queue.sink, end.destination); error != 0) return error;
            destinations_.push_back(end.destination);
            array->branches.push_back(end);
            break;
        }
        default: return EOPNOTSUPP;
    }
    branch.refer();
    branches.push_back(&branch);
    return 0;
}

Action::~Action() {
    for (Action* branch : branches) branch->forget();
    if (!destinations_.empty()) {
        domain->steering().synchronize();
        for (const std::uint16_t destination : destinations_) domain->steering().impl().release_destination(destination);
    }
    if (destination != nullptr) destination->forget();
    if (domain != nullptr) domain->forget();
}

}  // namespace ovsdr::soft
