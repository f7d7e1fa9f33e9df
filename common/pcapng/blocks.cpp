#include "common/pcapng/blocks.hpp"

#include <algorithm>
#include <cstring>

namespace ovsdr::pcapng {
namespace {

constexpr std::uint32_t section_header_block = 0x0a0d0d0a;
constexpr std::uint32_t interface_description_block = 1;
constexpr std::uint32_t interface_statistics_block = 5;
constexpr std::uint32_t enhanced_packet_block = 6;
constexpr std::uint32_t byte_order_magic = 0x1a2b3c4d;
constexpr std::uint16_t link_type_ethernet = 1;
constexpr std::uint8_t nanoseconds = 9;  // if_tsresol: 10^-9 s
constexpr std::uint8_t filter_is_text = 0;
constexpr std::size_t longest_option = 65535;

constexpr std::uint16_t end_of_options = 0;
constexpr std::uint16_t shb_userappl = 4;
constexpr std::uint16_t if_name = 2, if_description = 3, if_tsresol = 9, if_filter = 11;
constexpr std::uint16_t epb_flags = 2;
constexpr std::uint16_t isb_starttime = 2, isb_endtime = 3, isb_ifrecv = 4, isb_ifdrop = 5, isb_filteraccept = 6,
                        isb_usrdeliv = 8;

/// Counts a block's bytes and, where it was given room, writes them. Everything stands at multiples of 4.
class Block {
public:
    Block(std::byte* at, std::uint32_t type, std::size_t size) noexcept : begin_(at), at_(at) {
        number(type);
        number(static_cast<std::uint32_t>(size));
    }

    template <typename T>
    void number(T value) noexcept {
        bytes(&value, sizeof value);
    }
    /// Times go as two words, the upper one first.
    void time(std::uint64_t value) noexcept {
        number(static_cast<std::uint32_t>(value >> 32));
        number(static_cast<std::uint32_t>(value));
    }
    void bytes(const void* from, std::size_t size) noexcept {
        if (begin_ != nullptr && size > 0) {
            std::memcpy(at_, from, size);
            at_ += size;
        }
        size_ += size;
    }
    void pad() noexcept {
        constexpr std::uint32_t zeros = 0;
        bytes(&zeros, -size_ & 3);
    }

    template <typename T>
    void option(std::uint16_t code, T value) noexcept {
        option_header(code, sizeof value);
        number(value);
        pad();
    }
    void time_option(std::uint16_t code, std::uint64_t value) noexcept {
        option_header(code, sizeof value);
        time(value);
    }
    void text(std::uint16_t code, std::string_view value) noexcept {
        if (value.empty()) return;
        value = value.substr(0, longest_option);
        option_header(code, value.size());
        bytes(value.data(), value.size());
        pad();
    }
    void filter(std::string_view value) noexcept {
        if (value.empty()) return;
        value = value.substr(0, longest_option - 1);
        option_header(if_filter, value.size() + 1);
        number(filter_is_text);
        bytes(value.data(), value.size());
        pad();
    }
    void finish_options() noexcept { option_header(end_of_options, 0); }

    /// The size stands at both ends, so that files can be read backwards.
    std::size_t finish() noexcept {
        number(static_cast<std::uint32_t>(size_ + sizeof(std::uint32_t)));
        return size_;
    }

private:
    void option_header(std::uint16_t code, std::size_t size) noexcept {
        number(code);
        number(static_cast<std::uint16_t>(size));
    }

    std::byte* begin_;
    std::byte* at_;
    std::size_t size_ = 0;
};

std::size_t lay_out(std::byte* at, std::size_t size, const SectionHeader& header) noexcept {
    Block block(at, section_header_block, size);
    block.number(byte_order_magic);
    block.number(std::uint16_t{1});    // version 1.0
    block.number(std::uint16_t{0});
    block.number(~std::uint64_t{0});   // the section's size: not told, it ends with the file
    block.text(shb_userappl, header.application);
    block.finish_options();
    return block.finish();
}

std::size_t lay_out(std::byte* at, std::size_t size, const InterfaceDescription& interface) noexcept {
    Block block(at, interface_description_block, size);
    block.number(link_type_ethernet);
    block.number(std::uint16_t{0});
    block.number(interface.snap_length);
    block.text(if_name, interface.name);
    block.text(if_description, interface.description);
    block.option(if_tsresol, nanoseconds);
    block.filter(interface.filter);
    block.finish_options();
    return block.finish();
}

std::size_t lay_out(std::byte* at, std::size_t size, const EnhancedPacket& packet) noexcept {
    Block block(at, enhanced_packet_block, size);
    block.number(packet.interface);
    block.time(packet.time);
    block.number(static_cast<std::uint32_t>(packet.bytes.size()));
    block.number(packet.original_size);
    block.bytes(packet.bytes.data(), packet.bytes.size());
    block.pad();
    block.option(epb_flags, static_cast<std::uint32_t>(packet.direction));
    block.finish_options();
    return block.finish();
}

std::size_t lay_out(std::byte* at, std::size_t size, const InterfaceStatistics& statistics) noexcept {
    Block block(at, interface_statistics_block, size);
    block.number(statistics.interface);
    block.time(statistics.end);
    block.time_option(isb_starttime, statistics.start);
    block.time_option(isb_endtime, statistics.end);
    block.option(isb_ifrecv, statistics.received);
    block.option(isb_ifdrop, statistics.dropped);
    block.option(isb_filteraccept, statistics.accepted);
    block.option(isb_usrdeliv, statistics.delivered);
    block.finish_options();
    return block.finish();
}

template <typename T>
std::size_t write_if_it_fits(std::span<std::byte> into, const T& block) noexcept {
    const std::size_t size = lay_out(nullptr, 0, block);
    return size <= into.size() ? lay_out(into.data(), size, block) : size;
}

}  // namespace

std::size_t write(std::span<std::byte> into, const SectionHeader& block) noexcept {
    return write_if_it_fits(into, block);
}
std::size_t write(std::span<std::byte> into, const InterfaceDescription& block) noexcept {
    return write_if_it_fits(into, block);
}
std::size_t write(std::span<std::byte> into, const EnhancedPacket& block) noexcept {
    return write_if_it_fits(into, block);
}
std::size_t write(std::span<std::byte> into, const InterfaceStatistics& block) noexcept {
    return write_if_it_fits(into, block);
}

}  // namespace ovsdr::pcapng
