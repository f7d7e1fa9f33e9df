// XRC domains: what XRC targets and the SRQs that they deliver to have in common.
//
// Model. A domain is private, or stands for a file (an inode): whoever opens the same file in this process has the same
// domain, each with a handle of its own. The first to open a file's domain says O_CREAT.
//
// Threads: any. Source: ibv_open_xrcd(3), ibv_open_qp(3).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace ovsdr::soft {

struct RdmaQp;

struct XrcDomain {
    std::mutex mutex;
    std::map<std::uint32_t, std::weak_ptr<RdmaQp>> targets;  ///< by queue number
};

struct Xrcd : ibv_xrcd {
    [[nodiscard]] static Xrcd& of(ibv_xrcd* xrcd) noexcept { return *static_cast<Xrcd*>(xrcd); }
    std::shared_ptr<XrcDomain> shared;
    std::atomic<unsigned> users{0};

    /// What the device compares.
    [[nodiscard]] const void* domain() const noexcept { return shared.get(); }
    void add_target(const std::shared_ptr<RdmaQp>& target);
    /// nullptr: no such target.
    [[nodiscard]] std::shared_ptr<RdmaQp> target(std::uint32_t number);
};

ibv_xrcd* open_xrcd_op(ibv_context* context, ibv_xrcd_init_attr* attr);
int close_xrcd_op(ibv_xrcd* xrcd);
ibv_qp* open_qp_op(ibv_context* context, ibv_qp_open_attr* attr);

}  // namespace ovsdr::soft
