#include "end.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <system_error>
#include <vector>

#include "offload/mirror/connection.hpp"
#include "plain_end.hpp"

namespace ovsdr::bench {
namespace {

template <typename T>
T must(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().what);
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

class SignedEnd final : public End {
public:
    explicit SignedEnd(const EndSpec& spec)
        : geometry_(spec.geometry),
          memory_(spec.memory.data()),
          mr_(ibv_reg_mr(spec.device->pd(), spec.memory.data(), spec.memory.size(), int{IBV_ACCESS_LOCAL_WRITE})),
          connection_(must(mirror::Connection::create(spec.device, {}, spec.geometry))) {
        if (mr_ == nullptr) fail(errno, "ibv_reg_mr");
    }
    const mirror::Endpoint& local() const noexcept override { return connection_->local(); }
    void connect(const mirror::Endpoint& peer) override { must(connection_->connect(peer)); }
    void post_write(std::uint16_t slot, std::uint32_t peer_key) override {
        must(connection_->post_write(slot, memory_of(slot), geometry_.blocks(), application_tag, peer_key));
    }
    bool post_open(std::uint16_t first, std::size_t length) override {
        slots_.clear();
        for (std::size_t i = 0; i < length; ++i) slots_.push_back(memory_of(first + i));
        must(connection_->post_open(first, slots_, application_tag));
        return true;
    }
    void post_receives(std::size_t length) override {
        must(connection_->post_receives(static_cast<std::uint32_t>(length)));
    }
    std::uint32_t key_of(std::uint16_t slot) const noexcept override { return connection_->key_of(slot); }
    void check(std::uint16_t slot) override {
        const mlx5dv_mkey_err error = must(connection_->check(slot));
        if (error.err_type != MLX5DV_MKEY_NO_ERR) {
            throw std::runtime_error(fmt::format("slot {}: a bad block at {}", slot, error.err.sig.offset));
        }
    }
    std::span<const ibv_wc> poll() override { return must(connection_->poll()); }

private:
    [[nodiscard]] mirror::SlotMemory memory_of(std::size_t slot) const noexcept {
        return {reinterpret_cast<std::uint64_t>(memory_ + slot * geometry_.slot_stride()), mr_->lkey};
    }

    const mirror::Geometry geometry_;
    std::byte* const memory_;
    const mirror::Owner<ibv_mr> mr_;
    const std::unique_ptr<mirror::Connection> connection_;
    std::vector<mirror::SlotMemory> slots_;
};

}  // namespace

void fail(int code, std::string_view call) {
    throw std::system_error(code, std::generic_category(), std::string(call));
}

std::unique_ptr<End> End::create(EndKind kind, const EndSpec& spec) {
    if (kind == EndKind::signature) return std::make_unique<SignedEnd>(spec);
    return std::make_unique<PlainEnd>(spec, kind == EndKind::mkey);
}

}  // namespace ovsdr::bench
