// Megaflows of a port's device. See flow.h.
#include "ctrl/flow.h"

#include <span>
#include <variant>
#include <vector>

#include "ctrl/port.hpp"

using namespace ovsdr;
using namespace ovsdr::ctrl;

namespace {

dr::Ufid ufid_of(const ovsdr_ufid& ufid) { return {ufid.value[0], ufid.value[1]}; }

ovsdr_flow_stats stats_of(const dr::FlowStats& stats, bool offloaded) {
    return {.packets = stats.packets, .bytes = stats.bytes, .used_ms = stats.used_ms, .offloaded = offloaded};
}

}  // namespace

ovsdr_put_outcome ovsdr_flow_put(ovsdr_port* port, const ovsdr_ufid* ufid, const ovsdr_megaflow* megaflow,
                                 std::uint16_t neighbourhood, char** error) noexcept {
    *error = nullptr;
    const auto outcome = port->eswitch().put(ufid_of(*ufid), *megaflow, neighbourhood);
    if (const auto* failure = std::get_if<Error>(&outcome)) {
        *error = c_string(failure->what);
        return OVSDR_PUT_FAILED;
    }
    return std::holds_alternative<dr::Reject>(outcome) ? OVSDR_PUT_REJECTED : OVSDR_PUT_INSTALLED;
}

bool ovsdr_flow_known(const ovsdr_port* port, const ovsdr_ufid* ufid) noexcept {
    return port->eswitch().knows(ufid_of(*ufid));
}

bool ovsdr_flow_get(const ovsdr_port* port, const ovsdr_ufid* ufid, ovsdr_flow_stats* stats) noexcept {
    const auto known = port->eswitch().status(ufid_of(*ufid));
    if (!known) return false;
    *stats = stats_of(known->stats, known->offloaded);
    return true;
}

void ovsdr_flows_del(ovsdr_flow_deletion* deletions, size_t n) noexcept {
    const std::span all(deletions, n);
    std::vector<dr::Eswitch::Deletion> of_device;
    std::vector<ovsdr_flow_deletion*> answers;
    std::vector<bool> done(n);
    for (size_t first = 0; first < n; ++first) {
        if (done[first]) continue;
        dr::Eswitch& eswitch = all[first].port->eswitch();
        of_device.clear();
        answers.clear();
        for (size_t i = first; i < n; ++i) {
            if (done[i] || &all[i].port->eswitch() != &eswitch) continue;
            done[i] = true;
            of_device.push_back({ufid_of(all[i].ufid)});
            answers.push_back(&all[i]);
        }
        eswitch.del(of_device);
        for (size_t i = 0; i < answers.size(); ++i) {
            answers[i]->had_stats = of_device[i].last.has_value();
            answers[i]->last = of_device[i].last ? stats_of(*of_device[i].last, false) : ovsdr_flow_stats{};
        }
    }
}

bool ovsdr_missed_behind(const ovsdr_port* port, std::uint32_t tag, std::uint32_t* recirc_id) noexcept {
    const auto table = port->eswitch().table_of(tag);
    if (table) *recirc_id = table->recirc_id;
    return table.has_value();
}

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
