#include "datapath/ports/vhost_sender.hpp"

#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>

namespace ovsdr::soft {
namespace {

[[nodiscard]] bool is_ours_alone(const rte_mbuf* packet) noexcept {
    return rte_mbuf_refcnt_read(packet) == 1 && RTE_MBUF_DIRECT(packet) && packet->next == nullptr;
}

}  // namespace

VhostSender::VhostSender(PortSendQueue driver, rte_mempool* pool) noexcept : driver_(driver) {
    if (rte_pktmbuf_alloc_bulk(pool, heads_.data(), most_heads) != 0) heads_.fill(nullptr);
}

VhostSender::~VhostSender() {
    for (rte_mbuf* const head : heads_) {
        if (head == nullptr) continue;
        rte_mbuf_refcnt_set(head, 1);
        head->next = nullptr;
        head->nb_segs = 1;
        rte_pktmbuf_free(head);
    }
}

// Returns how many of `packets`, all ours alone, hang on `head` then; 1: none do, and the first one goes by itself.
unsigned VhostSender::chain(std::span<rte_mbuf* const> packets, unsigned families, rte_mbuf* head) noexcept {
    const unsigned number = packets.size() > 1 ? join(packets, headers_) : 1;
    if (number == 1) return 1;
    const bool v4 = headers_.says.gso_type == VirtioHeader::gso_tcp4;
    if ((families & (v4 ? joins_ipv4 : joins_ipv6)) == 0) return 1;

    const auto in_head = static_cast<std::uint16_t>(headers_.size - 1);
    std::memcpy(rte_pktmbuf_mtod(head, void*), headers_.bytes.data(), in_head);
    rte_mbuf_refcnt_set(head, 2);
    head->data_len = in_head;
    head->pkt_len = in_head + 1u;
    head->nb_segs = static_cast<std::uint16_t>(1 + number);
    head->ol_flags = RTE_MBUF_F_TX_TCP_SEG | (v4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6);
    head->l2_len = headers_.l3;
    head->l3_len = static_cast<std::uint16_t>(headers_.l4 - headers_.l3);
    head->l4_len = static_cast<std::uint8_t>(headers_.size - headers_.l4);
    head->tso_segsz = headers_.says.gso_size;
    rte_mbuf* before = head;
    for (rte_mbuf* const packet : packets.first(number)) {
        const auto left_out = static_cast<std::uint16_t>(before == head ? in_head : headers_.size);
        head->pkt_len += packet->pkt_len - headers_.size;
        packet->data_off = static_cast<std::uint16_t>(packet->data_off + left_out);
        packet->data_len = static_cast<std::uint16_t>(packet->data_len - left_out);
        before->next = packet;
        before = packet;
    }
    return number;
}

void VhostSender::take_apart(std::span<rte_mbuf* const> packets, rte_mbuf* head) noexcept {
    for (rte_mbuf* const packet : packets) {
        const std::uint32_t left_out = packet->pkt_len - packet->data_len;
        packet->data_off = static_cast<std::uint16_t>(packet->data_off - left_out);
        packet->data_len = static_cast<std::uint16_t>(packet->pkt_len);
        packet->next = nullptr;
    }
    head->next = nullptr;
}

std::uint16_t VhostSender::send(void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
    auto& sender = *static_cast<VhostSender*>(self);
    const PortSendQueue& driver = sender.driver_;
    const unsigned families = sender.joins_.load(std::memory_order_relaxed);
    if (families == 0 || length < 2 || sender.heads_.front() == nullptr) {
        return driver.send(driver.queue, packets, length);
    }
    // To read all of them for a guest that takes nothing would make its senders pay.
    if (sender.full_ && driver.send(driver.queue, packets, 1) == 0) return 0;
    const unsigned first = sender.full_ ? 1 : 0;
    const unsigned gone = first + sender.send_joined(packets + first, length - first, families);
    sender.full_ = gone == 0;
    return static_cast<std::uint16_t>(gone);
}

std::uint16_t VhostSender::send_joined(rte_mbuf** packets, unsigned length, unsigned families) noexcept {
    rte_mbuf* messages[batch_length];
    std::uint16_t ends[batch_length] = {};
    unsigned count = 0, heads = 0, alone = 0;  // `alone`: the end of those that are, from `at` on
    for (unsigned at = 0; at < length && count < batch_length; ++count) {
        if (alone <= at) {
            const auto* const shared = std::find_if_not(packets + at, packets + length, is_ours_alone);
            alone = static_cast<unsigned>(shared - packets);
        }
        unsigned number = 1;
        messages[count] = packets[at];
        if (heads < most_heads && alone > at) {
            number = chain({packets + at, alone - at}, families, heads_[heads]);
            if (number > 1) messages[count] = heads_[heads++];
        }
        at += number;
        ends[count] = static_cast<std::uint16_t>(at);
    }
    const unsigned sent = driver_.send(driver_.queue, messages, static_cast<std::uint16_t>(count));
    const std::uint16_t gone = sent == 0 ? 0 : ends[sent - 1];
    for (unsigned message = sent, begin = gone; message < count; begin = ends[message++]) {
        if (messages[message] == packets[begin]) continue;
        take_apart({packets + begin, packets + ends[message]}, messages[message]);
    }
    if (sent == count || messages[sent] == packets[gone]) return gone;
    // One by one what the guest has no room for as one: it may have room for some, and some guests never have for all.
    const auto rest = static_cast<std::uint16_t>(ends[sent] - gone);
    return static_cast<std::uint16_t>(gone + driver_.send(driver_.queue, packets + gone, rest));
}

}  // namespace ovsdr::soft
