#include "datapath/verbs/qp/xrc.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "datapath/control/fault.hpp"
#include "datapath/verbs/objects.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"

namespace ovsdr::soft {

namespace {

using Inode = std::pair<dev_t, ino_t>;

/// Domains that stand for files, while anybody has them open.
struct FileDomains {
    std::mutex mutex;
    std::map<Inode, std::weak_ptr<XrcDomain>> by_inode;
};
[[nodiscard]] FileDomains& file_domains() {
    static auto* const domains = new FileDomains;
    return *domains;
}

/// EBADF; EAGAIN: nobody has created it; EINVAL: O_EXCL, and it is there.
[[nodiscard]] int open_file_domain(int fd, int flags, std::shared_ptr<XrcDomain>& domain) {
    struct stat status;
    if (fstat(fd, &status) != 0) return EBADF;
    FileDomains& all = file_domains();
    std::lock_guard guard(all.mutex);
    std::weak_ptr<XrcDomain>& known = all.by_inode[{status.st_dev, status.st_ino}];
    domain = known.lock();
    if (domain) return flags & O_EXCL ? EINVAL : 0;
    if (!(flags & O_CREAT)) return EAGAIN;
    domain = std::make_shared<XrcDomain>();
    known = domain;
    return 0;
}

[[nodiscard]] int open_domain(const ibv_xrcd_init_attr& attr, std::shared_ptr<XrcDomain>& domain) {
    constexpr std::uint32_t both = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if (attr.comp_mask != both || (attr.oflags & ~(O_CREAT | O_EXCL))) return EINVAL;
    if (attr.fd != -1) return open_file_domain(attr.fd, attr.oflags, domain);
    if (!(attr.oflags & O_CREAT)) return EINVAL;
    domain = std::make_shared<XrcDomain>();
    return 0;
}

}  // namespace

void Xrcd::add_target(const std::shared_ptr<RdmaQp>& target) {
    std::lock_guard guard(shared->mutex);
    std::erase_if(shared->targets, [](const auto& entry) { return entry.second.expired(); });
    shared->targets[target->number] = target;
}

std::shared_ptr<RdmaQp> Xrcd::target(std::uint32_t number) {
    std::lock_guard guard(shared->mutex);
    const auto found = shared->targets.find(number);
    return found == shared->targets.end() ? nullptr : found->second.lock();
}

ibv_xrcd* open_xrcd_op(ibv_context* context, ibv_xrcd_init_attr* attr) {
    if (const int error = injected_fault("ibv_open_xrcd")) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_xrcd* {
        auto xrcd = std::make_unique<Xrcd>();
        if (const int error = open_domain(*attr, xrcd->shared)) {
            errno = error;
            return nullptr;
        }
        xrcd->context = context;
        Context::of(context).hold();
        return xrcd.release();
    });
}

int close_xrcd_op(ibv_xrcd* base) {
    if (const int error = injected_fault("ibv_close_xrcd")) return failed(error);
    Xrcd& xrcd = Xrcd::of(base);
    if (xrcd.users.load(std::memory_order_acquire)) return failed(EBUSY);
    Context& context = Context::of(base->context);
    delete &xrcd;
    context.let_go();
    return 0;
}

/// Another handle of an XRC target. Source: ibv_open_qp(3).
ibv_qp* open_qp_op(ibv_context* context, ibv_qp_open_attr* attr) {
    constexpr std::uint32_t required = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    int error = injected_fault("ibv_open_qp");
    const bool complete = (attr->comp_mask & required) == required && attr->xrcd;
    if (!error && (!complete || (attr->comp_mask & ~(required | IBV_QP_OPEN_ATTR_CONTEXT)))) error = EINVAL;
    if (!error && attr->qp_type != IBV_QPT_XRC_RECV) error = EINVAL;
    std::shared_ptr<RdmaQp> target;
    if (!error) {
        target = Xrcd::of(attr->xrcd).target(attr->qp_num);
        if (!target) error = EINVAL;
    }
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&] {
        auto qp = std::make_unique<Qp>();
        qp->rdma = std::move(target);
        init_handle(*qp, context, IBV_QPT_XRC_RECV,
                    attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? attr->qp_context : nullptr);
        qp->created_with.qp_context = qp->qp_base.qp_context;
        qp->created_with.qp_type = IBV_QPT_XRC_RECV;
        qp->xrcd = &Xrcd::of(attr->xrcd);
        qp->xrcd->users.fetch_add(1);
        return qp.release()->base();
    });
}

}  // namespace ovsdr::soft
