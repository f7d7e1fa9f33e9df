// A soft NIC with a RoCE address and nobody outside: both ends of a mirror are in this process.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "offload/mirror/connection.hpp"

namespace ovsdr::mirror::test {

using namespace std::chrono_literals;

inline std::shared_ptr<dr::Device> open_nic() {
    static const std::shared_ptr<dr::Device> device = [] {
        const std::string path = "/tmp/ovsdr-mirror-test-" + std::to_string(getpid()) + ".json";
        std::ofstream(path) << R"({"workers": 1, "memory_mb": 128, "control_socket": "", "devices": [{"name": "mlx5_0",
            "ports": [{"vport": 65535, "dpdk": "net_null,no-rx=1", "roce_address": "192.0.2.1/24"}]}]})";
        setenv("OVSDR_SOFTNIC", path.c_str(), 1);
        auto opened = dr::Device::open("mlx5_0");
        unlink(path.c_str());
        if (!opened) {
            ADD_FAILURE() << opened.error().what;
            std::abort();
        }
        return *opened;
    }();
    return device;
}

/// Registered memory.
struct Memory {
    explicit Memory(std::size_t size)
        : bytes(size), mr(ibv_reg_mr(open_nic()->pd(), bytes.data(), bytes.size(), int{IBV_ACCESS_LOCAL_WRITE})) {
        EXPECT_NE(mr, nullptr);
    }
    std::vector<std::byte> bytes;
    Owner<ibv_mr> mr;
    [[nodiscard]] std::uint64_t address(std::size_t at = 0) const {
        return reinterpret_cast<std::uint64_t>(bytes.data() + at);
    }
};

/// Completions of a connection, until there are `length` or ten seconds are over.
inline std::vector<ibv_wc> completions(Connection& connection, std::size_t length) {
    std::vector<ibv_wc> all;
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (all.size() < length && std::chrono::steady_clock::now() < end) {
        const auto some = connection.poll();
        if (!some) {
            ADD_FAILURE() << some.error().what;
            break;
        }
        all.insert(all.end(), some->begin(), some->end());
        if (some->empty()) std::this_thread::sleep_for(100us);
    }
    return all;
}

}  // namespace ovsdr::mirror::test
