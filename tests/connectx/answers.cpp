// device.hpp's questions, answered out of the state of the card, each under its lock.
#include <algorithm>

#include "tests/connectx/address_plan.hpp"
#include "tests/connectx/device.hpp"
#include "tests/connectx/open_file.hpp"
#include "tests/connectx/preload.hpp"

namespace ovsdr::connectx {
namespace {

class Answers final : public Device {
private:
    template <class F>
    auto of_kind(ObjectKind kind, F&& describe) const {
        const std::lock_guard lock(nic_.mutex);
        std::vector<decltype(describe(std::declval<const FirmwareObject&>()))> found;
        for (const auto& [id, object] : nic_.firmware.all(kind)) found.push_back(describe(*object));
        return found;
    }
    template <class T, class F>
    auto in_files(F&& describe) const {
        const std::lock_guard lock(nic_.mutex);
        std::vector<decltype(describe(std::declval<const T&>()))> found;
        for (const auto& [fd, file] : nic_.files) {
            file->objects.template for_each<T>([&](std::uint32_t, const T& body) { found.push_back(describe(body)); });
        }
        return found;
    }

public:
    explicit Answers(Nic& nic) : nic_(nic) {}

    unsigned steering_format() const override { return nic_.profile.steering_format; }

    const std::uint8_t* icm(std::uint64_t address, std::size_t size) const override {
        const std::lock_guard lock(nic_.mutex);
        return nic_.icm.at(address, size);
    }
    AddressOwner owner_of(std::uint64_t address) const override {
        const std::lock_guard lock(nic_.mutex);
        if (nic_.icm.at(address, 1) != nullptr) return {AddressOwner::Kind::entries};
        return address_plan::owner_of(address);
    }
    std::uint64_t modify_header_base() const override { return address_plan::modify_header; }
    std::uint64_t modify_pattern_base() const override { return address_plan::modify_pattern; }

    std::optional<std::array<std::uint8_t, 64>> argument(std::uint32_t id) const override {
        const std::lock_guard lock(nic_.mutex);
        const std::uint8_t* bytes = nic_.argument(id);
        if (bytes == nullptr) return std::nullopt;
        std::array<std::uint8_t, 64> copy;
        std::copy_n(bytes, copy.size(), copy.begin());
        return copy;
    }

    std::optional<MeterParameters> meter(MeterName name) const override {
        const std::lock_guard lock(nic_.mutex);
        const std::uint8_t* bytes = nic_.firmware.meter(name);
        if (bytes == nullptr) return std::nullopt;
        MeterParameters copy;
        std::copy_n(bytes, copy.size(), copy.begin());
        return copy;
    }
    bool set_meter(MeterName name, const MeterParameters& parameters) override {
        const std::lock_guard lock(nic_.mutex);
        std::uint8_t* bytes = nic_.firmware.meter(name);
        if (bytes != nullptr) std::ranges::copy(parameters, bytes);
        return bytes != nullptr;
    }

    std::vector<Table> tables() const override { return of_kind(ObjectKind::flow_table, table_of); }
    std::vector<TableEntry> table_entries() const override { return of_kind(ObjectKind::flow_entry, entry_of); }
    std::vector<RootMatcher> root_matchers() const override {
        return in_files<RootMatcherHandle>([](const RootMatcherHandle& handle) { return handle.matcher; });
    }
    std::vector<RootRule> root_rules() const override {
        return in_files<RootRuleHandle>([](const RootRuleHandle& handle) { return handle.rule; });
    }
    std::vector<RootAction> root_actions() const override {
        return in_files<RootActionHandle>([](const RootActionHandle& handle) { return handle.action; });
    }
    std::vector<DevxObject> devx_objects() const override {
        std::vector<DevxObject> found;
        for (std::size_t kind = 0; kind < object_kinds; ++kind) {
            const auto more = of_kind(static_cast<ObjectKind>(kind), [](const FirmwareObject& object) {
                return DevxObject{object.name.id, object.opcode, object.general_type, object.id_length, object.command};
            });
            found.insert(found.end(), more.begin(), more.end());
        }
        return found;
    }
    std::optional<Reformat> reformat(std::uint32_t id) const override {
        const std::lock_guard lock(nic_.mutex);
        const FirmwareObject* object = nic_.firmware.find({ObjectKind::reformat, id});
        return object == nullptr ? std::nullopt : std::optional(reformat_of(*object));
    }
    std::vector<Vport> vports() const override {
        const std::lock_guard lock(nic_.mutex);
        return nic_.firmware.vports().all();
    }

    bool count(std::uint32_t counter, Count more) override {
        const std::lock_guard lock(nic_.mutex);
        FirmwareObject* object = nic_.firmware.find({ObjectKind::counter, counter});
        if (object == nullptr) return false;
        Count& sum = object->counts[counter - object->name.id];
        sum.packets += more.packets;
        sum.bytes += more.bytes;
        return true;
    }
    std::optional<Count> counted(std::uint32_t counter) const override {
        const std::lock_guard lock(nic_.mutex);
        const FirmwareObject* object = nic_.firmware.find({ObjectKind::counter, counter});
        if (object == nullptr) return std::nullopt;
        const auto found = object->counts.find(counter - object->name.id);
        return found == object->counts.end() ? Count{} : found->second;
    }

    std::map<std::string, std::uint64_t> calls() const override {
        const std::lock_guard lock(nic_.mutex);
        return {nic_.log.calls().begin(), nic_.log.calls().end()};
    }
    std::vector<std::string> not_emulated() const override {
        const std::lock_guard lock(nic_.mutex);
        return nic_.log.not_emulated();
    }
    bool fail(std::string_view call, std::uint64_t nth, int error, std::uint64_t times) override {
        const std::lock_guard lock(nic_.mutex);
        if (!is_call_name(call) || nth == 0 || times == 0) return false;
        nic_.faults.add(call, nth, error, times);
        return true;
    }
    std::size_t clear_faults() override {
        const std::lock_guard lock(nic_.mutex);
        return nic_.faults.clear();
    }

    std::map<std::string, std::uint64_t> alive() const override {
        const std::lock_guard lock(nic_.mutex);
        std::map<std::string, std::uint64_t> found;
        for (const auto& [fd, file] : nic_.files) {
            for (const auto& [handle, object] : file->objects.all()) ++found[label_of(nic_, object.body)];
        }
        return found;
    }
    std::uint64_t shared_root_entries() const override {
        const std::lock_guard lock(nic_.mutex);
        return nic_.shared_root_entries;
    }
    std::uint64_t icm_bytes_alive() const override {
        const std::lock_guard lock(nic_.mutex);
        return nic_.icm.bytes_alive();
    }
    std::map<std::string, std::uint64_t> left_behind() const override {
        const std::lock_guard lock(nic_.mutex);
        return nic_.left_behind;
    }

    std::uint64_t work_requests() const override {
        const std::lock_guard lock(nic_.mutex);
        return nic_.figures.requests;
    }
    std::uint64_t icm_bytes_written() const override {
        const std::lock_guard lock(nic_.mutex);
        return nic_.figures.icm_bytes;
    }
    std::uint64_t frames_sent() const override {
        const std::lock_guard lock(nic_.mutex);
        return nic_.figures.frames;
    }

    void set_vport(std::uint16_t number, bool present) override {
        const std::lock_guard lock(nic_.mutex);
        nic_.set_vport(number, present);
    }
    void configure_vport(std::uint16_t number, VportSettings settings) override {
        const std::lock_guard lock(nic_.mutex);
        nic_.firmware.vports().configure(number, settings);
    }
    VportSettings vport_settings(std::uint16_t number) const override {
        const std::lock_guard lock(nic_.mutex);
        return nic_.firmware.vports().settings(number);
    }

private:
    Nic& nic_;
};

}   // namespace

extern "C" __attribute__((visibility("default"))) Device* ovsdr_connectx_device() {
    static Answers answers(the_nic());
    return &answers;
}

}   // namespace ovsdr::connectx
