// Any 64-bit words as a modify-header list, applied to any bytes as a frame: the frame keeps its size, nothing outside
// of it is touched, and a list that edits no header leaves it as it was.
#include "datapath/steering/edit.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "datapath/steering/parser.hpp"
#include "tests/fuzz/check.hpp"

using namespace ovsdr::soft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzedDataProvider input(data, size);
    const auto domain = input.PickValueInArray({DomainType::nic_rx, DomainType::nic_tx, DomainType::fdb});
    std::vector<std::uint64_t> commands(input.ConsumeIntegralInRange<std::size_t>(0, 16));
    for (std::uint64_t& command : commands) {
        // Known commands and near fields more often than not.
        const std::uint64_t any = input.ConsumeIntegral<std::uint64_t>();
        const std::uint64_t kind = input.ConsumeIntegralInRange<std::uint64_t>(0, 4);
        const std::uint64_t near = (any & 0x00ff'ffff'ffff'ffff) | kind << 60;
        command = __builtin_bswap64(kind == 4 ? any : near & 0xf07f'ffff'ffff'ffff);
    }
    std::shared_ptr<const EditList> list;
    const int result = EditList::compile(domain, commands, list);
    FUZZ_CHECK(result == 0 || result == EINVAL || result == ENOTSUP || result == EOPNOTSUPP);
    if (result != 0) return 0;

    const auto bytes = input.ConsumeRemainingBytes<std::uint8_t>();
    const auto length = static_cast<std::uint32_t>(std::min<std::size_t>(bytes.size(), 1514));
    const auto frame = std::make_unique<std::uint8_t[]>(length);
    std::copy_n(bytes.begin(), length, frame.get());
    const auto key = std::make_unique<Key>();
    std::memset(static_cast<void*>(key.get()), 0x00, sizeof(Key));
    if (!parse(frame.get(), length, *key)) return 0;
    list->apply_registers(*key, frame.get(), length);
    list->apply(frame.get(), length, *key);
    if (!list->edits_headers()) FUZZ_CHECK(std::equal(frame.get(), frame.get() + length, bytes.begin()));
    return 0;
}
