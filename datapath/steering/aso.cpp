#include "datapath/steering/aso.hpp"

#include <algorithm>
#include <cerrno>

namespace ovsdr::soft {
namespace {

/// The 8 bits of a byte mask that start at byte `word` * 8, spread over the bytes of a host-order word whose highest
/// byte comes first.
[[nodiscard]] std::uint64_t spread(std::uint64_t bytes, unsigned word) noexcept {
    std::uint64_t mask = 0;
    for (unsigned i = 0; i < 8; ++i) {
        mask = mask << 8 | ((bytes >> (63 - word * 8 - i) & 1) != 0 ? 0xff : 0);
    }
    return mask;
}

}  // namespace

AsoBulk::AsoBulk(AsoKind kind, unsigned log_length, const void* owner)
    : kind_(kind), length_(1U << log_length), owner_(owner) {
    switch (kind) {
        case AsoKind::flow_meter: meters_ = std::make_unique<Meter[]>(std::size_t{length_} * meters_per_object); break;
        case AsoKind::connection: connections_ = std::make_unique<ConnTrack[]>(length_); break;
        case AsoKind::first_hit:
            hits_ = std::make_unique<std::atomic<std::uint64_t>[]>(std::size_t{length_} * hits_per_object / 64);
    }
}

AsoBulk::Image AsoBulk::exchange(unsigned index, const Image& image, std::uint64_t bytes) noexcept {
    if (kind_ == AsoKind::connection) return connections_[index].exchange(image, bytes);
    const std::lock_guard lock(mutex_);
    return kind_ == AsoKind::flow_meter ? exchange_meters(index, image, bytes) : exchange_hits(index, image, bytes);
}

AsoBulk::Image AsoBulk::exchange_meters(unsigned index, const Image& image, std::uint64_t bytes) noexcept {
    Image was;
    for (unsigned i = 0; i < meters_per_object; ++i) {
        Meter& meter = meters_[index * meters_per_object + i];
        const Meter::Image old = meter.read();
        std::copy(old.begin(), old.end(), was.begin() + i * Meter::size);
        const auto mine = static_cast<std::uint32_t>(bytes >> (i == 0 ? 32 : 0));
        if (mine == 0) continue;
        Meter::Image now;
        std::copy_n(image.begin() + i * Meter::size, Meter::size, now.begin());
        meter.write(now, mine);
    }
    return was;
}

AsoBulk::Image AsoBulk::exchange_hits(unsigned index, const Image& image, std::uint64_t bytes) noexcept {
    constexpr unsigned words = object_size / 8;
    Image was;
    for (unsigned i = 0; i < words; ++i) {
        // Bytes count down while bits count up.
        std::atomic<std::uint64_t>& word = hits_[index * words + words - 1 - i];
        std::uint64_t now = 0;
        for (unsigned k = 0; k < 8; ++k) now = now << 8 | image[i * 8 + k];
        const std::uint64_t mask = spread(bytes, i);
        std::uint64_t old = word.load(std::memory_order_relaxed);
        while (!word.compare_exchange_weak(old, (old & ~mask) | (now & mask), std::memory_order_relaxed)) {
        }
        for (unsigned k = 0; k < 8; ++k) was[i * 8 + k] = static_cast<std::uint8_t>(old >> (56 - 8 * k));
    }
    return was;
}

int AsoBulk::link(const Domain& domain, std::uint32_t flags, std::uint8_t reg_c) noexcept {
    AsoUse made;
    if (const int error = make_aso_use(*this, 0, flags, reg_c, made); error != 0) return error;
    const std::lock_guard lock(mutex_);
    linked_to_ = &domain;
    link_ = made;
    return 0;
}

int AsoBulk::unlink() noexcept {
    const std::lock_guard lock(mutex_);
    if (linked_to_ == nullptr) return EINVAL;
    if (!link_users_.empty()) return EBUSY;
    linked_to_ = nullptr;
    return 0;
}

bool AsoBulk::linked() noexcept {
    const std::lock_guard lock(mutex_);
    return linked_to_ != nullptr;
}

int AsoBulk::take_link(const Domain& domain, AsoUse& use) {
    const std::lock_guard lock(mutex_);
    if (linked_to_ != &domain) return EINVAL;
    if (!link_users_.insert(use.offset).second) return EBUSY;
    use.direction = link_.direction;
    use.reg_c = link_.reg_c;
    return 0;
}

void AsoBulk::leave_link(std::uint32_t offset) noexcept {
    const std::lock_guard lock(mutex_);
    link_users_.erase(offset);
}

int make_aso_use(const AsoBulk& bulk, std::uint32_t offset, std::uint32_t flags, std::uint8_t reg_c,
                 AsoUse& use) noexcept {
    AsoUse made{.offset = offset, .reg_c = reg_c};
    unsigned per_object = 1;
    switch (bulk.kind()) {
        case AsoKind::flow_meter:
            per_object = AsoBulk::meters_per_object;
            switch (flags) {
                case 1: made.colour = Colour::red; break;
                case 2: made.colour = Colour::yellow; break;
                case 4: made.colour = Colour::green; break;
                case 8: made.colour = Colour::undefined; break;
                default: return EINVAL;
            }
            break;
        case AsoKind::first_hit:
            per_object = AsoBulk::hits_per_object;
            if (flags > 1) return EINVAL;
            made.set = flags == 1;
            break;
        case AsoKind::connection:
            if (flags != 1 && flags != 2) return EINVAL;
            made.direction = flags == 1 ? ConnTrack::Direction::initiator : ConnTrack::Direction::responder;
    }
    if (offset / per_object >= bulk.length() || reg_c > 5 || reg_c % 2 == 0) return EINVAL;
    use = made;
    return 0;
}

}  // namespace ovsdr::soft
