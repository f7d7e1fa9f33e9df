#include "datapath/ports/nic.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "datapath/ports/config.hpp"
#include "datapath/ports/soft_nic.hpp"

namespace ovsdr::soft {
namespace {

std::mutex start_mutex;
SoftNic* running = nullptr;  // kept until the process is gone: see soft_nic.hpp

void stop_at_exit() {
    // Not under the mutex: a thread that is starting the NIC while another exits must not hold the exit up.
    if (running != nullptr) running->stop();
}

// A cause is worth one line, however often the application tries again.
void report(const std::string& cause) {
    static auto* last = new std::string;
    if (cause == *last) return;
    *last = cause;
    fmt::print(stderr, "ovs-dr soft NIC: {}\n", cause);
}

int start_once() {
    int code = 0;
    std::string error;
    std::unique_ptr<SoftNic> nic;
    try {
        nic = SoftNic::start(read_config(config_path()), code, error);
    } catch (const ConfigError& failure) {
        code = failure.code();
        error = failure.what();
    }
    if (!nic) {
        report(error);
        return code;
    }
    running = nic.release();
    if (std::atexit(stop_at_exit) != 0) report("no room for an exit handler: the control socket will stay behind");
    return 0;
}

}  // namespace

int Nic::start(Nic*& nic) noexcept {
    try {
        const std::lock_guard lock(start_mutex);
        if (running == nullptr) {
            if (int result = start_once()) return result;
        }
        nic = running;
        return 0;
    } catch (const std::exception&) {
        return ENOMEM;
    }
}

}  // namespace ovsdr::soft
