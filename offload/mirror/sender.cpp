#include "offload/mirror/sender.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace ovsdr::mirror {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto connect_within = 10s;
// A completion may be missed between the last poll and the request for a wake-up; nothing else is late.
constexpr int longest_sleep_ms = 1000;
constexpr std::uint64_t most_writes = 64;   ///< under way
constexpr int patience_with_collector = 3;  ///< retry_after's, before the next is tried
constexpr unsigned patience = 16;           ///< times that one segment may be called bad on one connection

std::uint64_t now_ns() noexcept {
    return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() / 1ns);
}

std::uint64_t random_session() {
    std::uint64_t session = 0;
    while (session == 0) {
        if (getrandom(&session, sizeof session, 0) != sizeof session) session = 0;
    }
    return session;
}

CollectorAddress address_of(const SenderSpec& spec, std::size_t number) {
    return number == 0 ? CollectorAddress{spec.host, spec.service} : spec.standby[number - 1];
}

/// What the collector says to show that it is at work, and means nothing else. Here alone, for before and behind
/// Accept.
bool only_shows_life(const Message& message) noexcept { return std::holds_alternative<Wait>(message); }

void drain(int event) noexcept {
    std::uint64_t value;
    [[maybe_unused]] const ssize_t size = read(event, &value, sizeof value);
}

}  // namespace

struct Sender::Link {
    MessageSocket socket;
    std::unique_ptr<Connection> connection;
    std::vector<std::uint32_t> keys;
    std::uint64_t next = 0;             ///< the first segment that was not written yet
    std::uint64_t writing = 0;          ///< writes under way
    std::vector<bool> slot_is_writing;
    std::deque<std::uint64_t> again;    ///< segments to be written once more
    std::vector<unsigned> bad_times;    ///< of the segment in each slot
    std::size_t interfaces = 0;         ///< length of the list that the collector knows
    bool said_finished = false;
    Clock::time_point heard = Clock::now();   ///< the last message, or when nothing was under way
};

Sender::Sender(SenderSpec spec)
    : spec_(std::move(spec)),
      session_(random_session()),
      memory_(spec_.geometry.ring_size()),
      ring_(spec_.geometry, session_, spec_.application_tag, memory_.get(), spec_.snap_length),
      interfaces_(spec_.interfaces),
      interfaces_length_(interfaces_.size()) {}

Result<std::unique_ptr<Sender>> Sender::create(SenderSpec spec) noexcept try {
    std::string fault = spec.geometry.fault();
    if (fault.empty()) fault = fault_of(spec.interfaces);
    if (fault.empty() && spec.plain == static_cast<bool>(spec.tls)) {
        fault = "a mirror's handshake is either plain or has TLS with private key, certificate and CA certificate";
    }
    if (!fault.empty()) return tl::unexpected(Error{EINVAL, std::move(fault)});
    std::unique_ptr<Sender> made(new Sender(std::move(spec)));
    if (auto started = made->start(); !started) return tl::unexpected(std::move(started.error()));
    return made;
} catch (const std::bad_alloc&) {
    return tl::unexpected(Error{ENOMEM, "no memory for the mirror's ring"});
} catch (const std::system_error& error) {
    return tl::unexpected(Error{error.code().value(), error.what()});
}

Result<void> Sender::start() {
    const auto memory = memory_.get();
    mr_.reset(ibv_reg_mr(spec_.device->pd(), memory.data(), memory.size(), 0));
    if (mr_ == nullptr) return tl::unexpected(failure_of(errno, "ibv_reg_mr(ring of a mirror)"));
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    stop_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0 || stop_ < 0) return tl::unexpected(failure_of(errno, "eventfd"));
    stats_.collector = text_of(address_of(spec_, 0));
    thread_ = std::thread([this] { run(); });
    return {};
}

void Sender::end() noexcept {
    if (!thread_.joinable()) return;
    stopping_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t size = write(stop_, &one, sizeof one);
    thread_.join();
}

SegmentRing::Left Sender::abandon() noexcept {
    end();
    return ring_.left_from(acknowledged_);
}

Sender::~Sender() {
    end();
    if (wake_ >= 0) close(wake_);
    if (stop_ >= 0) close(stop_);
}

void Sender::wake() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t size = write(wake_, &one, sizeof one);
}

bool Sender::append(const pcapng::EnhancedPacket& packet) noexcept {
    // A collector takes no segment with such a frame, however often it is sent.
    if (packet.interface >= interfaces_length_) return ring_.drop();
    const std::uint64_t before = ring_.sealed();
    const bool taken = ring_.append(packet);
    if (ring_.sealed() != before) wake();
    return taken;
}

void Sender::tick() noexcept {
    const std::uint64_t now = now_ns();
    const auto age = static_cast<std::uint64_t>(spec_.seal_after / 1ns);
    if (ring_.seal_if_older(now - std::min(now, age), now)) wake();
}

bool Sender::finish(std::chrono::milliseconds within) {
    const auto end = Clock::now() + within;
    // Drops can be told when there is room only.
    while (!ring_.seal(now_ns()) && ring_.sealed() - ring_.released() == spec_.geometry.slots && Clock::now() < end) {
        std::this_thread::sleep_for(1ms);
    }
    finishing_ = true;
    wake();
    std::unique_lock lock(mutex_);
    return finished_changed_.wait_until(lock, end, [this] { return stats_.finished; });
}

Result<void> Sender::set_interfaces(std::vector<MirrorInterface> interfaces) {
    if (std::string fault = fault_of(interfaces); !fault.empty()) {
        return tl::unexpected(Error{EINVAL, std::move(fault)});
    }
    {
        const std::lock_guard guard(mutex_);
        if (interfaces.size() < interfaces_.size() ||
            !std::equal(interfaces_.begin(), interfaces_.end(), interfaces.begin())) {
            return tl::unexpected(Error{EINVAL, fmt::format("the mirror's {} interfaces stay as they are; others come "
                                                            "behind them",
                                                            interfaces_.size())});
        }
        interfaces_ = std::move(interfaces);
        interfaces_length_ = interfaces_.size();
    }
    wake();
    return {};
}

SenderStats Sender::stats() const {
    const std::lock_guard guard(mutex_);
    SenderStats stats = stats_;
    stats.frames = ring_.appended();
    stats.dropped = ring_.dropped();
    stats.sealed = ring_.sealed();
    stats.released = ring_.released();
    return stats;
}

void Sender::note(const Error& error) {
    {
        const std::lock_guard guard(mutex_);
        std::string said = stats_.collector + ": " + error.what;
        if (!std::exchange(stats_.connected, false) && stats_.last_error == said) return;
        stats_.last_error = std::move(said);
    }
    tell_change();
}

/// Empty: this end is ready.
void Sender::note_tls(const std::string& fault) {
    {
        const std::lock_guard guard(mutex_);
        if (stats_.tls_fault == fault) return;
        stats_.tls_fault = fault;
    }
    tell_change();
}

void Sender::tell_change() const {
    if (spec_.on_change) spec_.on_change();
}

/// Another one, where this one has not been reached for long enough.
void Sender::choose_collector() {
    const auto now = Clock::now();
    const bool is_hopeless = std::exchange(is_hopeless_, false);
    if (spec_.standby.empty()) return;
    if (!is_hopeless && now - reached_ < patience_with_collector * spec_.retry_after) return;
    collector_ = (collector_ + 1) % (1 + spec_.standby.size());
    reached_ = now;
    {
        const std::lock_guard guard(mutex_);
        stats_.collector = text_of(address_of(spec_, collector_));
    }
    tell_change();
}

void Sender::run() noexcept {
    reached_ = Clock::now();
    while (!stopping_) {
        try {
            if (attempt()) continue;
        } catch (const std::exception& error) {   // no memory: the next attempt may have some
            note({ENOMEM, error.what()});
        }
        if (finished_) break;
        choose_collector();
        pollfd polled{stop_, POLLIN, 0};
        poll(&polled, 1, static_cast<int>(spec_.retry_after.count()));
    }
    const std::lock_guard guard(mutex_);
    stats_.connected = false;
    stats_.finished = finished_;
    finished_changed_.notify_all();
}

/// True: nothing has failed, and another connection is to follow at once.
bool Sender::attempt() {
    auto tls = own_tls();
    note_tls(tls ? std::string() : tls.error().what);
    if (!tls) {
        reached_ = Clock::now();   // no other collector would do
        return false;
    }
    const auto served = serve(std::move(*tls));
    if (std::exchange(has_new_interfaces_, false)) {
        const std::lock_guard guard(mutex_);
        stats_.connected = false;
        return true;
    }
    if (!served && !finished_) note(served.error());
    return false;
}

/// None: plain.
Result<std::unique_ptr<TlsFilter>> Sender::own_tls() const {
    if (spec_.plain) return nullptr;
    const auto files = spec_.tls();
    if (!files) return tl::unexpected(files.error());
    return TlsFilter::create(*files, TlsRole::client);
}

/// One connection, from its beginning to its end, which is an error.
Result<void> Sender::serve(std::unique_ptr<TlsFilter> tls) {
    const CollectorAddress address = address_of(spec_, collector_);
    auto socket = MessageSocket::connect(address.host, address.service, connect_within, stop_, std::move(tls));
    if (!socket) return tl::unexpected(std::move(socket.error()));
    auto connection = Connection::create(spec_.device, spec_.address, spec_.geometry);
    if (!connection) return tl::unexpected(std::move(connection.error()));
    Link link{.socket = std::move(*socket), .connection = std::move(*connection)};
    auto accepted = shake_hands(link);
    if (!accepted) return tl::unexpected(std::move(accepted.error()));
    link.next = accepted->next;
    link.keys = std::move(accepted->keys);
    link.slot_is_writing.resize(spec_.geometry.slots);
    link.bad_times.resize(spec_.geometry.slots);
    acknowledged_ = accepted->next;
    release(link);
    {
        const std::lock_guard guard(mutex_);
        stats_.connected = true;
        ++stats_.connections;
    }
    tell_change();
    while (!stopping_) {
        auto done = turn(link);
        reached_ = Clock::now();
        if (done) done = check_silence(link);
        if (!done) return done;
        wait(link);
    }
    return tl::unexpected(Error{ECANCELED, "stopped"});
}

Result<Accept> Sender::shake_hands(Link& link) {
    const std::uint64_t oldest = ring_.released();
    std::vector<MirrorInterface> interfaces;
    {
        const std::lock_guard guard(mutex_);
        interfaces = interfaces_;
    }
    link.interfaces = interfaces.size();
    auto sent = link.socket.send(Hello{.session = session_,
                                       .oldest = oldest,
                                       .application_tag = spec_.application_tag,
                                       .geometry = spec_.geometry,
                                       .endpoint = link.connection->local(),
                                       .mirror = spec_.mirror,
                                       .interfaces = std::move(interfaces)});
    if (!sent) return tl::unexpected(std::move(sent.error()));
    auto answer = await_answer(link);
    if (!answer) {
        Error error = std::move(answer.error());
        // OpenSSL says nothing to who speaks no TLS.
        if (spec_.plain && error.code == ECONNRESET) error.what += " at a plain Hello; it may ask for TLS";
        return tl::unexpected(std::move(error));
    }
    if (const auto* refuse = std::get_if<Refuse>(&*answer)) {
        return tl::unexpected(Error{ECONNREFUSED, "the collector refuses: " + refuse->detail});
    }
    auto* const accept = std::get_if<Accept>(&*answer);
    if (accept == nullptr || accept->keys.size() != spec_.geometry.slots) {
        return tl::unexpected(Error{EPROTO, "the collector answers a Hello with something else"});
    }
    if (accept->next < oldest || accept->next > ring_.sealed()) {
        return tl::unexpected(Error{EPROTO, fmt::format("the collector wants segment {}; there are {} to {}",
                                                        accept->next, oldest, ring_.sealed())});
    }
    if (auto connected = link.connection->connect(accept->endpoint); !connected) {
        return tl::unexpected(std::move(connected.error()));
    }
    return std::move(*accept);
}

/// To the Hello. A collector that goes on with a file reads all of it first, and shows that it does.
Result<Message> Sender::await_answer(Link& link) const {
    for (;;) {
        auto answer = link.socket.await(spec_.silent_for, stop_);
        if (!answer && answer.error().code == ETIMEDOUT) return tl::unexpected(silence());
        if (!answer || !only_shows_life(*answer)) return answer;
    }
}

Error Sender::silence() const {
    return {ETIMEDOUT, fmt::format("the collector has said nothing for {} ms", spec_.silent_for.count())};
}

/// Nobody is asked for anything while nothing is under way.
Result<void> Sender::check_silence(Link& link) {
    const auto now = Clock::now();
    const bool waits = acknowledged_ != link.next || link.said_finished;
    if (!waits) link.heard = now;
    if (now - link.heard < spec_.silent_for) return {};
    reached_ = link.heard;   // so that another collector is tried at once
    return tl::unexpected(silence());
}

Result<void> Sender::turn(Link& link) {
    // Armed before it is polled: what completes later wakes wait().
    auto done = link.connection->arm();
    if (done) done = reap(link);
    if (done) done = hear(link);
    if (done) done = post(link);
    if (done && finishing_ && !link.said_finished && link.next == ring_.sealed()) {
        link.said_finished = true;
        done = link.socket.send(Finished{link.next});
    }
    if (done) done = link.socket.flush();
    return done;
}

void Sender::wait(Link& link) const {
    pollfd polled[] = {{link.socket.fd(), link.socket.events(), 0},
                       {link.connection->fd(), POLLIN, 0},
                       {wake_, POLLIN, 0},
                       {stop_, POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(link.heard + spec_.silent_for - Clock::now());
    poll(polled, std::size(polled), static_cast<int>(std::clamp<std::int64_t>(left.count(), 1, longest_sleep_ms)));
    drain(wake_);
    link.connection->drain_wake_ups();
}

Result<void> Sender::hear(Link& link) {
    for (;;) {
        auto message = link.socket.receive();
        if (!message) {
            // The collector closes when it has all that it was told of.
            if (link.said_finished && acknowledged_ == ring_.sealed()) finished_ = true;
            return tl::unexpected(std::move(message.error()));
        }
        if (!*message) return {};
        link.heard = Clock::now();
        if (only_shows_life(**message)) continue;
        if (const auto* progress = std::get_if<Progress>(&**message)) {
            if (progress->next < acknowledged_ || progress->next > link.next) {
                return tl::unexpected(Error{EPROTO, fmt::format("the collector acknowledges segments below {}; {} to "
                                                                "{} are under way",
                                                                progress->next, acknowledged_, link.next)});
            }
            acknowledged_ = progress->next;
            release(link);
        } else if (const auto* bad = std::get_if<Bad>(&**message)) {
            if (auto done = hear_bad(link, *bad); !done) return done;
        } else if (const auto* refuse = std::get_if<Refuse>(&**message)) {
            return tl::unexpected(Error{ECONNREFUSED, "the collector ends it: " + refuse->detail});
        } else {
            return tl::unexpected(Error{EPROTO, "the collector says what only a switch says"});
        }
    }
}

Result<void> Sender::hear_bad(Link& link, const Bad& bad) {
    {
        const std::lock_guard guard(mutex_);
        ++stats_.bad[static_cast<std::size_t>(bad.kind)];
        stats_.last_bad = fmt::format("segment {}, offset {}: {} is {:#x}, expected {:#x}", bad.sequence, bad.offset,
                                      text_of(bad.kind), bad.actual, bad.expected);
    }
    tell_change();
    if (bad.sequence < acknowledged_ || bad.sequence >= link.next) {
        return tl::unexpected(Error{EPROTO, fmt::format("the collector calls segment {} bad; {} to {} are under way",
                                                        bad.sequence, acknowledged_, link.next)});
    }
    // Counted for each: of several that are never right, each is called bad in turn.
    if (++link.bad_times[spec_.geometry.slot_of(bad.sequence)] > patience) {
        is_hopeless_ = true;
        return tl::unexpected(Error{EIO, fmt::format("segment {} was bad {} times", bad.sequence, patience)});
    }
    link.again.push_back(bad.sequence);
    return {};
}

/// Writes that the NIC has done with.
Result<void> Sender::reap(Link& link) {
    for (;;) {
        const auto completions = link.connection->poll();
        if (!completions) return tl::unexpected(completions.error());
        if (completions->empty()) return {};
        for (const ibv_wc& completion : *completions) {
            if (completion.status != IBV_WC_SUCCESS) {
                return tl::unexpected(Error{EIO, fmt::format("segment {}: {}", completion.wr_id,
                                                             ibv_wc_status_str(completion.status))});
            }
            const std::uint16_t slot = spec_.geometry.slot_of(completion.wr_id);
            link.slot_is_writing[slot] = false;
            --link.writing;
            // Memory is plain here, so that this NIC has nothing to check: an error would be the MKEY's own.
            const auto checked = link.connection->check(slot);
            if (!checked) return tl::unexpected(checked.error());
            if (checked->err_type != MLX5DV_MKEY_NO_ERR) {
                return tl::unexpected(Error{EIO, fmt::format("segment {}: the own NIC reports a bad block",
                                                             completion.wr_id)});
            }
        }
        release(link);
    }
}

/// A slot is the producer's again when the collector has the segment and the NIC cannot need it for another attempt.
void Sender::release(Link& link) {
    std::uint64_t released = ring_.released();
    while (released < acknowledged_ && !link.slot_is_writing[spec_.geometry.slot_of(released)]) ++released;
    ring_.release(released);
    const std::lock_guard guard(mutex_);
    stats_.acknowledged = acknowledged_;
}

Result<void> Sender::post(Link& link) {
    const std::uint64_t most = std::min<std::uint64_t>(most_writes, spec_.geometry.slots);
    // A slot whose write has not completed is not written again yet: its MKEY is in use.
    while (link.writing < most && !link.again.empty()) {
        const std::uint64_t sequence = link.again.front();
        if (link.slot_is_writing[spec_.geometry.slot_of(sequence)]) break;
        link.again.pop_front();
        if (sequence < acknowledged_) continue;
        std::uint64_t lost = 0;
        if (ring_.is_damaged(sequence)) lost = ring_.empty(sequence, now_ns());
        {
            const std::lock_guard guard(mutex_);
            ++stats_.resent;
            stats_.damaged += lost;
        }
        if (auto posted = post_one(link, sequence); !posted) return posted;
    }
    const std::uint64_t sealed = ring_.sealed();
    // Read behind sealed(): a segment with a frame of a new interface was sealed after the list had become longer.
    if (interfaces_length_ != link.interfaces) {
        has_new_interfaces_ = true;
        return tl::unexpected(Error{ESTALE, "the mirror has more interfaces, which another Hello tells"});
    }
    for (; link.writing < most && link.next < sealed; ++link.next) {
        link.bad_times[spec_.geometry.slot_of(link.next)] = 0;
        if (auto posted = post_one(link, link.next); !posted) return posted;
    }
    return {};
}

Result<void> Sender::post_one(Link& link, std::uint64_t sequence) {
    const std::uint16_t slot = spec_.geometry.slot_of(sequence);
    const auto bytes = ring_.blocks_of(sequence);
    const SlotMemory memory{reinterpret_cast<std::uint64_t>(bytes.data()), mr_->lkey};
    auto posted = link.connection->post_write(sequence, memory, spec_.geometry.signature.blocks_of(bytes.size()),
                                              spec_.application_tag, link.keys[slot]);
    if (!posted) return posted;
    link.slot_is_writing[slot] = true;
    ++link.writing;
    return {};
}

}  // namespace ovsdr::mirror
