// The send side of a queue pair: work requests in the process's memory, carried out when the doorbell is rung.
//
// Three kinds. An RC queue pair in loopback, by which libmlx5 writes steering entries: RDMA WRITE and READ of ICM or of
// registered memory, and FLOW_TBL_ACCESS, which stores a modify-header argument. A raw packet queue: SEND; the frame is
// checked, counted and gone. A send queue that only writes ASO objects: ACCESS_ASO of flow meters.
//
// Words. The ring is counted in blocks of 64 bytes; the doorbell record says how many have been posted.
// Threads: the device's lock. Source: PRM, "Work Queue Entries"; struct mlx5_wqe_* of mlx5dv.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tests/connectx/completion_queue.hpp"

namespace ovsdr::connectx {

struct MemoryRange;

/// What work requests reach of the rest of the device.
class RequestTargets {
public:
    /// Null if the key does not grant it.
    [[nodiscard]] virtual std::uint8_t* memory(const MemoryRange& range) = 0;
    /// True if `memory` is device memory (for counting what is written there).
    [[nodiscard]] virtual bool is_icm(std::uint32_t key) const = 0;
    /// The 64 bytes of a modify-header argument, or null.
    [[nodiscard]] virtual std::uint8_t* argument(std::uint32_t id) = 0;
    /// The 64 bytes of an object of flow meters, or null if the protection domain has none of this number.
    [[nodiscard]] virtual std::uint8_t* aso_meters(std::uint32_t id, std::uint32_t protection_domain) = 0;
    /// A fault is due: the request fails.
    [[nodiscard]] virtual bool must_fail(std::string_view opcode) = 0;
    virtual void note(std::string_view what) = 0;

protected:
    ~RequestTargets() = default;
};

class SendQueue {
public:
    enum class Service : std::uint8_t { loopback, raw_packet, aso };
    enum class State : std::uint8_t { reset, init, ready_to_receive, ready_to_send, error };

    struct Spec {
        Service service;
        std::uint32_t user_index;
        std::uint32_t protection_domain;   ///< its number
        std::uint8_t* ring;               ///< the process's memory
        std::uint32_t length;             ///< blocks, a power of two; 0: it only receives
        std::uint32_t* doorbell_record;   ///< the same; the second of the pair
    };
    struct Figures {
        std::uint64_t requests = 0, icm_bytes = 0, frames = 0, frame_bytes = 0;
    };

    SendQueue(std::uint32_t number, Spec spec) : number_(number), spec_(spec) {}

    /// `REQUEST:SEND`, …
    [[nodiscard]] static bool is_request_name(std::string_view name);

    [[nodiscard]] std::uint32_t number() const { return number_; }
    [[nodiscard]] State state() const { return state_; }
    /// The ring or the doorbell record lies in these bytes.
    [[nodiscard]] bool is_in(const std::uint8_t* memory, std::uint64_t size) const {
        const auto* record = reinterpret_cast<const std::uint8_t*>(spec_.doorbell_record);
        return (spec_.ring >= memory && spec_.ring < memory + size) || (record >= memory && record < memory + size);
    }
    /// To reset: the ring begins anew.
    void set_state(State state);

    /// Everything that the doorbell record says has been posted. Completions go to `completions`.
    void run(CompletionQueue& completions, RequestTargets& targets, Figures& figures);

private:
    struct Request;
    [[nodiscard]] Request take() const;
    /// A syndrome, 0 for success.
    [[nodiscard]] std::uint8_t access(const Request& request, RequestTargets& targets, Figures& figures) const;
    [[nodiscard]] static std::uint8_t store_argument(const Request& request, RequestTargets& targets);
    [[nodiscard]] std::uint8_t write_meters(const Request& request, RequestTargets& targets) const;
    [[nodiscard]] std::uint8_t send(const Request& request, RequestTargets& targets, Figures& figures) const;
    [[nodiscard]] std::uint8_t carry_out(const Request& request, RequestTargets& targets, Figures& figures) const;

    std::uint32_t number_;
    Spec spec_;
    State state_ = State::reset;
    std::uint16_t consumer_ = 0;   ///< blocks
};

}   // namespace ovsdr::connectx
