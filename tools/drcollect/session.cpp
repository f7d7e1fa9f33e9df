#include "tools/drcollect/session.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "offload/mirror/wire/guard.hpp"
#include "tools/drcollect/scan.hpp"

namespace ovsdr::drcollect {
namespace {

using namespace mirror;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int longest_sleep_ms = 1000;
// Configurations of MKEYs that are posted at once: a send queue takes so many at least (connection.cpp).
constexpr std::uint64_t most_configurations = 64;

BadKind kind_of(mlx5dv_mkey_err_type type) noexcept {
    if (type == MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG) return BadKind::application_tag;
    return type == MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG ? BadKind::reference_tag : BadKind::guard;
}

}  // namespace

Session::Session(const SessionSpec& spec, Counters& counters, MemoryLimit& memory, MessageSocket socket,
                 std::string peer, Hello hello)
    : spec_(spec),
      counters_(counters),
      memory_(memory),
      socket_(std::move(socket)),
      peer_(std::move(peer)),
      hello_(std::move(hello)),
      geometry_(hello_.geometry),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (stop_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Session::~Session() {
    connection_.reset();
    close(stop_);
}

void Session::ask_to_stop() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t size = write(stop_, &one, sizeof one);
}

bool Session::show_life() { return socket_.send(Wait{}).has_value(); }

void Session::run() noexcept try {
    life_ = std::make_unique<SignOfLife>(socket_, spec_.sign_of_life);
    if (auto begun = begin(); !begun) return refuse(begun.error());
    auto served = serve();
    const bool finished = end_ && file_->durable() == *end_;
    if (finished) {
        const auto busy = life_->begin(Progress{told_});
        file_->close();
    }
    end(finished || served ? "" : served.error().what, finished);
} catch (const std::exception& exception) {
    end(exception.what(), false);
}

void Session::refuse(const Refuse& why) {
    (void)socket_.send(why);
    counters_.refused(number(), peer_ + ": " + why.detail);
    if (file_ != nullptr) known_ = file_->known_end();
}

/// What others wait for goes now, before the session's place is free.
void Session::end(const std::string& why, bool finished) {
    connection_.reset();
    ring_.reset();
    known_ = finished || file_ == nullptr ? std::nullopt : file_->known_end();
    counters_.change(number(), [&](SessionCounters& counted) {
        counted.connected = false;
        counted.finished = finished;
        counted.stalled.clear();
        if (!why.empty()) counted.last_error = why;
    });
}

Session::Begun Session::begin() {
    if (auto made = make_ring(); !made) return made;
    const auto refuse = [](const Error& error) {
        return tl::unexpected(Refuse{error.code == ECANCELED ? RefuseReason::busy : RefuseReason::device, error.what});
    };
    if (auto opened = open_file(); !opened) return opened;
    auto made = Connection::create(spec_.device, spec_.address, geometry_);
    if (!made) return refuse(made.error());
    connection_ = std::move(*made);
    if (auto done = connection_->connect(hello_.endpoint); !done) return refuse(done.error());
    if (auto done = open_all(); !done) return refuse(done.error());
    if (auto done = connection_->post_receives(2 * geometry_.slots); !done) return refuse(done.error());
    return accept();
}

/// Where the session goes on. Without a known end that takes as long as the file's reading.
Session::Begun Session::open_file() {
    const auto busy = life_->begin(Wait{});
    try {
        file_ = std::make_unique<CaptureFile>(
            spec_.folder, spec_.limits, hello_,
            Resuming{.known = known_ ? &*known_ : nullptr,
                     .watch = [this](std::uint64_t read, std::uint64_t size) { watch_reading(read, size); }});
        return {};
    } catch (const SessionConflict& conflict) {
        return tl::unexpected(Refuse{RefuseReason::geometry, conflict.what()});
    } catch (const std::system_error& error) {
        known_.reset();
        const bool stopped = error.code() == std::errc::operation_canceled;
        return tl::unexpected(Refuse{stopped ? RefuseReason::busy : RefuseReason::device, error.what()});
    } catch (const std::exception& exception) {
        return tl::unexpected(Refuse{RefuseReason::device, exception.what()});
    }
}

/// Ends the reading where nobody waits for it.
void Session::watch_reading(std::uint64_t read, std::uint64_t size) {
    pollfd polled{stop_, POLLIN, 0};
    if (poll(&polled, 1, 0) > 0) {
        throw std::system_error(ECANCELED, std::generic_category(), "the session's file was being read");
    }
    if (!life_->progressed(Wait{std::min(read, largest_file), std::min(size, largest_file)})) {
        throw std::system_error(ECONNRESET, std::generic_category(), "the session's file was being read");
    }
}

Session::Begun Session::make_ring() {
    const std::uint64_t size = geometry_.ring_size();
    if (size > spec_.largest_ring) {
        return tl::unexpected(Refuse{RefuseReason::geometry, fmt::format("a ring of {} bytes is larger than {}", size,
                                                                         spec_.largest_ring)});
    }
    try {
        ring_ = SessionRing::create(spec_.device->pd(), geometry_, spec_.keep_fields, memory_);
    } catch (const std::exception& exception) {
        return tl::unexpected(Refuse{RefuseReason::device, exception.what()});
    }
    if (ring_ != nullptr) return {};
    return tl::unexpected(Refuse{
        RefuseReason::busy, fmt::format("a ring takes {} bytes; of {} for all rings {} are taken",
                                        SessionRing::size_of(geometry_, spec_.keep_fields), memory_.size(),
                                        memory_.taken())});
}

/// Each slot expects the segment that comes first there.
Result<void> Session::open_all() {
    slots_.resize(geometry_.slots);
    base_ = opened_ = opening_ = told_ = file_->next();
    while (!ring_is_open()) {
        if (auto done = open_slots(); !done) return done;
        if (auto done = reap(); !done) return done;
        pollfd polled{stop_, POLLIN, 0};
        constexpr timespec pause{0, 100'000};
        if (opened_ < opening_ && ppoll(&polled, 1, &pause, nullptr) > 0) {
            return tl::unexpected(Error{ECANCELED, "the collector was told to end it"});
        }
    }
    return {};
}

Session::Begun Session::accept() {
    Accept accept{.next = file_->next(),
                  .durability = spec_.limits.durability,
                  .endpoint = connection_->local(),
                  .keys = {}};
    for (std::uint16_t slot = 0; slot < geometry_.slots; ++slot) accept.keys.push_back(connection_->key_of(slot));
    counters_.change(number(), [this](SessionCounters& counted) {
        counted.mirror = hello_.mirror;
        counted.peer = peer_;
        counted.signature = fmt::format("{} {}", name_of(geometry_.signature.type), geometry_.signature.block_size);
        counted.connected = true;
        counted.finished = false;
        counted.file = file_->path();
        counted.next = file_->next();
        count_gap(counted);
        if (!file_->damaged().empty() && counted.damaged != file_->damaged()) {
            counted.damaged = file_->damaged();
            ++counted.damaged_files;
        }
        ++counted.connections;
    });
    if (auto said = socket_.send(accept); !said) {
        end(said.error().what, false);
        return tl::unexpected(Refuse{RefuseReason::device, said.error().what});
    }
    return {};
}

Result<void> Session::serve() {
    for (;;) {
        // Armed before it is polled: what completes later wakes wait().
        auto done = connection_->arm();
        if (done) done = reap();
        if (done) write_segments();
        if (done) done = open_slots();
        if (done) done = say_stalled();
        if (done) done = hear();
        if (done) done = socket_.flush();
        if (!done) return done;
        if (end_ && told_ == *end_) return {};
        wait();
        std::uint64_t value;
        if (read(stop_, &value, sizeof value) == sizeof value) {
            return tl::unexpected(Error{ECANCELED, "the collector was told to end it"});
        }
    }
}

void Session::wait() {
    int sleep = longest_sleep_ms;
    if (stalled_) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(write_again_ - Clock::now()).count();
        sleep = static_cast<int>(std::clamp<std::int64_t>(left, 1, longest_sleep_ms));
    }
    pollfd polled[] = {{socket_.fd(), socket_.events(), 0}, {connection_->fd(), POLLIN, 0}, {stop_, POLLIN, 0}};
    poll(polled, std::size(polled), sleep);
    connection_->drain_wake_ups();
}

Result<void> Session::reap() {
    for (;;) {
        const auto completions = connection_->poll();
        if (!completions) return tl::unexpected(completions.error());
        if (completions->empty()) break;
        for (const ibv_wc& completion : *completions) {
            if (completion.status != IBV_WC_SUCCESS) {
                return tl::unexpected(Error{EIO, fmt::format("the connection: {}",
                                                             ibv_wc_status_str(completion.status))});
            }
            if (completion.opcode == IBV_WC_DRIVER1) {
                opened_ = completion.wr_id + 1;
            } else if (auto taken = take(completion); !taken) {
                return taken;
            }
        }
    }
    const std::uint32_t used = std::exchange(receives_used_, 0);
    return connection_->post_receives(used);
}

/// A write has arrived. Which segment it is, the immediate value says in 32 bits; the ring is much smaller.
Result<void> Session::take(const ibv_wc& completion) {
    ++receives_used_;
    if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
        return tl::unexpected(Error{EPROTO, "the switch sends what is no segment"});
    }
    const std::uint64_t next = file_->durable();
    const std::uint64_t sequence = next + static_cast<std::uint32_t>(ntohl(completion.imm_data) -
                                                                     static_cast<std::uint32_t>(next));
    // A segment that nobody waits for may have been written to any slot.
    if (sequence - next >= geometry_.slots) return look_at_all();
    return look_at(sequence, completion.byte_len);
}

Result<void> Session::look_at_all() {
    counters_.change(number(), [](SessionCounters& counted) {
        ++counted.bad[static_cast<std::size_t>(BadKind::sequence)];
        counted.last_bad = "a write that is of no segment in the ring: one was replayed";
    });
    for (std::uint64_t sequence = file_->durable(); sequence < file_->durable() + geometry_.slots; ++sequence) {
        if (!slot_of(sequence).arrived) {
            // What the MKEY says now may be of that write, or of a segment whose completion stands behind its own. It
            // is asked once only: kept, it costs a right segment that is written again, and no wrong one gets through.
            const auto checked = connection_->check(geometry_.slot_of(sequence));
            if (!checked) return tl::unexpected(checked.error());
            if (checked->err_type != MLX5DV_MKEY_NO_ERR) slot_of(sequence).verdict = *checked;
            continue;
        }
        const std::uint32_t used = slot_of(sequence).header.used;
        const auto size = geometry_.signature.protected_size(geometry_.signature.blocks_of(used));
        if (auto done = look_at(sequence, static_cast<std::uint32_t>(size)); !done) return done;
    }
    return {};
}

Result<void> Session::say_bad(const Bad& bad) {
    slot_of(bad.sequence).arrived = false;
    counters_.change(number(), [&](SessionCounters& counted) {
        ++counted.bad[static_cast<std::size_t>(bad.kind)];
        counted.last_bad = fmt::format("segment {}, offset {}: {} is {:#x}, expected {:#x}", bad.sequence, bad.offset,
                                       text_of(bad.kind), bad.actual, bad.expected);
    });
    return socket_.send(bad);
}

/// What the NIC found; true: nothing.
Result<bool> Session::check_blocks(std::uint64_t sequence) {
    auto error = connection_->check(geometry_.slot_of(sequence));
    if (!error) return tl::unexpected(error.error());
    const auto kept = std::exchange(slot_of(sequence).verdict, std::nullopt);
    if (error->err_type == MLX5DV_MKEY_NO_ERR && kept) *error = *kept;
    if (error->err_type == MLX5DV_MKEY_NO_ERR) return true;
    // The offset counts fields too.
    const mlx5dv_sig_err& found = error->err.sig;
    const std::uint64_t block = found.offset / geometry_.signature.protected_size(1);
    const auto said = say_bad({.sequence = sequence,
                               .kind = kind_of(error->err_type),
                               .offset = static_cast<std::uint32_t>(block * geometry_.signature.block_size),
                               .actual = found.actual_value,
                               .expected = found.expected_value});
    if (!said) return tl::unexpected(said.error());
    return false;
}

Result<void> Session::look_at(std::uint64_t sequence, std::uint32_t arrived_size) {
    slot_of(sequence).arrived = false;
    const auto right = check_blocks(sequence);
    if (!right) return tl::unexpected(right.error());
    if (!*right) return {};
    const auto data = ring_->data_of(sequence);
    if (on_arrival != nullptr) on_arrival(data, sequence);
    const DecodedHeader decoded = decode_header(data);
    if (decoded.fault != HeaderFault::none) {
        return say_bad({sequence, BadKind::header, 0, static_cast<std::uint64_t>(decoded.fault), 0});
    }
    const SegmentHeader& header = decoded.header;
    if (header.session != hello_.session || header.sequence != sequence ||
        header.first_reference != geometry_.first_reference(sequence)) {
        return say_bad({sequence, BadKind::sequence, 0, header.sequence, sequence});
    }
    if (header.application_tag != hello_.application_tag || !(header.signature == geometry_.signature)) {
        return say_bad({sequence, BadKind::application_tag, 0, header.application_tag, hello_.application_tag});
    }
    const Signature& signature = geometry_.signature;
    const std::uint64_t size =
        signature.protected_size(signature.blocks_of(std::min(header.used, geometry_.segment_size)));
    if (header.used > geometry_.segment_size || size != arrived_size) {
        return say_bad({sequence, BadKind::size, 0, arrived_size, size});
    }
    const auto payload = data.first(header.used).subspan(header_size);
    if (const std::uint32_t crc = crc32c(0, payload); crc != header.payload_crc) {
        return say_bad({sequence, BadKind::payload, header_size, crc, header.payload_crc});
    }
    // To send it again would not help: the switch has sealed it so.
    if (const std::string wrong = payload_fault(payload, hello_.interfaces.size()); !wrong.empty()) {
        (void)socket_.send(Refuse{RefuseReason::malformed, fmt::format("segment {}: {}", sequence, wrong)});
        return tl::unexpected(Error{EPROTO, fmt::format("segment {}: {}", sequence, wrong)});
    }
    slot_of(sequence) = {.arrived = true, .header = header};
    return {};
}

/// What has arrived, up to the first that has not. What cannot be written or made durable stays, and is tried again.
void Session::write_segments() {
    if (stalled_ && Clock::now() < write_again_) return;
    const std::uint64_t before = file_->durable();
    const auto busy = life_->begin(Progress{told_});
    std::string wrong;
    try {
        while (has_to_be_written(file_->next())) {
            const SegmentHeader& header = slot_of(file_->next()).header;
            file_->append(header, ring_->data_of(header.sequence), ring_->fields_of(header));
        }
    } catch (const std::system_error& error) {
        wrong = error.what();
    }
    try {
        if (file_->durable() < file_->next()) file_->sync();
    } catch (const std::system_error& error) {
        wrong = error.what();
    }
    if (wrong.empty() && !stalled_ && file_->durable() == before) return;
    stalled_ = !wrong.empty();
    if (stalled_) write_again_ = Clock::now() + spec_.retry_write;
    count_durable(before, wrong);
}

/// A disk that takes nothing is no reason to leave, which the switch is told.
Result<void> Session::say_stalled() {
    if (!stalled_ || Clock::now() - said_stalled_ < spec_.sign_of_life.every) return {};
    said_stalled_ = Clock::now();
    return socket_.send(Progress{told_});
}

/// Once the files tell of it, and once in all: a connection that breaks earlier leaves it to the next.
void Session::count_gap(SessionCounters& counted) {
    if (!file_->gap_is_told() || std::exchange(gap_is_counted_, true)) return;
    counted.gap += file_->gap();
}

/// Segments from `first` on. `wrong`: why others are not; empty: all are.
void Session::count_durable(std::uint64_t first, const std::string& wrong) {
    SessionCounters written;
    for (std::uint64_t sequence = first; sequence < file_->durable(); ++sequence) {
        Slot& slot = slot_of(sequence);
        slot.arrived = false;
        ++written.segments;
        written.frames += slot.header.frames;
        written.bytes += slot.header.used;
        written.dropped += slot.header.dropped;
    }
    counters_.change(number(), [&](SessionCounters& counted) {
        counted.segments += written.segments;
        counted.frames += written.frames;
        counted.bytes += written.bytes;
        counted.dropped += written.dropped;
        counted.next = file_->durable();
        counted.file = file_->path();
        counted.stalled = wrong;
        count_gap(counted);
    });
}

/// Lets the slots of what is durable expect the segments that come next there, and tells the switch when they do.
Result<void> Session::open_slots() {
    const std::uint64_t wanted = file_->durable() + geometry_.slots;
    if (opening_ == opened_ && opening_ < wanted) {
        std::vector<SlotMemory> memories;
        while (opening_ < wanted && memories.size() < most_configurations) {
            slot_of(opening_).verdict.reset();
            memories.push_back(ring_->memory_of(opening_++));
        }
        if (auto done = connection_->post_open(opening_ - memories.size(), memories, hello_.application_tag); !done) {
            return done;
        }
    }
    if (ring_is_open() && opened_ - geometry_.slots > told_) {
        told_ = opened_ - geometry_.slots;
        return socket_.send(Progress{told_});
    }
    return {};
}

Result<void> Session::hear() {
    for (;;) {
        auto message = socket_.receive();
        if (!message) {
            if (socket_.malformed()) (void)socket_.send(*socket_.malformed());
            return tl::unexpected(std::move(message.error()));
        }
        if (!*message) return {};
        const auto* finished = std::get_if<Finished>(&**message);
        if (finished == nullptr || finished->end < file_->durable()) {
            return tl::unexpected(Error{EPROTO, "the switch says what it cannot say now"});
        }
        end_ = finished->end;
    }
}

}  // namespace ovsdr::drcollect
