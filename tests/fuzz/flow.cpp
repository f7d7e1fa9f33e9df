// Any bytes as a flow's key and mask: netlink attributes, as they come from a datapath, or OVS's structure itself. Of a
// mask's bits none is lost: what has no place has a name, and the compiler refuses what has one.
#include <endian.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "offload/dr/compile/compile.hpp"
#include "tests/fuzz/megaflow_check.hpp"
#include "tests/unit/ctrl/ovs_probe.h"
#include "tests/unit/offload/four_ports.hpp"

namespace {

using namespace ovsdr;
using Bytes = std::vector<std::uint8_t>;

unsigned bits_of(const void* bytes, std::size_t size) {
    unsigned bits = 0;
    for (std::size_t i = 0; i < size; ++i) {
        bits += static_cast<unsigned>(std::popcount(static_cast<const std::uint8_t*>(bytes)[i]));
    }
    return bits;
}

unsigned masked_bits(const ovsdr_megaflow& megaflow) {
    return bits_of(&megaflow.mask, sizeof megaflow.mask) + bits_of(&megaflow.tunnel_mask, sizeof megaflow.tunnel_mask);
}

void check(ovsdr_megaflow& megaflow) {
    const ovsdr_names& names = megaflow.unsupported_match;
    for (std::uint64_t left = names.bits; left != 0; left &= left - 1) {
        FUZZ_CHECK(std::strlen(names.names[std::countr_zero(left)]) > 0);
    }
    // All else is as the compiler wants it.
    megaflow.n_actions = 0;
    megaflow.key.in_port = 1;
    megaflow.mask.in_port = megaflow.mask.recirc_id = UINT32_MAX;
    const auto plan = dr::compile(megaflow, dr::test::four_ports(), dr::DeviceCaps{.steering_format = 1});
    FUZZ_CHECK(!plan || names.bits == 0);
    FUZZ_CHECK(plan || !plan.error().obstacles.empty());
}

/// As long as they are, so that nobody reads behind their end; netlink's are aligned.
std::unique_ptr<std::uint8_t[]> copy_of(const Bytes& bytes) {
    std::unique_ptr<std::uint8_t[]> copy(new std::uint8_t[bytes.size()]);
    std::ranges::copy(bytes, copy.get());
    return copy;
}

void read_attributes(FuzzedDataProvider& input) {
    const Bytes key = input.ConsumeBytes<std::uint8_t>(input.ConsumeIntegralInRange<std::size_t>(0, 1024));
    const Bytes mask = input.ConsumeRemainingBytes<std::uint8_t>();
    ovsdr_megaflow megaflow{};
    if (probe_match_attributes(copy_of(key).get(), key.size(), copy_of(mask).get(), mask.size(), &megaflow)) {
        check(megaflow);
    }
}

std::size_t offset_of(std::string_view field) {
    std::size_t offset = 0;
    while (probe_field_name(offset) != field) ++offset;
    return offset;
}

/// A bit that packets must have set is matched or named, whatever else the flow is; one that all have is neither.
void check_one_bit(FuzzedDataProvider& input, Bytes flow) {
    Bytes mask(flow.size());
    const auto at = input.ConsumeIntegralInRange<std::size_t>(0, flow.size() - 1);
    mask[at] = static_cast<std::uint8_t>(1U << input.ConsumeIntegralInRange<unsigned>(0, 7));
    flow[at] |= mask[at];
    ovsdr_megaflow megaflow{};
    probe_match_flow(flow.data(), mask.data(), &megaflow);
    FUZZ_CHECK(megaflow.unsupported_match.bits != 0 || masked_bits(megaflow) == 1 || probe_is_udpif(at, mask[at]));
}

/// Where ICMPv6 is known not to be ND, ND's fields are no obstacle, and so many bits of its type are matched on to know
/// it. Where less is known they are one.
constexpr unsigned bits_against_nd = 2;

bool is_obstacle_of_nd(std::string_view name) {
    return name == "nd_target" || name == "arp_sha" || name == "arp_tha" || name == "tcp_flags"
        || name == "igmp_group_ip4";
}

/// Less of a mask makes no new obstacle.
void check_less(const ovsdr_megaflow& less, const ovsdr_megaflow& whole) {
    const ovsdr_names& names = less.unsupported_match;
    for (std::uint64_t left = names.bits & ~whole.unsupported_match.bits; left != 0; left &= left - 1) {
        FUZZ_CHECK(is_obstacle_of_nd(names.names[std::countr_zero(left)]));
    }
    FUZZ_CHECK(masked_bits(less) <= masked_bits(whole) + bits_against_nd);
}

void read_structure(FuzzedDataProvider& input) {
    static const std::size_t size = probe_flow_size(), eth_type = offset_of("eth_type"), proto = offset_of("nw_proto");
    Bytes flow(size), mask(size, input.ConsumeBool() ? 0xFF : 0);
    const auto type = htobe16(input.PickValueInArray<std::uint16_t>({0x0800, 0x86dd, 0x0806, 0x8847, 0x05ff}));
    std::memcpy(&flow[eth_type], &type, sizeof type);
    flow[proto] = input.PickValueInArray<std::uint8_t>({6, 17, 1, 58, 132});
    for (auto edits = input.ConsumeIntegralInRange<unsigned>(0, 60); edits != 0; --edits) {
        const auto at = input.ConsumeIntegralInRange<std::size_t>(0, size - 1);
        flow[at] = input.ConsumeIntegral<std::uint8_t>();
        mask[at] = input.ConsumeIntegral<std::uint8_t>();
    }
    ovsdr_megaflow whole{}, less{};
    probe_match_flow(flow.data(), mask.data(), &whole);
    FUZZ_CHECK(masked_bits(whole) <= bits_of(mask.data(), size) + bits_against_nd);
    mask[input.ConsumeIntegralInRange<std::size_t>(0, size - 1)] = 0;
    probe_match_flow(flow.data(), mask.data(), &less);
    check_less(less, whole);
    check(whole);
    check(less);
    check_one_bit(input, std::move(flow));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzedDataProvider input(data, size);
    probe_limit_vlans(input.ConsumeIntegralInRange<int>(0, 2));
    if (input.ConsumeBool()) {
        read_attributes(input);
    } else {
        read_structure(input);
    }
    return 0;
}
