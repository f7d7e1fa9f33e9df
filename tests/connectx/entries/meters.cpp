#include "tests/connectx/entries/meters.hpp"

#include <fmt/format.h>

#include "tests/connectx/entries/bits.hpp"
#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {

namespace {

constexpr Bits valid{0, 1}, overflow{1, 1}, both_buckets_on_green{4, 1}, mode{6, 2};
constexpr Bits burst_exponent{67, 5}, burst_mantissa{72, 8}, excess_burst{128, 16};
constexpr std::size_t tokens_at = 12, timestamp_at = 24;
constexpr std::uint32_t counts_bytes = 1, counts_packets = 3;
constexpr std::int64_t bytes_of_packet = 128;

}  // namespace

Colour meter(MeterParameters& parameters, std::size_t size) {
    const std::uint8_t* bytes = parameters.data();
    const std::uint32_t counts = get(bytes, mode);
    if (get(bytes, valid) == 0) throw Stopped("a meter that is not valid");
    if (get(bytes, overflow) != 0 || get(bytes, both_buckets_on_green) != 0 || get(bytes, excess_burst) != 0) {
        throw Stopped("a meter with a bucket for excess");
    }
    if (counts != counts_bytes && counts != counts_packets) throw Stopped(fmt::format("a meter of mode {}", counts));
    auto tokens = static_cast<std::int64_t>(static_cast<std::int32_t>(load32(bytes + tokens_at)));
    if (load32(bytes + timestamp_at) == 0 && load32(bytes + timestamp_at + 4) == 0) {
        tokens = std::int64_t{get(bytes, burst_mantissa)} << get(bytes, burst_exponent);
        store32(&parameters[timestamp_at + 4], 1);
    }
    const bool is_green = tokens >= 0;
    if (is_green) tokens -= counts == counts_packets ? bytes_of_packet : static_cast<std::int64_t>(size);
    store32(&parameters[tokens_at], static_cast<std::uint32_t>(tokens));
    return is_green ? Colour::green : Colour::red;
}

}  // namespace ovsdr::connectx::entries
