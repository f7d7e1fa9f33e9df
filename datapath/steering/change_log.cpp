#include "datapath/steering/change_log.hpp"

#include <nmmintrin.h>

#include <bit>

namespace ovsdr::soft {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

/// One word of a mask that the cache's key holds too.
struct Told {
    std::uint64_t mask, value;
    std::uint8_t place;
};

}  // namespace

ChangeLog::ChangeLog(const MaskedWords& key, const MaskedWords& common) noexcept : key_(key), common_(common) {
    int bits = 0;
    for (std::uint32_t i = 0; i < common.length; ++i) bits += std::popcount(common.mask[i]);
    tells_apart_ = bits >= least_bits;
}

void ChangeLog::write_all(std::uint64_t number) noexcept {
    wide_.store(number, relaxed);
    stamps_[any_bucket].store(number, relaxed);
    const std::uint64_t slot = number % length;
    first_[slot].mask.store(0, relaxed);
    first_[slot].value.store(0, relaxed);
    rest_[slot].length.store(0, relaxed);
}

std::uint16_t ChangeLog::bucket_of(const std::uint64_t* words, std::uint32_t rewritten) const noexcept {
    std::uint64_t hash = 0;
    for (std::uint32_t i = 0, place = 0; i < common_.length; ++i, ++place) {
        while (key_.index[place] != common_.index[i]) ++place;
        if ((rewritten >> place & 1) != 0) return any_bucket;
        hash = _mm_crc32_u64(hash, words[place] & common_.mask[i]);
    }
    return bucket(hash);
}

/// A rule that does not look at all of what is common can be met by lines of any bucket.
void ChangeLog::stamp(std::uint64_t number, const MaskedWords& mask, const std::uint64_t* value) noexcept {
    ++changes_;
    stamps_[any_bucket].store(number, relaxed);
    if (!tells_apart_) ++wide_changes_;
    std::uint64_t hash = 0;
    for (std::uint32_t i = 0, at = 0; i < common_.length; ++i) {
        while (at < mask.length && mask.index[at] < common_.index[i]) ++at;
        const bool has = at < mask.length && mask.index[at] == common_.index[i];
        if (!has || (common_.mask[i] & ~mask.mask[at]) != 0) {
            if (tells_apart_) ++wide_changes_;
            return wide_.store(number, relaxed);
        }
        hash = _mm_crc32_u64(hash, value[at] & common_.mask[i]);
    }
    stamps_[bucket(hash)].store(number, relaxed);
}

void ChangeLog::write(std::uint64_t number, const MaskedWords& mask, const std::uint64_t* value) noexcept {
    stamp(number, mask, value);
    write_words(number, mask, value);
}

void ChangeLog::write_words(std::uint64_t number, const MaskedWords& mask, const std::uint64_t* value) noexcept {
    std::array<Told, Key::length> told;
    unsigned count = 0, widest = 0;
    for (std::uint32_t i = 0, place = 0; i < mask.length; ++i) {
        while (place < key_.length && key_.index[place] < mask.index[i]) ++place;
        if (place == key_.length) break;
        const std::uint64_t bits = key_.index[place] == mask.index[i] ? mask.mask[i] & key_.mask[place] : 0;
        if (bits == 0) continue;
        told[count] = {bits, value[i] & bits, static_cast<std::uint8_t>(place)};
        if (std::popcount(bits) > std::popcount(told[widest].mask)) widest = count;
        ++count;
    }
    if (count == 0) return write_all(number);
    const std::uint64_t slot = number % length;
    first_[slot].mask.store(told[widest].mask, relaxed);
    first_[slot].value.store(told[widest].value, relaxed);
    first_places_[slot].store(told[widest].place, relaxed);
    Rest& rest = rest_[slot];
    unsigned used = 0;
    for (unsigned i = 0; i < count && used < Rest::most; ++i) {
        if (i == widest) continue;
        rest.words[used].mask.store(told[i].mask, relaxed);
        rest.words[used].value.store(told[i].value, relaxed);
        rest.places[used++].store(told[i].place, relaxed);
    }
    rest.length.store(static_cast<std::uint8_t>(used), relaxed);
}

bool ChangeLog::meets(const Rest& rest, const std::uint64_t* words, std::uint32_t rewritten) noexcept {
    const unsigned used = rest.length.load(relaxed);
    for (unsigned i = 0; i < used; ++i) {
        const unsigned place = rest.places[i].load(relaxed);
        const std::uint64_t differs = (words[place] & rest.words[i].mask.load(relaxed)) ^
                                      rest.words[i].value.load(relaxed);
        if (differs != 0 && (rewritten >> place & 1) == 0) return false;
    }
    return true;
}

bool ChangeLog::spares(const std::uint64_t* words, std::uint32_t rewritten, std::uint64_t from,
                       std::uint64_t to) const noexcept {
    for (std::uint64_t number = from + 1; number <= to; ++number) {
        const std::uint64_t slot = number % length;
        const unsigned place = first_places_[slot].load(relaxed);
        const std::uint64_t differs = (words[place] & first_[slot].mask.load(relaxed)) ^
                                      first_[slot].value.load(relaxed);
        if (differs != 0 && (rewritten >> place & 1) == 0) continue;
        if (meets(rest_[slot], words, rewritten)) return false;
    }
    return true;
}

}  // namespace ovsdr::soft
