#include "datapath/ports/eth_device.hpp"

#include <fmt/format.h>
#include <rte_dev.h>
#include <rte_ethdev.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace ovsdr::soft {
namespace {

constexpr std::uint16_t queue_length = 1024;

}  // namespace

EthDevice::~EthDevice() {
    if (started_) (void)rte_eth_dev_stop(id_);
    if (name_.empty()) return;
    (void)rte_eth_dev_close(id_);
    (void)rte_eal_hotplug_remove("vdev", name_.c_str());
}

int EthDevice::probe(const Driver& driver, const std::string& arguments) {
    static std::atomic<unsigned> next{0};
    const std::string name = fmt::format("{}{}", driver.name, next++);
    if (int result = rte_eal_hotplug_add("vdev", name.c_str(), arguments.c_str())) return -result;
    if (rte_eth_dev_get_port_by_name(name.c_str(), &id_) != 0) {
        (void)rte_eal_hotplug_remove("vdev", name.c_str());
        return ENODEV;
    }
    name_ = name;
    return 0;
}

EthDevice::Most EthDevice::most() const noexcept {
    rte_eth_dev_info info{};
    if (rte_eth_dev_info_get(id_, &info) != 0) return {};
    return {.receive_queues = std::max<std::uint16_t>(1, info.max_rx_queues),
            .send_queues = std::max<std::uint16_t>(1, info.max_tx_queues)};
}

int EthDevice::start(const Setup& setup, std::string& step) {
    rte_eth_conf configuration{};
    configuration.intr_conf.rxq = setup.interrupts ? 1 : 0;
    configuration.rxmode.offloads = setup.receive_offloads;
    step = "not configured";
    if (int result = rte_eth_dev_configure(id_, setup.receive_queues, setup.send_queues, &configuration)) {
        return -result;
    }
    step = "no receive queue";
    for (std::uint16_t queue = 0; queue < setup.receive_queues; ++queue) {
        if (int result = rte_eth_rx_queue_setup(id_, queue, queue_length, SOCKET_ID_ANY, nullptr, setup.pool)) {
            return -result;
        }
    }
    step = "no transmit queue";
    for (std::uint16_t queue = 0; queue < setup.send_queues; ++queue) {
        if (int result = rte_eth_tx_queue_setup(id_, queue, queue_length, SOCKET_ID_ANY, nullptr)) return -result;
    }
    step = "not started";
    if (int result = rte_eth_dev_start(id_)) return -result;
    started_ = true;
    (void)rte_eth_promiscuous_enable(id_);  // drivers without it receive everything
    return 0;
}

PortReceiveQueue EthDevice::receive_queue(unsigned number) const {
    return {.receive = rte_eth_fp_ops[id_].rx_pkt_burst, .queue = rte_eth_fp_ops[id_].rxq.data[number]};
}

PortSendQueue EthDevice::send_queue(unsigned number) const noexcept {
    return {.send = rte_eth_fp_ops[id_].tx_pkt_burst, .queue = rte_eth_fp_ops[id_].txq.data[number]};
}

}  // namespace ovsdr::soft
