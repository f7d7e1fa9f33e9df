// The NIC behind Nic::start(), and its control thread.
//
// The control thread starts EAL and everything else, then waits: for network interfaces that change, for changes that
// listeners want to hear of, for `drnic` on the control socket, and for the co-tenants' next period. When the process
// ends by exit(), it stops the workers, closes the ports (AF_XDP programs would stay on their interfaces otherwise) and
// removes the control socket. The objects stay: an application may destroy its rules and queues in handlers that run
// later.
//
// A child of fork() has none of the threads; it does not touch what it inherited when it exits.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "datapath/ports/balancer.hpp"
#include "datapath/ports/config.hpp"
#include "datapath/ports/cotenant.hpp"
#include "datapath/ports/nic.hpp"
#include "datapath/ports/packet_pool.hpp"
#include "datapath/ports/soft_device.hpp"
#include "datapath/ports/worker.hpp"

namespace ovsdr::soft {

class CaptureSession;
class ControlServer;

class SoftNic final : public Nic {
public:
    /// Starts the NIC; nullptr and an errno in `code`, with the cause in `error`.
    [[nodiscard]] static std::unique_ptr<SoftNic> start(NicConfig config, int& code, std::string& error);

    /// Stops it, at most once; waits for at most a few seconds. In a child process it does nothing.
    void stop() noexcept;
    ~SoftNic() override;

    [[nodiscard]] std::span<Device* const> devices() noexcept override { return device_pointers_; }
    [[nodiscard]] rte_mempool* mempool() noexcept override { return jumbo_pool_.get(); }

    // For the control commands.
    [[nodiscard]] rte_mempool* small_mempool() const noexcept { return small_pool_.get(); }
    [[nodiscard]] const std::vector<std::unique_ptr<SoftDevice>>& soft_devices() const noexcept { return devices_; }
    [[nodiscard]] const std::vector<std::unique_ptr<Worker>>& workers() const noexcept { return workers_; }
    [[nodiscard]] Balancer& balancer() noexcept { return *balancer_; }
    /// Those that run; each enters and removes itself. Control thread.
    [[nodiscard]] std::vector<CaptureSession*>& captures() noexcept { return captures_; }
    [[nodiscard]] const std::vector<CaptureSession*>& captures() const noexcept { return captures_; }
    /// nullptr where the configuration has none.
    [[nodiscard]] const Cotenant* cotenant(std::size_t device) const noexcept { return cotenants_[device].get(); }

private:
    explicit SoftNic(NicConfig config);
    void control_thread();
    int bring_up(std::string& error);
    int make_packet_memory(std::string& error);
    void serve();
    void handle_interface_events() noexcept;
    void tear_down() noexcept;
    void wake() noexcept;

    const NicConfig config_;
    const pid_t process_;
    int wake_descriptor_ = -1;
    int interface_events_ = -1;
    Mempool small_pool_;
    Mempool jumbo_pool_;
    std::vector<std::unique_ptr<SoftDevice>> devices_;
    std::vector<Device*> device_pointers_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<std::unique_ptr<Cotenant>> cotenants_;
    std::unique_ptr<Balancer> balancer_;
    std::vector<CaptureSession*> captures_;
    std::unique_ptr<ControlServer> server_;

    enum class Phase { starting, failed, running, stopped };
    std::mutex mutex_;
    std::condition_variable changed_;
    Phase phase_ = Phase::starting;
    unsigned closed_ports_ = 0;
    int start_code_ = 0;
    std::string start_error_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

}  // namespace ovsdr::soft
