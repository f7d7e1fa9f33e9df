// The device's table of rates that send queues are paced with.
//
// Model. A rate has an index, which queues name; index 0 stands for no limit. Who asks for a rate that is there shares
// its index, unless either has asked for one of its own ("dedicated"). A rate goes with the last who holds it. Each
// queue of an index is limited for itself: the table keeps no account.
//
// Threads: any. Source: PRM, SET_PP_RATE_LIMIT; the kernel's mlx5_core, rl.c, whose errors these are.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace ovsdr::soft {

class RateTable {
public:
    static constexpr std::uint32_t slowest = 1, fastest = 100'000'000;  ///< kilobits per second
    static constexpr unsigned length = 128;                             ///< index 0 included

    /// Holds a rate.
    class Hold {
    public:
        Hold() = default;
        Hold(Hold&& other) noexcept : table_(std::exchange(other.table_, nullptr)), index_(other.index_) {}
        Hold& operator=(Hold&& other) noexcept {
            std::swap(table_, other.table_);
            std::swap(index_, other.index_);
            return *this;
        }
        ~Hold() {
            if (table_) table_->let_go(index_);
        }
        [[nodiscard]] std::uint16_t index() const noexcept { return index_; }

    private:
        friend class RateTable;
        Hold(RateTable& table, std::uint16_t index) : table_(&table), index_(index) {}
        RateTable* table_ = nullptr;
        std::uint16_t index_ = 0;
    };

    /// EINVAL: a rate that the device does not have; ENOSPC: the table is full.
    [[nodiscard]] int take(std::uint32_t kilobits, bool dedicated, Hold& hold);
    /// The rate of an index, 0 for index 0; nothing where the table has none.
    [[nodiscard]] std::optional<std::uint32_t> rate_of(std::uint32_t index);

private:
    struct Rate {
        std::uint32_t kilobits = 0;
        unsigned holders = 0;
        bool dedicated = false;
    };

    void let_go(std::uint16_t index);

    std::mutex mutex_;
    std::array<Rate, length> rates_{};
};

}  // namespace ovsdr::soft
