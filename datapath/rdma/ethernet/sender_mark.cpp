#include "datapath/rdma/ethernet/sender_mark.hpp"

#include <rte_errno.h>

#include <system_error>

namespace ovsdr::soft {

SenderMark::SenderMark() {
    constexpr rte_mbuf_dynfield field{.name = "ovsdr_sender", .size = sizeof(std::uint32_t),
                                      .align = alignof(std::uint32_t), .flags = 0};
    constexpr rte_mbuf_dynflag flag{.name = "ovsdr_has_sender", .flags = 0};
    offset_ = rte_mbuf_dynfield_register(&field);
    const int bit = offset_ < 0 ? -1 : rte_mbuf_dynflag_register(&flag);
    if (bit < 0) throw std::system_error(rte_errno, std::generic_category(), "room in packets");
    flag_ = std::uint64_t{1} << bit;
}

const SenderMark& SenderMark::get() {
    static const SenderMark mark;
    return mark;
}

}  // namespace ovsdr::soft
