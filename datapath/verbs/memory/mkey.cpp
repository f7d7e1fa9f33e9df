// Creating, destroying and checking MKEYs.
#include "datapath/verbs/memory/mkey.hpp"

#include "datapath/control/fault.hpp"

using namespace ovsdr::soft;

namespace {

/// Entries come by fours, as the device's octowords do.
constexpr unsigned entry_multiple = 4;
constexpr unsigned most_entries = 0xFFFF / entry_multiple * entry_multiple;

[[nodiscard]] int check(const mlx5dv_mkey_init_attr& attr) {
    constexpr std::uint32_t known = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE |
                                    MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG |
                                    MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE;
    // MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO is not among them: the device has no such engine.
    if (!attr.create_flags || (attr.create_flags & ~known)) return EOPNOTSUPP;
    return attr.max_entries == 0 || attr.max_entries > most_entries ? EINVAL : 0;
}

[[nodiscard]] mlx5dv_mkey_err_type type_of(signature::ErrorType type) {
    switch (type) {
        case signature::ErrorType::guard:
            return MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD;
        case signature::ErrorType::application_tag:
            return MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG;
        case signature::ErrorType::reference_tag:
            return MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG;
        case signature::ErrorType::none:
            break;
    }
    return MLX5DV_MKEY_NO_ERR;
}

}  // namespace

extern "C" {

mlx5dv_mkey* mlx5dv_create_mkey(mlx5dv_mkey_init_attr* attr) {
    int error = injected_fault("mlx5dv_create_mkey");
    if (!error) error = check(*attr);
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> mlx5dv_mkey* {
        const unsigned entries = (attr->max_entries + entry_multiple - 1) / entry_multiple * entry_multiple;
        const Mkey::Spec spec{
            .domain = Pd::of(attr->pd).domain(),
            .max_entries = entries,
            .has_signature = (attr->create_flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE) != 0,
            .remote_invalidate = (attr->create_flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE) != 0};
        auto mkey = std::make_unique<MkeyHandle>(attr->pd, spec);
        if (const int full = Context::of(attr->pd->context).state.memory().add(mkey->device)) {
            errno = full;
            return nullptr;
        }
        mkey->lkey = mkey->rkey = mkey->device.key();
        attr->max_entries = static_cast<std::uint16_t>(entries);
        Pd::of(attr->pd).users.fetch_add(1);
        return mkey.release();
    });
}

int mlx5dv_destroy_mkey(mlx5dv_mkey* mkey) {
    if (const int error = injected_fault("mlx5dv_destroy_mkey")) return failed(error);
    const std::unique_ptr<MkeyHandle> handle(&MkeyHandle::of(mkey));
    Context::of(handle->pd->context).state.memory().remove(handle->device.key());
    Pd::of(handle->pd).users.fetch_sub(1);
    return 0;
}

int _mlx5dv_mkey_check(mlx5dv_mkey* mkey, mlx5dv_mkey_err* info, std::size_t size) {
    if (const int error = injected_fault("mlx5dv_mkey_check")) return error;
    Mkey& device = MkeyHandle::of(mkey).device;
    if (!device.spec().has_signature || size < sizeof *info) return EINVAL;
    const signature::Error error = device.take_error();
    info->err_type = type_of(error.type);
    if (error.type != signature::ErrorType::none) info->err.sig = {error.actual, error.expected, error.offset};
    return 0;
}

}  // extern "C"
