// The responder's answers: acknowledgements, refusals, what was read.
#include <algorithm>
#include <cstring>

#include "datapath/rdma/roce/pair.hpp"
#include "datapath/rdma/roce/responder.hpp"

namespace ovsdr::soft::roce {

void Responder::push(const Answer& answer) noexcept {
    if (answers_ == most_answers) return;  // as if it were lost on the way
    answer_at(answers_++) = answer;
}

/// A read that was asked for before, all of it or its end. The requester may have gone back to it, or the wire has
/// repeated it, and what else was asked for may or may not be asked for again: all of it stays in the list.
void Responder::read_again(const Answer& answer) noexcept {
    for (unsigned i = 0; i < answers_; ++i) {
        Answer& waiting = answer_at(i);
        const std::int32_t into = psn_distance(waiting.psn, answer.psn);
        if (waiting.type != Answer::Type::read || into < 0 ||
            static_cast<std::uint32_t>(into) + answer.packets != waiting.packets) {
            continue;
        }
        waiting.sent = std::min(waiting.sent, static_cast<std::uint32_t>(into));
        return;
    }
    if (answers_ > most_answers / 2) return;
    reading_open_ = false;  // the one that was being answered goes on afterwards
    first_answer_ = (first_answer_ + most_answers - 1) % most_answers;
    ++answers_;
    answer_at(0) = answer;
}

void Responder::acknowledge(std::uint32_t psn) noexcept {
    if (answers_ != 0) {
        Answer& last = answer_at(answers_ - 1);
        if (last.type == Answer::Type::acknowledge) {
            last.psn = psn;
            return;
        }
    }
    push({.type = Answer::Type::acknowledge, .psn = psn});
}

void Responder::refuse(std::uint32_t psn, Nak code) noexcept {
    push({.type = Answer::Type::refuse,
          .syndrome = static_cast<std::uint8_t>(aeth_nak | static_cast<std::uint8_t>(code)),
          .psn = psn});
}

void Responder::refuse_and_fail(std::uint32_t psn, Nak code) noexcept {
    refuse(psn, code);
    if (code == Nak::access) event(IBV_EVENT_QP_ACCESS_ERR);
    if (code == Nak::invalid_request) event(IBV_EVENT_QP_REQ_ERR);
    fail();
}

void Responder::fail() noexcept {
    if (!spec_.dc) return pair_.fail();
    failed_ = true;
    flush();
}

void Responder::event(ibv_event_type type) noexcept {
    if (!spec_.dc) pair_.event(type);
}

void Responder::not_ready(const Arrival& arrival) noexcept {
    // What is on its way behind this packet is not to be answered: the requester comes back to it.
    refused_ = true;
    push({.type = Answer::Type::refuse,
          .syndrome = static_cast<std::uint8_t>(aeth_rnr | (pair_.attr().min_rnr_timer & 0x1f)),
          .psn = arrival.psn});
}

/// A request that has been executed before.
void Responder::answer_again(const Arrival& arrival) noexcept {
    switch (arrival.operation.kind) {
        case Kind::read: return read(arrival, true);
        case Kind::compare_swap:
        case Kind::fetch_add:
            for (unsigned i = 0; i < results_length_; ++i) {
                if (results_[i].psn == arrival.psn) {
                    push({.type = Answer::Type::atomic, .again = true, .psn = arrival.psn, .value = results_[i].value});
                }
            }
            return;
        default: return acknowledge(psn_add(expected_, mask24));
    }
}

void Responder::send(Burst& burst) noexcept {
    while (answers_ != 0 && !burst.full()) {
        if (!send_answer(burst, answer_at(0))) return;
        first_answer_ = (first_answer_ + 1) % most_answers;
        --answers_;
    }
}

/// A packet to the peer with what the service puts first; the opcode's own headers go to packet.extensions.
bool Responder::begin_answer(Burst& burst, std::uint8_t low, std::uint32_t psn, unsigned payload,
                             Burst::Packet& packet) noexcept {
    const ServiceType service = pair_.service();
    if (!burst.begin({.path = peer_.path,
                      .opcode = static_cast<std::uint8_t>(static_cast<std::uint8_t>(service) | low),
                      .qpn = peer_.qpn,
                      .psn = psn,
                      .extensions = extensions_size(service, operations[low]),
                      .payload = payload},
                     packet)) {
        return false;
    }
    if (service != ServiceType::dc) return true;
    const __be32 stream = htobe32(peer_.stream);
    std::memcpy(packet.extensions, &stream, sizeof stream);
    packet.extensions += sizeof stream;
    return true;
}

/// true: the answer is complete.
bool Responder::send_answer(Burst& burst, Answer& answer) noexcept {
    if (answer.type == Answer::Type::read) {
        while (answer.sent < answer.packets) {
            if (!send_read_response(burst, answer)) return false;
        }
        reading_open_ = false;
        return true;
    }
    const bool atomic = answer.type == Answer::Type::atomic;
    const std::uint8_t low = opcode_of(atomic ? Kind::atomic_acknowledge : Kind::acknowledge, true, true);
    Burst::Packet packet;
    if (!begin_answer(burst, low, answer.psn, 0, packet)) return false;
    const std::uint8_t syndrome = answer.type == Answer::Type::refuse ? answer.syndrome : aeth_ack;
    const Aeth header{htobe32(static_cast<std::uint32_t>(syndrome) << 24 | (messages_ & mask24))};
    std::memcpy(packet.extensions, &header, sizeof header);
    if (atomic) {
        const __be64 value = htobe64(answer.value);
        std::memcpy(packet.extensions + sizeof header, &value, sizeof value);
    }
    burst.finish(packet);
    return true;
}

bool Responder::send_read_response(Burst& burst, Answer& answer) noexcept {
    const auto fail = [&] {
        const std::uint32_t psn = psn_add(answer.psn, answer.sent);
        reading_open_ = false;
        answers_ = 0;
        refuse_and_fail(psn, Nak::access);
        return false;
    };
    if (!reading_open_) {
        const ibv_sge place{answer.address, answer.size, answer.rkey};
        const auto spec = remote_spec(answer.domain, IBV_ACCESS_REMOTE_READ);
        if (reading_.begin(spec, {&place, 1}) != Transfer::Fault::none) return fail();
        reading_open_ = true;
    }
    const bool first = answer.sent == 0, last = answer.sent + 1 == answer.packets;
    const std::uint64_t offset = std::uint64_t{answer.sent} * pair_.mtu();
    const auto size = static_cast<unsigned>(std::min<std::uint64_t>(answer.size - offset, pair_.mtu()));
    const std::uint8_t low = opcode_of(Kind::read_response, first, last);
    Burst::Packet packet;
    if (!begin_answer(burst, low, psn_add(answer.psn, answer.sent), size, packet)) return false;
    if (operations[low].aeth) {
        const Aeth header{htobe32(static_cast<std::uint32_t>(aeth_ack) << 24 | (messages_ & mask24))};
        std::memcpy(packet.extensions, &header, sizeof header);
    }
    if (reading_.gather(offset, {packet.payload, size}) != Transfer::Fault::none) {
        burst.abandon(packet);
        return fail();
    }
    burst.finish(packet);
    ++answer.sent;
    return true;
}

}  // namespace ovsdr::soft::roce
