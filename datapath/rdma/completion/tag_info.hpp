// What a matched message's header said, in its completion.
//
// As in hardware's CQEs, where the header lies over fields that such a completion has no use for: a reliable connection
// has no source queue and no flow tag to tell of, and what succeeded has no vendor's error.
#pragma once

#include <infiniband/verbs.h>

#include "datapath/rdma/completion/completion_queue.hpp"

namespace ovsdr::soft {

inline void set_tag_info(Completion& completion, const ibv_wc_tm_info& info) noexcept {
    completion.src_qp = static_cast<std::uint32_t>(info.tag >> 32);
    completion.flow_tag = static_cast<std::uint32_t>(info.tag);
    completion.vendor_err = info.priv;
}

/// Zeros for completions that carry none.
[[nodiscard]] inline ibv_wc_tm_info tag_info(const Completion& completion) noexcept {
    if (completion.opcode != IBV_WC_TM_RECV || !(completion.wc_flags & IBV_WC_TM_MATCH)) return {};
    return {.tag = std::uint64_t{completion.src_qp} << 32 | completion.flow_tag, .priv = completion.vendor_err};
}

}  // namespace ovsdr::soft
