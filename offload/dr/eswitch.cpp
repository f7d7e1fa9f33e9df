#include "offload/dr/eswitch.hpp"

#include <map>

#include "offload/dr/eswitch_impl.hpp"
#include "offload/dr/nic/nic_function.hpp"

namespace ovsdr::dr {

namespace {

struct Registry {
    std::mutex mutex;
    std::map<std::string, std::weak_ptr<Eswitch>, std::less<>> open;
};

Registry& registry() {
    // Never destroyed: threads of the process that we live in may ask for it until the very end.
    static auto* const the_registry = new Registry;
    return *the_registry;
}

Result<std::shared_ptr<Eswitch>> open_device(std::string_view name) {
    auto device = Device::open(name);
    if (!device) return tl::unexpected(std::move(device.error()));
    auto caps = probe_caps(*device);
    if (!caps) return tl::unexpected(std::move(caps.error()));
    if (caps->manages_eswitch) return EswitchImpl::create(std::move(*device), *caps);
    return NicFunction::create(std::move(*device), *caps);
}

}  // namespace

Result<std::shared_ptr<Eswitch>> Eswitch::open(std::string_view device) {
    Registry& known = registry();
    std::lock_guard lock(known.mutex);
    if (const auto found = known.open.find(device); found != known.open.end()) {
        if (auto shared = found->second.lock()) return shared;
    }
    auto made = open_device(device);
    if (made) known.open[std::string(device)] = *made;
    return made;
}

bool any_recirculation() noexcept { return TableSet::any_ever(); }

std::vector<std::shared_ptr<Eswitch>> open_eswitches() {
    Registry& known = registry();
    std::lock_guard lock(known.mutex);
    std::vector<std::shared_ptr<Eswitch>> eswitches;
    for (const auto& [name, weak] : known.open) {
        if (auto shared = weak.lock()) eswitches.push_back(std::move(shared));
    }
    return eswitches;
}

Result<std::shared_ptr<EswitchImpl>> EswitchImpl::create(std::shared_ptr<Device> device,
                                                         const DeviceCaps& caps) noexcept {
    auto counters = CounterPool::create(device, caps);
    if (!counters) return tl::unexpected(std::move(counters.error()));
    auto pipeline = Pipeline::create(device, caps, **counters);
    if (!pipeline) return tl::unexpected(std::move(pipeline.error()));

    std::shared_ptr<EswitchImpl> eswitch(new EswitchImpl(std::move(device)));
    eswitch->caps_ = caps;
    eswitch->counters_ = std::move(*counters);
    eswitch->pipeline_ = std::move(*pipeline);
    eswitch->pipeline_->tables().on_change([eswitch = eswitch.get()](TableKey table) {
        eswitch->backlog_.unpark(table);
    });
    return eswitch;
}

EswitchImpl::EswitchImpl(std::shared_ptr<Device> device) noexcept
    : device_(std::move(device)), backlog_([this](const Ufid& ufid) { return try_again(ufid); }) {}

EswitchImpl::~EswitchImpl() {
    backlog_.end();
    flush(std::nullopt);
}

}  // namespace ovsdr::dr
