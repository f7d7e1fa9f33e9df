#include "tests/connectx/entries/packet_headers.hpp"

#include <utility>

#include "tests/connectx/entries/bits.hpp"

namespace ovsdr::connectx::entries {

namespace {

using Frame = std::span<const std::uint8_t>;
using Kind = Tunnel::Kind;

constexpr std::uint32_t udp = 17, gre = 47;
constexpr std::uint16_t vxlan_port = 4789, geneve_port = 6081, ethernet_inside = 0x6558;
constexpr std::size_t udp_size = 8, ethernet_size = 14;
constexpr std::uint8_t vni_is_valid = 0x08;
constexpr std::uint16_t gre_checksum = 0x8000, gre_key = 0x2000, gre_sequence = 0x1000;

/// Reads a tunnel's header into the outer fields.
class TunnelParser {
public:
    TunnelParser(Frame frame, HeaderFields& fields, const std::optional<GeneveOption>& option) noexcept
        : frame_(frame.first(fields.offsets().end)), fields_(fields), option_(option) {}

    [[nodiscard]] Tunnel run() noexcept {
        const HeaderOffsets& offsets = fields_.offsets();
        if (offsets.payload == 0 || offsets.end == 0) return tunnel_;
        at_ = offsets.payload;
        if (fields_[Field::protocol] == gre) {
            read_gre();
        } else if (fields_[Field::protocol] == udp && has(udp_size) && half(4) == frame_.size() - at_) {
            at_ += udp_size;
            if (fields_[Field::destination_port] == vxlan_port) read_vxlan();
            if (fields_[Field::destination_port] == geneve_port) read_geneve();
        }
        return tunnel_;
    }

private:
    [[nodiscard]] bool has(std::size_t size) const noexcept { return frame_.size() - at_ >= size; }
    [[nodiscard]] std::uint8_t byte(std::size_t offset) const noexcept { return frame_[at_ + offset]; }
    [[nodiscard]] std::uint16_t half(std::size_t offset) const noexcept { return load16(frame_.data() + at_ + offset); }
    [[nodiscard]] std::uint32_t word(std::size_t offset) const noexcept { return load32(frame_.data() + at_ + offset); }

    void carries(std::size_t header_size, std::uint16_t protocol) noexcept {
        if (protocol == ethernet_inside && has(header_size + ethernet_size)) tunnel_.frame = at_ + header_size;
    }

    void show_words(unsigned words) noexcept {
        if (!has(4 * words)) return;
        fields_.set(Field::tunnel_header_0, word(0));
        if (words > 1) fields_.set(Field::tunnel_header_1, word(4));
        tunnel_.words_known = words;
    }

    void read_vxlan() noexcept {
        constexpr std::size_t size = 8;
        show_words(2);
        if (!has(size) || (byte(0) & vni_is_valid) == 0) return;
        tunnel_.kind = Kind::vxlan;
        fields_.set(Field::vxlan_vni, word(4) >> 8);
        carries(size, ethernet_inside);
    }

    void read_geneve() noexcept {
        constexpr std::size_t fixed = 8;
        show_words(2);
        if (!has(fixed) || byte(0) >> 6 != 0) return;
        const std::size_t words = byte(0) & 0x3FU;
        if (!has(fixed + 4 * words)) return;
        tunnel_.kind = Kind::geneve;
        fields_.set(Field::geneve_options_length, static_cast<std::uint32_t>(words));
        fields_.set(Field::geneve_oam, byte(1) >> 7);
        fields_.set(Field::geneve_protocol, half(2));
        fields_.set(Field::geneve_vni, word(4) >> 8);
        if (option_) read_option(fixed, fixed + 4 * words);
        carries(fixed + 4 * words, half(2));
    }

    void read_option(std::size_t begin, std::size_t end) noexcept {
        constexpr std::size_t head = 4;
        unsigned found = 0;
        std::size_t length = 0;
        for (std::size_t option = begin; option < end; option += head + 4 * length) {
            length = byte(option + 3) & 0x1FU;
            if (option + head + 4 * length > end) return;
            if (half(option) != option_->option_class || byte(option + 2) != option_->type) continue;
            if (length != option_->length || ++found > 1) return;
            fields_.set(Field::geneve_option_data, word(option + head));
        }
        fields_.set(Field::geneve_option_exists, found);
        tunnel_.option_known = true;
    }

    void read_gre() noexcept {
        if (!has(4)) return;
        show_words(1);
        const std::uint16_t flags = half(0);
        if ((flags & ~(gre_checksum | gre_key | gre_sequence)) != 0) return;
        std::size_t size = 4, key = 0;
        if ((flags & gre_checksum) != 0) size += 4;
        if ((flags & gre_key) != 0) key = std::exchange(size, size + 4);
        if ((flags & gre_sequence) != 0) size += 4;
        if (!has(size)) return;
        tunnel_.kind = Kind::gre;
        fields_.set(Field::gre_checksum_present, (flags & gre_checksum) != 0 ? 1 : 0);
        fields_.set(Field::gre_key_present, (flags & gre_key) != 0 ? 1 : 0);
        fields_.set(Field::gre_sequence_present, (flags & gre_sequence) != 0 ? 1 : 0);
        fields_.set(Field::gre_protocol, half(2));
        if (key != 0) fields_.set(Field::gre_key, word(key));
        carries(size, half(2));
    }

    Frame frame_;   ///< to the end of the outer IP packet
    std::size_t at_ = 0;
    HeaderFields& fields_;
    const std::optional<GeneveOption>& option_;
    Tunnel tunnel_;
};

/// The tunnel whose header a field is of.
constexpr Kind kind_of(Field field) noexcept {
    if (field == Field::vxlan_vni) return Kind::vxlan;
    if (field >= Field::geneve_vni && field <= Field::geneve_option_exists) return Kind::geneve;
    if (field >= Field::gre_checksum_present && field <= Field::gre_key) return Kind::gre;
    return Kind::none;
}

}  // namespace

void PacketHeaders::parse(const Packet& packet, const std::optional<GeneveOption>& option) noexcept {
    const Frame frame = packet.bytes;
    outer_.parse(frame);
    tunnel_ = packet.side == Side::rx ? TunnelParser(frame, outer_, option).run() : Tunnel{};
    if (tunnel_.frame == 0) return;
    inner_.parse(frame.first(outer_.offsets().end).subspan(tunnel_.frame));
}

bool PacketHeaders::knows(Layer layer, Field field) const noexcept {
    if (layer == Layer::inner) return tunnel_.frame != 0;
    const Kind kind = kind_of(field);
    if (field == Field::tunnel_header_0) return tunnel_.words_known > 0;
    if (field == Field::tunnel_header_1) return tunnel_.words_known > 1;
    if (field == Field::geneve_option_data || field == Field::geneve_option_exists) return tunnel_.option_known;
    return kind == Kind::none || kind == tunnel_.kind;
}

}  // namespace ovsdr::connectx::entries
