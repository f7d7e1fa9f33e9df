// What all contexts of one device share: registered memory, numbers of objects, IB ports, receive queues by number.
//
// IB ports. Port n stands for a vport, as the representors of a switchdev NIC do: numbered in ascending order of the
// vports that there were when the device was first opened (port 1 is the manager), those that come later at the end. A
// port keeps its vport for the life of the process; one whose vport is gone stays, down.
//
// Life cycle. One per Device, made on first use, never destroyed: packets in flight refer to it.
// Threads: any function from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "datapath/packet.hpp"
#include "datapath/ports/nic.hpp"
#include "datapath/rdma/memory.hpp"

namespace ovsdr::soft {

class ReceiveQueue;

/// Hands out numbers of a device's objects, oldest freed number last.
class NumberPool {
public:
    explicit NumberPool(std::uint32_t first) : next_(first) {}
    [[nodiscard]] std::uint32_t take();
    void give_back(std::uint32_t number);
    /// A run of `length` numbers, a multiple of `length`; runs are not used again.
    [[nodiscard]] std::uint32_t take_run(std::uint32_t length);

private:
    std::mutex mutex_;
    std::uint32_t next_;
    std::vector<std::uint32_t> free_;
};

class DeviceState {
public:
    DeviceState(Device& device, rte_mempool* mempool);

    /// The state of `device`, made with `mempool` on first use.
    [[nodiscard]] static DeviceState& of(Device& device, rte_mempool* mempool);

    [[nodiscard]] Device& device() noexcept { return device_; }
    [[nodiscard]] rte_mempool* mempool() noexcept { return mempool_; }
    [[nodiscard]] MemoryTable& memory() noexcept { return memory_; }

    /// Queue numbers (QPN, SQN, RQN, TIRN, TISN) are 24 bits and share one space, CQs and PDs have theirs.
    [[nodiscard]] NumberPool& queue_numbers() noexcept { return queue_numbers_; }
    [[nodiscard]] NumberPool& cq_numbers() noexcept { return cq_numbers_; }
    [[nodiscard]] NumberPool& pd_numbers() noexcept { return pd_numbers_; }
    [[nodiscard]] NumberPool& counter_ids() noexcept { return counter_ids_; }

    /// Number of IB ports; grows when vports are added.
    [[nodiscard]] unsigned ports();
    /// The vport behind an IB port, nothing past the last one.
    [[nodiscard]] std::optional<VportId> vport_of(unsigned port);
    /// The IB port of a vport; 0 for a vport that the device never had.
    [[nodiscard]] unsigned port_of(VportId vport);

    /// vhca ids: the manager function's own is 0, another vport's is its port number less one.
    [[nodiscard]] std::uint16_t vhca_id_of(VportId vport) { return static_cast<std::uint16_t>(port_of(vport) - 1); }

    void add_receive_queue(std::uint32_t rqn, ReceiveQueue& queue);
    /// Takes the queue off the list unless it is held; false if it is.
    [[nodiscard]] bool remove_receive_queue(std::uint32_t rqn);
    /// Calls `use` with the receive queue of that number, which is not taken off the list meanwhile. false: no such
    /// queue.
    template <typename Use>
    bool with_receive_queue(std::uint32_t rqn, Use use) {
        std::lock_guard guard(mutex_);
        const auto found = receive_queues_.find(rqn);
        if (found == receive_queues_.end()) return false;
        use(*found->second);
        return true;
    }

private:
    void find_new_vports();

    Device& device_;
    rte_mempool* const mempool_;
    MemoryTable memory_;
    NumberPool queue_numbers_{0x100};
    NumberPool cq_numbers_{0x400};
    NumberPool pd_numbers_{0x10};
    NumberPool counter_ids_{0x8000};
    std::mutex mutex_;
    std::vector<VportId> ports_;
    std::map<std::uint32_t, ReceiveQueue*> receive_queues_;
};

}  // namespace ovsdr::soft
