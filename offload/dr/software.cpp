#include "offload/dr/software.hpp"

#include <fmt/format.h>

#include <cstring>
#include <type_traits>

namespace ovsdr::dr {

namespace {

/// Whole: they have no padding.
static_assert(std::has_unique_object_representations_v<ovsdr_tunnel_fields>);

bool is_zero(const ovsdr_tunnel_fields& fields) noexcept {
    const ovsdr_tunnel_fields none{};
    return std::memcmp(&fields, &none, sizeof fields) == 0;
}

std::string hex_of(const ovsdr_tunnel_fields& fields) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&fields);
    return fmt::format("{:02x}", fmt::join(bytes, bytes + sizeof fields, ""));
}

std::string text_of(const SoftwareWork::Ports& ports, CopyKind kind) {
    std::string numbers;
    for (const OdpPort port : ports) numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", port.value);
    const std::string whose = is_mirror(kind)          ? fmt::format("{}, ", name_of(kind))
                              : kind == CopyKind::host ? "the host's "
                                                       : "";
    return fmt::format("output to {}datapath port{} {}", whose, ports.size() == 1 ? "" : "s", numbers);
}

}  // namespace

const char* name_of(CopyKind kind) noexcept {
    static constexpr PerCopyKind<const char*> names{"host",     "other",    "mirror 0", "mirror 1", "mirror 2",
                                                    "mirror 3", "mirror 4", "mirror 5", "mirror 6", "mirror 7"};
    static_assert(names.back() != nullptr);
    return names[index_of(kind)];
}

bool operator==(const TunnelMetadata& left, const TunnelMetadata& right) noexcept { return (left <=> right) == 0; }

std::strong_ordering operator<=>(const TunnelMetadata& left, const TunnelMetadata& right) noexcept {
    const int key = std::memcmp(&left.key, &right.key, sizeof left.key);
    return (key != 0 ? key : std::memcmp(&left.mask, &right.mask, sizeof left.mask)) <=> 0;
}

std::string text_of(const SoftwareWork& work) {
    std::string text;
    if (const auto* ports = std::get_if<SoftwareWork::Ports>(&work.work)) {
        text = text_of(*ports, work.kind);
    } else {
        text = fmt::format("{} {:02x}", work.name.text(), fmt::join(std::get<SoftwareWork::Actions>(work.work), ""));
    }
    if (work.cut_at != 0) text += fmt::format(" (the first {} bytes)", work.cut_at);
    text += fmt::format(", from datapath port {}", work.in_port.value);
    if (is_zero(work.tunnel.key) && is_zero(work.tunnel.mask)) return text;
    return text + fmt::format(" with tunnel {}/{}", hex_of(work.tunnel.key), hex_of(work.tunnel.mask));
}

std::string text_of(const SoftwareCopy& copy) {
    const std::string rate = copy.samples() ? fmt::format(" (1 of {})", copy.one_of) : "";
    return fmt::format("copy to software{}: {}", rate, text_of(copy.work));
}

std::optional<std::uint32_t> meter_of(const ovsdr_action& action) noexcept {
    if (action.type == OVSDR_ACTION_METER) return action.meter;
    if (action.type == OVSDR_ACTION_SOFTWARE && action.software.metered_from != 0) return action.software.meter;
    return std::nullopt;
}

}  // namespace ovsdr::dr
