// The RoCE transport of one device: its addresses, its queue pairs, and what the wire and the workers have to do with
// them.
//
// Model. There is an Engine for each worker, and each queue pair belongs to the engine that its number names. Packets
// that steering led nowhere else come by take(), on whatever worker: RoCE packets to one of our addresses, with a right
// ICRC, go to the engine of their queue pair; ARP and neighbour discovery for our addresses to Neighbours; all else is
// not ours. Only what the uplink received is looked at: VFs have no way into the manager's transport.
//
// Packets to a multicast group with members here go to each of them, whatever MAC address the device has.
//
// Packets to one of our own addresses go from engine to engine and never see the wire; everything else about them is
// the same but the ICRC, which nobody could break.
//
// Life cycle. One per DeviceState, made with the first queue pair, or at once where addresses are configured, as they
// are to be answered for.
//
// Threads: any, but for take(), which workers call.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "datapath/packet.hpp"
#include "datapath/ports/nic.hpp"
#include "datapath/rdma/roce/engine.hpp"
#include "datapath/rdma/roce/frame.hpp"
#include "datapath/rdma/roce/gid_table.hpp"
#include "datapath/rdma/roce/multicast.hpp"
#include "datapath/rdma/roce/neighbours.hpp"

namespace ovsdr::soft {
class DeviceState;
}

namespace ovsdr::soft::roce {

class SharedReceiveQueue;

/// Our own addresses at one time; never changed, replaced as a whole.
struct Addresses {
    std::array<std::uint8_t, 6> mac;
    std::vector<GidEntry> gids;  ///< by GID index

    [[nodiscard]] bool holds(const ibv_gid& gid, std::uint16_t vlan) const noexcept;
    [[nodiscard]] bool in_vlan(std::uint16_t vlan) const noexcept;
};

class Transport {
public:
    explicit Transport(DeviceState& state);
    ~Transport();
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;

    [[nodiscard]] DeviceState& state() noexcept { return state_; }
    [[nodiscard]] const Addresses& addresses() const noexcept { return *addresses_.load(std::memory_order_acquire); }
    [[nodiscard]] Neighbours& neighbours() noexcept { return neighbours_; }

    [[nodiscard]] Engine& engine_of(std::uint32_t qpn) noexcept { return *engines_[qpn % engines_.size()]; }

    /// Whether there is a queue pair of that number.
    [[nodiscard]] bool has_queue_pair(std::uint32_t qpn);
    /// Engine::settle() of each engine.
    void answer_doorbells() noexcept;

    /// XRC: queues by the number that requests name them by. The queue stays while `use` runs.
    void add_shared_queue(std::uint32_t number, SharedReceiveQueue& queue);
    void remove_shared_queue(std::uint32_t number);
    template <typename Use>
    void with_shared_queue(std::uint32_t number, Use use) {
        const std::lock_guard guard(shared_queues_mutex_);
        const auto found = shared_queues_.find(number);
        use(found == shared_queues_.end() ? nullptr : found->second);
    }

    [[nodiscard]] MulticastGroups& multicast() noexcept { return multicast_; }
    /// A copy of a frame that went to a group for each member here but `sender`. Workers only.
    void copy_to_members(const rte_mbuf* frame, std::uint32_t sender) noexcept;

    /// Frames of our own (ARP, neighbour discovery): takes ownership.
    void send_frame(rte_mbuf* frame) noexcept;

    /// Bytes of a packet's payload at most, as far as the uplink's MTU goes; active_mtu of IB port 1 says the same.
    [[nodiscard]] unsigned largest_mtu() const;

    struct Counters {
        std::atomic<std::uint64_t> bad_icrc{0}, malformed{0}, inbox_full{0};
    };
    [[nodiscard]] Counters& counters() noexcept { return counters_; }

private:
    static unsigned take(void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept;
    [[nodiscard]] bool take_one(rte_mbuf* packet) noexcept;
    void post(rte_mbuf* packet, std::uint32_t qpn) noexcept;
    void read_addresses();

    DeviceState& state_;
    std::atomic<const Addresses*> addresses_{nullptr};
    std::mutex addresses_mutex_;
    std::vector<std::unique_ptr<const Addresses>> all_addresses_;  ///< old ones stay: workers may be reading
    std::uint64_t listener_ = 0;
    const std::uint32_t sqn_;  ///< of our own frames
    MulticastGroups multicast_;  ///< engines send to its members
    std::vector<std::unique_ptr<Engine>> engines_;
    Neighbours neighbours_;
    std::mutex shared_queues_mutex_;
    std::map<std::uint32_t, SharedReceiveQueue*> shared_queues_;
    Counters counters_;
};

}  // namespace ovsdr::soft::roce
