// ALLOC_FLOW_COUNTER and QUERY_FLOW_COUNTER: bulks of counters, whose values come in the answer or go to memory.
#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <vector>

#include "datapath/rdma/devx/devx.hpp"
#include "datapath/rdma/devx/devx_object.hpp"
#include "datapath/rdma/memory/transfer.hpp"
#include "datapath/rdma/mkey/mkey.hpp"

namespace ovsdr::soft::devx {

using prm::Status;

namespace fc = prm::flow_counter;

namespace {

/// Counters of a bulk that the input asks for; 0: no bulk of that size can be had.
[[nodiscard]] unsigned bulk_length(Input in) {
    const auto units = static_cast<unsigned>(prm::get(in, fc::bulk));
    const auto log_size = static_cast<unsigned>(prm::get(in, fc::bulk_log_size));
    if (units && log_size) return 0;
    if (log_size) return log_size <= 14 ? 1u << log_size : 0;
    if (units == 0) return 1;
    return std::has_single_bit(units) ? units * fc::bulk_unit : 0;
}

/// Of an indirect key, or of a region's; nullptr where there is no such key.
[[nodiscard]] const void* domain_of(MemoryTable& memory, std::uint32_t key) {
    const MemoryTable::Reading reading(memory, 0);
    if (const Mkey* const mkey = memory.mkey(key)) return mkey->spec().domain;
    MemoryRegion region{};
    return memory.find(key >> 8, region) && region.key == key ? region.domain : nullptr;
}

/// Writes through the key that the command names, which has to grant it.
[[nodiscard]] Status dump(MemoryTable& memory, Input in, Output values) {
    const auto key = static_cast<std::uint32_t>(prm::get(in, fc::mkey));
    const ibv_sge piece{prm::get(in, fc::address), static_cast<std::uint32_t>(values.size()), key};
    const Transfer::Spec spec{
        .memory = memory, .domain = domain_of(memory, key), .access = IBV_ACCESS_LOCAL_WRITE, .remote = false, .stripe = 0};
    if (spec.domain == nullptr) return Status::bad_res;
    const auto transfer = std::make_unique<Transfer>();
    const bool written = transfer->begin(spec, {&piece, 1}) == Transfer::Fault::none &&
                         transfer->scatter(0, values) == Transfer::Fault::none;
    return written ? Status::ok : Status::bad_res;
}

}  // namespace

Status alloc_flow_counter(mlx5dv_devx_obj& object, Input in, Output out) {
    const unsigned length = bulk_length(in);
    if (length == 0) return Status::bad_param;
    object.counters = std::make_shared<CounterBulk>(length);
    object.number = object.state.counter_ids().take_run(length);
    prm::set(out, fc::id_in_alloc_out, object.number);
    return Status::ok;
}

Status query_flow_counter(mlx5dv_devx_obj& object, Input in, Output out) {
    const auto first = static_cast<unsigned>(prm::get(in, fc::id)) - object.number;
    const auto asked = static_cast<unsigned>(prm::get(in, fc::length));
    const unsigned length = std::max(asked, 1u);
    const bool to_memory = prm::get(in, fc::dump_to_memory);
    const bool clear = prm::get(in, fc::clear);
    // A dump that fails has cleared nothing: what is to be cleared comes in the answer.
    if (to_memory && clear) return Status::bad_param;
    if (asked > 1 && (object.number + first) % 4 != 0) return Status::bad_param;
    if (length > object.counters->length() - first) return Status::bad_param;
    std::vector<std::byte> values(length * std::size_t{fc::value_size});
    if (!to_memory && out.size() < fc::statistics + values.size()) return Status::bad_outp_len;
    for (unsigned i = 0; i < length; ++i) {
        CounterBulk& bulk = *object.counters;
        const CounterBulk::Value value = clear ? bulk.read_and_clear(first + i) : bulk.read(first + i);
        const std::uint32_t at = i * fc::value_size * 8;
        prm::set(values, {at, 64}, value.packets);
        prm::set(values, {at + 64, 64}, value.bytes);
    }
    if (to_memory) return dump(object.state.memory(), in, values);
    std::copy(values.begin(), values.end(), out.begin() + fc::statistics);
    return Status::ok;
}

}  // namespace ovsdr::soft::devx
