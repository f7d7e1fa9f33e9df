#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "datapath/rdma/memory/transfer.hpp"
#include "datapath/rdma/mkey/mkey.hpp"
#include "datapath/rdma/roce/local_operations.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"
#include "tests/unit/datapath/rdma/mkey/umr_entry.hpp"

namespace ovsdr::soft::test {

class MkeyFixture : public ::testing::Test {
protected:
    static constexpr unsigned all_access =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

    MkeyFixture() {
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random());
        region = register_memory(0, bytes.size(), IBV_ACCESS_LOCAL_WRITE);
    }
    ~MkeyFixture() override {
        for (const auto& mkey : mkeys) table().remove(mkey->key());
    }

    MemoryTable& table() { return state.memory(); }
    std::uint32_t register_memory(std::size_t offset, std::size_t size, unsigned access, const void* of = nullptr) {
        MemoryRegion added{address(offset), size, bytes.data() + offset, access, of ? of : &domain};
        EXPECT_EQ(table().add(added), 0);
        return added.key;
    }
    std::uint64_t address(std::size_t offset) const { return reinterpret_cast<std::uintptr_t>(bytes.data() + offset); }
    ibv_sge sge(std::size_t offset, std::uint32_t size) const { return {address(offset), size, region}; }

    Mkey& make_mkey(unsigned max_entries = 4, bool has_signature = true, bool remote_invalidate = false) {
        mkeys.push_back(std::make_unique<Mkey>(Mkey::Spec{&domain, max_entries, has_signature, remote_invalidate}));
        EXPECT_EQ(table().add(*mkeys.back()), 0);
        return *mkeys.back();
    }
    int configure(const UmrEntry& entry) { return configure_mkey(state, &domain, 0, entry.bytes()); }

    Transfer::Spec local(unsigned access = 0) { return {table(), &domain, access, false, 0}; }
    Transfer::Spec remote(unsigned access) { return {table(), &domain, access, true, 0}; }
    /// What a use of `size` bytes at `offset` gives.
    Transfer::Fault use(std::uint32_t key, std::uint32_t size, unsigned access, std::uint64_t offset = 0,
                        bool is_remote = false) {
        Transfer transfer;
        const ibv_sge piece{offset, size, key};
        const auto fault = transfer.begin(is_remote ? remote(access) : local(access), {&piece, 1});
        if (fault != Transfer::Fault::none) return fault;
        std::vector<std::byte> buffer(transfer.size());
        if (access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) return transfer.scatter(0, buffer);
        return transfer.gather(0, buffer);
    }

    std::mt19937 random{11};
    std::vector<std::byte> bytes = std::vector<std::byte>(1 << 17);
    FakeDevice device;
    DeviceState state{device, packet_pool()};
    int domain = 0, other_domain = 0;
    std::uint32_t region = 0;
    std::vector<std::unique_ptr<Mkey>> mkeys;
};

}  // namespace ovsdr::soft::test
