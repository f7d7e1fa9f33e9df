// drgen's DPDK: an environment of its own, and ports by their device arguments. No PCI device is touched.
#pragma once

#include <rte_mempool.h>

#include <cstdint>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/drgen/options.hpp"

namespace ovsdr::drgen {

class PortError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Starts DPDK and opens all ports, or throws PortError. Closes the ports at the end. One per process.
class Ports {
public:
    explicit Ports(const Options& options);
    ~Ports();
    Ports(const Ports&) = delete;
    Ports& operator=(const Ports&) = delete;

    /// DPDK's number of the port with this index on the command line.
    [[nodiscard]] std::uint16_t id(unsigned index) const noexcept { return opened_[index].id; }
    [[nodiscard]] std::size_t length() const noexcept { return opened_.size(); }
    [[nodiscard]] rte_mempool* mempool() const noexcept { return pool_; }

private:
    struct Opened {
        std::string name;
        std::uint16_t id;
    };

    void start_dpdk(const Options& options);
    void open(const std::string& arguments, bool jumbo);
    void wait_for_links(const Options& options) const;
    void close() noexcept;
    void close_all() noexcept;
    static void close_and_stay(void* ports) noexcept;

    rte_mempool* pool_ = nullptr;
    std::vector<Opened> opened_;
    std::binary_semaphore closed_{0};
};

}  // namespace ovsdr::drgen
