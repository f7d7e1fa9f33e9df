#include <stdexcept>

#include "tests/differential/judge/judges.hpp"
#include "tests/differential/judge/ovs.h"

namespace ovsdr::differential {

namespace {

/// No text says it of a second tag.
int looks_at_tags(const Megaflow& megaflow) {
    if (megaflow.tag == Tag::any) return 0;
    return is_there(megaflow.tag) && megaflow.second != Tag::any ? 2 : 1;
}

}  // namespace

OvsJudge::OvsJudge(const std::vector<Megaflow>& megaflows) : ovs_(ovs_judge_create()), translated_(megaflows.size()) {
    for (std::size_t i = 0; i < megaflows.size(); ++i) {
        const char* error = nullptr;
        const std::string match = match_text(megaflows[i]), actions = actions_text(megaflows[i]);
        const ovs_judge_megaflow megaflow{match.c_str(), actions.c_str(), looks_at_tags(megaflows[i])};
        ovs_judge_limit_vlans(vlan_limit_of(megaflows[i].in_port));
        if (!ovs_judge_add(ovs_, &megaflow, &translated_[i], &error)) throw std::runtime_error(error);
    }
}

OvsJudge::~OvsJudge() { ovs_judge_destroy(ovs_); }

Verdict OvsJudge::judge(const Scenario& scenario) const {
    Verdict verdict;
    verdict.copies.resize(scenario.packets.size());
    verdict.megaflows.resize(scenario.megaflows.size());
    struct Aux {
        Verdict& verdict;
        std::uint32_t in_port;
    };
    for (const TestPacket& packet : scenario.packets) {
        Aux aux{verdict, packet.in_port};
        ovs_judge_limit_vlans(vlan_limit_of(packet.in_port));
        const int taken = ovs_judge_forward(
            ovs_, packet.in_port, packet.bytes.data(), packet.bytes.size(),
            [](void* into, std::uint32_t port, const std::uint8_t* bytes, std::size_t size) {
                auto* const here = static_cast<Aux*>(into);
                here->verdict.add(here->in_port, {.port = port, .bytes = {bytes, bytes + size}});
            },
            &aux);
        verdict.taken_by.push_back(taken);
    }
    verdict.finish();
    return verdict;
}

}  // namespace ovsdr::differential
