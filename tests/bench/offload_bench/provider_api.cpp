// See flow_api.hpp: OVS's match and actions by the provider's flow_put, as dpif-netdev's offload threads call it.
#include <stdexcept>
#include <vector>

#include "ctrl/port.hpp"
#include "tests/bench/offload_bench/flow_api.hpp"
#include "tests/bench/offload_bench/megaflows.hpp"
#include "tests/bench/offload_bench/provider.h"

namespace ovsdr::bench {
namespace {

template <auto free>
struct Freed {
    void operator()(auto* object) const noexcept { free(object); }
};
using Netdev = std::unique_ptr<provider_netdev, Freed<provider_netdev_free>>;
using Flows = std::unique_ptr<provider_flows, Freed<provider_flows_free>>;
using Put = std::unique_ptr<provider_put, Freed<provider_put_free>>;

class ProviderApi final : public FlowApi {
public:
    explicit ProviderApi(const FlowApiSetup& setup) : flows_(provider_flows_new(setup.megaflows)) {
        const auto device = std::make_shared<ctrl::OpenDevice>(ctrl::DeviceName(std::string()), setup.eswitch, nullptr);
        for (std::uint32_t port = 0; port < setup.ports; ++port) {
            auto made = std::make_unique<ovsdr_port>();
            made->device = device;
            netdevs_.emplace_back(provider_netdev_new(made.get()));
            ports_.push_back(std::move(made));
        }
        for (std::uint64_t i = 0; i < setup.megaflows; ++i) provider_flow_name(flows_.get(), i, ufid(i).data());
    }

    std::unique_ptr<Putter> putter(std::uint32_t turn) override {
        return std::make_unique<OfProvider>(*this, turn);
    }
    bool get(std::uint64_t i) override {
        return provider_flow_get(netdevs_[i % netdevs_.size()].get(), flows_.get(), i);
    }

private:
    class OfProvider final : public Putter {
    public:
        OfProvider(ProviderApi& api, std::uint32_t turn) : api_(api) {
            const auto ports = static_cast<std::uint32_t>(api.netdevs_.size());
            for (std::uint32_t port = 0; port < ports; ++port) {
                puts_.emplace_back(provider_put_new(1 + port, 1 + (port + turn) % ports));
            }
        }
        void put(std::uint64_t i) override {
            provider_put* const next = puts_[i % puts_.size()].get();
            provider_put_from(next, static_cast<std::uint32_t>(0x0a010000 + i / 50000),
                              static_cast<std::uint16_t>(1024 + i % 50000));
            if (!provider_flow_put(api_.netdevs_[i % puts_.size()].get(), api_.flows_.get(), i, next)) {
                throw std::runtime_error("flow_put failed");
            }
        }

    private:
        ProviderApi& api_;
        std::vector<Put> puts_;
    };

    Flows flows_;
    std::vector<std::unique_ptr<ovsdr_port>> ports_;
    std::vector<Netdev> netdevs_;
};

}  // namespace

std::unique_ptr<FlowApi> FlowApi::create(const FlowApiSetup& setup) { return std::make_unique<ProviderApi>(setup); }

}  // namespace ovsdr::bench
