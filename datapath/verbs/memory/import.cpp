// Imports: another view of a device, PD, region or device memory that this process has already.
//
// A context's command file stands for its device: a duplicate of its descriptor can be imported. One NIC lives in one
// process, so what another process sends over finds no device here: ENODEV. Objects are found by their handles. An
// import that is given up leaves the original alone.
// Source: ibv_import_device(3), ibv_import_pd(3), ibv_import_mr(3), ibv_import_dm(3).
#include <unistd.h>

#include "datapath/control/fault.hpp"
#include "datapath/verbs/memory/dm.hpp"
#include "datapath/verbs/objects.hpp"

using namespace ovsdr::soft;

extern "C" {

ibv_context* ibv_import_device(int descriptor) {
    if (const int error = injected_fault("ibv_import_device")) {
        errno = error;
        return nullptr;
    }
    int length = 0;
    ibv_device** const devices = ibv_get_device_list(&length);
    ibv_context* context = nullptr;
    errno = ENODEV;
    for (int i = 0; i < length && !context; ++i) context = import_context(devices[i], descriptor);
    ibv_free_device_list(devices);
    return context;
}

ibv_pd* ibv_import_pd(ibv_context* context, std::uint32_t handle) {
    int error = injected_fault("ibv_import_pd");
    auto protection = error ? nullptr : Context::of(context).state.protection_domains().find(handle);
    if (!error && !protection) error = ENOENT;
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_pd* {
        auto pd = std::make_unique<Pd>(std::move(protection));
        pd->context = context;
        pd->number = pd->handle = handle;
        Context::of(context).hold();
        return pd.release();
    });
}

void ibv_unimport_pd(ibv_pd* pd) {
    Context& context = Context::of(pd->context);
    std::unique_ptr<Pd> given_up(&Pd::of(pd));
    // The application may destroy what it made in it later.
    if (given_up->users.load() != 0) context.keep(std::move(given_up));
    context.let_go();
}

/// Its address is unknown here, as ibv_import_mr(3) says.
ibv_mr* ibv_import_mr(ibv_pd* pd, std::uint32_t handle) {
    int error = injected_fault("ibv_import_mr");
    MemoryRegion region{};
    if (!error && !Context::of(pd->context).state.memory().find(handle, region)) error = ENOENT;
    if (!error && region.domain != Pd::of(pd).domain()) error = EINVAL;
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_mr* {
        auto mr = std::make_unique<Mr>();
        static_cast<ibv_mr&>(*mr) = ibv_mr{pd->context, pd, nullptr, region.size, handle, region.key, region.key};
        mr->access = region.access;
        Pd::of(pd).users.fetch_add(1);
        return mr.release();
    });
}

void ibv_unimport_mr(ibv_mr* mr) {
    Pd::of(mr->pd).users.fetch_sub(1);
    delete &Mr::of(mr);
}

ibv_dm* ibv_import_dm(ibv_context* context, std::uint32_t handle) {
    int error = injected_fault("ibv_import_dm");
    auto memory = error ? nullptr : Context::of(context).state.device_memories().find(handle);
    if (!error && !memory) error = ENOENT;
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&] { return wrap_device_memory(context, handle, std::move(memory)); });
}

void ibv_unimport_dm(ibv_dm* dm) {
    Context& context = Context::of(dm->context);
    delete &Dm::of(dm);
    context.let_go();
}

}  // extern "C"
