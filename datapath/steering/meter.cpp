#include "datapath/steering/meter.hpp"

#include <algorithm>

#include "datapath/steering/hold.hpp"
#include "datapath/steering/vlan.hpp"

namespace ovsdr::soft {
namespace {

// Bytes of the parameters.
constexpr unsigned at_flags = 0, at_committed = 8, at_committed_tokens = 12, at_excess = 16, at_excess_tokens = 20;
constexpr unsigned at_timestamp = 24;

constexpr std::int64_t max_burst = 0x7fffffff;
constexpr unsigned fraction_bits = 32;
constexpr std::uint32_t bytes_per_packet = 128;      // in packet mode
constexpr std::uint32_t preamble_and_gap = 20;       // per frame on the wire: preamble 8, gap 12

__extension__ using Wide = __int128;
/// Both buckets. The alias is allowed to be one of two 64-bit words.
__extension__ using Word [[gnu::may_alias]] = unsigned __int128;

/// The first in the lower half, as it lies in memory on a little-endian machine.
[[nodiscard]] constexpr Word packed(std::int64_t first, std::int64_t second) noexcept {
    return Word{static_cast<std::uint64_t>(second)} << 64 | static_cast<std::uint64_t>(first);
}

[[nodiscard]] constexpr bool selected(std::uint32_t bytes, unsigned at, unsigned length) noexcept {
    for (unsigned i = 0; i < length; ++i) {
        if ((bytes >> (31 - at - i) & 1) != 0) return true;
    }
    return false;
}

[[nodiscard]] std::uint64_t load_be64(const std::uint8_t* from) noexcept {
    return static_cast<std::uint64_t>(load_be32(from)) << 32 | load_be32(from + 4);
}

/// Without padding where an IP header says so.
[[nodiscard]] std::uint32_t ip_size(const std::uint8_t* frame, std::uint32_t frame_size) noexcept {
    const auto [type_at, type, tags] = ethertype_of(frame, frame_size);
    const std::uint32_t begin = type_at + 2;
    if (begin > frame_size) return 0;
    const std::uint32_t rest = frame_size - begin;
    if (type == 0x0800 && rest >= 20) {
        const std::uint32_t total = load_be16(frame + begin + 2);
        return total < 20 ? rest : std::min(rest, total);
    }
    if (type == 0x86dd && rest >= 40) return std::min<std::uint32_t>(rest, 40U + load_be16(frame + begin + 4));
    return rest;
}

}  // namespace

void Meter::write(const Image& image, std::uint32_t bytes) noexcept {
    const Hold hold(taken_);
    Image now = this->now();
    for (unsigned i = 0; i < size; ++i) {
        if ((bytes >> (31 - i) & 1) != 0) now[i] = image[i];
    }
    adopt(now);
    const bool committed = selected(bytes, at_committed_tokens, 4), excess = selected(bytes, at_excess_tokens, 4);
    Tokens old = load();
    Tokens set{};
    do {
        set = old;
        const auto scaled = [&now](unsigned at) {
            return static_cast<std::int64_t>(static_cast<std::int32_t>(load_be32(&now[at]))) * (1LL << fraction_bits);
        };
        if (committed) set.committed = scaled(at_committed_tokens);
        if (excess) set.excess = scaled(at_excess_tokens);
    } while (!exchange(old, set));
    if (selected(bytes, at_timestamp, 8)) last_.store(load_be64(&now[at_timestamp]), std::memory_order_relaxed);
}

void Meter::adopt(const Image& image) noexcept {
    image_ = image;
    const auto flags = load_be32(&image[at_flags]);
    const auto bucket = [&image](Bucket& into, unsigned at) {
        const std::int64_t burst = static_cast<std::int64_t>(image[at + 1]) << (image[at] & 31);
        into.size.store(std::min(burst, max_burst) << fraction_bits, std::memory_order_relaxed);
        into.rate.store(static_cast<std::uint64_t>(image[at + 3]) << (fraction_bits - (image[at + 2] & 31)),
                        std::memory_order_relaxed);
    };
    bucket(committed_, at_committed);
    bucket(excess_, at_excess);
    valid_.store((flags >> 31) != 0, std::memory_order_relaxed);
    overflow_.store((flags >> 30 & 1) != 0, std::memory_order_relaxed);
    start_.store(static_cast<Colour>(flags >> 28 & 3), std::memory_order_relaxed);
    both_on_green_.store((flags >> 27 & 1) != 0, std::memory_order_relaxed);
    mode_.store(static_cast<Mode>(flags >> 24 & 3), std::memory_order_relaxed);
}

Meter::Image Meter::read() const noexcept {
    const Hold hold(taken_);
    return now();
}

Meter::Image Meter::now() const noexcept {
    Image image = image_;
    const Tokens tokens = load();
    store_be32(&image[at_committed_tokens], static_cast<std::uint32_t>(tokens.committed >> fraction_bits));
    store_be32(&image[at_excess_tokens], static_cast<std::uint32_t>(tokens.excess >> fraction_bits));
    const std::uint64_t last = last_.load(std::memory_order_relaxed);
    store_be32(&image[at_timestamp], static_cast<std::uint32_t>(last >> 32));
    store_be32(&image[at_timestamp + 4], static_cast<std::uint32_t>(last));
    return image;
}

Meter::Tokens Meter::load() const noexcept {
    // Torn between the halves only if somebody changes them meanwhile: then the exchange that must follow fails.
    return {static_cast<std::int64_t>(__atomic_load_n(&tokens_[0], __ATOMIC_RELAXED)),
            static_cast<std::int64_t>(__atomic_load_n(&tokens_[1], __ATOMIC_RELAXED))};
}

bool Meter::exchange(Tokens& expected, Tokens desired) noexcept {
    const Word old = packed(expected.committed, expected.excess);
    const Word found = __sync_val_compare_and_swap(reinterpret_cast<Word*>(tokens_.data()), old,
                                                   packed(desired.committed, desired.excess));
    if (found == old) return true;
    expected = {static_cast<std::int64_t>(static_cast<std::uint64_t>(found)),
                static_cast<std::int64_t>(static_cast<std::uint64_t>(found >> 64))};
    return false;
}

Meter::Tokens Meter::filled(Tokens tokens, std::uint64_t elapsed) const noexcept {
    const std::int64_t committed_size = committed_.size.load(std::memory_order_relaxed);
    const std::int64_t excess_size = excess_.size.load(std::memory_order_relaxed);
    const auto grown = [elapsed](std::int64_t from, const Bucket& bucket) {
        return Wide{from} + Wide{elapsed} * Wide{bucket.rate.load(std::memory_order_relaxed)};
    };
    const Wide committed = grown(tokens.committed, committed_);
    Wide excess = grown(tokens.excess, excess_);
    if (committed > committed_size && overflow_.load(std::memory_order_relaxed)) excess += committed - committed_size;
    return {static_cast<std::int64_t>(std::min<Wide>(committed, committed_size)),
            static_cast<std::int64_t>(std::min<Wide>(excess, excess_size))};
}

void Meter::add(std::uint64_t elapsed) noexcept {
    Tokens old = load();
    while (!exchange(old, filled(old, elapsed))) {
    }
}

/// Whoever moves the timestamp grants the time since; the others go on with what there is. But none before the buckets
/// are full for the first time: what it paid would be forgotten.
void Meter::refill(std::uint64_t now) noexcept {
    std::uint64_t last = last_.load(std::memory_order_acquire);
    if (last == 0) [[unlikely]] {
        const Hold hold(taken_);
        if (last_.load(std::memory_order_relaxed) == 0) {
            constexpr std::uint64_t forever = 1ULL << 63;
            add(forever);
            last_.store(now, std::memory_order_release);
        }
        return;
    }
    if (now <= last || !last_.compare_exchange_strong(last, now, std::memory_order_acq_rel)) return;
    add(now - last);
}

std::int64_t Meter::cost(const std::uint8_t* frame, std::uint32_t frame_size) const noexcept {
    std::uint32_t bytes = frame_size;
    switch (mode_.load(std::memory_order_relaxed)) {
        case ip_bytes: bytes = ip_size(frame, frame_size); break;
        case l2_bytes: break;
        case l2_bytes_and_gap: bytes += preamble_and_gap; break;
        case packets: bytes = bytes_per_packet; break;
    }
    return static_cast<std::int64_t>(bytes) << fraction_bits;
}

Colour Meter::mark(std::uint64_t now, Colour initial, const std::uint8_t* frame, std::uint32_t frame_size) noexcept {
    if (!valid_.load(std::memory_order_relaxed)) return initial;
    refill(now);
    const std::int64_t price = cost(frame, frame_size);
    const bool committed_pays = committed_.size.load(std::memory_order_relaxed) != 0;
    const bool excess_pays = excess_.size.load(std::memory_order_relaxed) != 0;
    const bool both = both_on_green_.load(std::memory_order_relaxed);
    Tokens old = load();
    while (true) {
        const bool committed = committed_pays && old.committed >= 0, excess = excess_pays && old.excess >= 0;
        Tokens left = old;
        Colour colour = Colour::red;
        if (initial == Colour::green && committed && (!both || excess)) {
            colour = Colour::green;
            left.committed -= price;
            if (both) left.excess -= price;
        } else if (initial != Colour::red && excess) {
            colour = Colour::yellow;
            left.excess -= price;
        } else if (initial == Colour::red) {
            return Colour::red;
        }
        if (exchange(old, left)) return colour;
    }
}

}  // namespace ovsdr::soft
