#include "datapath/rdma/roce/dc_initiator.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "datapath/rdma/roce/pair.hpp"

namespace ovsdr::soft::roce {

DcInitiator::DcInitiator(Pair& pair, Requester& first) : pair_(pair), streams_{&first} {
    const std::uint32_t length = 1u << pair.spec().dc->log_streams;
    for (std::uint32_t number = 1; number < length; ++number) {
        others_.push_back(std::make_unique<Requester>(pair, pair.spec(), number));
        streams_.push_back(others_.back().get());
    }
    if (has_streams()) finished_.resize(std::max(1u, pair.spec().send.length));
}

Requester& DcInitiator::owner_of_head() noexcept {
    if (!has_streams()) return *streams_.front();
    const SendRing& ring = pair_.spec().send;
    mlx5_wqe_ctrl_seg control;
    std::memcpy(&control, ring.base + (pair_.next_block() & (ring.length - 1)) * basic_block_size, sizeof control);
    return *streams_[be16toh(control.dci_stream_channel_id) & (streams_.size() - 1)];
}

void DcInitiator::reset() noexcept {
    for (Requester* stream : streams_) stream->reset();
    std::fill(finished_.begin(), finished_.end(), Finished{});
    oldest_ = 0;
    failed_ = 0;
}

void DcInitiator::start(std::uint32_t psn) noexcept {
    for (Requester* stream : streams_) stream->start(psn);
}

void DcInitiator::wake() noexcept {
    for (Requester* stream : streams_) stream->wake();
}

bool DcInitiator::ready() const noexcept {
    return std::any_of(streams_.begin(), streams_.end(), [](const Requester* stream) { return stream->ready(); });
}

void DcInitiator::send(Burst& burst, std::uint64_t now) noexcept {
    for (std::size_t quiet = 0; quiet < streams_.size() && !burst.full() && !burst.starved();) {
        Requester& stream = *streams_[turn_];
        turn_ = (turn_ + 1) % streams_.size();
        quiet = stream.ready() ? 0 : quiet + 1;
        if (stream.ready()) stream.send(burst, now);
    }
}

void DcInitiator::timer(std::uint64_t now) noexcept {
    for (Requester* stream : streams_) stream->timer(now);
}

std::uint64_t DcInitiator::deadline() const noexcept {
    std::uint64_t earliest = Service::never;
    for (const Requester* stream : streams_) earliest = std::min(earliest, stream->deadline());
    return earliest;
}

void DcInitiator::flush() noexcept {
    for (Requester* stream : streams_) stream->flush_taken();
    streams_.front()->flush();
}

void DcInitiator::finish(std::uint64_t block, std::uint32_t blocks, const Completion* completion) noexcept {
    const auto at = [this](std::uint64_t index) -> Finished& { return finished_[index & (finished_.size() - 1)]; };
    Finished& entry = at(block);
    entry.blocks = blocks;
    entry.is_told = completion != nullptr;
    if (completion != nullptr) entry.completion = *completion;
    while (at(oldest_).blocks != 0) {
        Finished& next = at(oldest_);
        oldest_ += next.blocks;
        next.blocks = 0;
        if (next.is_told) pair_.spec().send_queue->add({&next.completion, 1});
    }
}

void DcInitiator::stream_failed(Requester& stream) noexcept {
    stream.fail_stream();
    if (++failed_ >= 1u << pair_.spec().dc->log_errored) pair_.fail();
}

int DcInitiator::reset_stream(std::uint16_t stream) noexcept {
    Requester& failed = *streams_[stream & (streams_.size() - 1)];
    if (!failed.failed()) return EINVAL;
    failed.recover();
    --failed_;
    return 0;
}

}  // namespace ovsdr::soft::roce
