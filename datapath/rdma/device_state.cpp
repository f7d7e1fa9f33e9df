#include "datapath/rdma/device_state.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "datapath/rdma/completion/devx_doorbells.hpp"
#include "datapath/rdma/ethernet/receive_queue.hpp"
#include "datapath/rdma/memory/devx_memory.hpp"
#include "datapath/rdma/roce/transport.hpp"
#include "datapath/steering/plain_function.hpp"

namespace ovsdr::soft {

namespace {

constexpr off_t command_file_size = off_t{1} << 40;  // bytes of offsets to map from

}  // namespace

std::uint32_t NumberPool::take() {
    // A number rests while others are free: a stale one in somebody's hands should name nothing.
    constexpr std::size_t resting = 64;
    std::lock_guard guard(mutex_);
    if (free_.size() <= resting) return next_++;
    const std::uint32_t number = free_.front();
    free_.erase(free_.begin());
    return number;
}

void NumberPool::give_back(std::uint32_t number) {
    std::lock_guard guard(mutex_);
    free_.push_back(number);
}

std::uint32_t NumberPool::take_run(std::uint32_t length) {
    std::lock_guard guard(mutex_);
    const std::uint32_t first = (next_ + length - 1) / length * length;
    next_ = first + length;
    return first;
}

DeviceState::DeviceState(Device& device, rte_mempool* mempool)
    : device_(device), mempool_(mempool), flows_(device.steering()), umems_(std::make_unique<devx::Umems>()) {
    find_new_vports();
}

roce::Transport& DeviceState::transport() {
    const std::lock_guard guard(transport_mutex_);
    if (!transport_) transport_ = std::make_unique<roce::Transport>(*this);
    return *transport_;
}

void DeviceState::answer_doorbells() {
    const std::lock_guard guard(transport_mutex_);
    if (transport_) transport_->answer_doorbells();
}

devx::DoorbellPages& DeviceState::doorbell_pages() {
    const std::lock_guard guard(transport_mutex_);
    if (!doorbell_pages_) doorbell_pages_ = std::make_unique<devx::DoorbellPages>(device_);
    return *doorbell_pages_;
}

DeviceState& DeviceState::of(Device& device, rte_mempool* mempool) {
    static std::mutex mutex;
    static auto* const states = new std::map<Device*, std::unique_ptr<DeviceState>>;
    std::lock_guard guard(mutex);
    auto& state = (*states)[&device];
    if (!state) state = std::make_unique<DeviceState>(device, mempool);
    return *state;
}

DeviceState::~DeviceState() {
    if (file_ >= 0) close(file_);
}

int DeviceState::open_file() {
    std::lock_guard guard(mutex_);
    if (file_ < 0) {
        file_ = memfd_create("softnic-uverbs", MFD_CLOEXEC);
        // Sparse: pages come with those who write to them.
        if (file_ >= 0 && ftruncate(file_, command_file_size) != 0) {
            close(file_);
            file_ = -1;
        }
    }
    return file_ < 0 ? -1 : fcntl(file_, F_DUPFD_CLOEXEC, 0);
}

bool DeviceState::is_file(int descriptor) {
    std::lock_guard guard(mutex_);
    struct stat ours {}, theirs {};
    return file_ >= 0 && fstat(file_, &ours) == 0 && fstat(descriptor, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
           ours.st_ino == theirs.st_ino;
}

std::optional<std::uint32_t> DeviceState::take_doorbell_page() {
    std::lock_guard guard(mutex_);
    for (std::uint32_t number = 0; number < doorbell_pages_taken_.size(); ++number) {
        if (doorbell_pages_taken_[number]) continue;
        doorbell_pages_taken_[number] = true;
        return number;
    }
    return std::nullopt;
}

void DeviceState::give_back_doorbell_page(std::uint32_t number) {
    std::lock_guard guard(mutex_);
    doorbell_pages_taken_[number] = false;
}

void DeviceState::find_new_vports() {
    for (const VportInfo& info : device_.vports()) {
        if (is_plain_function(device_.steering()) && info.id != manager_vport) continue;
        if (std::find(ports_.begin(), ports_.end(), info.id) == ports_.end()) ports_.push_back(info.id);
    }
}

unsigned DeviceState::ports() {
    std::lock_guard guard(mutex_);
    find_new_vports();
    return static_cast<unsigned>(ports_.size());
}

std::optional<VportId> DeviceState::vport_of(unsigned port) {
    std::lock_guard guard(mutex_);
    if (port > ports_.size()) find_new_vports();
    if (port == 0 || port > ports_.size()) return std::nullopt;
    return ports_[port - 1];
}

unsigned DeviceState::port_of(VportId vport) {
    std::lock_guard guard(mutex_);
    auto found = std::find(ports_.begin(), ports_.end(), vport);
    if (found == ports_.end()) {
        find_new_vports();
        found = std::find(ports_.begin(), ports_.end(), vport);
    }
    return found == ports_.end() ? 0 : static_cast<unsigned>(found - ports_.begin()) + 1;
}

void DeviceState::add_receive_queue(std::uint32_t rqn, ReceiveQueue& queue) {
    std::lock_guard guard(mutex_);
    receive_queues_[rqn] = &queue;
}

bool DeviceState::remove_receive_queue(std::uint32_t rqn) {
    std::lock_guard guard(mutex_);
    const auto found = receive_queues_.find(rqn);
    if (found == receive_queues_.end()) return true;
    if (found->second->held()) return false;
    receive_queues_.erase(found);
    return true;
}

}  // namespace ovsdr::soft
