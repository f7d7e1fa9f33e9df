// ALLOC_FLOW_COUNTER and QUERY_FLOW_COUNTER: bulks of counters, whose values come in the answer or go to memory.
#include <endian.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "datapath/rdma/devx/devx.hpp"
#include "datapath/rdma/devx/devx_object.hpp"
#include "datapath/rdma/memory/transfer.hpp"
#include "datapath/rdma/mkey/mkey.hpp"
#include "datapath/steering/room.hpp"

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
    const Transfer::Spec spec{.memory = memory,
                              .domain = domain_of(memory, key),
                              .access = IBV_ACCESS_LOCAL_WRITE,
                              .remote = false,
                              .stripe = 0};
    if (spec.domain == nullptr) return Status::bad_res;
    const auto transfer = std::make_unique<Transfer>();
    const bool written = transfer->begin(spec, {&piece, 1}) == Transfer::Fault::none &&
                         transfer->scatter(0, values) == Transfer::Fault::none;
    return written ? Status::ok : Status::bad_res;
}

/// Packets and bytes of counters `first` and up, as many as there is room for in `values`.
void write_values(CounterBulk& bulk, unsigned first, Output values, bool clear) {
    std::array<CounterBulk::Value, 128> read;
    const auto length = static_cast<unsigned>(values.size() / fc::value_size);
    for (unsigned done = 0; done < length;) {
        const std::span some(read.data(), std::min<std::size_t>(read.size(), length - done));
        bulk.read(first + done, some);
        for (CounterBulk::Value& value : some) {
            if (clear) value = bulk.read_and_clear(first + done);
            const std::array<std::uint64_t, 2> wire{htobe64(value.packets), htobe64(value.bytes)};
            static_assert(sizeof wire == fc::value_size);
            std::memcpy(values.data() + done * sizeof wire, wire.data(), sizeof wire);
            ++done;
        }
    }
}

}  // namespace

Status alloc_flow_counter(mlx5dv_devx_obj& object, Input in, Output out) {
    const unsigned length = bulk_length(in);
    if (length == 0) return Status::bad_param;
    Room::Share room = room_of(object.state.device().steering()).take(soft::Resource::flow_counters, length);
    if (!room) return Status::lim_err;
    auto bulk = std::make_unique<CounterBulk>(length, object.state.device().workers());
    // Counters are there until the last packet has counted, like what they count into.
    object.counters = {bulk.release(), [room = std::move(room)](CounterBulk* gone) { delete gone; }};
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
    const std::size_t size = length * std::size_t{fc::value_size};
    if (!to_memory && out.size() < fc::statistics + size) return Status::bad_outp_len;
    std::vector<std::byte> dumped(to_memory ? size : 0);
    const Output values = to_memory ? Output(dumped) : out.subspan(fc::statistics, size);
    write_values(*object.counters, first, values, clear);
    return to_memory ? dump(object.state.memory(), in, values) : Status::ok;
}

}  // namespace ovsdr::soft::devx
