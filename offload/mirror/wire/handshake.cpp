#include "offload/mirror/wire/handshake.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "offload/mirror/wire/bytes.hpp"

namespace ovsdr::mirror {
namespace {

constexpr std::uint32_t magic = 0x484d5244;   // "DRMH"
constexpr std::uint32_t largest_24_bits = (1u << 24) - 1;

bool printable(const std::string& text) noexcept {
    return std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
}

tl::unexpected<Malformed> malformed(std::string detail) {
    return tl::unexpected(Malformed{RefuseReason::malformed, std::move(detail)});
}

void write(ByteWriter& to, const Endpoint& endpoint) {
    to.bytes(std::as_bytes(std::span(endpoint.gid)));
    to.number(endpoint.qpn);
    to.number(endpoint.psn);
    to.number(static_cast<std::uint8_t>(endpoint.mtu));
}

Endpoint read_endpoint(ByteReader& from) noexcept {
    Endpoint endpoint{};
    const auto gid = from.bytes(endpoint.gid.size());
    for (std::size_t i = 0; i < gid.size(); ++i) endpoint.gid[i] = std::to_integer<std::uint8_t>(gid[i]);
    endpoint.qpn = from.number<std::uint32_t>();
    endpoint.psn = from.number<std::uint32_t>();
    endpoint.mtu = static_cast<ibv_mtu>(from.number<std::uint8_t>());
    return endpoint;
}

std::string fault_of(const Endpoint& endpoint) {
    if (endpoint.qpn > largest_24_bits) return fmt::format("{:#x} is no queue pair's number", endpoint.qpn);
    if (endpoint.psn > largest_24_bits) return fmt::format("{:#x} is no PSN", endpoint.psn);
    if (endpoint.mtu < IBV_MTU_256 || endpoint.mtu > IBV_MTU_4096) {
        return fmt::format("{} is no path MTU", static_cast<unsigned>(endpoint.mtu));
    }
    return {};
}

void write(ByteWriter& to, const Hello& hello) {
    to.number(hello.session);
    to.number(hello.oldest);
    to.number(hello.application_tag);
    to.number(hello.geometry.segment_size);
    to.number(hello.geometry.slots);
    to.number(static_cast<std::uint8_t>(hello.geometry.signature.type));
    to.number(hello.geometry.signature.block_size);
    write(to, hello.endpoint);
    to.text(hello.mirror);
    to.number(static_cast<std::uint16_t>(hello.interfaces.size()));
    for (const MirrorInterface& interface : hello.interfaces) {
        to.text(interface.name);
        to.number(interface.snap_length);
    }
}

std::string read(ByteReader& from, Hello& hello) {
    hello.session = from.number<std::uint64_t>();
    hello.oldest = from.number<std::uint64_t>();
    hello.application_tag = from.number<std::uint16_t>();
    hello.geometry.segment_size = from.number<std::uint32_t>();
    hello.geometry.slots = from.number<std::uint16_t>();
    hello.geometry.signature.type = static_cast<SignatureType>(from.number<std::uint8_t>());
    hello.geometry.signature.block_size = from.number<std::uint16_t>();
    hello.endpoint = read_endpoint(from);
    hello.mirror = from.text(longest_name);
    const std::size_t interfaces = from.number<std::uint16_t>();
    if (interfaces > most_interfaces) return fmt::format("{} interfaces are more than {}", interfaces, most_interfaces);
    for (std::size_t i = 0; i < interfaces && !from.missing(); ++i) {
        std::string name = from.text(longest_name);
        hello.interfaces.push_back({std::move(name), from.number<std::uint32_t>()});
    }
    if (!from.complete()) return "it has too few bytes, or too many";
    if (hello.oldest >= most_segments) return "no session has so many segments";
    if (hello.session == 0) return "a session's number is not 0";
    if (hello.mirror.empty()) return "a mirror without a name";
    if (!printable(hello.mirror)) return "the mirror's name is not printable";
    if (std::string fault = mirror::fault_of(hello.interfaces); !fault.empty()) return fault;
    return fault_of(hello.endpoint);
}

void write(ByteWriter& to, const Accept& accept) {
    to.number(accept.next);
    to.number(static_cast<std::uint8_t>(accept.durability));
    write(to, accept.endpoint);
    to.number(static_cast<std::uint16_t>(accept.keys.size()));
    for (const std::uint32_t key : accept.keys) to.number(key);
}

std::string read(ByteReader& from, Accept& accept) {
    accept.next = from.number<std::uint64_t>();
    accept.durability = static_cast<Durability>(from.number<std::uint8_t>());
    accept.endpoint = read_endpoint(from);
    const std::size_t keys = from.number<std::uint16_t>();
    if (keys > Geometry::most_slots) return fmt::format("{} keys are more than {}", keys, Geometry::most_slots);
    for (std::size_t i = 0; i < keys && !from.missing(); ++i) accept.keys.push_back(from.number<std::uint32_t>());
    if (!from.complete()) return "it has too few bytes, or too many";
    if (accept.next >= most_segments) return "no session has so many segments";
    if (accept.durability != Durability::written && accept.durability != Durability::synced) {
        return fmt::format("{} is no durability", static_cast<unsigned>(accept.durability));
    }
    return fault_of(accept.endpoint);
}

void write(ByteWriter& to, const Refuse& refuse) {
    to.number(static_cast<std::uint8_t>(refuse.reason));
    to.text(std::string_view(refuse.detail).substr(0, longest_reason));
}

std::string read(ByteReader& from, Refuse& refuse) {
    refuse.reason = static_cast<RefuseReason>(from.number<std::uint8_t>());
    refuse.detail = from.text(longest_reason);
    if (!from.complete()) return "it has too few bytes, or too many";
    if (refuse.reason < RefuseReason::malformed || refuse.reason > RefuseReason::device) {
        return fmt::format("{} is no reason", static_cast<unsigned>(refuse.reason));
    }
    return printable(refuse.detail) ? "" : "the reason is not printable";
}

void write(ByteWriter& to, const Progress& progress) { to.number(progress.next); }

std::string read(ByteReader& from, Progress& progress) {
    progress.next = from.number<std::uint64_t>();
    return from.complete() ? "" : "it has too few bytes, or too many";
}

void write(ByteWriter& to, const Bad& bad) {
    to.number(bad.sequence);
    to.number(static_cast<std::uint8_t>(bad.kind));
    to.number(bad.offset);
    to.number(bad.actual);
    to.number(bad.expected);
}

std::string read(ByteReader& from, Bad& bad) {
    bad.sequence = from.number<std::uint64_t>();
    bad.kind = static_cast<BadKind>(from.number<std::uint8_t>());
    bad.offset = from.number<std::uint32_t>();
    bad.actual = from.number<std::uint64_t>();
    bad.expected = from.number<std::uint64_t>();
    if (!from.complete()) return "it has too few bytes, or too many";
    if (bad.kind < BadKind::guard || bad.kind > BadKind::size) {
        return fmt::format("{} is nothing that can be wrong", static_cast<unsigned>(bad.kind));
    }
    return {};
}

void write(ByteWriter& to, const Finished& finished) { to.number(finished.end); }

std::string read(ByteReader& from, Finished& finished) {
    finished.end = from.number<std::uint64_t>();
    return from.complete() ? "" : "it has too few bytes, or too many";
}

void write(ByteWriter& to, const Wait& wait) {
    to.number(wait.read);
    to.number(wait.size);
}

std::string read(ByteReader& from, Wait& wait) {
    wait.read = from.number<std::uint64_t>();
    wait.size = from.number<std::uint64_t>();
    if (!from.complete()) return "it has too few bytes, or too many";
    if (wait.size > largest_file) return fmt::format("no file has {} bytes", wait.size);
    return wait.read <= wait.size ? "" : fmt::format("{} bytes of a file of {}", wait.read, wait.size);
}

template <typename T>
tl::expected<Message, Malformed> decode_as(const char* name, std::span<const std::byte> payload) {
    ByteReader from(payload);
    T message{};
    if (std::string fault = read(from, message); !fault.empty()) return malformed(fmt::format("{}: {}", name, fault));
    return Message(std::move(message));
}

}  // namespace

std::string fault_of(const std::vector<MirrorInterface>& interfaces) {
    if (interfaces.empty()) return "a mirror without an interface";
    if (interfaces.size() > most_interfaces) {
        return fmt::format("{} interfaces are more than {}", interfaces.size(), most_interfaces);
    }
    for (const MirrorInterface& interface : interfaces) {
        if (interface.name.size() > longest_name) {
            return fmt::format("an interface's name has {} bytes, {} at most", interface.name.size(), longest_name);
        }
        if (!printable(interface.name)) return "an interface's name is not printable";
    }
    return {};
}

const char* text_of(Durability durability) noexcept {
    return durability == Durability::synced ? "synced" : "written";
}

const char* text_of(BadKind kind) noexcept {
    switch (kind) {
        case BadKind::guard:
            return "guard";
        case BadKind::application_tag:
            return "application tag";
        case BadKind::reference_tag:
            return "reference tag";
        case BadKind::header:
            return "segment header";
        case BadKind::sequence:
            return "sequence";
        case BadKind::payload:
            return "payload CRC";
        case BadKind::size:
            return "size";
    }
    return "?";
}

std::vector<std::byte> encode(const Message& message) {
    std::vector<std::byte> payload, frame;
    ByteWriter body(payload), head(frame);
    std::visit([&body](const auto& one) { write(body, one); }, message);
    head.number(magic);
    head.number(handshake_version);
    head.number(static_cast<std::uint16_t>(message.index() + 1));
    head.number(static_cast<std::uint32_t>(payload.size()));
    head.bytes(payload);
    return frame;
}

tl::expected<Message, Malformed> decode(std::uint16_t type, std::span<const std::byte> payload) {
    switch (type) {
        case 1: {
            auto hello = decode_as<Hello>("Hello", payload);
            if (!hello) return hello;
            if (std::string fault = std::get<Hello>(*hello).geometry.fault(); !fault.empty()) {
                return tl::unexpected(Malformed{RefuseReason::geometry, std::move(fault)});
            }
            return hello;
        }
        case 2:
            return decode_as<Accept>("Accept", payload);
        case 3:
            return decode_as<Refuse>("Refuse", payload);
        case 4:
            return decode_as<Progress>("Progress", payload);
        case 5:
            return decode_as<Bad>("Bad", payload);
        case 6:
            return decode_as<Finished>("Finished", payload);
        case 7:
            return decode_as<Wait>("Wait", payload);
        default:
            return malformed(fmt::format("{} is no type of message", type));
    }
}

/// Of the frame that has begun, whose header is complete.
tl::expected<std::size_t, Malformed> MessageReader::frame_size() const {
    ByteReader from{std::span<const std::byte>(frame_).first(frame_header_size)};
    if (from.number<std::uint32_t>() != magic) return malformed("these bytes are no mirror's handshake");
    const auto version = from.number<std::uint16_t>();
    if (version != handshake_version) {
        return tl::unexpected(Malformed{RefuseReason::version, fmt::format("version {} of the handshake, not {}",
                                                                           version, handshake_version)});
    }
    (void)from.number<std::uint16_t>();   // its type
    const std::size_t size = from.number<std::uint32_t>();
    if (size > most_payload) return malformed(fmt::format("a message of {} bytes, {} at most", size, most_payload));
    return frame_header_size + size;
}

tl::expected<std::optional<Message>, Malformed> MessageReader::read(std::span<const std::byte>& bytes) {
    if (error_) return tl::unexpected(*error_);
    const auto take_up_to = [&](std::size_t size) {
        const std::size_t taken = std::min(size - frame_.size(), bytes.size());
        frame_.insert(frame_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken));
        bytes = bytes.subspan(taken);
        return frame_.size() == size;
    };
    if (frame_.size() < frame_header_size && !take_up_to(frame_header_size)) return std::nullopt;
    const auto size = frame_size();
    if (!size) {
        error_ = size.error();
        return tl::unexpected(size.error());
    }
    if (!take_up_to(*size)) return std::nullopt;
    ByteReader head(std::span<const std::byte>(frame_).subspan(6, 2));
    auto message = decode(head.number<std::uint16_t>(), std::span<const std::byte>(frame_).subspan(frame_header_size));
    frame_.clear();
    if (message) return std::optional(std::move(*message));
    error_ = message.error();
    return tl::unexpected(std::move(message.error()));
}

}  // namespace ovsdr::mirror
