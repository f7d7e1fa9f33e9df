// A port on a network controller: a PCI device, named by its address, that one of DPDK's drivers works.
//
// Only a device that a port names is looked at, and it is DPDK that decides which of its drivers takes it. The device
// must be lent to processes, see pci_function.hpp, which says what is wrong with one that is not. A port that cannot be
// opened is tried again, so a device that is bound later is found. When the kernel wants the device back (it is to be
// unbound, or pulled out), the port lets go of it.
//
// Queues. As many receive queues as queues=N says, else as there are workers and the device has, with receive-side
// scaling (RSS) by the fields of IP, TCP, UDP and SCTP that the device knows; a send queue for each worker, as far as
// the device has them. Where vfio and MSI-X are there and the driver has interrupts, they
// wake a sleeping worker; else the port is polled. The link is looked at once a second, in LAG ten times.
//
// Memory. Where there are several NUMA nodes the port receives into buffers of its own, on the device's node. The MTU
// is the device's too; it can be lowered while the port works, and the port is opened anew for a larger one. Nothing is
// left to the device to do with packets: they come and go whole, with all of their checksums and VLAN tags.
//
// Threads: as port.hpp says. DPDK's interrupt thread calls back when the device is to go.
#pragma once

#include <rte_dev.h>
#include <rte_ethdev.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datapath/ports/pci_function.hpp"
#include "datapath/ports/port.hpp"

namespace ovsdr::soft {

class PciPort final : public Port {
public:
    [[nodiscard]] static std::unique_ptr<Port> open(const PortSpec& spec, const Driver& driver, std::string& error);
    ~PciPort() override;

    void arm(unsigned queue) noexcept override;
    void disarm(unsigned queue) noexcept override;
    [[nodiscard]] bool link_up() const noexcept override;
    /// It takes the device's registers, or its firmware.
    [[nodiscard]] bool link_seen_up() const noexcept override { return false; }
    [[nodiscard]] std::uint32_t speed() const noexcept override;
    [[nodiscard]] std::uint16_t mtu() const noexcept override { return mtu_; }
    [[nodiscard]] int set_mtu(std::uint16_t mtu) noexcept override;
    [[nodiscard]] std::uint16_t largest_mtu() const noexcept override { return info_.max_mtu; }
    [[nodiscard]] std::optional<MacAddress> mac() const noexcept override { return mac_; }
    [[nodiscard]] bool lost() const noexcept override { return lost_.load(); }
    [[nodiscard]] std::uint64_t overruns() noexcept override;

private:
    /// A receive queue. A driver may give a frame in several buffers, which are put into one, as the datapath has them.
    /// What it says of headers and checksums is not believed: some say "good" of all, and hashes are not ours.
    struct Receiver {
        Burst burst = nullptr;
        void* queue = nullptr;
        std::atomic<std::uint64_t> lost{0};  ///< longer than a buffer
        static std::uint16_t receive(void* self, rte_mbuf** packets, std::uint16_t length) noexcept;
    };
    /// A send queue. Some devices take a frame that is too short for an attack, and stop: it is padded, as on a wire.
    /// And a device keeps packets until more are sent, for ever maybe: those in another port's own memory, which goes
    /// with that port, are copied.
    struct Sender {
        Burst burst = nullptr;
        void* queue = nullptr;
        PacketMemory memory;
        const rte_mempool* own_pool = nullptr;
        static std::uint16_t send(void* self, rte_mbuf** packets, std::uint16_t length) noexcept;

    private:
        [[nodiscard]] bool make_ready(rte_mbuf*& packet) const noexcept;
    };

    PciPort(const PortSpec& spec, const Driver& driver);
    int probe(std::string& error);
    int choose_mtu(const PortSpec& spec, std::string& error);
    int choose_queues(const PortSpec& spec, std::string& error);
    int make_memory(const PortSpec& spec, std::string& error);
    int check_memory(std::string& error);
    [[nodiscard]] bool can_interrupt() const noexcept;
    int start(std::string& error);
    int configure(std::string& step);
    int watch_receive_interrupts();
    int watch_device();
    void forget_device() noexcept;
    void connect();
    static int on_port_event(std::uint16_t, rte_eth_event_type type, void* self, void*) noexcept;
    static void on_device_event(const char*, rte_dev_event_type type, void* self) noexcept;

    PciFunction function_;
    const std::function<void()> changed_;
    const PacketMemory memory_;
    bool chooses_queues_ = true;  ///< nobody has said how many
    std::uint16_t receivers_ = 1, senders_ = 1;
    std::uint16_t receive_length_ = 0, send_length_ = 0;  ///< of a queue, in packets
    std::uint16_t id_ = 0;
    bool probed_ = false, started_ = false;
    rte_eth_dev_info info_{};
    std::uint16_t mtu_ = 1500;
    MacAddress mac_{};
    bool receive_interrupt_ = false;
    rte_mempool* pool_ = nullptr;
    Mempool own_pool_;
    std::unique_ptr<Receiver[]> receiving_;  ///< one for each receive queue
    std::unique_ptr<Sender[]> sending_;      ///< one for each send queue
    std::vector<int> edges_;                 ///< epoll descriptors, one for each receive queue's interrupt
    std::atomic<bool> lost_{false};
};

}  // namespace ovsdr::soft
