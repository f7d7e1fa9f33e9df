#include "tests/unit/offload/fake_aso.hpp"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/unit/offload/fake_provider.hpp"

namespace ovsdr::test {
namespace {

using Object = std::array<std::uint8_t, 64>;

struct Device {
    std::mutex mutex;
    std::map<std::uint32_t, Object> objects;
    unsigned requests = 0;
    std::uint8_t* memory = nullptr;
    std::uint32_t ring = 0, record = 0, completions = 0;   // offsets
    std::atomic<bool> working{false}, ending{false};
    std::thread worker;
};

Device& device() {
    static Device the_device;
    return the_device;
}

std::uint32_t word_at(const void* structure, unsigned bit_offset) {
    std::uint32_t word;
    std::memcpy(&word, static_cast<const std::uint8_t*>(structure) + bit_offset / 8, sizeof word);
    return be32toh(word);
}

void note_creation(const void* in) {
    Device& now = device();
    switch (word_at(in, 0) >> 16) {
        case 0x400: now.completions = word_at(in, 640 + 32); break;
        case 0x904:
            now.ring = word_at(in, 640 + 384 + 32);
            now.record = word_at(in, 640 + 128 + 32);
            now.working = true;
            break;
        default: break;
    }
}

/// Returns whether it succeeded.
bool access_object(const std::array<std::uint8_t, 128>& request) {
    const bool is_access = request[3] == 0x2d && request[0] == 2 && request[28] == 1 << 6 && request[29] == 0x11;
    if (!is_access || FakeProvider::fails_now("ACCESS_ASO")) return false;
    std::lock_guard lock(device().mutex);
    ++device().requests;
    Object& object = device().objects[word_at(request.data(), 96)];
    const std::uint64_t mask = std::uint64_t{word_at(request.data(), 56 * 8)} << 32 | word_at(request.data(), 60 * 8);
    for (unsigned i = 0; i < object.size(); ++i) {
        if ((mask >> (63 - i) & 1) != 0) object[i] = request[64 + i];
    }
    return true;
}

void work() {
    constexpr unsigned length = 16, block = 64;
    std::uint32_t done = 0, completed = 0;
    Device& now = device();
    for (; !now.ending; std::this_thread::sleep_for(std::chrono::microseconds(50))) {
        if (!now.working) continue;
        auto* record = reinterpret_cast<std::uint32_t*>(now.memory + now.record) + 1;
        const std::uint32_t posted = be32toh(std::atomic_ref(*record).load(std::memory_order_acquire));
        for (; done != posted; done += 2) {
            std::array<std::uint8_t, 128> request;
            for (unsigned i = 0; i < 2; ++i) {
                std::memcpy(&request[i * block], now.memory + now.ring + (done + i) % length * block, block);
            }
            auto* completion =
                reinterpret_cast<mlx5_cqe64*>(now.memory + now.completions + completed % length * block);
            const unsigned code = access_object(request) ? MLX5_CQE_REQ : MLX5_CQE_REQ_ERR;
            const auto owner = static_cast<std::uint8_t>(code << 4 | (completed / length & 1));
            std::atomic_ref(completion->op_own).store(owner, std::memory_order_release);
            ++completed;
        }
    }
}

}  // namespace

void FakeAso::install() {
    FakeProvider::on_creation(note_creation);
    std::lock_guard lock(device().mutex);
    device().objects.clear();
    device().requests = 0;
}

std::array<std::uint8_t, 32> FakeAso::parameters(std::uint32_t object, unsigned half) {
    std::lock_guard lock(device().mutex);
    std::array<std::uint8_t, 32> parameters;
    std::memcpy(parameters.data(), device().objects[object].data() + half * 32, 32);
    return parameters;
}

unsigned FakeAso::requests() {
    std::lock_guard lock(device().mutex);
    return device().requests;
}

}  // namespace ovsdr::test

using namespace ovsdr::test;

extern "C" {

int mlx5dv_init_obj(mlx5dv_obj* object, uint64_t) {
    if (FakeProvider::fails_now("mlx5dv_init_obj")) return errno;
    object->pd.out->pdn = 7;
    return 0;
}

mlx5dv_devx_umem* mlx5dv_devx_umem_reg(ibv_context*, void* memory, size_t, uint32_t) {
    if (FakeProvider::fails_now("mlx5dv_devx_umem_reg")) return nullptr;
    device().memory = static_cast<std::uint8_t*>(memory);
    return new mlx5dv_devx_umem{.umem_id = 3};
}
int mlx5dv_devx_umem_dereg(mlx5dv_devx_umem* umem) {
    delete umem;
    return 0;
}

mlx5dv_devx_uar* mlx5dv_devx_alloc_uar(ibv_context*, uint32_t) {
    if (FakeProvider::fails_now("mlx5dv_devx_alloc_uar")) return nullptr;
    auto* uar = new mlx5dv_devx_uar{};
    uar->reg_addr = new std::uint64_t{};
    device().ending = false;
    device().worker = std::thread(work);
    return uar;
}
void mlx5dv_devx_free_uar(mlx5dv_devx_uar* uar) {
    device().ending = true;
    device().worker.join();
    device().working = false;
    delete static_cast<std::uint64_t*>(uar->reg_addr);
    delete uar;
}

int mlx5dv_devx_query_eqn(ibv_context*, uint32_t, uint32_t* eqn) {
    *eqn = 1;
    return FakeProvider::fails_now("mlx5dv_devx_query_eqn") ? errno : 0;
}

int mlx5dv_devx_obj_modify(mlx5dv_devx_obj*, const void*, size_t, void*, size_t) {
    return FakeProvider::fails_now("mlx5dv_devx_obj_modify") ? errno : 0;
}

}  // extern "C"
