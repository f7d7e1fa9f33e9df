// The handshake: messages come back as they were, in pieces of any size, and nothing else is a message.
#include "offload/mirror/wire/handshake.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace ovsdr::mirror {
namespace {

using Bytes = std::vector<std::byte>;

const Endpoint endpoint{.gid = {0xfe, 0x80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14},
                        .qpn = 0xABCDEF,
                        .psn = 0xFFFFFF,
                        .mtu = IBV_MTU_4096};
const Hello hello{.session = 0x1234567890ABCDEF,
                  .oldest = 77,
                  .application_tag = 0xBEEF,
                  .geometry = {.segment_size = 65536, .slots = 64, .signature = {SignatureType::crc64, 512}},
                  .endpoint = endpoint,
                  .mirror = "stor0",
                  .interfaces = {{"vm1", 9018}, {"vm2", 65535}}};
const Accept accepted{.next = 78, .durability = Durability::synced, .endpoint = endpoint, .keys = {1, 0xFFFFFFFF, 3}};
const std::vector<Message> examples{hello,
                                    accepted,
                                    Refuse{RefuseReason::busy, "another session writes this file"},
                                    Progress{0xFFFFFFFFFFFFFFFF},
                                    Bad{5, BadKind::reference_tag, 4096, 6, 7},
                                    Finished{99},
                                    Wait{300, 1 << 30}};

/// All messages of `bytes`, handed over in pieces; a Refuse in the end where they are wrong.
std::vector<Message> read_all(const Bytes& bytes, std::size_t piece) {
    MessageReader reader;
    std::vector<Message> messages;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
        std::span<const std::byte> part(bytes.data() + at, std::min(piece, bytes.size() - at));
        while (!part.empty()) {
            auto message = reader.read(part);
            if (!message) {
                messages.emplace_back(message.error());
                return messages;
            }
            if (!*message) break;
            messages.push_back(std::move(**message));
        }
    }
    return messages;
}

/// What a Hello that somebody has changed is refused with; malformed and empty where it is not.
Refuse refusal(const std::function<void(Hello&)>& change) {
    Hello changed = hello;
    change(changed);
    const auto all = read_all(encode(changed), 1 << 20);
    if (all.size() != 1 || !std::holds_alternative<Refuse>(all[0])) return {};
    return std::get<Refuse>(all[0]);
}

TEST(MirrorHandshake, MessagesComeBackInPiecesOfAnySize) {
    Bytes all;
    for (const Message& message : examples) {
        const Bytes one = encode(message);
        all.insert(all.end(), one.begin(), one.end());
    }
    for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{12}, std::size_t{64}, all.size()}) {
        EXPECT_EQ(read_all(all, piece), examples) << piece;
    }
}

TEST(MirrorHandshake, AMissingOrSurplusByteIsRefused) {
    for (const Message& message : examples) {
        const Bytes whole = encode(message);
        const auto type = static_cast<std::uint16_t>(message.index() + 1);
        const auto payload = std::span(whole).subspan(frame_header_size);
        EXPECT_EQ(decode(type, payload).value(), message);
        for (std::size_t size = 0; size < payload.size(); ++size) {
            EXPECT_FALSE(decode(type, payload.first(size))) << message.index() << ", " << size << " bytes";
        }
        Bytes more(payload.begin(), payload.end());
        more.push_back({});
        EXPECT_FALSE(decode(type, more)) << message.index();
    }
    EXPECT_FALSE(decode(0, {}));
    EXPECT_FALSE(decode(8, {}));
}

TEST(MirrorHandshake, OtherProtocolsVersionsAndSizesAreRefusedAtOnce) {
    const auto changed = [](std::size_t at, unsigned value) {
        Bytes bytes = encode(hello);
        bytes[at] = static_cast<std::byte>(value);
        bytes.resize(frame_header_size);   // the header is enough
        const auto all = read_all(bytes, 1);
        return all.size() == 1 ? std::get<Refuse>(all[0]) : Refuse{};
    };
    EXPECT_EQ(changed(0, 'G').reason, RefuseReason::malformed);
    EXPECT_EQ(changed(4, 2).reason, RefuseReason::version);
    EXPECT_NE(changed(4, 2).detail.find("version 2"), std::string::npos);
    EXPECT_EQ(changed(10, 1).reason, RefuseReason::malformed) << "64 KiB";
    EXPECT_EQ(changed(11, 0xFF).reason, RefuseReason::malformed) << "4 GiB";
}

TEST(MirrorHandshake, ErrorsStay) {
    MessageReader reader;
    const Bytes nonsense(frame_header_size, std::byte{'x'}), good = encode(hello);
    std::span<const std::byte> part(nonsense);
    EXPECT_FALSE(reader.read(part));
    part = good;
    EXPECT_FALSE(reader.read(part));
}

TEST(MirrorHandshake, NumbersThatSomebodyComputesWithAreChecked) {
    EXPECT_EQ(refusal([](Hello&) {}), Refuse{}) << "the example is good";
    EXPECT_EQ(refusal([](Hello& h) { h.geometry.segment_size = 65537; }).reason, RefuseReason::geometry);
    EXPECT_EQ(refusal([](Hello& h) { h.geometry.slots = 0; }).reason, RefuseReason::geometry);
    EXPECT_EQ(refusal([](Hello& h) { h.geometry.signature.block_size = 0; }).reason, RefuseReason::geometry);
    for (const auto& change : std::vector<std::function<void(Hello&)>>{
             [](Hello& h) { h.oldest = 1ull << 62; },
             [](Hello& h) { h.session = 0; }, [](Hello& h) { h.endpoint.qpn = 1 << 24; },
             [](Hello& h) { h.endpoint.psn = 1 << 24; }, [](Hello& h) { h.endpoint.mtu = static_cast<ibv_mtu>(0); },
             [](Hello& h) { h.endpoint.mtu = static_cast<ibv_mtu>(6); }, [](Hello& h) { h.mirror.clear(); },
             [](Hello& h) { h.mirror.assign(65, 'x'); }, [](Hello& h) { h.mirror = "a\nb"; },
             [](Hello& h) { h.mirror = "a\x7f"; }, [](Hello& h) { h.interfaces.clear(); },
             [](Hello& h) { h.interfaces.resize(257, {"x", 1}); },
             [](Hello& h) { h.interfaces[0].name = "\x1b[2J"; }}) {
        EXPECT_EQ(refusal(change).reason, RefuseReason::malformed);
        EXPECT_NE(refusal(change).detail, "");
    }
    const auto refused = [](const Message& message) {
        return std::holds_alternative<Refuse>(read_all(encode(message), 1 << 20).at(0));
    };
    Accept wrong = accepted;
    wrong.durability = static_cast<Durability>(0);
    EXPECT_TRUE(refused(wrong));
    wrong = accepted;
    wrong.next = ~std::uint64_t{0};
    EXPECT_TRUE(refused(wrong));
    wrong = accepted;
    wrong.keys.resize(1025);
    EXPECT_TRUE(refused(wrong));
    wrong = accepted;
    wrong.endpoint.qpn = 1 << 24;
    EXPECT_TRUE(refused(wrong));
    EXPECT_TRUE(refused(Bad{1, static_cast<BadKind>(8), 0, 0, 0}));
    EXPECT_TRUE(refused(Bad{1, static_cast<BadKind>(0), 0, 0, 0}));
    EXPECT_FALSE(refused(Wait{0, 0}));
    EXPECT_FALSE(refused(Wait{largest_file, largest_file}));
    EXPECT_TRUE(refused(Wait{1, 0}));
    EXPECT_TRUE(refused(Wait{11, 10}));
    EXPECT_TRUE(refused(Wait{0, largest_file + 1}));
}

TEST(MirrorHandshake, LongReasonsAreCut) {
    const auto all = read_all(encode(Refuse{RefuseReason::device, std::string(1000, 'x')}), 1 << 20);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(std::get<Refuse>(all[0]).detail.size(), longest_reason);
}

TEST(MirrorHandshake, TheLargestMessagesFit) {
    Hello large = hello;
    large.interfaces.assign(most_interfaces, {std::string(longest_name, 'x'), 1});
    large.mirror.assign(longest_name, 'm');
    Accept keys = accepted;
    keys.keys.assign(Geometry::most_slots, 7);
    EXPECT_EQ(read_all(encode(large), 1000), std::vector<Message>{large});
    EXPECT_EQ(read_all(encode(keys), 1000), std::vector<Message>{keys});
}

}  // namespace
}  // namespace ovsdr::mirror
