// Commands of the older write interface, which libibverbs sends through the method INVOKE_WRITE.
#include <endian.h>
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cerrno>

#include "tests/connectx/open_file.hpp"

namespace ovsdr::connectx {
namespace {

void allocate_protection_domain(OpenFile& file, Call& call) {
    call.ignore({UVERBS_ATTR_CORE_IN});
    const std::uint32_t number = file.nic.protection_domains.allocate();
    call.answer(UVERBS_ATTR_CORE_OUT, ib_uverbs_alloc_pd_resp{.pd_handle = file.objects.add(ProtectionDomain{number})});
    call.answer(UVERBS_ATTR_UHW_OUT, mlx5_ib_alloc_pd_resp{.pdn = number});
}

void register_memory(OpenFile& file, Call& call) {
    const auto asked = call.structure<ib_uverbs_reg_mr>(UVERBS_ATTR_CORE_IN);
    const std::uint32_t domain = file.objects.get<ProtectionDomain>(asked.pd_handle).number;
    check_access(asked.access_flags);
    constexpr std::uint64_t in_page = 0xFFF;
    if ((asked.start & in_page) != (asked.hca_va & in_page))
        throw Refused{EINVAL, "memory and its address for the device begin differently in their pages"};
    const std::uint32_t key = file.nic.key_numbers.allocate() << 8;
    file.nic.host.keys[key] = {.first = asked.hca_va,
                               .size = asked.length,
                               .memory = reinterpret_cast<std::uint8_t*>(asked.start),
                               .icm_address = std::nullopt,
                               .access = asked.access_flags,
                               .protection_domain = domain};
    const std::uint32_t handle = file.objects.add(MemoryRegion{key}, {asked.pd_handle});
    call.answer(UVERBS_ATTR_CORE_OUT, ib_uverbs_reg_mr_resp{.mr_handle = handle, .lkey = key, .rkey = key});
}

void query_device(OpenFile& file, Call& call) {
    call.ignore({UVERBS_ATTR_CORE_IN, UVERBS_ATTR_UHW_IN});
    constexpr std::uint64_t firmware_version = 22ULL << 32 | 36ULL << 16 | 1010;
    constexpr std::uint64_t guid = 0x0200'00FF'FE00'0001;
    ib_uverbs_ex_query_device_resp answer{};
    answer.response_length = sizeof answer;
    answer.max_dm_size = 1U << 17;
    ib_uverbs_query_device_resp& base = answer.base;
    base.fw_ver = firmware_version;
    base.node_guid = htobe64(guid);
    base.sys_image_guid = base.node_guid;
    base.max_mr_size = ~0ULL;
    base.page_size_cap = ~0xFFFULL;
    base.vendor_id = 0x2c9;
    base.vendor_part_id = file.nic.profile.part_id;
    base.max_qp = 1U << 17;
    base.max_qp_wr = 32768;
    base.max_sge = 30;
    base.max_cq = 1U << 20;
    base.max_cqe = 1U << 22;
    base.max_mr = 1U << 20;
    base.max_pd = 1U << 20;
    base.phys_port_cnt = static_cast<std::uint8_t>(file.nic.firmware.vports().ib_ports());
    call.answer(UVERBS_ATTR_CORE_OUT, answer);
    (void)call.output(UVERBS_ATTR_UHW_OUT);   // mlx5's own: none of it
}

void create_completion_channel(OpenFile& file, Call& call) {
    call.ignore({UVERBS_ATTR_CORE_IN});
    const auto fd = static_cast<std::uint32_t>(file.nic.add_event_file());
    call.answer(UVERBS_ATTR_CORE_OUT, ib_uverbs_create_comp_channel_resp{.fd = fd});
}

void modify_queue_pair(OpenFile& file, Call& call) {
    using State = SendQueue::State;
    struct Transition {
        State from;
        std::uint8_t to;
        State state;
    };
    constexpr Transition transitions[] = {{State::reset, IBV_QPS_INIT, State::init},
                                          {State::init, IBV_QPS_INIT, State::init},
                                          {State::init, IBV_QPS_RTR, State::ready_to_receive},
                                          {State::ready_to_receive, IBV_QPS_RTS, State::ready_to_send}};
    const auto asked = call.structure<ib_uverbs_modify_qp>(UVERBS_ATTR_CORE_IN);
    call.ignore({UVERBS_ATTR_UHW_IN});
    (void)call.output(UVERBS_ATTR_CORE_OUT);
    (void)call.output(UVERBS_ATTR_UHW_OUT);
    SendQueue& queue = *file.objects.get<QueuePair>(asked.qp_handle).send_queue;
    constexpr std::uint32_t known = IBV_QP_STATE | IBV_QP_PORT;
    if ((asked.attr_mask & ~known) != 0)
        throw NotEmulated{fmt::format("attributes {:#x} of a queue pair", asked.attr_mask)};
    const std::uint32_t ports = file.nic.firmware.vports().ib_ports();
    const bool names_port = (asked.attr_mask & IBV_QP_PORT) != 0;
    if (names_port && (asked.port_num == 0 || asked.port_num > ports))
        throw Refused{EINVAL, fmt::format("no IB port {}", asked.port_num)};
    if ((asked.attr_mask & IBV_QP_STATE) == 0) {
        if (names_port) throw Refused{EINVAL, "a port without a state"};
        return;
    }
    for (const Transition& transition : transitions) {
        if (transition.from != queue.state() || transition.to != asked.qp_state) continue;
        if (names_port != (transition.from == State::reset))
            throw Refused{EINVAL, "raw packet queues name their port from RESET to INIT, and only there"};
        return queue.set_state(transition.state);
    }
    // Receives would have to be flushed.
    if (asked.qp_state >= IBV_QPS_SQD || asked.qp_state == IBV_QPS_RESET) {
        throw NotEmulated{fmt::format("a queue pair's way to state {}", asked.qp_state)};
    }
    throw Refused{EINVAL, "no such transition of a queue pair"};
}

constexpr std::uint32_t extended = 0x80000000;   // IB_USER_VERBS_CMD_FLAG_EXTENDED

constexpr WriteCommand table[] = {
    {IB_USER_VERBS_CMD_ALLOC_PD, "ALLOC_PD", true, allocate_protection_domain},
    {IB_USER_VERBS_CMD_REG_MR, "REG_MR", true, register_memory},
    {IB_USER_VERBS_CMD_QUERY_DEVICE, "QUERY_DEVICE", false, query_device},
    {IB_USER_VERBS_EX_CMD_QUERY_DEVICE | extended, "QUERY_DEVICE", false, query_device},
    {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, "CREATE_COMP_CHANNEL", true, create_completion_channel},
    {IB_USER_VERBS_CMD_MODIFY_QP, "MODIFY_QP", true, modify_queue_pair},
    {IB_USER_VERBS_EX_CMD_MODIFY_QP | extended, "MODIFY_QP", true, modify_queue_pair},
};

}   // namespace

std::span<const WriteCommand> write_commands() {
    return table;
}

}   // namespace ovsdr::connectx
