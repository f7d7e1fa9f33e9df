#include "tests/connectx/entries/encapsulation.hpp"

#include "tests/connectx/entries/bits.hpp"
#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {

namespace {

constexpr std::uint16_t customer_tag = 0x8100, service_tag = 0x88a8, ipv4_type = 0x0800, ipv6_type = 0x86dd;
constexpr std::uint8_t udp = 17;

void store(std::uint8_t* at, std::size_t value) {
    at[0] = static_cast<std::uint8_t>(value >> 8);
    at[1] = static_cast<std::uint8_t>(value);
}

void sum_ipv4(std::uint8_t* header, std::size_t size) {
    store(header + 10, 0);
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < size; i += 2) sum += load16(header + i);
    sum = (sum >> 16) + (sum & 0xFFFF);
    sum += sum >> 16;
    store(header + 10, ~sum & 0xFFFF);
}

}  // namespace

void encapsulate(std::span<const std::uint8_t> headers, Packet& packet) {
    auto& bytes = packet.bytes;
    bytes.insert(bytes.begin(), headers.begin(), headers.end());
    const auto need = [&](std::size_t size) {
        if (headers.size() < size) throw Stopped("a reformat with half a header");
    };
    std::size_t type = 12;
    need(type + 2);
    for (; load16(&bytes[type]) == customer_tag || load16(&bytes[type]) == service_tag; type += 4) need(type + 6);
    const std::size_t l3 = type + 2;
    std::size_t l4 = 0;
    std::uint8_t protocol = 0;
    switch (load16(&bytes[type])) {
        case ipv4_type:
            need(l3 + 20);
            l4 = l3 + (bytes[l3] & 0xFU) * 4;
            need(l4);
            protocol = bytes[l3 + 9];
            store(&bytes[l3 + 2], bytes.size() - l3);
            sum_ipv4(&bytes[l3], l4 - l3);
            break;
        case ipv6_type:
            l4 = l3 + 40;
            need(l4);
            protocol = bytes[l3 + 6];
            store(&bytes[l3 + 4], bytes.size() - l4);
            break;
        default: throw Stopped("a reformat with another header than IP");
    }
    if (protocol != udp) return;
    need(l4 + 8);
    store(&bytes[l4 + 4], bytes.size() - l4);
    store(&bytes[l4 + 6], 0);
}

}  // namespace ovsdr::connectx::entries
