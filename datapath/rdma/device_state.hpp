// What all contexts of one device share: registered memory, numbers of objects, IB ports, receive queues by number.
//
// IB ports. Port n stands for a vport, as the representors of a switchdev NIC do: numbered in ascending order of the
// vports that there were when the device was first opened (port 1 is the manager, the last one the uplink), those that
// come later at the end. A port keeps its vport for the life of the process; one whose vport is gone stays, down.
// docs/soft-nic-ports.md has the kernel's numbering, and why nobody may count on either: ask mlx5dv_query_port() for a
// port's vport.
//
// Life cycle. One per Device, made on first use, never destroyed: packets in flight refer to it.
// Threads: any function from any thread.
#pragma once

#include <atomic>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "datapath/packet.hpp"
#include "datapath/ports/nic.hpp"
#include "datapath/rdma/aso_access.hpp"
#include "datapath/rdma/memory/memory.hpp"
#include "datapath/rdma/pacing/rate_table.hpp"
#include "datapath/rdma/pacing/scheduler.hpp"
#include "datapath/steering/flow_tables.hpp"

namespace ovsdr::soft {

class CompletionQueue;
class ReceiveQueue;
namespace devx {
class DoorbellPages;
class Resource;
class Umems;
}
namespace roce {
class Transport;
}
class DeviceMemory;

/// What PDs stand for; an import is another PD of the same one.
struct ProtectionDomain {
    std::uint32_t number;            ///< pdn
    const void* identity = nullptr;  ///< what queues and memory are compared by: the address of the first PD of it
};

/// Objects that others may ask for by their handle for as long as somebody keeps them.
template <typename Object>
class HandleTable {
public:
    void add(std::uint32_t handle, const std::shared_ptr<Object>& object) {
        std::lock_guard guard(mutex_);
        objects_[handle] = object;
    }
    [[nodiscard]] std::shared_ptr<Object> find(std::uint32_t handle) {
        std::lock_guard guard(mutex_);
        const auto found = objects_.find(handle);
        return found == objects_.end() ? nullptr : found->second.lock();
    }
    void remove(std::uint32_t handle) {
        std::lock_guard guard(mutex_);
        objects_.erase(handle);
    }

private:
    std::mutex mutex_;
    std::map<std::uint32_t, std::weak_ptr<Object>> objects_;
};

/// Objects that commands name by number, for as long as they live.
template <typename Object>
class Directory {
public:
    void add(std::uint32_t number, Object& object) {
        std::lock_guard guard(mutex_);
        objects_[number] = &object;
    }
    void remove(std::uint32_t number) {
        std::lock_guard guard(mutex_);
        objects_.erase(number);
    }
    [[nodiscard]] std::size_t length() {
        std::lock_guard guard(mutex_);
        return objects_.size();
    }
    /// Calls `use` with the object of that number, which cannot be removed meanwhile. false: there is none.
    template <typename Use>
    bool with(std::uint32_t number, Use use) {
        std::lock_guard guard(mutex_);
        const auto found = objects_.find(number);
        if (found == objects_.end()) return false;
        use(*found->second);
        return true;
    }

private:
    std::mutex mutex_;
    std::map<std::uint32_t, Object*> objects_;
};

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
    ~DeviceState();

    /// The state of `device`, made with `mempool` on first use.
    [[nodiscard]] static DeviceState& of(Device& device, rte_mempool* mempool);

    [[nodiscard]] Device& device() noexcept { return device_; }
    [[nodiscard]] rte_mempool* mempool() noexcept { return mempool_; }
    [[nodiscard]] MemoryTable& memory() noexcept { return memory_; }
    /// What verbs flows add to the root tables.
    [[nodiscard]] FlowTables& flows() noexcept { return flows_; }

    /// Queue numbers (QPN, SQN, RQN, TIRN, TISN) are 24 bits and share one space, CQs and PDs have theirs.
    [[nodiscard]] NumberPool& queue_numbers() noexcept { return queue_numbers_; }
    [[nodiscard]] NumberPool& cq_numbers() noexcept { return cq_numbers_; }
    [[nodiscard]] NumberPool& pd_numbers() noexcept { return pd_numbers_; }
    [[nodiscard]] HandleTable<ProtectionDomain>& protection_domains() noexcept { return protection_domains_; }
    /// Completion queues whose number commands may name, and what commands made.
    [[nodiscard]] Directory<CompletionQueue>& completion_queues() noexcept { return completion_queues_; }
    [[nodiscard]] Directory<devx::Resource>& resources() noexcept { return resources_; }
    /// Counter sets of queues have numbers of 8 bits, and 0 is none.
    [[nodiscard]] NumberPool& queue_counter_numbers() noexcept { return queue_counter_numbers_; }
    [[nodiscard]] Directory<devx::Resource>& queue_counters() noexcept { return queue_counters_; }
    /// Memory that applications registered for queues.
    [[nodiscard]] devx::Umems& umems() noexcept { return *umems_; }
    /// Made on first use.
    [[nodiscard]] devx::DoorbellPages& doorbell_pages();
    [[nodiscard]] HandleTable<DeviceMemory>& device_memories() noexcept { return device_memories_; }
    /// Bytes of device memory that are taken, of device_memory_size.
    [[nodiscard]] std::atomic<std::uint64_t>& device_memory_taken() noexcept { return device_memory_taken_; }

    /// A descriptor of the device's command file, which stands for it (ibv_import_device()) and whose pages are what
    /// the device lets applications map. The caller closes it; -1 and errno.
    [[nodiscard]] int open_file();
    /// Whether `descriptor` is of that file.
    [[nodiscard]] bool is_file(int descriptor);
    /// A page of the command file, by its number, for doorbells of virtio queues. Nothing where all are taken.
    [[nodiscard]] std::optional<std::uint32_t> take_doorbell_page();
    void give_back_doorbell_page(std::uint32_t number);

    [[nodiscard]] RateTable& rates() noexcept { return rates_; }
    [[nodiscard]] Scheduler& scheduler() noexcept { return scheduler_; }

    [[nodiscard]] NumberPool& counter_ids() noexcept { return counter_ids_; }
    [[nodiscard]] NumberPool& aso_numbers() noexcept { return aso_numbers_; }
    [[nodiscard]] AsoTable& aso() noexcept { return aso_; }

    /// Made on first use.
    [[nodiscard]] roce::Transport& transport();
    /// Returns when the queue pairs' doorbells that have rung are answered (see roce::Engine::settle()).
    void answer_doorbells();

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
    FlowTables flows_;
    NumberPool queue_numbers_{0x100};
    NumberPool cq_numbers_{0x400};
    NumberPool pd_numbers_{0x10};
    NumberPool counter_ids_{0x8000};
    NumberPool aso_numbers_{0x1000};
    AsoTable aso_;
    RateTable rates_;
    Scheduler scheduler_;
    std::mutex mutex_;
    std::vector<VportId> ports_;
    HandleTable<ProtectionDomain> protection_domains_;
    HandleTable<DeviceMemory> device_memories_;
    std::atomic<std::uint64_t> device_memory_taken_{0};
    int file_ = -1;
    std::bitset<64> doorbell_pages_taken_;
    std::map<std::uint32_t, ReceiveQueue*> receive_queues_;
    std::mutex transport_mutex_;
    std::unique_ptr<roce::Transport> transport_;
    Directory<CompletionQueue> completion_queues_;
    Directory<devx::Resource> resources_;
    NumberPool queue_counter_numbers_{1};
    Directory<devx::Resource> queue_counters_;
    const std::unique_ptr<devx::Umems> umems_;
    std::unique_ptr<devx::DoorbellPages> doorbell_pages_;  // under transport_mutex_
};

}  // namespace ovsdr::soft
