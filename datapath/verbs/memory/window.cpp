// Memory windows: keys for a part of a region, bound and unbound by work requests (ibv_bind_mw(), IBV_WR_BIND_MW).
//
// A window is an MKEY of one entry. Type 2 windows are of the queue pair that binds them, and can be
// invalidated by its peer.
// Source: ibv_alloc_mw(3).
#include "datapath/control/fault.hpp"
#include "datapath/rdma/mkey/mkey.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

namespace {

struct Window : ibv_mw {
    explicit Window(const Mkey::Spec& spec) : key(spec) {}
    Mkey key;
};

}  // namespace

ibv_mw* alloc_mw_op(ibv_pd* pd, ibv_mw_type type) {
    int error = injected_fault("ibv_alloc_mw");
    if (!error && type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) error = EINVAL;
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_mw* {
        auto window = std::make_unique<Window>(Mkey::Spec{.domain = Pd::of(pd).domain(),
                                                          .max_entries = 1,
                                                          .has_signature = false,
                                                          .remote_invalidate = type == IBV_MW_TYPE_2});
        if (const int full = Context::of(pd->context).state.memory().add(window->key)) {
            errno = full;
            return nullptr;
        }
        window->context = pd->context;
        window->pd = pd;
        window->rkey = window->key.key();
        window->handle = window->rkey >> 8;
        window->type = type;
        Pd::of(pd).users.fetch_add(1);
        return window.release();
    });
}

int dealloc_mw_op(ibv_mw* mw) {
    if (const int error = injected_fault("ibv_dealloc_mw")) return failed(error);
    auto& window = *static_cast<Window*>(mw);
    Context::of(mw->context).state.memory().remove(window.key.key());
    Pd::of(mw->pd).users.fetch_sub(1);
    delete &window;
    return 0;
}

/// A type 1 window is bound by a request that this library builds, under the next of its keys; no memory unbinds it.
int bind_mw_op(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
    if (const int error = injected_fault("ibv_bind_mw")) return failed(error);
    const ibv_mw_bind_info& info = bind->bind_info;
    if (mw->type != IBV_MW_TYPE_1 || (info.mw_access_flags & IBV_ACCESS_ZERO_BASED)) return failed(EINVAL);
    if (!info.mr && (info.addr || info.length)) return failed(EINVAL);
    if (info.mr && Mr::of(info.mr).kind != Mr::Kind::memory && Mr::of(info.mr).kind != Mr::Kind::device_memory) {
        return failed(ENOTSUP);
    }
    if (info.mr && (Mr::of(info.mr).access & IBV_ACCESS_ZERO_BASED)) return failed(EINVAL);
    ibv_send_wr request{};
    request.wr_id = bind->wr_id;
    request.opcode = IBV_WR_BIND_MW;
    request.send_flags = bind->send_flags;
    request.bind_mw.mw = mw;
    request.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    request.bind_mw.bind_info = info;
    ibv_send_wr* bad = nullptr;
    if (const int error = post_send_op(qp, &request, &bad)) return error;
    mw->rkey = request.bind_mw.rkey;
    return 0;
}

}  // namespace ovsdr::soft
