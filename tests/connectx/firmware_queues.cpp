// Queues that a process has made by commands: the queue pairs of libmlx5, by which it writes entries, and send queues
// with completion queues of their own, by which ASO objects are written.
#include <fmt/format.h>

#include "tests/connectx/firmware.hpp"
#include "tests/connectx/firmware_tables.hpp"
#include "tests/connectx/refused.hpp"

namespace ovsdr::connectx {
namespace {

constexpr std::uint64_t block_size = 64;   // of all rings

/// Bytes of memory that the process has registered. Throws BadStatus.
std::uint8_t* memory_at(const HostMemory& host, std::uint64_t id, std::uint64_t offset, std::uint64_t size) {
    const auto found = host.user_memory.find(static_cast<std::uint32_t>(id));
    if (found == host.user_memory.end()) throw BadStatus{BadStatus::bad_resource, fmt::format("no umem {:#x}", id)};
    if (offset > found->second.size || size > found->second.size - offset)
        throw BadStatus{BadStatus::bad_parameter, "a ring or a doorbell record does not fit"};
    return found->second.memory + offset;
}

constexpr std::uint64_t record_size = 8;

}   // namespace

void Firmware::complete_queue_pair(FirmwareObject& object) {
    using namespace layout;
    const Bytes in = object.command;
    constexpr Field context = create_qp_in::qpc;
    const auto completions = host_.completion_queues.find(static_cast<std::uint32_t>(get(in, context / qpc::cqn_snd)));
    if (completions == host_.completion_queues.end())
        throw BadStatus{BadStatus::bad_resource, "no such completion queue"};
    // The receive ring comes first, then the send ring.
    const std::uint64_t receive_size =
        1ULL << (get(in, context / qpc::log_rq_size) + get(in, context / qpc::log_rq_stride) + 4);
    const std::uint64_t blocks = 1ULL << get(in, context / qpc::log_sq_size);
    std::uint8_t* const ring =
        memory_at(host_, get(in, create_qp_in::wq_umem_id), 0, receive_size + blocks * block_size);
    std::uint8_t* const record = memory_at(host_, get(in, context / qpc::dbr_umem_id), 0, record_size);
    object.completions = completions->second;
    object.send_queue = std::make_unique<SendQueue>(
        object.name.id, SendQueue::Spec{.service = SendQueue::Service::loopback,
                                        .user_index = static_cast<std::uint32_t>(get(in, context / qpc::user_index)),
                                        .protection_domain = static_cast<std::uint32_t>(get(in, context / qpc::pd)),
                                        .ring = ring + receive_size,
                                        .length = static_cast<std::uint32_t>(blocks),
                                        .doorbell_record = reinterpret_cast<std::uint32_t*>(record) + 1});
}

void Firmware::complete_completion_queue(FirmwareObject& object) const {
    using namespace layout;
    const Bytes in = object.command;
    constexpr Field context = create_cq_in::cqc;
    if (get(in, create_cq_in::cq_umem_valid) == 0 || get(in, context / cqc::dbr_umem_valid) == 0)
        throw NotEmulated{"a completion queue in memory that is no umem"};
    if (get(in, context / cqc::cqe_sz) != 0) throw NotEmulated{"completions of another size than 64 bytes"};
    const std::uint64_t length = 1ULL << get(in, context / cqc::log_cq_size);
    std::uint8_t* const ring = memory_at(host_, get(in, create_cq_in::cq_umem_id),
                                         get(in, create_cq_in::cq_umem_offset), length * block_size);
    std::uint8_t* const record =
        memory_at(host_, get(in, context / cqc::dbr_umem_id), get(in, context / cqc::dbr_addr), record_size);
    object.completions = std::make_shared<CompletionQueue>(
        object.name.id, CompletionQueue::Spec{.buffer = ring,
                                              .doorbell_record = reinterpret_cast<std::uint32_t*>(record),
                                              .length = static_cast<std::uint32_t>(length),
                                              .entry_size = block_size,
                                              .user_handle = 0,
                                              .channel = nullptr});
}

void Firmware::complete_send_queue(FirmwareObject& object) {
    using namespace layout;
    const Bytes in = object.command;
    constexpr Field context = create_sq_in::ctx, ring_context = context / sqc::wq;
    constexpr std::uint64_t cyclic = 1, log_block_size = 6;
    if (get(in, ring_context / wq::wq_umem_valid) == 0 || get(in, ring_context / wq::dbr_umem_valid) == 0)
        throw NotEmulated{"a send queue in memory that is no umem"};
    if (get(in, ring_context / wq::wq_type) != cyclic || get(in, ring_context / wq::log_wq_stride) != log_block_size)
        throw BadStatus{BadStatus::bad_parameter, "a send queue that is no ring of 64 byte blocks"};
    const ObjectName completions{ObjectKind::completion_queue,
                                 static_cast<std::uint32_t>(get(in, context / sqc::cqn))};
    object.completions = existing(completions).completions;
    use(object, completions);
    const std::uint64_t blocks = 1ULL << get(in, ring_context / wq::log_wq_sz);
    std::uint8_t* const ring = memory_at(host_, get(in, ring_context / wq::wq_umem_id),
                                         get(in, ring_context / wq::wq_umem_offset), blocks * block_size);
    std::uint8_t* const record =
        memory_at(host_, get(in, ring_context / wq::dbr_umem_id), get(in, ring_context / wq::dbr_addr), record_size);
    object.send_queue = std::make_unique<SendQueue>(
        object.name.id, SendQueue::Spec{.service = SendQueue::Service::aso,
                                        .user_index = 0,
                                        .protection_domain = static_cast<std::uint32_t>(get(in, ring_context / wq::pd)),
                                        .ring = ring,
                                        .length = static_cast<std::uint32_t>(blocks),
                                        .doorbell_record = reinterpret_cast<std::uint32_t*>(record) + 1});
}

void Firmware::modify_send_queue(FirmwareObject& object, Bytes in) {
    using namespace layout;
    constexpr std::uint64_t reset = 0, ready = 1;
    const bool begins = get(in, modify_sq_in::sq_state) == reset &&
                        get(in, modify_sq_in::ctx / sqc::state) == ready;
    if (!begins) throw NotEmulated{"MODIFY_SQ but from reset to ready"};
    if (object.send_queue->state() != SendQueue::State::reset)
        throw BadStatus{BadStatus::bad_resource_state, "a send queue is not in the state that the command begins in"};
    object.send_queue->set_state(SendQueue::State::ready_to_send);
}

std::uint8_t* Firmware::aso_meters(std::uint32_t id, std::uint32_t protection_domain) {
    using namespace layout;
    FirmwareObject* const object = find({ObjectKind::aso_flow_meter, id});
    if (object == nullptr) return nullptr;
    const bool granted =
        get(object->command, create_flow_meter_aso_obj_in::meter_aso_access_pd) == protection_domain;
    return granted ? object->images[id - object->name.id].data() : nullptr;
}

std::uint8_t* Firmware::meter(MeterName name) {
    using namespace layout;
    constexpr std::size_t parameters_at =
        create_flow_meter_in::meter.byte() + flow_meter::flow_meter_params.byte();
    FirmwareObject* const object = find({name.aso ? ObjectKind::aso_flow_meter : ObjectKind::flow_meter, name.id});
    if (object == nullptr) return nullptr;
    if (!name.aso) return object->command.data() + parameters_at;
    return object->images[name.id - object->name.id].data() + (name.is_second ? meter_parameters_size : 0);
}

}   // namespace ovsdr::connectx
