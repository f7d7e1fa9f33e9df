// One meter: two token buckets that colour packets red, yellow or green.
//
// Parameters are the device's own (flow_meter_parameters, 32 bytes, big-endian):
//     valid, bucket_overflow, start_color, both_buckets_on_green, meter_mode; committed and excess burst (mantissa *
//     2^exponent bytes) and rate (10^9 * mantissa / 2^exponent bytes per second); c_tokens, e_tokens (signed bytes),
//     timestamp (ns).
// A rate is mantissa / 2^exponent bytes per nanosecond, so tokens in units of 2^-32 bytes are exact.
//
// Rules, as far as they are public (Linux en/tc/meter.c, DPDK mlx5_flow_aso.c, mlx5_flow_quota.c):
//   - A bucket that is not negative pays for the packet, whatever its length; it may end below 0. One of size 0 never
//     pays.
//   - A packet that comes in green and finds the committed bucket paying is green; else, unless it came in red, yellow
//     if the excess bucket pays; else red. A red packet costs nothing.
//   - both_buckets_on_green: green takes from both buckets, and needs both (RFC 2698). bucket_overflow: what the
//     committed bucket cannot hold fills the excess one (RFC 2697). Neither: RFC 4115.
//   - In packet mode each packet counts 128 bytes. Bursts end at 2^31 - 1 bytes, as in the device.
//   - A timestamp of 0 is so long ago that every bucket with a rate is full. One without keeps the tokens that were
//     written: that is a quota.
//   - Bytes of IP are what the IP header says, where it says what can be: what is there otherwise.
//   - Not valid: packets keep the colour that they came in with.
//
// Sharing. Buckets are one 128-bit word, changed by compare-and-exchange: each packet of any worker is coloured by one
// state of both buckets, and each token is granted once. Exact by bytes for one worker; between workers, tokens of the
// last refill may be granted to the next packet instead of this one.
//
// The first packet after a timestamp of 0, and those that come while it fills the buckets, take turns; so do write()
// and read().
//
// Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

namespace ovsdr::soft {

/// As registers hold it. Source: MLX5_FLOW_METER_COLOR_*.
enum class Colour : std::uint8_t { red = 0, yellow = 1, green = 2, undefined = 3 };

class Meter {
public:
    static constexpr unsigned size = 32;  ///< bytes of its parameters
    using Image = std::array<std::uint8_t, size>;

    Meter() noexcept { write(Image{}, ~0U); }
    Meter(const Meter&) = delete;
    Meter& operator=(const Meter&) = delete;

    /// Replaces the bytes that `bytes` selects: bit 31 stands for byte 0.
    void write(const Image& image, std::uint32_t bytes) noexcept;
    [[nodiscard]] Image read() const noexcept;

    /// The colour that a packet comes in with when its action names none; undefined: what its register holds.
    [[nodiscard]] Colour start_colour() const noexcept { return start_.load(std::memory_order_relaxed); }

    /// Colours a frame at `now`, in nanoseconds, and takes its tokens.
    [[nodiscard]] Colour mark(std::uint64_t now, Colour initial, const std::uint8_t* frame,
                              std::uint32_t frame_size) noexcept;

private:
    enum Mode : std::uint8_t { ip_bytes, l2_bytes, l2_bytes_and_gap, packets };

    /// 2^-32 bytes and, for rates, per nanosecond.
    struct Bucket {
        std::atomic<std::uint64_t> rate{0};
        std::atomic<std::int64_t> size{0};
    };
    struct Tokens {
        std::int64_t committed, excess;
    };

    void adopt(const Image& image) noexcept;
    [[nodiscard]] Image now() const noexcept;
    void refill(std::uint64_t now) noexcept;
    void add(std::uint64_t elapsed) noexcept;
    [[nodiscard]] Tokens filled(Tokens tokens, std::uint64_t elapsed) const noexcept;
    [[nodiscard]] Tokens load() const noexcept;
    [[nodiscard]] bool exchange(Tokens& expected, Tokens desired) noexcept;
    [[nodiscard]] std::int64_t cost(const std::uint8_t* frame, std::uint32_t frame_size) const noexcept;

    alignas(16) std::array<std::uint64_t, 2> tokens_{};  // committed, excess: exchanged as one
    std::atomic<std::uint64_t> last_{0};
    Bucket committed_, excess_;
    std::atomic<bool> valid_{false}, overflow_{false}, both_on_green_{false};
    std::atomic<Colour> start_{Colour::red};
    std::atomic<Mode> mode_{ip_bytes};
    mutable std::atomic_flag taken_;  // by who reads or writes the parameters, or fills the buckets for the first time
    Image image_{};  // as written; tokens and timestamp are read from the above
};

}  // namespace ovsdr::soft
