// What puts the benchmark's megaflows and asks for them: dr::Eswitch itself (eswitch_api.cpp), or OVS's flow-API
// provider in front of it (provider_api.cpp). A program has one of them linked into it.
#pragma once

#include <cstdint>
#include <memory>

#include "offload/dr/eswitch.hpp"

namespace ovsdr::bench {

struct FlowApiSetup {
    std::shared_ptr<dr::Eswitch> eswitch;
    std::uint32_t ports;       ///< datapath ports 1 and up have a share of the megaflows each
    std::uint64_t megaflows;
};

class FlowApi {
public:
    [[nodiscard]] static std::unique_ptr<FlowApi> create(const FlowApiSetup& setup);
    virtual ~FlowApi() = default;

    /// Puts megaflows one after another. Threads: one.
    class Putter {
    public:
        virtual ~Putter() = default;
        /// Number `i`. Throws std::runtime_error when it is not taken.
        virtual void put(std::uint64_t i) = 0;
    };
    /// `turn` changes where the megaflows go.
    [[nodiscard]] virtual std::unique_ptr<Putter> putter(std::uint32_t turn) = 0;
    /// Asks for the statistics of number `i`; whether it is known.
    [[nodiscard]] virtual bool get(std::uint64_t i) = 0;
};

}  // namespace ovsdr::bench
