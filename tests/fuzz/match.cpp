// Any bytes as match parameters: a mask that is taken has nothing that is matched on beyond what was given, takes its
// own bits as a value, and refuses a value outside.
#include "datapath/steering/match.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "tests/fuzz/check.hpp"

using namespace ovsdr::soft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzedDataProvider input(data, size);
    static constexpr const Profile* profiles[] = {&connectx_5, &connectx_6dx, &connectx_7};
    const MatchSpec spec{.domain = input.PickValueInArray({DomainType::nic_rx, DomainType::nic_tx, DomainType::fdb}),
                         .root = input.ConsumeBool(),
                         .criteria = input.ConsumeIntegral<std::uint8_t>(),
                         .profile = input.PickValueInArray(profiles)};
    const auto bytes =
        input.ConsumeBytes<std::uint8_t>(input.ConsumeIntegralInRange<std::size_t>(0, match_param_size + 8));
    // Exactly as long as it is.
    const std::vector<std::uint8_t> given(bytes.begin(), bytes.end());
    const auto mask = std::make_unique<MatchMask>();
    const int result = make_mask(spec, given, *mask);
    FUZZ_CHECK(result == 0 || result == EINVAL || result == EOPNOTSUPP || result == ENOTSUP);
    if (result != 0) return 0;

    Key value;
    if (make_value(*mask, given, value) == 0) {
        for (std::size_t i = 0; i < sizeof(Key); ++i) {
            FUZZ_CHECK((value.bytes()[i] & ~mask->key.bytes()[i]) == 0);
        }
    }
    const auto rest = input.ConsumeRemainingBytes<std::uint8_t>();
    const int verdict = make_value(*mask, rest, value);
    FUZZ_CHECK(verdict == 0 || verdict == EINVAL || verdict == EOPNOTSUPP);
    if (verdict != 0) return 0;
    for (std::size_t i = 0; i < sizeof(Key); ++i) FUZZ_CHECK((value.bytes()[i] & ~mask->key.bytes()[i]) == 0);
    return 0;
}
