// What became of each frame: a ledger for a stream at one port, and a histogram of latencies.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace ovsdr::drgen {

/// Follows the sequence numbers of one stream at one port.
///
/// A frame is a duplicate when its number was there before, and overtaken when a later frame of its flow came before it
/// (frame n belongs to flow n mod `flows`: only within a flow does order matter). Memory: one bit a frame.
class Ledger {
public:
    explicit Ledger(std::uint32_t flows) : highest_(flows, -1) {}

    void receive(std::uint32_t sequence);

    [[nodiscard]] std::uint64_t received() const noexcept { return received_; }      ///< each frame once
    [[nodiscard]] std::uint64_t duplicated() const noexcept { return duplicated_; }  ///< beyond the first
    [[nodiscard]] std::uint64_t overtaken() const noexcept { return overtaken_; }
    [[nodiscard]] std::uint64_t lost(std::uint64_t sent) const noexcept {
        return sent > received_ ? sent - received_ : 0;
    }

private:
    std::vector<std::uint64_t> seen_;
    std::vector<std::int64_t> highest_;  ///< of each flow
    std::uint64_t received_ = 0, duplicated_ = 0, overtaken_ = 0;
};

/// Durations in nanoseconds, to within 1/64 of their value.
class Histogram {
public:
    void add(std::uint64_t nanoseconds) noexcept;

    [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
    [[nodiscard]] std::uint64_t largest() const noexcept { return largest_; }

    /// The least value that at least `fraction` (0 to 1) of all do not exceed; 0 when there are none.
    [[nodiscard]] std::uint64_t quantile(double fraction) const noexcept;

private:
    static constexpr unsigned sub_bits = 6;
    std::array<std::uint64_t, (64 - sub_bits + 1) << sub_bits> buckets_{};
    std::uint64_t count_ = 0, largest_ = 0;
};

}  // namespace ovsdr::drgen
