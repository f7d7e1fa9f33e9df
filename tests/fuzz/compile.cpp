// Any megaflows, as plain values: the compiler refuses one, or what it makes of it is what a NIC takes. The soft NIC is
// the judge, which refuses what libmlx5 and the device refuse; one device of each profile.
//
// Under tests/fuzz/run, which says where the soft NIC is and which devices it has.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "offload/dr/device/ib_port.hpp"
#include "offload/dr/device/leak.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/slowpath/port_queue.hpp"
#include "tests/fuzz/check.hpp"
#include "tests/fuzz/megaflow_values.hpp"

namespace {

using namespace ovsdr;

struct Port {
    std::uint32_t odp;
    std::uint16_t vport;
};
constexpr Port ports[] = {{1, 1}, {2, 2}, {3, 3}, {9, 0xFFFF}};

class Nic {
public:
    explicit Nic(const char* device) {
        auto opened = dr::Eswitch::open(device);
        if (!opened) std::fprintf(stderr, "%s\n", opened.error().what.c_str());
        FUZZ_CHECK(opened);
        eswitch_ = *opened;
        for (const Port& port : ports) {
            const slowpath::PortQueue& queue = add_queue({port.vport});
            FUZZ_CHECK(eswitch_->attach_port({{port.odp}, {port.vport}, "port", queue.qp(), queue.sqn()}));
        }
        for (const dr::CopyKind kind : dr::copy_kinds) {
            FUZZ_CHECK(eswitch_->lead_copies(kind, add_queue({0}).qp()));
        }
        for (const fuzz::Mirror& mirror : fuzz::mirrors) {
            FUZZ_CHECK(eswitch_->lead_copies(mirror.kind, add_queue({0}).qp()));
            FUZZ_CHECK(eswitch_->set_mirror_port({mirror.odp}, mirror.kind, mirror.steering));
        }
        for (const dr::TunnelPort& tunnel : fuzz::tunnel_ports) eswitch_->set_tunnel_port(tunnel);
    }

    /// Puts them one after another, which are modifications where ufids are the same, and takes them out again.
    void take(const std::vector<ovsdr_megaflow>& megaflows) {
        constexpr std::uint64_t ufids = 3;
        set_meters(0);
        for (std::size_t i = 0; i < megaflows.size(); ++i) {
            const dr::PutOutcome outcome = eswitch_->put({i % ufids, 1}, megaflows[i]);
            // A device that has room refuses only plans that must not have been made.
            const auto* error = std::get_if<Error>(&outcome);
            if (error != nullptr) std::fprintf(stderr, "megaflow %zu: %s\n", i, error->what.c_str());
            FUZZ_CHECK(error == nullptr);
            const auto report = eswitch_->explain({i % ufids, 1});
            FUZZ_CHECK(report && report->offloaded == std::holds_alternative<std::monostate>(outcome));
            ++(report->offloaded ? taken_ : refused_);
            FUZZ_CHECK(report->offloaded ? !report->program.empty() : !report->reasons.empty());
        }
        set_meters(megaflows.size());   // beneath the rules, or with new ones: they stay, come or go
        if (megaflows.size() == ufids) FUZZ_CHECK(!dr::dot_of(std::array{eswitch_->graph()}).empty());
        eswitch_->flush(std::nullopt);
        FUZZ_CHECK(eswitch_->totals().offloaded == 0 && dr::leaked_objects() == 0);
    }

    /// A target whose megaflows are all refused asks the NIC nothing.
    void say() const {
        std::fprintf(stderr, "FIGURE %s: %llu megaflows in the NIC, %llu refused by the compiler\n",
                     std::string(eswitch_->device()).c_str(), static_cast<unsigned long long>(taken_),
                     static_cast<unsigned long long>(refused_));
    }

private:
    const slowpath::PortQueue& add_queue(dr::VportId vport) {
        const auto ib_port = dr::find_ib_port(eswitch_->context(), vport);
        FUZZ_CHECK(ib_port);
        auto queue = slowpath::PortQueue::create(
            {.context = eswitch_->context(), .pd = eswitch_->pd(), .ib_port = ib_port->number});
        FUZZ_CHECK(queue);
        queues_.push_back(std::move(*queue));
        return *queues_.back();
    }

    /// Each number has the next one's parameters where `turn` is one more.
    void set_meters(std::size_t turn) {
        constexpr std::size_t length = std::size(fuzz::meters);
        for (std::size_t i = 0; i < length; ++i) {
            eswitch_->set_meter(static_cast<std::uint32_t>(i + 1), fuzz::meters[(i + turn) % length]);
        }
    }

    std::uint64_t taken_ = 0, refused_ = 0;
    std::shared_ptr<dr::Eswitch> eswitch_;
    std::vector<std::unique_ptr<slowpath::PortQueue>> queues_;
};

std::array<Nic, 3>& all_nics() {
    static auto& nics = *new std::array{Nic("cx5"), Nic("cx6dx"), Nic("cx7")};   // live as long as the process
    static const bool says = [] {
        return std::atexit([] {
                   for (const Nic& nic : all_nics()) nic.say();
               }) == 0;
    }();
    FUZZ_CHECK(says);
    return nics;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    auto& nics = all_nics();
    FuzzedDataProvider input(data, size);
    Nic& nic = nics[input.ConsumeIntegralInRange<std::size_t>(0, nics.size() - 1)];
    std::vector<fuzz::MegaflowValue> values;
    std::vector<ovsdr_megaflow> megaflows;
    const auto length = input.ConsumeIntegralInRange<std::size_t>(1, 5);
    for (std::size_t i = 0; i < length; ++i) {
        values.push_back(fuzz::MegaflowDrawer(input).draw());
        megaflows.push_back(values.back().megaflow);
    }
    nic.take(megaflows);
    return 0;
}
