// An open mlx5_0 of the system's own libibverbs, and what tests on the emulated ConnectX do again and again.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/connectx/device.hpp"

namespace ovsdr::connectx::test {

/// Calls a destroying function of C when it goes; the function's answer must be 0.
template <class T, auto destroy>
struct Destroyer {
    void operator()(T* object) const { EXPECT_EQ(destroy(object), 0) << strerror(errno); }
};
template <class T, auto destroy>
using Owned = std::unique_ptr<T, Destroyer<T, destroy>>;

using Context = Owned<ibv_context, ibv_close_device>;
using Domain = Owned<mlx5dv_dr_domain, mlx5dv_dr_domain_destroy>;
using DrTable = Owned<mlx5dv_dr_table, mlx5dv_dr_table_destroy>;
using Matcher = Owned<mlx5dv_dr_matcher, mlx5dv_dr_matcher_destroy>;
using Rule = Owned<mlx5dv_dr_rule, mlx5dv_dr_rule_destroy>;
using Action = Owned<mlx5dv_dr_action, mlx5dv_dr_action_destroy>;
using DevxObj = Owned<mlx5dv_devx_obj, mlx5dv_devx_obj_destroy>;
using Pd = Owned<ibv_pd, ibv_dealloc_pd>;
using Cq = Owned<ibv_cq, ibv_destroy_cq>;
using Qp = Owned<ibv_qp, ibv_destroy_qp>;
using Mr = Owned<ibv_mr, ibv_dereg_mr>;
using Channel = Owned<ibv_comp_channel, ibv_destroy_comp_channel>;

inline Context open_device() {
    ibv_device** list = ibv_get_device_list(nullptr);
    mlx5dv_context_attr attributes{};
    attributes.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    Context context(list != nullptr && list[0] != nullptr ? mlx5dv_open_device(list[0], &attributes) : nullptr);
    if (list != nullptr) ibv_free_device_list(list);
    return context;
}

/// Match parameters: 512 bytes, as mlx5dv wants them.
class MatchParam {
public:
    MatchParam() : words_(1 + size / 8) { get()->match_sz = size; }
    MatchParam& byte(std::size_t at, std::uint8_t value) {
        reinterpret_cast<std::uint8_t*>(get()->match_buf)[at] = value;
        return *this;
    }
    /// The low `length` bytes of `value`, big endian.
    MatchParam& number(std::size_t at, std::uint64_t value, std::size_t length) {
        for (std::size_t i = 0; i < length; ++i) byte(at + i, static_cast<std::uint8_t>(value >> 8 * (length - 1 - i)));
        return *this;
    }
    /// `length` bits from the most significant one of the first byte on.
    MatchParam& bits(std::size_t offset, unsigned length, std::uint64_t value) {
        for (unsigned i = 0; i < length; ++i) {
            const std::size_t at = offset + length - 1 - i;
            if ((value >> i & 1) != 0) reinterpret_cast<std::uint8_t*>(get()->match_buf)[at / 8] |= 0x80 >> at % 8;
        }
        return *this;
    }
    mlx5dv_flow_match_parameters* get() { return reinterpret_cast<mlx5dv_flow_match_parameters*>(words_.data()); }

private:
    static constexpr std::size_t size = 448;
    std::vector<std::uint64_t> words_;
};

inline constexpr std::size_t smac_at = 0, ethertype_at = 6, dmac_at = 8;

/// What is alive beside what an open context holds by itself.
inline std::map<std::string, std::uint64_t> alive_beside_context() {
    auto alive = device()->alive();
    alive.erase("UAR");   // the context's doorbell page
    return alive;
}

}   // namespace ovsdr::connectx::test
