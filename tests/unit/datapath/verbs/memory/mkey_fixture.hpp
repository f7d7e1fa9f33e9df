// MKEYs by the library's half, and the device's half that executes what it writes; no queue between them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/memory/transfer.hpp"
#include "datapath/rdma/roce/local_operations.hpp"
#include "datapath/verbs/memory/mkey.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"
#include "tests/unit/datapath/signature/reference.hpp"

namespace ovsdr::soft {

inline constexpr std::uint32_t default_inline = 60;  // what a queue with MKEY operations grants at least
inline constexpr std::uint32_t large_inline = 512;

struct Signature {
    mlx5dv_sig_t10dif dif{MLX5DV_SIG_T10DIF_CRC, 0xFFFF, 0xABCD, 0x01234567, MLX5DV_SIG_T10DIF_FLAG_REF_REMAP};
    mlx5dv_sig_crc crc{MLX5DV_SIG_CRC_TYPE_CRC32, 0xFFFFFFFF};
    mlx5dv_sig_block_domain of_dif{
        .sig_type = MLX5DV_SIG_TYPE_T10DIF, .sig = {.dif = &dif}, .block_size = MLX5DV_BLOCK_SIZE_512};
    mlx5dv_sig_block_domain of_crc{
        .sig_type = MLX5DV_SIG_TYPE_CRC, .sig = {.crc = &crc}, .block_size = MLX5DV_BLOCK_SIZE_512};
};

class MkeyVerbsTest : public ::testing::Test {
protected:
    MkeyVerbsTest() {
        std::iota(reinterpret_cast<unsigned char*>(bytes.data()),
                  reinterpret_cast<unsigned char*>(bytes.data() + bytes.size()), 0);
        context = open_context(&ibdevice, state);
        pd = ibv_alloc_pd(context);
        mr = ibv_reg_mr(pd, bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE);
    }
    ~MkeyVerbsTest() override {
        for (mlx5dv_mkey* mkey : mkeys) EXPECT_EQ(mlx5dv_destroy_mkey(mkey), 0);
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        EXPECT_EQ(ibv_dealloc_pd(pd), 0);
        ibv_close_device(context);
    }

    MkeyHandle& make(std::uint32_t flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
                                           MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
                     std::uint16_t entries = 4) {
        mlx5dv_mkey_init_attr attr{pd, flags, entries};
        mkeys.push_back(mlx5dv_create_mkey(&attr));
        return MkeyHandle::of(mkeys.back());
    }
    int begin(MkeyHandle& mkey, unsigned setters, std::uint32_t conf_flags = 0, std::uint32_t room = large_inline) {
        return request.begin(mkey, setters, {conf_flags, 0}, IBV_SEND_INLINE | IBV_SEND_SIGNALED, room);
    }
    /// Ends the request, and lets the device execute it.
    int execute() {
        EXPECT_TRUE(request.complete());
        if (const int error = request.finish()) return error;
        mlx5_wqe_ctrl_seg control{};
        control.imm = htobe32(request.key());
        std::vector<std::byte> entry(sizeof control);
        std::memcpy(entry.data(), &control, sizeof control);
        entry.insert(entry.end(), request.payload().begin(), request.payload().end());
        return configure_mkey(state, Pd::of(pd).domain(), 0, entry);
    }
    ibv_sge sge(std::size_t offset, std::uint32_t size) const {
        return {reinterpret_cast<std::uintptr_t>(bytes.data() + offset), size, mr->lkey};
    }
    mlx5dv_mr_interleaved part(std::size_t offset, std::uint32_t size, std::uint32_t skip) const {
        return {reinterpret_cast<std::uintptr_t>(bytes.data() + offset), size, skip, mr->lkey};
    }
    int set_list(std::initializer_list<ibv_sge> list) {
        return request.set_layout(std::span(list.begin(), list.size()));
    }
    int set_parts(std::uint32_t repeat, std::initializer_list<mlx5dv_mr_interleaved> parts) {
        return request.set_layout(repeat, std::span(parts.begin(), parts.size()));
    }

    std::vector<std::byte> gathered(const MkeyHandle& mkey, std::uint32_t size) {
        Transfer transfer;
        const ibv_sge piece{0, size, mkey.lkey};
        if (transfer.begin({state.memory(), Pd::of(pd).domain(), 0, false, 0}, {&piece, 1}) != Transfer::Fault::none) {
            return {};
        }
        std::vector<std::byte> wire(transfer.size());
        EXPECT_EQ(transfer.gather(0, wire), Transfer::Fault::none);
        return wire;
    }
    std::vector<std::byte> part_of_bytes(std::size_t offset, std::size_t size) const {
        return {bytes.begin() + static_cast<long>(offset), bytes.begin() + static_cast<long>(offset + size)};
    }

    std::vector<std::byte> bytes = std::vector<std::byte>(1 << 15);
    test::FakeDevice device;
    DeviceState state{device, test::packet_pool()};
    ibv_device ibdevice{};
    ibv_context* context;
    ibv_pd* pd;
    ibv_mr* mr;
    std::vector<mlx5dv_mkey*> mkeys;
    MkeyRequest request;
    Signature signature;
};

}  // namespace ovsdr::soft
