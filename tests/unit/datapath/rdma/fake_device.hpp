// A device without ports or workers: the test is the worker that polls its send queues.
#pragma once

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "datapath/ports/nic.hpp"
#include "datapath/rdma/device_state.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft::test {

class FakeDevice : public Device {
public:
    explicit FakeDevice(const Profile& profile = connectx_6dx) : profile_(profile), steering_(profile) {
        add(manager_vport);
        add(uplink_vport);
        add(VportId{1});
    }

    void add(VportId id) {
        VportInfo info{id,   "vport " + std::to_string(id.value),
                       "",   {2, 0, 0, 0, 1, static_cast<std::uint8_t>(id.value)},
                       1500, true,
                       true, ""};
        vports_[id] = info;
    }
    void remove(VportId id) { vports_.erase(id); }
    void tell(VportId vport, VportChange change) {
        for (auto& [id, listener] : listeners_) listener(vport, change);
    }
    /// What a worker does: asks the queue for packets.
    unsigned poll(std::uint32_t sqn, rte_mbuf** packets, unsigned length) {
        const SendSource& source = sources_.at(sqn);
        return source.poll(source.self, packets, length);
    }

    std::string_view name() const noexcept override { return "mlx5_0"; }
    const Profile& profile() const noexcept override { return profile_; }
    std::uint64_t guid() const noexcept override { return 0x0200000000000001; }
    Steering& steering() noexcept override { return steering_; }
    std::vector<VportInfo> vports() const override {
        std::vector<VportInfo> all;
        for (const auto& [id, info] : vports_) all.push_back(info);
        return all;
    }
    int query(VportId id, VportInfo& info) const override {
        const auto found = vports_.find(id);
        if (found == vports_.end()) return ENOENT;
        info = found->second;
        return 0;
    }
    bool has(VportId id) const override { return vports_.contains(id); }
    int counters(VportId id, VportCounters& counters) const override {
        counters = VportCounters{10, 1000, 20, 2000, 1, 2, 3, 4, 5};
        return vports_.contains(id) ? 0 : ENOENT;
    }
    int set_mac(VportId id, const std::uint8_t (&mac)[6]) override {
        std::copy(std::begin(mac), std::end(mac), vports_.at(id).mac);
        return 0;
    }
    int set_mtu(VportId id, std::uint16_t mtu) override {
        if (mtu < 68 || mtu > 9978) return EINVAL;
        vports_.at(id).mtu = mtu;
        return 0;
    }
    int set_admin_state(VportId id, bool up) override {
        vports_.at(id).admin_up = up;
        return 0;
    }
    std::uint64_t add_listener(std::function<void(VportId, VportChange)> listener) override {
        listeners_[++next_listener_] = std::move(listener);
        return next_listener_;
    }
    void remove_listener(std::uint64_t id) noexcept override { listeners_.erase(id); }
    void add_send_source(const SendSource& source) override { sources_[source.sqn] = source; }
    void remove_send_source(std::uint32_t sqn) noexcept override { sources_.erase(sqn); }
    void ring_doorbell(std::uint32_t) noexcept override { ++doorbells; }
    unsigned workers() const noexcept override { return 1; }
    void add_service(unsigned, const Service& service) override { services_.push_back(service); }
    void remove_service(unsigned, void* self) noexcept override {
        std::erase_if(services_, [self](const Service& service) { return service.self == self; });
    }
    void ring_worker(unsigned) noexcept override { ++rings; }
    void woke(const std::shared_ptr<Lookout>& lookout) noexcept override {
        if (on_woke) on_woke(lookout);
    }
    bool look_out() noexcept override { return on_look_out && on_look_out(); }

    /// What a worker does in a loop; returns how much was done.
    unsigned serve(const Outlet& outlet, std::uint64_t now) {
        unsigned work = 0;
        for (const Service& service : services_) work += service.run(service.self, outlet, now);
        return work;
    }
    /// When the services want their next turn.
    std::uint64_t next_turn(std::uint64_t now) {
        std::uint64_t next = Service::never;
        for (const Service& service : services_) next = std::min(next, service.deadline(service.self, now));
        return next;
    }
    void set_speed(VportId id, std::uint32_t megabits) { vports_.at(id).speed = megabits; }
    void set_roce_addresses(std::vector<RoceAddress> addresses) {
        vports_.at(uplink_vport).roce_addresses = std::move(addresses);
    }

    unsigned doorbells = 0;
    std::atomic<unsigned> rings = 0;
    std::function<void(const std::shared_ptr<Lookout>&)> on_woke;
    std::function<bool()> on_look_out;  ///< what there is to find at the ports
    [[nodiscard]] std::size_t send_sources() const { return sources_.size(); }

private:
    const Profile& profile_;
    Steering steering_;
    std::map<VportId, VportInfo> vports_;
    std::map<std::uint64_t, std::function<void(VportId, VportChange)>> listeners_;
    std::map<std::uint32_t, SendSource> sources_;
    std::vector<Service> services_;
    std::uint64_t next_listener_ = 0;
};

/// A pool of packets out of an EAL without hugepages, PCI or files; one per process.
inline rte_mempool* packet_pool() {
    static rte_mempool* const pool = [] {
        std::string prefix = "--file-prefix=ovsdr-test" + std::to_string(getpid());
        std::vector<std::string> words{"test", "--no-huge", "--no-pci",          "--no-telemetry",
                                       "-m64", "-l0",       "--log-level=error", prefix};
        std::vector<char*> arguments;
        for (std::string& word : words) arguments.push_back(word.data());
        if (rte_eal_init(static_cast<int>(arguments.size()), arguments.data()) < 0) throw std::runtime_error("no EAL");
        rte_mempool* made = rte_pktmbuf_pool_create("packets", 511, 0, 0, 10240, SOCKET_ID_ANY);
        if (!made) throw std::runtime_error(rte_strerror(rte_errno));
        return made;
    }();
    return pool;
}

/// An open context on a fake device, with a PD.
struct OpenDevice {
    explicit OpenDevice(const Profile& profile = connectx_6dx)
        : device(profile),
          state(device, packet_pool()),
          context(open_context(&listed, state)),
          pd(ibv_alloc_pd(context)) {}
    ~OpenDevice() {
        ibv_dealloc_pd(pd);
        ibv_close_device(context);
    }
    FakeDevice device;
    DeviceState state;
    ibv_device listed{};
    ibv_context* context;
    ibv_pd* pd;
};

}  // namespace ovsdr::soft::test
