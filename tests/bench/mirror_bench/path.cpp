#include "path.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "offload/mirror/wire/guard.hpp"

namespace ovsdr::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr useconds_t pause_us = 20;   // a small part of what a ring takes
constexpr std::chrono::seconds patience{20};

/// Where the other end makes or checks fields, memory without an MKEY for it has them.
std::size_t slot_size(const mirror::Geometry& geometry, EndKind own, EndKind other) {
    const bool has_fields = own != EndKind::signature && other == EndKind::signature;
    return has_fields ? geometry.signature.protected_size(geometry.blocks()) : geometry.segment_size;
}

double seconds_of(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The clock of the only worker's processor time.
clockid_t worker_clock() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm"), name);
        if (name != "softnic-0") continue;
        // As pthread_getcpuclockid(3) makes it of a thread that one has no pthread_t of.
        constexpr int per_thread = 4, scheduled = 2;
        const auto thread = static_cast<unsigned>(std::stoi(task.path().filename()));
        return static_cast<clockid_t>(~thread << 3 | per_thread | scheduled);
    }
    throw std::runtime_error("there is no thread softnic-0: is this the soft NIC?");
}

void must(const ibv_wc& completion) {
    if (completion.status == IBV_WC_SUCCESS) return;
    throw std::runtime_error(fmt::format("slot {}: {}", completion.wr_id, ibv_wc_status_str(completion.status)));
}

}  // namespace

Path::Path(const std::shared_ptr<dr::Device>& device, const mirror::Geometry& geometry, EndKind from, EndKind to)
    : geometry_(geometry),
      from_(from),
      to_(to),
      source_(geometry.slots * EndSpec::stride_of(slot_size(geometry, from, to))),
      sink_(geometry.slots * EndSpec::stride_of(slot_size(geometry, to, from))),
      worker_(worker_clock()) {
    fill();
    sender_ = End::create(from, {device, geometry, source_.get(), slot_size(geometry, from, to)});
    receiver_ = End::create(to, {device, geometry, sink_.get(), slot_size(geometry, to, from)});
    sender_->connect(receiver_->local());
    receiver_->connect(sender_->local());
    open();
}

void Path::fill() {
    std::uint32_t value = 7;
    for (std::byte& byte : source_.get()) byte = static_cast<std::byte>((value = value * 1103515245 + 12345) >> 16);
    if (slot_size(geometry_, from_, to_) == geometry_.segment_size) return;
    const mirror::Signature& signature = geometry_.signature;
    const std::size_t frame = signature.block_size + signature.field_size();
    std::uint32_t block = 0;
    const std::size_t size = slot_size(geometry_, from_, to_);
    for (auto slots = source_.get(); !slots.empty(); slots = slots.subspan(EndSpec::stride_of(size))) {
        for (auto left = slots.first(size); !left.empty(); left = left.subspan(frame)) {
            mirror::write_field(signature, {application_tag, block++}, left.first(signature.block_size),
                                left.subspan(signature.block_size, signature.field_size()));
        }
    }
}

/// All slots that are free.
void Path::open() {
    const std::uint64_t end = arrived_ + geometry_.slots;
    if (asked_ == end) return;
    receiver_->post_receives(end - asked_);
    while (asked_ != end) {
        const std::uint16_t slot = geometry_.slot_of(asked_);
        const std::uint64_t length = std::min<std::uint64_t>(end - asked_, geometry_.slots - slot);
        asked_ += length;
        if (!receiver_->post_open(slot, length)) opened_ = asked_;
    }
}

bool Path::receive() {
    const auto completions = receiver_->poll();
    for (const ibv_wc& completion : completions) {
        must(completion);
        if (completion.opcode == IBV_WC_DRIVER1) {
            do ++opened_;
            while (geometry_.slot_of(opened_ - 1) != completion.wr_id);
            continue;
        }
        if (ntohl(completion.imm_data) != geometry_.slot_of(arrived_)) {
            throw std::runtime_error(fmt::format("another segment than {} has arrived", arrived_));
        }
        receiver_->check(geometry_.slot_of(arrived_++));
    }
    open();
    return !completions.empty();
}

bool Path::turn(bool posts) {
    bool moved = false;
    for (; posts && next_ < std::min(opened_, written_ + geometry_.slots); ++next_) {
        const std::uint16_t slot = geometry_.slot_of(next_);
        sender_->post_write(slot, receiver_->key_of(slot));
        moved = true;
    }
    for (const ibv_wc& completion : sender_->poll()) {
        must(completion);
        sender_->check(geometry_.slot_of(written_++));
        moved = true;
    }
    return receive() || moved;
}

/// Until posts() is false and all that was posted has arrived.
template <typename Posts>
void Path::run(Posts posts) {
    for (auto moved = Clock::now();;) {
        const bool go_on = posts();
        if (!go_on && written_ == next_ && arrived_ == next_ && opened_ == asked_) return;
        if (turn(go_on)) {
            moved = Clock::now();
        } else if (Clock::now() - moved > patience) {
            throw std::runtime_error("segments do not arrive");
        } else {
            usleep(pause_us);
        }
    }
}

double Path::speed(double seconds) {
    const std::uint64_t first = next_;
    const auto begin = Clock::now();
    const std::chrono::duration<double> length(seconds);
    run([&] { return Clock::now() - begin < length; });
    const std::chrono::duration<double> took = Clock::now() - begin;
    return static_cast<double>(next_ - first) * geometry_.segment_size / took.count();
}

double Path::cost() {
    const std::uint64_t end = next_ + geometry_.slots;
    const double begin = seconds_of(worker_);
    run([&] { return next_ != end; });
    return (seconds_of(worker_) - begin) / static_cast<double>(std::size_t{geometry_.slots} * geometry_.segment_size);
}

void Path::verify() const {
    const mirror::Signature& signature = geometry_.signature;
    const std::size_t block = signature.block_size;
    /// A memory's bytes from block `i` on.
    const auto from_block = [&](std::span<const std::byte> memory, std::size_t size, std::size_t i) {
        const std::size_t frame = size / geometry_.blocks();
        const std::size_t slot = i / geometry_.blocks(), in_slot = i % geometry_.blocks();
        return memory.subspan(slot * EndSpec::stride_of(size) + in_slot * frame, frame);
    };
    const std::size_t from = slot_size(geometry_, from_, to_), to = slot_size(geometry_, to_, from_);
    for (std::size_t i = 0; i < std::size_t{geometry_.slots} * geometry_.blocks(); ++i) {
        const auto sent = from_block(source_.get(), from, i), got = from_block(sink_.get(), to, i);
        if (std::memcmp(sent.data(), got.data(), block) != 0) {
            throw std::runtime_error(fmt::format("block {} is not what was sent", i));
        }
        if (got.size() == block) continue;
        const auto field = got.subspan(block);
        const mirror::BlockTags tags{application_tag, static_cast<std::uint32_t>(i)};
        if (mirror::check_field(signature, tags, got.first(block), field).fault != mirror::BlockFault::none) {
            throw std::runtime_error(fmt::format("block {} has a wrong field", i));
        }
    }
}

}  // namespace ovsdr::bench
