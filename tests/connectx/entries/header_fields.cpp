#include "tests/connectx/entries/header_fields.hpp"

#include <algorithm>
#include <iterator>

#include "tests/connectx/entries/bits.hpp"

namespace ovsdr::connectx::entries {

namespace {

constexpr std::uint16_t customer_tag = 0x8100, service_tag = 0x88a8, type_ipv4 = 0x0800, type_ipv6 = 0x86dd;
constexpr std::uint32_t qualifier_service = 1, qualifier_customer = 2, l3_ipv4 = 1, l3_ipv6 = 2, l4_tcp = 1, l4_udp = 2;
constexpr std::uint8_t icmp = 1, tcp = 6, udp = 17, icmpv6 = 58;
constexpr std::uint8_t hop_by_hop = 0, routing = 43, fragment_header = 44, authentication = 51,
                       destination_options = 60;
constexpr std::uint8_t stepped_over[] = {hop_by_hop, routing, fragment_header, authentication, destination_options};

using Frame = std::span<const std::uint8_t>;

}  // namespace

class HeaderParser {
public:
    HeaderParser(Frame frame, HeaderFields& fields) noexcept
        : begin_(frame.data()), rest_(frame), fields_(fields), offsets_(fields.offsets_) {}

    void run() noexcept {
        if (rest_.size() < 14) return;
        ethernet();
        const std::uint16_t type = tags();
        fields_.set(Field::ethertype, type);
        offsets_.ethertype = here();
        advance(2);
        if (type == type_ipv4) ipv4();
        if (type == type_ipv6) ipv6();
    }

private:
    [[nodiscard]] std::uint8_t at(std::size_t offset) const noexcept { return rest_[offset]; }
    [[nodiscard]] std::uint32_t word(std::size_t offset) const noexcept { return load32(rest_.data() + offset); }
    [[nodiscard]] std::uint16_t half(std::size_t offset) const noexcept { return load16(rest_.data() + offset); }
    [[nodiscard]] std::size_t here() const noexcept { return static_cast<std::size_t>(rest_.data() - begin_); }
    void advance(std::size_t size) noexcept { rest_ = rest_.subspan(size); }

    void ethernet() noexcept {
        fields_.set(Field::dmac_47_16, word(0));
        fields_.set(Field::dmac_15_0, half(4));
        fields_.set(Field::smac_47_16, word(6));
        fields_.set(Field::smac_47_32, half(6));
        fields_.set(Field::smac_31_0, word(8));
        fields_.set(Field::smac_15_0, half(10));
        advance(12);
    }

    /// Stands at the ethertype behind the tags then, which it returns.
    std::uint16_t tags() noexcept {
        struct TagFields {
            Field qualifier, priority, cfi, vid;
        };
        constexpr TagFields tag_fields[] = {
            {Field::first_qualifier, Field::first_priority, Field::first_cfi, Field::first_vid},
            {Field::second_qualifier, Field::second_priority, Field::second_cfi, Field::second_vid},
        };
        for (const TagFields& tag : tag_fields) {
            const std::uint16_t type = half(0);
            if ((type != customer_tag && type != service_tag) || rest_.size() < 6) break;
            const std::uint16_t tci = half(2);
            if (offsets_.tag == 0) offsets_.tag = here();
            fields_.set(tag.qualifier, type == customer_tag ? qualifier_customer : qualifier_service);
            fields_.set(tag.priority, tci >> 13);
            fields_.set(tag.cfi, tci >> 12 & 1);
            fields_.set(tag.vid, tci & 0xFFF);
            advance(4);
        }
        return half(0);
    }

    void ipv4() noexcept {
        if (rest_.size() < 20 || at(0) >> 4 != 4) return;
        const std::size_t header = (at(0) & 15U) * 4U, total = half(2);
        if (header < 20 || total < header || total > rest_.size()) return;
        const bool fragment = (half(6) & 0x3FFF) != 0;
        offsets_.ipv4 = here();
        fields_.set(Field::l3_type, l3_ipv4);
        fields_.set(Field::ip_version, 4);
        fields_.set(Field::ipv4_ihl, at(0) & 15U);
        traffic_class(at(1));
        fields_.set(Field::fragment, fragment ? 1 : 0);
        fields_.set(Field::ipv4_ttl, at(8));
        fields_.set(Field::ip_ttl, at(8));
        fields_.set(Field::protocol, at(9));
        fields_.set(Field::ipv4_source, word(12));
        fields_.set(Field::ipv4_destination, word(16));
        const std::uint8_t protocol = at(9);
        rest_ = rest_.subspan(header, total - header);
        offsets_.end = here() + rest_.size();
        if (!fragment) behind_ip(protocol, icmp);
    }

    void ipv6() noexcept {
        if (rest_.size() < 40 || at(0) >> 4 != 6) return;
        offsets_.ipv6 = here();
        fields_.set(Field::l3_type, l3_ipv6);
        fields_.set(Field::ip_version, 6);
        traffic_class(static_cast<std::uint8_t>(half(0) >> 4));
        fields_.set(Field::ipv6_flow_label, word(0) & 0xFFFFF);
        fields_.set(Field::ipv6_hop_limit, at(7));
        fields_.set(Field::ip_ttl, at(7));
        constexpr Field addresses[] = {
            Field::ipv6_source_127_96,      Field::ipv6_source_95_64,      Field::ipv6_source_63_32,
            Field::ipv6_source_31_0,        Field::ipv6_destination_127_96, Field::ipv6_destination_95_64,
            Field::ipv6_destination_63_32, Field::ipv6_destination_31_0};
        for (std::size_t i = 0; i < std::size(addresses); ++i) fields_.set(addresses[i], word(8 + 4 * i));
        const std::size_t payload = half(4);
        std::uint8_t protocol = at(6);
        advance(40);
        if (payload <= rest_.size()) offsets_.end = here() + payload;
        rest_ = rest_.first(std::min(rest_.size(), payload));
        const bool l4_follows = extension_headers(protocol);
        fields_.set(Field::protocol, protocol);
        if (l4_follows) behind_ip(protocol, icmpv6);
    }

    /// Steps over them. False: what follows is a fragment's, or the chain is cut short.
    bool extension_headers(std::uint8_t& protocol) noexcept {
        bool fragment = false;
        while (std::ranges::find(stepped_over, protocol) != std::end(stepped_over)) {
            if (rest_.size() < 8) return false;
            std::size_t size = (at(1) + 1U) * 8U;
            if (protocol == fragment_header) size = 8;
            if (protocol == authentication) size = (at(1) + 2U) * 4U;
            if (rest_.size() < size) return false;
            if (protocol == fragment_header) {
                const bool later = half(2) >> 3 != 0, more = (half(2) & 1) != 0;
                fragment = fragment || later || more;
                if (fragment) fields_.set(Field::fragment, 1);
                if (later) return false;
            }
            if (protocol == routing && at(3) != 0) offsets_.routed = true;
            protocol = at(0);
            advance(size);
        }
        return !fragment;
    }

    void traffic_class(std::uint8_t octet) noexcept {
        fields_.set(Field::dscp, octet >> 2);
        fields_.set(Field::ecn, octet & 3U);
    }

    void behind_ip(std::uint8_t protocol, std::uint8_t icmp_protocol) noexcept {
        offsets_.payload = here();
        if ((protocol == tcp && rest_.size() >= 20) || (protocol == udp && rest_.size() >= 8)) {
            offsets_.transport = here();
            fields_.set(Field::source_port, half(0));
            fields_.set(Field::destination_port, half(2));
            fields_.set(Field::l4_type, protocol == tcp ? l4_tcp : l4_udp);
            if (protocol == udp) return;
            fields_.set(Field::tcp_sequence, word(4));
            fields_.set(Field::tcp_acknowledgement, word(8));
            fields_.set(Field::tcp_flags, half(12) & 0x1FFU);
        } else if (protocol == icmp_protocol && rest_.size() >= 8) {
            offsets_.transport = here();
            fields_.set(Field::icmp_type, at(0));
            fields_.set(Field::icmp_code, at(1));
            fields_.set(Field::icmp_data, word(4));
        }
    }

    const std::uint8_t* begin_;
    Frame rest_;
    HeaderFields& fields_;
    HeaderOffsets& offsets_;
};

void HeaderFields::parse(Frame frame) noexcept {
    std::fill_n(values_.begin(), static_cast<std::size_t>(Field::source_gvmi), 0);
    offsets_ = {};
    HeaderParser(frame, *this).run();
}

void HeaderFields::take_metadata(const Packet& packet) noexcept {
    set(Field::source_gvmi, packet.gvmi);
    set(Field::source_queue, packet.queue);
    set(Field::looped_back, packet.looped_back ? 1 : 0);
    set(Field::reg_a, packet.reg_a);
    for (std::size_t i = 0; i < packet.reg_c.size(); ++i) {
        values_[static_cast<std::size_t>(Field::reg_c_0) + i] = packet.reg_c[i];
    }
}

}  // namespace ovsdr::connectx::entries
