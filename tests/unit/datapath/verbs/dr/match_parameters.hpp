// Match parameters as an application of mlx5dv_dr hands them over.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ovsdr::soft::test {

/// Match parameters of `size` bytes.
struct Match {
    explicit Match(std::size_t size) : memory(sizeof(mlx5dv_flow_match_parameters) + size) { get()->match_sz = size; }
    Match& byte(std::size_t at, std::uint8_t value) {
        reinterpret_cast<std::uint8_t*>(get()->match_buf)[at] = value;
        return *this;
    }
    mlx5dv_flow_match_parameters* get() { return reinterpret_cast<mlx5dv_flow_match_parameters*>(memory.data()); }
    std::vector<std::uint8_t> memory;
};

}  // namespace ovsdr::soft::test
