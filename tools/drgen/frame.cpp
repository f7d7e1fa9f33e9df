#include "tools/drgen/frame.hpp"

#include <arpa/inet.h>

#include <cstring>

namespace ovsdr::drgen {
namespace {

constexpr std::size_t ip_size = 20, udp_size = 8;
constexpr std::uint8_t version = 1;
constexpr std::uint16_t first_source_port = 1024, destination_port = 9;
constexpr std::uint32_t flows_per_address = 64512;  // the ports from 1024 on

void put16(std::uint8_t* at, std::uint16_t value) noexcept {
    value = htons(value);
    std::memcpy(at, &value, sizeof value);
}

void put32(std::uint8_t* at, std::uint32_t value) noexcept {
    value = htonl(value);
    std::memcpy(at, &value, sizeof value);
}

std::uint16_t get16(const std::uint8_t* at) noexcept {
    return static_cast<std::uint16_t>(at[0] << 8 | at[1]);
}

std::uint32_t get32(const std::uint8_t* at) noexcept {
    return std::uint32_t{get16(at)} << 16 | get16(at + 2);
}

std::uint32_t sum_words(const std::uint8_t* at, std::size_t size) noexcept {
    std::uint64_t sum = 0;
    for (; size >= 2; size -= 2, at += 2) sum += get16(at);
    if (size == 1) sum += std::uint32_t{*at} << 8;
    while (sum >> 32 != 0) sum = (sum & 0xffffffff) + (sum >> 32);
    return static_cast<std::uint32_t>(sum);
}

std::uint16_t fold(std::uint64_t sum) noexcept {
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(sum);
}

std::uint64_t words_of(std::uint32_t value) noexcept {
    return (value >> 16) + (value & 0xffff);
}

}  // namespace

FrameTemplate::FrameTemplate(const StreamHeader& header, std::size_t size) : bytes_(size) {
    std::uint8_t* at = bytes_.data();
    std::memcpy(at, header.destination.data(), 6);
    std::memcpy(at + 6, header.source.data(), 6);
    at += 12;
    for (std::size_t i = 0; i < header.vlans.size(); ++i) {
        put16(at, i + 1 < header.vlans.size() ? 0x88a8 : 0x8100);
        put16(at + 2, header.vlans[i]);
        at += 4;
    }
    put16(at, 0x0800);
    at += 2;
    ip_ = static_cast<std::size_t>(at - bytes_.data());

    const std::size_t ip_length = size - ip_;
    at[0] = 0x45;
    put16(at + 2, static_cast<std::uint16_t>(ip_length));
    put16(at + 6, 0x4000);  // don't fragment
    at[8] = 64;
    at[9] = 17;
    put32(at + 16, 0x0ac80001U + header.stream);  // 10.200.0.1 and up
    header_sum_ = sum_words(at, ip_size);

    std::uint8_t* udp = at + ip_size;
    put16(udp + 2, destination_port);
    put16(udp + 4, static_cast<std::uint16_t>(ip_length - ip_size));

    std::uint8_t* payload = udp + udp_size;
    const std::size_t payload_size = ip_length - ip_size - udp_size;
    put16(payload, header.run);
    payload[2] = header.stream;
    payload[3] = version;
    for (std::size_t i = signature_size; i < payload_size; ++i) payload[i] = static_cast<std::uint8_t>(i * 7 + 1);
    payload_sum_ = sum_words(payload, payload_size);
}

void FrameTemplate::write(std::uint8_t* out, std::uint32_t flow, std::uint32_t sequence,
                          std::uint32_t time) const noexcept {
    std::memcpy(out, bytes_.data(), bytes_.size());
    std::uint8_t* ip = out + ip_;
    const std::uint32_t source = 0x0a640001U + flow / flows_per_address;  // 10.100.0.1 and up
    put32(ip + 12, source);
    put16(ip + 10, static_cast<std::uint16_t>(~fold(header_sum_ + words_of(source))));
    std::uint8_t* udp = ip + ip_size;
    put16(udp, static_cast<std::uint16_t>(first_source_port + flow % flows_per_address));
    std::uint8_t* payload = udp + udp_size;
    put32(payload + 4, sequence);
    put32(payload + 8, time);
    put16(payload + 12, static_cast<std::uint16_t>(~fold(payload_sum_ + words_of(sequence) + words_of(time))));
}

std::optional<Signature> read_signature(std::span<const std::uint8_t> frame, std::uint16_t run) noexcept {
    std::size_t at = 12;
    for (unsigned tags = 0; tags <= 2 && at + 2 <= frame.size(); ++tags) {
        const std::uint16_t type = get16(&frame[at]);
        at += 2;
        if (type == 0x0800) break;
        if (type != 0x8100 && type != 0x88a8) return std::nullopt;
        at += 2;
    }
    if (at + ip_size + udp_size + signature_size > frame.size()) return std::nullopt;
    const std::uint8_t* ip = &frame[at];
    const std::uint8_t* payload = ip + ip_size + udp_size;
    if (ip[0] != 0x45 || ip[9] != 17 || get16(payload) != run || payload[3] != version) return std::nullopt;

    const std::size_t ip_length = get16(ip + 2);
    bool intact = ip_length >= ip_size + udp_size + signature_size && at + ip_length <= frame.size();
    if (intact) intact = fold(sum_words(payload, ip_length - ip_size - udp_size)) == 0xffff;
    return Signature{
        .stream = payload[2], .sequence = get32(payload + 4), .time = get32(payload + 8), .intact = intact};
}

}  // namespace ovsdr::drgen
