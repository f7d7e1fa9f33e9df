// A queue pair's inside: what requester and responder share, and what the engine calls.
//
// Threads: everything under the engine's lock (in a turn, or in an Engine::Control), but for what says otherwise.
#pragma once

#include <infiniband/verbs.h>
#include <rte_mbuf.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "datapath/rdma/pacing/send_limit.hpp"
#include "datapath/rdma/roce/dc_initiator.hpp"
#include "datapath/rdma/roce/dc_target.hpp"
#include "datapath/rdma/roce/engine.hpp"
#include "datapath/rdma/roce/frame.hpp"
#include "datapath/rdma/roce/peer.hpp"
#include "datapath/rdma/roce/queue_pair.hpp"
#include "datapath/rdma/roce/requester.hpp"
#include "datapath/rdma/roce/responder.hpp"
#include "datapath/rdma/roce/transport.hpp"

namespace ovsdr::soft::roce {

class Pair final : public QueuePair {
public:
    Pair(const QueuePairSpec& spec, Transport& transport);
    ~Pair() override;
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;

    // QueuePair: any thread, takes the engine's lock.
    [[nodiscard]] const QueuePairSpec& spec() const noexcept override { return spec_; }
    [[nodiscard]] ibv_qp_state state() const noexcept override { return state_.load(std::memory_order_acquire); }
    [[nodiscard]] int modify(const ibv_qp_attr& attr, int mask) override;
    void query(ibv_qp_attr& attr) const override;
    [[nodiscard]] int set_udp_source_port(std::uint16_t port) override;
    [[nodiscard]] int schedule(Scheduler::Element* requests, Scheduler::Element* answers) override;
    [[nodiscard]] int reset_stream(std::uint16_t stream) override;
    void stop() noexcept override;
    void ring_send() noexcept override;
    void ring_receive() noexcept override;
    [[nodiscard]] std::optional<std::uint64_t> drained_at() const override;
    void poll_doorbells() override;

    // For the engine.
    void receive(const Arrival& arrival, std::uint64_t now) noexcept;
    /// Sends at most `budget` packets; returns how many.
    unsigned send(const Outlet& outlet, unsigned budget, std::uint64_t now) noexcept;
    /// Whether there is something to send at once.
    [[nodiscard]] bool ready() const noexcept;
    void timer(std::uint64_t now) noexcept;
    [[nodiscard]] std::uint64_t deadline() const noexcept;
    /// Something was posted, or may have been.
    void doorbell() noexcept;
    /// For polled queues: something was posted since the last doorbell().
    [[nodiscard]] bool has_posts() const noexcept;

    // For requester and responder.
    [[nodiscard]] Transport& transport() noexcept { return engine_.transport(); }
    [[nodiscard]] Engine& engine() noexcept { return engine_; }
    /// Whose the send queue is; nullptr: the application's.
    [[nodiscard]] Rendezvous* rendezvous() noexcept { return rendezvous_.get(); }
    [[nodiscard]] const ibv_qp_attr& attr() const noexcept { return attr_; }
    [[nodiscard]] const Peer& peer() const noexcept { return peer_; }
    /// Of the send ring, not yet taken off it.
    [[nodiscard]] std::uint64_t& next_block() noexcept { return next_block_; }
    /// Of a DC initiator.
    [[nodiscard]] DcInitiator& initiator() noexcept { return *initiator_; }
    [[nodiscard]] bool has_streams() const noexcept { return initiator_ && initiator_->has_streams(); }
    [[nodiscard]] unsigned mtu() const noexcept { return mtu_; }
    [[nodiscard]] ServiceType service() const noexcept { return service_; }
    [[nodiscard]] bool is_datagram() const noexcept { return spec_.type == IBV_QPT_UD; }
    /// Acknowledged: RC, XRC, DC.
    [[nodiscard]] bool is_reliable() const noexcept { return spec_.type != IBV_QPT_UD && spec_.type != IBV_QPT_UC; }
    /// The send queue has failed with its completion written: ERR, SQE for types that have it, the stream alone for DC.
    void send_queue_failed(Requester& requester) noexcept;
    /// The whole queue has failed.
    void fail() noexcept;
    void event(ibv_event_type type) noexcept {
        if (spec_.event) spec_.event(type);
    }
    void drained() noexcept;
    /// To SQD, and IBV_EVENT_SQ_DRAINED when there.
    void stop_sending() noexcept;

private:
    void send_requests(Burst& burst, std::uint64_t now) noexcept;
    void send_answers(Burst& burst, std::uint64_t now) noexcept;
    [[nodiscard]] bool admit(SendLimit& limit, Burst& burst, std::uint64_t now) noexcept;
    void set(const ibv_qp_attr& attr, int mask) noexcept;
    void set_path(const mlx5_wqe_av& vector) noexcept;
    void enter(ibv_qp_state from, ibv_qp_state to) noexcept;
    void start_sending() noexcept;
    void flush() noexcept;
    void receive_dc(const Arrival& arrival, std::uint64_t now) noexcept;
    void receive_answer(Requester& requester, const Arrival& arrival, std::uint64_t now) noexcept;

    friend class Engine;
    Pair* next_rung_ = nullptr;
    std::atomic<bool> is_rung_{false};
    Pair* next_active_ = nullptr;
    bool is_active_ = false;
    std::uint64_t timer_queued_ = Service::never;

    const QueuePairSpec spec_;
    Engine& engine_;
    const ServiceType service_;
    std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
    ibv_qp_attr attr_{};
    unsigned mtu_ = 1024;
    Peer peer_;
    std::uint64_t next_block_ = 0;
    std::uint64_t seen_ = 0;            ///< blocks posted when the doorbell was last answered
    bool established_ = false;          ///< IBV_EVENT_COMM_EST was given
    bool last_entry_reported_ = false;  ///< IBV_EVENT_QP_LAST_WQE_REACHED was given
    bool drain_reported_ = false;       ///< IBV_EVENT_SQ_DRAINED was given, or was not asked for
    std::mutex modify_mutex_;           ///< one modify() at a time; taken before the engine's lock
    const std::unique_ptr<Rendezvous> rendezvous_;  ///< of a queue pair whose SRQ matches tags
    Requester requester_;
    Responder responder_;
    std::unique_ptr<SendLimit> requests_limit_, answers_limit_;  ///< nullptr: none
    std::unique_ptr<DcInitiator> initiator_;
    std::unique_ptr<DcTarget> target_;
};

}  // namespace ovsdr::soft::roce
