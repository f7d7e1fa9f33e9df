// Megaflows of a port's device. See flow.h.
#include "ctrl/flow.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <variant>
#include <vector>

#include "ctrl/all_devices.hpp"
#include "ctrl/port.hpp"
#include "offload/dr/nic/held_mark.hpp"
#include "offload/dr/nic/plain_function.hpp"

using namespace ovsdr;
using namespace ovsdr::ctrl;

namespace {

dr::Ufid ufid_of(const ovsdr_ufid& ufid) { return {ufid.value[0], ufid.value[1]}; }

ovsdr_flow_stats stats_of(const dr::FlowStats& stats, bool offloaded, bool partly = false) {
    return {.packets = stats.packets,
            .bytes = stats.bytes,
            .used_ms = stats.used_ms,
            .partly = partly,
            .offloaded = offloaded};
}

/// Those of its ports and those of tunnel ports; what it counted comes on top.
void delete_from(dr::Eswitch& eswitch, std::span<ovsdr_flow_deletion> deletions) {
    std::vector<dr::Eswitch::Deletion> of_device;
    std::vector<ovsdr_flow_deletion*> answers;
    for (ovsdr_flow_deletion& deletion : deletions) {
        if (deletion.port != nullptr && &deletion.port->eswitch() != &eswitch) continue;
        of_device.push_back({ufid_of(deletion.ufid)});
        answers.push_back(&deletion);
    }
    if (of_device.empty()) return;
    eswitch.del(of_device);
    for (size_t i = 0; i < answers.size(); ++i) {
        if (!of_device[i].last) continue;
        dr::FlowStats sum{answers[i]->last.packets, answers[i]->last.bytes, answers[i]->last.used_ms};
        add_to(sum, *of_device[i].last);
        answers[i]->had_stats = true;
        answers[i]->last = stats_of(sum, false);
    }
}

}  // namespace

ovsdr_put_outcome ovsdr_flow_put(ovsdr_port* port, const ovsdr_ufid* ufid, const ovsdr_megaflow* megaflow,
                                 std::uint16_t neighbourhood, std::uint32_t mark, char** error) noexcept {
    *error = nullptr;
    const auto outcome = port != nullptr
                             ? std::optional(port->eswitch().put_marked(ufid_of(*ufid), *megaflow, neighbourhood, mark))
                             : all_devices().put(ufid_of(*ufid), *megaflow, neighbourhood);
    if (!outcome) return OVSDR_PUT_NOWHERE;
    if (const auto* failure = std::get_if<Error>(&*outcome)) {
        *error = c_string(failure->what);
        return OVSDR_PUT_FAILED;
    }
    return std::holds_alternative<dr::Reject>(*outcome) ? OVSDR_PUT_REJECTED : OVSDR_PUT_INSTALLED;
}

bool ovsdr_flow_known(const ovsdr_port* port, const ovsdr_ufid* ufid) noexcept {
    return port != nullptr ? port->eswitch().knows(ufid_of(*ufid)) : all_devices().knows(ufid_of(*ufid));
}

bool ovsdr_flow_get(const ovsdr_port* port, const ovsdr_ufid* ufid, ovsdr_flow_stats* stats) noexcept {
    const auto known =
        port != nullptr ? port->eswitch().status(ufid_of(*ufid)) : all_devices().status(ufid_of(*ufid));
    if (!known) return false;
    *stats = stats_of(known->stats, known->offloaded, known->partly);
    return true;
}

void ovsdr_flows_del(ovsdr_flow_deletion* deletions, size_t n) noexcept {
    const std::span all(deletions, n);
    for (ovsdr_flow_deletion& deletion : all) {
        deletion.had_stats = false;
        deletion.last = {};
    }
    if (std::ranges::any_of(all, [](const auto& deletion) { return deletion.port == nullptr; })) {
        all_devices().for_each([&](dr::Eswitch& eswitch) { delete_from(eswitch, all); });
    } else {
        std::set<dr::Eswitch*> eswitches;
        for (const ovsdr_flow_deletion& deletion : all) eswitches.insert(&deletion.port->eswitch());
        for (dr::Eswitch* eswitch : eswitches) delete_from(*eswitch, all);
    }
}

bool ovsdr_missed_in(const ovsdr_port* port, std::uint32_t tag, ovsdr_missed* missed) noexcept {
    const auto table = port->eswitch().table_of(tag);
    if (!table) return false;
    const dr::PlainFunction* const function = port->eswitch().plain_function();
    *missed = {.recirc_id = table->recirc_id,
               .tunnel_port = table->tunnel_port,
               .mark = function != nullptr ? function->mark_of(tag) : dr::PlainFunction::no_mark};
    return true;
}

void ovsdr_on_marks(void (*hold)(std::uint32_t), void (*let_go)(std::uint32_t)) noexcept {
    dr::on_marks({.hold = hold, .let_go = let_go});
}

bool ovsdr_lacks_tunnel_flows() noexcept { return all_devices().take_added(); }

bool ovsdr_recirculates() noexcept { return dr::any_recirculation(); }

void ovsdr_flow_flush(ovsdr_port* port) noexcept {
    std::uint32_t odp_port = OVSDR_NO_ODP_PORT;
    {
        const std::lock_guard guard(port->state_lock);
        odp_port = port->odp_port;
    }
    if (odp_port != OVSDR_NO_ODP_PORT) port->eswitch().flush(dr::OdpPort{odp_port});
}

std::uint64_t ovsdr_flow_count_of_device(const ovsdr_port* port) noexcept {
    const ovsdr_port* first = nullptr;
    for_each_port([&](const ovsdr_port& candidate) {
        if (first == nullptr && candidate.device == port->device) first = &candidate;
    });
    return first == port ? port->eswitch().totals().offloaded : 0;
}
