#include "ctrl/mirror_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <limits>
#include <optional>

namespace ovsdr::ctrl {
namespace {

using mirror::Geometry;
using Service = dr::MirrorSteering::Service;

constexpr std::uint32_t shortest_snap = 14, longest_snap = 65535;
constexpr std::uint16_t default_slots = 64;
constexpr std::uint32_t most_sampled = 1'000'000;
constexpr std::uint8_t tcp = 6, udp = 17;

struct NamedService {
    std::string_view name;
    Service service;
};
/// IANA's ports. A name may stand for several.
constexpr std::array named_services{
    NamedService{"iscsi", {tcp, 3260}},    NamedService{"nvme-tcp", {tcp, 4420}}, NamedService{"nvme-tcp", {tcp, 8009}},
    NamedService{"nfs", {tcp, 2049}},      NamedService{"nfs", {udp, 2049}},      NamedService{"rocev2", {udp, 4791}},
};

using Outcome = Result<void>;

tl::unexpected<Error> wrong(const MirrorOption& option, std::string_view what) {
    return tl::unexpected(Error{EINVAL, fmt::format("options:{}={} {}", option.key, option.value, what)});
}

/// Decimal, or with 0x hexadecimal; nothing else stands there.
std::optional<std::uint64_t> number_of(std::string_view text) noexcept {
    int base = 10;
    if (text.starts_with("0x")) {
        text.remove_prefix(2);
        base = 16;
    }
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

Result<std::uint32_t> parse_number(const MirrorOption& option, std::uint32_t least, std::uint32_t most,
                                   std::string_view of) {
    const auto number = number_of(option.value);
    if (!number || *number < least || *number > most) {
        return wrong(option, fmt::format("is not {} from {} to {}", of, least, most));
    }
    return static_cast<std::uint32_t>(*number);
}

template <typename T>
Outcome store(T& to, const Result<std::uint32_t>& number) {
    if (!number) return tl::unexpected(number.error());
    to = static_cast<T>(*number);
    return {};
}

constexpr std::string_view right_address = "HOST:PORT (192.0.2.7:4180, [2001:db8::7]:4180, or a name and a port)";

std::optional<mirror::CollectorAddress> address_of(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return std::nullopt;
    std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (brackets) host = host.substr(1, host.size() - 2);
    const auto number = number_of(port);
    if (host.empty() || (!brackets && host.find_first_of(":[]") != std::string_view::npos) ||
        host.find_first_of(" \t,") != std::string_view::npos || !number || *number == 0 || *number > 65535 ||
        port.starts_with("0")) {
        return std::nullopt;
    }
    return mirror::CollectorAddress{std::string(host), std::string(port)};
}

/// Gives each word of a list with commas to `take`, until one is wrong.
template <typename Take>
Outcome for_each_word(std::string_view list, Take&& take) {
    for (;;) {
        const std::size_t comma = list.find(',');
        if (auto taken = take(list.substr(0, comma)); !taken || comma == std::string_view::npos) return taken;
        list.remove_prefix(comma + 1);
    }
}

Outcome parse_collector(const MirrorOption& option, MirrorOptions& to) {
    auto address = address_of(option.value);
    if (!address) return wrong(option, fmt::format("is not {}", right_address));
    to.collector = std::move(*address);
    return {};
}

Outcome parse_standby(const MirrorOption& option, MirrorOptions& to) {
    return for_each_word(option.value, [&](std::string_view word) -> Outcome {
        auto address = address_of(word);
        if (!address) {
            return wrong(option, fmt::format("has \"{}\", which is not {}; commas between them", word, right_address));
        }
        to.standby.push_back(std::move(*address));
        return {};
    });
}

Outcome parse_plain(const MirrorOption& option, MirrorOptions& to) {
    if (option.value != "true" && option.value != "false") return wrong(option, "is not true or false");
    to.plain = option.value == "true";
    return {};
}

Outcome parse_signature(const MirrorOption& option, MirrorOptions& to) {
    const auto type = mirror::signature_type_of(option.value);
    if (!type) return wrong(option, "is not one of t10dif-crc, t10dif-csum, crc32, crc32c, crc64");
    to.geometry.signature.type = *type;
    return {};
}

Outcome parse_block(const MirrorOption& option, MirrorOptions& to) {
    const auto number = number_of(option.value);
    if (!number || std::ranges::find(mirror::block_sizes, *number) == mirror::block_sizes.end()) {
        return wrong(option, "is not one of 512, 520, 4048, 4096, 4160");
    }
    to.geometry.signature.block_size = static_cast<std::uint16_t>(*number);
    return {};
}

Outcome add_services(const MirrorOption& option, std::string_view word, std::vector<Service>& to) {
    const std::size_t before = to.size();
    for (const NamedService& named : named_services) {
        if (named.name == word) to.push_back(named.service);
    }
    if (to.size() != before) return {};
    const bool is_tcp = word.starts_with("tcp:");
    if (is_tcp || word.starts_with("udp:")) {
        const auto port = number_of(word.substr(4));
        if (port && *port > 0 && *port <= 65535) {
            to.push_back({is_tcp ? tcp : udp, static_cast<std::uint16_t>(*port)});
            return {};
        }
    }
    return wrong(option, fmt::format("has \"{}\", which is none of iscsi, nvme-tcp, nfs, rocev2, tcp:PORT, udp:PORT "
                                     "(PORT from 1 to 65535), with commas between them", word));
}

Outcome parse_filter(const MirrorOption& option, MirrorOptions& to) {
    std::vector<Service>& services = to.steering.services;
    const auto add = [&](std::string_view word) { return add_services(option, word, services); };
    if (auto added = for_each_word(option.value, add); !added) return added;
    std::ranges::sort(services);
    services.erase(std::unique(services.begin(), services.end()), services.end());
    return {};
}

Outcome parse_segment(const MirrorOption& option, MirrorOptions& to) {
    return store(to.geometry.segment_size, parse_number(option, Geometry::smallest_segment, Geometry::largest_segment,
                                                        "a number of bytes"));
}
Outcome parse_ring(const MirrorOption& option, MirrorOptions& to) {
    return store(to.geometry.slots, parse_number(option, Geometry::fewest_slots, Geometry::most_slots,
                                                 "a number of segments"));
}
Outcome parse_tag(const MirrorOption& option, MirrorOptions& to) {
    return store(to.application_tag, parse_number(option, 0, 65535, "a number"));
}
Outcome parse_snap(const MirrorOption& option, MirrorOptions& to) {
    return store(to.snap_length, parse_number(option, shortest_snap, longest_snap, "a number of bytes"));
}
Outcome parse_sampling(const MirrorOption& option, MirrorOptions& to) {
    return store(to.steering.one_of, parse_number(option, 1, most_sampled, "a number"));
}
Outcome parse_gid_index(const MirrorOption& option, MirrorOptions& to) {
    return store(to.gid_index, parse_number(option, 0, 255, "a number"));
}
Outcome parse_device(const MirrorOption& option, MirrorOptions& to) {
    if (option.value.empty()) return wrong(option, "is not the name of an RDMA device, such as mlx5_0");
    to.device = option.value;
    return {};
}

struct Parser {
    std::string_view key;
    Outcome (*parse)(const MirrorOption& option, MirrorOptions& to);
};
constexpr std::array parsers{
    Parser{"collector", parse_collector}, Parser{"standby", parse_standby}, Parser{"plain", parse_plain},
    Parser{"signature", parse_signature}, Parser{"block", parse_block},     Parser{"app-tag", parse_tag},
    Parser{"segment", parse_segment},     Parser{"ring", parse_ring},       Parser{"snaplen", parse_snap},
    Parser{"filter", parse_filter},       Parser{"sampling", parse_sampling}, Parser{"device", parse_device},
    Parser{"gid-index", parse_gid_index},
};

Outcome parse_one(const MirrorOption& option, MirrorOptions& to) {
    const auto parser = std::ranges::find(parsers, option.key, &Parser::key);
    if (parser != parsers.end()) return parser->parse(option, to);
    std::string known;
    for (const Parser& one : parsers) known += fmt::format("{}{}", known.empty() ? "" : ", ", one.key);
    return tl::unexpected(Error{EINVAL, fmt::format("unknown option {} (an interface of type=drmirror has {})",
                                                    option.key, known)});
}

/// A collector that is named twice would have two turns.
Outcome check_collectors(const MirrorOptions& options) {
    std::vector<mirror::CollectorAddress> before{options.collector};
    for (const mirror::CollectorAddress& address : options.standby) {
        if (std::ranges::find(before, address) != before.end()) {
            return tl::unexpected(Error{EINVAL, fmt::format("options:standby has {}, which is named already",
                                                            text_of(address))});
        }
        before.push_back(address);
    }
    return {};
}

/// Of a segment and its block, and of the ring that they make.
Outcome check_geometry(MirrorOptions& options) {
    Geometry& geometry = options.geometry;
    const std::uint32_t block = geometry.signature.block_size;
    if (geometry.segment_size == 0) geometry.segment_size = Geometry::usual_segment(geometry.signature);
    if (geometry.segment_size % block != 0) {
        const std::uint32_t below = geometry.segment_size / block * block;
        const bool is_large_enough = below >= Geometry::smallest_segment;
        return tl::unexpected(Error{EINVAL, fmt::format("options:segment={} is not a multiple of options:block={}; {} "
                                                        "is one", geometry.segment_size, block,
                                                        is_large_enough ? below : below + block)});
    }
    const std::uint64_t size = geometry.ring_size();
    if (size > Geometry::largest_ring) {
        return tl::unexpected(Error{EINVAL, fmt::format("options:ring={} of options:segment={} are {} bytes; a ring "
                                                        "has {} at most, which is options:ring={}", geometry.slots,
                                                        geometry.segment_size, size, Geometry::largest_ring,
                                                        Geometry::largest_ring / geometry.slot_stride())});
    }
    if (std::string fault = geometry.fault(); !fault.empty()) return tl::unexpected(Error{EINVAL, std::move(fault)});
    return {};
}

}  // namespace

bool MirrorOptions::needs_other_session(const MirrorOptions& other) const noexcept {
    return collector != other.collector || standby != other.standby || plain != other.plain ||
           geometry != other.geometry || application_tag != other.application_tag ||
           snap_length != other.snap_length || device != other.device || gid_index != other.gid_index;
}

Result<MirrorOptions> parse_mirror_options(std::span<const MirrorOption> options) {
    MirrorOptions parsed;
    parsed.geometry = {.segment_size = 0,
                       .slots = default_slots,
                       .signature = {mirror::SignatureType::t10dif_crc, mirror::block_sizes.front()}};
    for (const MirrorOption& option : options) {
        if (auto done = parse_one(option, parsed); !done) return tl::unexpected(std::move(done.error()));
    }
    if (parsed.collector.host.empty()) {
        return tl::unexpected(Error{EINVAL, "options:collector is missing (HOST:PORT of a drcollect)"});
    }
    if (auto right = check_collectors(parsed); !right) return tl::unexpected(std::move(right.error()));
    if (auto right = check_geometry(parsed); !right) return tl::unexpected(std::move(right.error()));
    return parsed;
}

}  // namespace ovsdr::ctrl
