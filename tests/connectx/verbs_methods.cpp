// Methods of verbs and of mlx5's own objects: contexts, ports, queues, memory, doorbell pages.
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "tests/connectx/address_plan.hpp"
#include "tests/connectx/open_file.hpp"

namespace ovsdr::connectx {
namespace {

constexpr std::uint32_t page_size = 4096;
constexpr std::uint32_t completion_vectors = 1;

void get_context(OpenFile& file, Call& call) {
    call.ignore({UVERBS_ATTR_UHW_IN});
    call.answer(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, completion_vectors);
    call.answer(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, std::uint64_t{0});
    mlx5_ib_alloc_ucontext_resp answer{};
    answer.qp_tab_size = 1U << 17;
    answer.bf_reg_size = 0;   // no BlueFlame: doorbells are stores of eight bytes
    answer.cache_line_size = 64;
    answer.max_sq_desc_sz = 1024;
    answer.max_rq_desc_sz = 512;
    answer.max_send_wqebb = 32768;
    answer.max_recv_wr = 32768;
    answer.max_srq_recv_wr = 32767;
    answer.num_ports = static_cast<std::uint16_t>(file.nic.firmware.vports().ib_ports());
    answer.response_length = sizeof answer;
    answer.cqe_version = 1;
    answer.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE;
    answer.eth_min_inline = MLX5_USER_INLINE_MODE_NONE;
    answer.log_uar_size = std::countr_zero(page_size);
    answer.num_uars_per_page = 1;
    call.answer(UVERBS_ATTR_UHW_OUT, answer);
}

void query_port(OpenFile& file, Call& call) {
    const auto port = static_cast<std::uint32_t>(call.number(UVERBS_ATTR_QUERY_PORT_PORT_NUM));
    if (port == 0 || port > file.nic.firmware.vports().ib_ports())
        throw Refused{EINVAL, fmt::format("no IB port {}", port)};
    ib_uverbs_query_port_resp_ex answer{};
    answer.legacy_resp.state = IBV_PORT_ACTIVE;
    answer.legacy_resp.max_mtu = IBV_MTU_4096;
    answer.legacy_resp.active_mtu = IBV_MTU_1024;
    answer.legacy_resp.gid_tbl_len = 16;
    answer.legacy_resp.max_msg_sz = 1U << 30;
    answer.legacy_resp.pkey_tbl_len = 1;
    answer.legacy_resp.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    answer.legacy_resp.active_width = 2;    // 4 lanes
    answer.legacy_resp.active_speed = 64;   // HDR
    answer.legacy_resp.phys_state = 5;      // link up
    answer.legacy_resp.link_layer = IBV_LINK_LAYER_ETHERNET;
    call.answer(UVERBS_ATTR_QUERY_PORT_RESP, answer);
}

void query_mlx5_port(OpenFile& file, Call& call) {
    const Vport vport = file.nic.firmware.vports().of_ib_port(call.handle(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM));
    mlx5_ib_uapi_query_port answer{};
    constexpr std::uint16_t wire = 0xFFFF;   // no function: it has no vhca id
    answer.flags = MLX5_IB_UAPI_QUERY_PORT_VPORT | MLX5_IB_UAPI_QUERY_PORT_VPORT_STEERING_ICM_RX |
                   MLX5_IB_UAPI_QUERY_PORT_VPORT_STEERING_ICM_TX | MLX5_IB_UAPI_QUERY_PORT_VPORT_REG_C0 |
                   MLX5_IB_UAPI_QUERY_PORT_ESW_OWNER_VHCA_ID;
    if (vport.number != wire) answer.flags |= MLX5_IB_UAPI_QUERY_PORT_VPORT_VHCA_ID;
    answer.vport = vport.number;
    answer.vport_vhca_id = vport.vhca_id;
    answer.esw_owner_vhca_id = manager_vhca;
    answer.vport_steering_icm_rx = address_plan::of(address_plan::vport_rx, vport.number);
    answer.vport_steering_icm_tx = address_plan::of(address_plan::vport_tx, vport.number);
    answer.reg_c0 = {vport.register_value, vport.register_mask};
    call.answer(MLX5_IB_ATTR_QUERY_PORT, answer);
}

void allocate_async_events(OpenFile& file, Call& call) {
    call.answer_file(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, file.nic.add_event_file());
}

void create_completion_queue(OpenFile& file, Call& call) {
    call.ignore({UVERBS_ATTR_CREATE_CQ_EVENT_FD});
    if (call.number(UVERBS_ATTR_CREATE_CQ_FLAGS, 0) != 0) throw NotEmulated{"flags of a completion queue"};
    if (call.number(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0) >= completion_vectors)
        throw Refused{EINVAL, "no such vector"};
    const auto own = call.structure<mlx5_ib_create_cq>(UVERBS_ATTR_UHW_IN);
    if ((own.flags & ~MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) != 0)
        throw NotEmulated{"mlx5's flags of a completion queue"};
    if (own.cqe_comp_en != 0) throw NotEmulated{"compressed completions"};
    if (own.cqe_size != 64 && own.cqe_size != 128) throw Refused{EINVAL, "completions of neither 64 nor 128 bytes"};
    const auto entries = static_cast<std::uint32_t>(call.number(UVERBS_ATTR_CREATE_CQ_CQE));
    std::shared_ptr<EventFile> channel;
    if (call.has(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)) {
        const auto found = file.nic.event_files.find(static_cast<int>(call.number(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)));
        if (found == file.nic.event_files.end()) throw Refused{EBADF, "not a completion channel"};
        channel = found->second;
    }
    const std::uint32_t number = file.nic.completion_queues.allocate();
    auto queue = std::make_shared<CompletionQueue>(
        number, CompletionQueue::Spec{.buffer = reinterpret_cast<std::uint8_t*>(own.buf_addr),
                                      .doorbell_record = reinterpret_cast<std::uint32_t*>(own.db_addr),
                                      .length = std::bit_ceil(entries + 1),
                                      .entry_size = own.cqe_size,
                                      .user_handle = call.number(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 0),
                                      .channel = std::move(channel)});
    file.nic.host.completion_queues[number] = queue;
    call.answer_handle(UVERBS_ATTR_CREATE_CQ_HANDLE, file.objects.add(CompletionQueueHandle{std::move(queue)}));
    call.answer(UVERBS_ATTR_CREATE_CQ_RESP_CQE, std::bit_ceil(entries + 1) - 1);
    call.answer(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_cq_resp{.cqn = number, .reserved = 0});
}

void destroy_completion_queue(OpenFile& file, Call& call) {
    const std::uint32_t handle = call.handle(UVERBS_ATTR_DESTROY_CQ_HANDLE);
    const std::shared_ptr<CompletionQueue> queue = file.objects.get<CompletionQueueHandle>(handle).queue;
    for (const auto& [id, object] : file.nic.firmware.all(ObjectKind::queue_pair)) {
        if (object->completions == queue) throw Refused{EINVAL, "a queue pair made by DEVX uses it"};
    }
    file.destroy(handle);
    call.answer(UVERBS_ATTR_DESTROY_CQ_RESP, ib_uverbs_destroy_cq_resp{queue->end_events(), 0});
}

void create_queue_pair(OpenFile& file, Call& call) {
    call.ignore({UVERBS_ATTR_CREATE_QP_USER_HANDLE, UVERBS_ATTR_CREATE_QP_EVENT_FD});
    // Others could not carry traffic anyway; raw packet queues send into nothing, and are destinations of rules.
    if (call.number(UVERBS_ATTR_CREATE_QP_TYPE) != IBV_QPT_RAW_PACKET)
        throw NotEmulated{"queue pairs other than raw packet ones"};
    const auto own = call.structure<mlx5_ib_create_qp>(UVERBS_ATTR_UHW_IN);
    constexpr std::uint32_t harmless = MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
                                       MLX5_QP_FLAG_BFREG_INDEX | MLX5_QP_FLAG_UAR_PAGE_INDEX;
    if ((own.flags & ~harmless) != 0) throw NotEmulated{fmt::format("mlx5's flags {:#x} of a queue pair", own.flags)};
    // That every send is signaled is libmlx5's business.
    const std::uint64_t flags = call.number(UVERBS_ATTR_CREATE_QP_FLAGS, 0);
    if ((flags & ~std::uint64_t{IB_UVERBS_QP_CREATE_SQ_SIG_ALL}) != 0) throw NotEmulated{"flags of a queue pair"};
    const auto capabilities = call.structure<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_CAP);
    const std::uint32_t domain = call.handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE);
    const std::uint32_t send = call.handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE),
                        receive = call.handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE);
    const std::uint32_t domain_number = file.objects.get<ProtectionDomain>(domain).number;
    (void)file.objects.get<CompletionQueueHandle>(receive);
    auto completions = file.objects.get<CompletionQueueHandle>(send).queue;
    if (own.sq_wqe_count != 0 && !std::has_single_bit(own.sq_wqe_count))
        throw Refused{EINVAL, "the send ring is no power of two"};
    const std::uint32_t number = file.nic.firmware.numbers(ObjectKind::queue_pair).allocate();
    const std::uint32_t tir = file.nic.firmware.numbers(ObjectKind::tir).allocate();
    auto queue = std::make_unique<SendQueue>(
        number, SendQueue::Spec{.service = SendQueue::Service::raw_packet,
                                .user_index = own.uidx,
                                .protection_domain = domain_number,
                                .ring = reinterpret_cast<std::uint8_t*>(own.sq_buf_addr),
                                .length = own.sq_wqe_count,
                                .doorbell_record = reinterpret_cast<std::uint32_t*>(own.db_addr) + 1});
    const std::uint32_t handle =
        file.objects.add(QueuePair{number, tir, std::move(queue), std::move(completions)}, {domain, send, receive});
    call.answer_handle(UVERBS_ATTR_CREATE_QP_HANDLE, handle);
    call.answer(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number);
    call.answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, capabilities);
    mlx5_ib_create_qp_resp answer{};
    answer.bfreg_index = UINT32_MAX;   // MLX5_IB_INVALID_BFREG: it uses a page of its own
    answer.comp_mask = MLX5_IB_CREATE_QP_RESP_MASK_TIRN | MLX5_IB_CREATE_QP_RESP_MASK_TISN |
                       MLX5_IB_CREATE_QP_RESP_MASK_RQN | MLX5_IB_CREATE_QP_RESP_MASK_SQN |
                       MLX5_IB_CREATE_QP_RESP_MASK_TIR_ICM_ADDR;
    answer.tirn = tir;
    answer.tisn = number;
    answer.rqn = number;
    answer.sqn = number;
    answer.tir_icm_addr = address_plan::of(address_plan::queue_pair, number);
    call.answer(UVERBS_ATTR_UHW_OUT, answer);
}

void destroy_queue_pair(OpenFile& file, Call& call) {
    file.destroy_of_kind<QueuePair>(call.handle(UVERBS_ATTR_DESTROY_QP_HANDLE));
    call.answer(UVERBS_ATTR_DESTROY_QP_RESP, ib_uverbs_destroy_qp_resp{0});
}

void destroy_protection_domain(OpenFile& file, Call& call) {
    file.destroy_of_kind<ProtectionDomain>(call.handle(UVERBS_ATTR_DESTROY_PD_HANDLE));
}

void destroy_memory_region(OpenFile& file, Call& call) {
    file.destroy_of_kind<MemoryRegion>(call.handle(UVERBS_ATTR_DESTROY_MR_HANDLE));
}

void allocate_device_memory(OpenFile& file, Call& call) {
    call.ignore({MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX});   // of MEMIC
    const std::uint64_t type = call.number(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, MLX5_IB_UAPI_DM_TYPE_MEMIC);
    const std::uint64_t size = call.number(UVERBS_ATTR_ALLOC_DM_LENGTH);
    if (type < MLX5_IB_UAPI_DM_TYPE_STEERING_SW_ICM) throw NotEmulated{"device memory that is not ICM"};
    const std::uint64_t log_alignment = call.number(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, 0);
    if (log_alignment >= 64 || std::max<std::uint64_t>(size, page_size) < 1ULL << log_alignment)
        throw NotEmulated{"device memory aligned to more than its size"};
    const std::uint64_t address = file.nic.icm.allocate(static_cast<IcmType>(type), size);
    call.answer(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, address);
    call.answer_handle(UVERBS_ATTR_ALLOC_DM_HANDLE, file.objects.add(DeviceMemory{address, size}));
}

void free_device_memory(OpenFile& file, Call& call) {
    file.destroy_of_kind<DeviceMemory>(call.handle(UVERBS_ATTR_FREE_DM_HANDLE));
}

void register_device_memory(OpenFile& file, Call& call) {
    const auto flags = static_cast<std::uint32_t>(call.number(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, 0));
    const std::uint32_t access = flags & ~std::uint32_t{IBV_ACCESS_ZERO_BASED};
    if (access == flags) throw Refused{EINVAL, "device memory that is not addressed from 0"};
    check_access(access);
    const std::uint32_t domain = call.handle(UVERBS_ATTR_REG_DM_MR_PD_HANDLE),
                        memory = call.handle(UVERBS_ATTR_REG_DM_MR_DM_HANDLE);
    const std::uint32_t domain_number = file.objects.get<ProtectionDomain>(domain).number;
    const auto [address, there] = file.objects.get<DeviceMemory>(memory);
    const std::uint64_t offset = call.number(UVERBS_ATTR_REG_DM_MR_OFFSET),
                        size = call.number(UVERBS_ATTR_REG_DM_MR_LENGTH);
    if (offset > there || size > there - offset) throw Refused{EINVAL, "more than the device memory"};
    const std::uint32_t key = file.nic.key_numbers.allocate() << 8;
    file.nic.host.keys[key] = {.first = 0,
                               .size = size,
                               .memory = nullptr,
                               .icm_address = address + offset,
                               .access = access,
                               .protection_domain = domain_number};
    call.answer_handle(UVERBS_ATTR_REG_DM_MR_HANDLE, file.objects.add(MemoryRegion{key}, {domain, memory}));
    call.answer(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, key);
    call.answer(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, key);
}

void allocate_doorbell_page(OpenFile& file, Call& call) {
    call.ignore({MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE});
    const std::uint32_t page = file.nic.doorbell_pages.allocate();
    call.answer_handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, file.objects.add(DoorbellPage{page}));
    call.answer(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, std::uint64_t{page} * page_size);
    call.answer(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, page_size);
    call.answer(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page);
}

void destroy_doorbell_page(OpenFile& file, Call& call) {
    file.destroy_of_kind<DoorbellPage>(call.handle(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE));
}

constexpr Method table[] = {
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, "GET_CONTEXT", true, get_context},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, "QUERY_PORT", false, query_port},
    {UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, "MLX5_QUERY_PORT", false, query_mlx5_port},
    {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, "ASYNC_EVENT_ALLOC", true, allocate_async_events},
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, "CQ_CREATE", true, create_completion_queue},
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, "CQ_DESTROY", false, destroy_completion_queue},
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, "QP_CREATE", true, create_queue_pair},
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, "QP_DESTROY", false, destroy_queue_pair},
    {UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, "PD_DESTROY", false, destroy_protection_domain},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, "MR_DESTROY", false, destroy_memory_region},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG, "DM_MR_REG", true, register_device_memory},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC, "DM_ALLOC", true, allocate_device_memory},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, "DM_FREE", false, free_device_memory},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, "UAR_OBJ_ALLOC", true, allocate_doorbell_page},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, "UAR_OBJ_DESTROY", false, destroy_doorbell_page},
};

}   // namespace

std::span<const Method> verbs_methods() {
    return table;
}

}   // namespace ovsdr::connectx
