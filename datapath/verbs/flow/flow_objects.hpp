// The objects of verbs flow steering behind their public structures: flows, what they rewrite, what they count.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "datapath/steering/flow_tables.hpp"

namespace ovsdr::soft {

/// A modify-header or packet-reformat action of the root tables. EBUSY while a flow uses it.
struct VerbsFlowAction : ibv_flow_action {
    [[nodiscard]] static VerbsFlowAction& of(ibv_flow_action* action) noexcept {
        return *static_cast<VerbsFlowAction*>(action);
    }
    std::shared_ptr<Action> action;
    std::atomic<unsigned> flows{0};
};

/// What ibv_read_counters() reads: (description, index) pairs, bound to a counter by the first flow that names them.
struct Counters : ibv_counters {
    [[nodiscard]] static Counters& of(ibv_counters* counters) noexcept { return *static_cast<Counters*>(counters); }

    struct Point {
        ibv_counter_description description;
        std::uint32_t index;
    };
    std::mutex mutex;
    std::vector<Point> points;
    unsigned flows = 0;  ///< they are bound while there are any
    std::shared_ptr<CounterBulk> bulk;
};

/// EINVAL where nothing was attached.
[[nodiscard]] int bind_counters(Counters& counters);
void unbind_counters(Counters& counters) noexcept;

struct VerbsFlow : ibv_flow {
    [[nodiscard]] static VerbsFlow& of(ibv_flow* flow) noexcept { return *static_cast<VerbsFlow*>(flow); }
    ~VerbsFlow();

    std::vector<std::unique_ptr<FlowTables::Flow>> parts;  ///< a leftover rule or a sniffer is two
    std::vector<VerbsFlowAction*> actions;
    Counters* counters = nullptr;
    std::atomic<unsigned>* matcher_users = nullptr;
};

}  // namespace ovsdr::soft
