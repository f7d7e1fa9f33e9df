#include "datapath/ports/memif_connection.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <rte_mbuf.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "datapath/ports/event_signal.hpp"
#include "datapath/ports/guarded_copy.hpp"

namespace ovsdr::soft::memif {
namespace {

std::uint16_t load(const std::uint16_t& index) noexcept {
    return __atomic_load_n(&index, __ATOMIC_ACQUIRE);
}

void store(std::uint16_t& index, std::uint16_t value) noexcept {
    __atomic_store_n(&index, value, __ATOMIC_RELEASE);
}

// Once, so that what was checked is what is used.
Descriptor read_once(const Descriptor& shared) noexcept {
    Descriptor copy{};
    copy.flags = __atomic_load_n(&shared.flags, __ATOMIC_RELAXED);
    copy.region = __atomic_load_n(&shared.region, __ATOMIC_RELAXED);
    copy.length = __atomic_load_n(&shared.length, __ATOMIC_RELAXED);
    copy.offset = __atomic_load_n(&shared.offset, __ATOMIC_RELAXED);
    return copy;
}

constexpr std::uint16_t most_pieces = 256;   // of a frame: the longest has fewer in buffers of 64 bytes
constexpr std::uint16_t most_pieces_at_once = 256;   // and those of the frame that is under way

// The kernel's name for what stands behind a descriptor; without /proc nothing is believed.
bool is_eventfd(int descriptor) noexcept {
    constexpr std::string_view name = "anon_inode:[eventfd]";
    char link[32], target[64];
    (void)std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t length = readlink(link, target, sizeof target);
    return length >= 0 && std::string_view(target, static_cast<std::size_t>(length)) == name;
}

}  // namespace

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
}

FileDescriptor::~FileDescriptor() {
    if (number_ >= 0) close(number_);
}

Connection::Connection(Role role, rte_mempool* pool, unsigned most) noexcept
    : role_(role),
      pool_(pool),
      most_(most),
      room_(static_cast<std::uint16_t>(rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM)) {}

Connection::~Connection() {
    for (Region& region : regions_) {
        if (region.memory != nullptr) munmap(region.memory, region.size);
    }
}

const char* Connection::add_region(const AddRegion& message, FileDescriptor file) noexcept {
    if (file.get() < 0) return "Missing region fd";
    if (message.index != region_count_ || region_count_ == most_regions) return "Invalid region index";
    // A file that shrinks while we read it would kill this process.
    const int seals = fcntl(file.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return "Region is not sealed against shrinking";
    struct stat status {};
    struct statfs system {};
    if (fstat(file.get(), &status) != 0 || fstatfs(file.get(), &system) != 0 || message.size == 0 ||
        static_cast<std::uint64_t>(status.st_size) < message.size) {
        return "Region is larger than its file";
    }
    const bool huge = system.f_type == HUGETLBFS_MAGIC;
    // The kernel would map whole pages, and unmap nothing else.
    if (huge && message.size % static_cast<std::uint64_t>(system.f_bsize) != 0) return "Region ends within a huge page";
    // What nobody has touched yet is charged to this process when it reads it.
    if (message.size > largest_layout - mapped_) return "Regions too large";
    void* memory = mmap(nullptr, message.size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) return "Region cannot be mapped";
    mapped_ += message.size;
    regions_[region_count_++] = {std::move(file), static_cast<std::byte*>(memory), message.size, huge};
    return nullptr;
}

const char* Connection::add_ring(const AddRing& message, FileDescriptor event) noexcept {
    if (event.get() < 0) return "Missing interrupt fd";
    if (!is_eventfd(event.get())) return "Interrupt fd is no eventfd";
    Rings& added = rings((message.flags & 1) != 0 ? Direction::client_to_server : Direction::server_to_client);
    if (message.index != added.count || added.count == most_) return "Invalid ring index";
    if (message.log2_size > largest_log2_ring) return "Ring too large";
    if (message.private_header_size != 0) return "Private headers are not supported";
    // Nobody's wake-up may hold up a worker. (The peer can take that back: EventSignal.)
    (void)fcntl(event.get(), F_SETFL, O_NONBLOCK);
    RingEnd& end = added.ends[added.count++];
    end.place = {.region = message.region, .offset = message.offset, .log2_size = message.log2_size};
    end.event = std::move(event);
    return nullptr;
}

const char* Connection::make_memory(const Layout& layout) noexcept {
    buffer_size_ = layout.buffer_size;
    const std::uint64_t size = layout.size();
    FileDescriptor file(memfd_create("ovs-dr-memif", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(size)) != 0 ||
        fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        return "No shared memory";
    }
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) return "No shared memory";
    regions_[0] = {std::move(file), static_cast<std::byte*>(memory), size};
    region_count_ = 1;
    rings(Direction::client_to_server).count = layout.to_server;
    rings(Direction::server_to_client).count = layout.to_client;
    for (const Direction direction : {Direction::client_to_server, Direction::server_to_client}) {
        for (unsigned index = 0; index < ring_count(direction); ++index) {
            RingEnd& made = rings(direction).ends[index];
            const unsigned number = layout.number_of(direction, index);
            made.place = {.offset = static_cast<std::uint32_t>(layout.ring_offset(number)),
                          .log2_size = static_cast<std::uint8_t>(layout.log2_ring)};
            made.event = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
            if (made.event.get() < 0) return "No eventfd";
            auto& ring = *reinterpret_cast<Ring*>(regions_[0].memory + made.place.offset);
            ring.cookie = ring_cookie;
            for (std::uint32_t slot = 0; slot < 1U << layout.log2_ring; ++slot) {
                ring.descriptors[slot] = {.length = layout.buffer_size,
                                          .offset = static_cast<std::uint32_t>(layout.buffer_offset(number, slot))};
            }
        }
    }
    return nullptr;
}

const char* Connection::locate(RingEnd& located) noexcept {
    const RingPlace& place = located.place;
    if (place.region >= region_count_ || place.offset % alignof(Ring) != 0 ||
        std::uint64_t{place.offset} + ring_bytes(place.log2_size) > regions_[place.region].size) {
        return "Ring outside its region";
    }
    if (regions_[place.region].may_vanish) return "Ring in huge pages";
    located.ring = reinterpret_cast<Ring*>(regions_[place.region].memory + place.offset);
    located.size = static_cast<std::uint16_t>(1U << place.log2_size);
    return located.ring->cookie == ring_cookie ? nullptr : "Wrong cookie";
}

const char* Connection::complete() noexcept {
    for (Rings* each : {&from_peer_, &to_peer_}) {
        if (each->count == 0) return "Missing ring";
        for (unsigned index = 0; index < each->count; ++index) {
            RingEnd& located = each->ends[index];
            if (const char* problem = locate(located)) return problem;
            store(located.ring->head, 0);
            store(located.ring->tail, 0);
        }
    }
    for (unsigned index = 0; index < from_peer_.count; ++index) {
        arm(index, false);
        if (role_ == Role::server) continue;
        const RingEnd& empty = from_peer_.ends[index];
        store(empty.ring->head, empty.size);  // all buffers are the server's to fill
    }
    return nullptr;
}

std::byte* Connection::buffer(const Descriptor& descriptor, std::uint32_t length) noexcept {
    if (descriptor.region >= region_count_) return nullptr;
    const Region& region = regions_[descriptor.region];
    if (std::uint64_t{descriptor.offset} + length > region.size) return nullptr;
    return region.memory + descriptor.offset;
}

// One frame of at most `available` descriptors; nullptr when there is no buffer for it, or nothing valid. More pieces
// than most_pieces are no frame: each may cost a page fault, and other ports wait for this worker.
rte_mbuf* Connection::take_frame(RingEnd& from, std::uint16_t available) noexcept {
    rte_mbuf* packet = rte_pktmbuf_alloc(pool_);
    if (packet == nullptr) return nullptr;
    auto* data = rte_pktmbuf_mtod(packet, std::byte*);
    std::uint32_t size = 0;
    const std::uint16_t most = std::min<std::uint16_t>(available, most_pieces);
    for (std::uint16_t used = 1; used <= most; ++used) {
        const Descriptor piece = read_once(from.ring->descriptors[(from.next + used - 1) & (from.size - 1)]);
        const std::uint32_t length = std::min<std::uint32_t>(piece.length, room_ - size);
        const std::byte* bytes = buffer(piece, piece.length);
        if (bytes == nullptr) break;
        if (!guarded_copy(data + size, bytes, length)) break;
        size += length;
        if ((piece.flags & descriptor_next) != 0) continue;
        if (size == 0) break;
        packet->data_len = static_cast<std::uint16_t>(size);
        packet->pkt_len = size;
        from.next = static_cast<std::uint16_t>(from.next + used);
        return packet;
    }
    broken_.store(true, std::memory_order_relaxed);
    rte_pktmbuf_free(packet);
    return nullptr;
}

std::uint16_t Connection::receive(unsigned ring, rte_mbuf** packets, std::uint16_t length) noexcept {
    RingEnd& from = from_peer_.ends[ring];
    if (from.ring == nullptr) return 0;
    const std::uint16_t filled = role_ == Role::server ? load(from.ring->head) : load(from.ring->tail);
    auto available = static_cast<std::uint16_t>(filled - from.next);
    if (available == 0 || broken()) return 0;
    if (available > from.size) {
        broken_.store(true, std::memory_order_relaxed);
        return 0;
    }
    std::uint16_t received = 0;
    // What is left is there the next time.
    const std::uint16_t begin = from.next;
    while (received < length && available > 0 && static_cast<std::uint16_t>(from.next - begin) < most_pieces_at_once) {
        const std::uint16_t before = from.next;
        rte_mbuf* packet = take_frame(from, available);
        if (packet == nullptr) break;
        available = static_cast<std::uint16_t>(available - (from.next - before));
        packets[received++] = packet;
    }
    give_back(from);
    return received;
}

// What was taken is the peer's again: free descriptors for a client, empty buffers for a server.
void Connection::give_back(RingEnd& from) noexcept {
    if (role_ == Role::server) return store(from.ring->tail, from.next);
    std::uint16_t head = from.ring->head;
    const auto end = static_cast<std::uint16_t>(from.next + from.size);
    if (static_cast<std::uint16_t>(end - head) > from.size) {
        broken_.store(true, std::memory_order_relaxed);
        return;
    }
    for (; head != end; ++head) {
        Descriptor& empty = from.ring->descriptors[head & (from.size - 1)];
        empty.length = buffer_size_;
        empty.flags = 0;
    }
    store(from.ring->head, end);
}

// Fills descriptors with a packet; false when there are too few of them, and then the peer sees none of it.
bool Connection::put_frame(RingEnd& to, std::uint16_t& available, const rte_mbuf* packet) noexcept {
    std::uint16_t used = 0;
    std::uint32_t free = 0, filled = 0;
    std::byte* bytes = nullptr;
    Descriptor* target = nullptr;
    for (const rte_mbuf* segment = packet; segment != nullptr; segment = segment->next) {
        const auto* data = rte_pktmbuf_mtod(segment, const std::byte*);
        for (std::uint32_t left = segment->data_len; left > 0;) {
            if (free == 0) {
                if (used == available) return false;
                if (used == most_pieces) {
                    broken_.store(true, std::memory_order_relaxed);
                    return false;
                }
                if (target != nullptr) target->flags = descriptor_next;
                target = &to.ring->descriptors[(to.next + used++) & (to.size - 1)];
                const Descriptor empty = read_once(*target);
                free = role_ == Role::client ? buffer_size_ : empty.length;
                bytes = buffer(empty, free);
                if (bytes == nullptr || free == 0) {
                    broken_.store(true, std::memory_order_relaxed);
                    return false;
                }
                filled = 0;
                target->flags = 0;
            }
            const std::uint32_t piece = std::min(left, free);
            if (!guarded_copy(bytes + filled, data, piece)) {
                broken_.store(true, std::memory_order_relaxed);
                return false;
            }
            filled += piece;
            free -= piece;
            data += piece;
            left -= piece;
            target->length = filled;
        }
    }
    to.next = static_cast<std::uint16_t>(to.next + used);
    available = static_cast<std::uint16_t>(available - used);
    return true;
}

std::uint16_t Connection::send(unsigned ring, rte_mbuf** packets, std::uint16_t length) noexcept {
    RingEnd& to = to_peer_.ends[ring];
    if (to.ring == nullptr) return 0;
    auto available = role_ == Role::server ? static_cast<std::uint16_t>(load(to.ring->head) - to.next)
                                           : static_cast<std::uint16_t>(to.size - (to.next - load(to.ring->tail)));
    if (available > to.size) broken_.store(true, std::memory_order_relaxed);
    if (broken()) return 0;
    std::uint16_t sent = 0;
    while (sent < length && put_frame(to, available, packets[sent])) ++sent;
    if (sent == 0) return 0;
    store(role_ == Role::server ? to.ring->tail : to.ring->head, to.next);
    rte_pktmbuf_free_bulk(packets, sent);
    wake_consumer(to);
    return sent;
}

void Connection::wake_consumer(const RingEnd& to) noexcept {
    // The consumer clears the flag and then looks at the index; we move the index and then look at the flag.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if ((__atomic_load_n(&to.ring->flags, __ATOMIC_RELAXED) & ring_no_wake_up) != 0) return;
    thread_local EventSignal signal;
    signal.wake(to.event.get());
}

void Connection::arm(unsigned ring, bool on) noexcept {
    const RingEnd& from = from_peer_.ends[ring];
    if (from.ring == nullptr) return;
    store(from.ring->flags, on ? 0 : ring_no_wake_up);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace ovsdr::soft::memif
