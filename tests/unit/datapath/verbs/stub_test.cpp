// Loads the drop-in library as a program does and calls what the soft NIC lacks: each call fails as it says, none
// crashes.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/paths.hpp"

namespace {

struct Symbol {
    std::string name, version, binding, failure;
};

std::vector<Symbol> symbols() {
    std::ifstream table(ovsdr::test::source_folder + "/datapath/verbs/symbols.csv");
    std::vector<Symbol> all;
    for (std::string line; std::getline(table, line);) {
        if (line.empty() || line[0] == '#' || line.rfind("name,", 0) == 0) continue;
        std::vector<std::string> fields(1);
        for (const char c : line) {
            if (c == ',') {
                fields.emplace_back();
            } else {
                fields.back() += c;
            }
        }
        all.push_back({fields.at(0), fields.at(1), fields.at(2), fields.at(3)});
    }
    return all;
}

class StubTest : public ::testing::Test {
protected:
    StubTest() : library(dlopen((ovsdr::test::library_folder + "/libibverbs.so.1").c_str(), RTLD_NOW | RTLD_LOCAL)) {
        EXPECT_NE(library, nullptr) << dlerror();
    }

    /// Private names of rdma-core's providers and the 1.0 ABI have no implementation, nor have these.
    static bool lacked(const Symbol& symbol) {
        static const std::vector<std::string> public_names{
            "ibv_set_ece", "mlx5dv_dek_create", "mlx5dv_devx_qp_query", "mlx5dv_crypto_login"};
        if (symbol.name == "ibv_query_gid_type") return false;
        if (symbol.version == "IBVERBS_PRIVATE_34" || symbol.binding == "old") return true;
        return std::find(public_names.begin(), public_names.end(), symbol.name) != public_names.end();
    }

    void* library;
};

TEST_F(StubTest, ExportsEveryNameOfTheTable) {
    const auto all = symbols();
    ASSERT_EQ(all.size(), 309u);
    for (const Symbol& symbol : all) {
        EXPECT_NE(dlvsym(library, symbol.name.c_str(), symbol.version.c_str()), nullptr) << symbol.name;
    }
}

TEST_F(StubTest, WhatIsLackedFailsAsItsTableSays) {
    unsigned called = 0;
    for (const Symbol& symbol : symbols()) {
        if (!lacked(symbol) || symbol.failure == "object") continue;
        auto* const function = reinterpret_cast<long (*)(void*, void*, void*, void*, void*, void*)>(
            dlvsym(library, symbol.name.c_str(), symbol.version.c_str()));
        ASSERT_NE(function, nullptr) << symbol.name;
        errno = 0;
        const long result = function(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
        EXPECT_EQ(errno, EOPNOTSUPP) << symbol.name;
        const int expected = symbol.failure == "errno"         ? EOPNOTSUPP
                             : symbol.failure == "minus_one"   ? -1
                             : symbol.failure == "minus_errno" ? -EOPNOTSUPP
                                                               : 0;
        if (symbol.failure != "void") {
            EXPECT_EQ(static_cast<int>(result), expected) << symbol.name;
        }
        ++called;
    }
    EXPECT_GT(called, 100u);
}

TEST_F(StubTest, WithoutConfigurationTheDeviceListIsEmpty) {
    setenv("OVSDR_SOFTNIC", "/nonexistent/softnic.json", 1);
    auto* const get_list = reinterpret_cast<void** (*)(int*)>(dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1"));
    auto* const free_list = reinterpret_cast<void (*)(void**)>(dlvsym(library, "ibv_free_device_list", "IBVERBS_1.1"));
    int length = -1;
    errno = 0;
    void** const list = get_list(&length);
    ASSERT_NE(list, nullptr);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_EQ(length, 0);
    EXPECT_EQ(list[0], nullptr);
    free_list(list);
}

}  // namespace
