// See flow_api.hpp: no OVS.
#include <stdexcept>
#include <variant>
#include <vector>

#include "tests/bench/offload_bench/flow_api.hpp"
#include "tests/bench/offload_bench/megaflows.hpp"

namespace ovsdr::bench {
namespace {

class EswitchApi final : public FlowApi {
public:
    explicit EswitchApi(const FlowApiSetup& setup) : setup_(setup) {}

    std::unique_ptr<Putter> putter(std::uint32_t turn) override { return std::make_unique<OfEswitch>(setup_, turn); }
    bool get(std::uint64_t i) override { return setup_.eswitch->status(ufid(i)).has_value(); }

private:
    class OfEswitch final : public Putter {
    public:
        /// A megaflow of each port: to make it anew for each would be measured, too.
        OfEswitch(const FlowApiSetup& setup, std::uint32_t turn) : eswitch_(*setup.eswitch) {
            for (std::uint32_t port = 0; port < setup.ports; ++port) {
                megaflows_.push_back(megaflow(port, setup.ports, turn));
            }
        }
        void put(std::uint64_t i) override {
            ovsdr_megaflow& next = megaflows_[i % megaflows_.size()];
            set_number(next, i);
            const auto outcome = eswitch_.put(ufid(i), next, neighbourhood(i));
            if (const auto* error = std::get_if<Error>(&outcome)) throw std::runtime_error(error->what);
            if (const auto* reject = std::get_if<dr::Reject>(&outcome)) throw std::runtime_error(text_of(*reject));
        }

    private:
        dr::Eswitch& eswitch_;
        std::vector<ovsdr_megaflow> megaflows_;
    };

    FlowApiSetup setup_;
};

}  // namespace

std::unique_ptr<FlowApi> FlowApi::create(const FlowApiSetup& setup) { return std::make_unique<EswitchApi>(setup); }

}  // namespace ovsdr::bench
