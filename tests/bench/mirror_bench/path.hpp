// The way of segments from one ring to another inside one device: how fast it is, and what it costs.
//
// Costs. One thread of the soft NIC's executes both ends. So that a side's share of a signature can be told, a path may
// have it at one end only: opposite stands memory that has the fields in it.
// Costs are processor time of the NIC's worker for a ringful of segments, which it does without a pause: what else the
// machine does counts little then.
//
// Threads: one path runs at a time.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <span>

#include "common/pages.hpp"
#include "end.hpp"

namespace ovsdr::bench {

class Path {
public:
    Path(const std::shared_ptr<dr::Device>& device, const mirror::Geometry& geometry, EndKind from, EndKind to);
    Path(const Path&) = delete;
    Path& operator=(const Path&) = delete;

    /// Segments as fast as they go, each one checked by the MKEY that took it. Bytes of data a second. Throws where
    /// something is wrong.
    [[nodiscard]] double speed(double seconds);
    /// A ringful: seconds of the NIC's worker for a byte of data.
    [[nodiscard]] double cost();
    /// Throws unless the receiving ring has what it should, fields too.
    void verify() const;

private:
    template <typename Posts>
    void run(Posts posts);
    [[nodiscard]] bool turn(bool posts);
    [[nodiscard]] bool receive();
    void open();
    void fill();

    const mirror::Geometry geometry_;
    const EndKind from_, to_;
    const Pages source_, sink_;
    std::unique_ptr<End> sender_, receiver_;
    const clockid_t worker_;      ///< its processor time
    // Segments below these are...
    std::uint64_t next_ = 0;      ///< posted
    std::uint64_t written_ = 0;   ///< complete at the sender
    std::uint64_t arrived_ = 0;   ///< complete at the receiver, and checked
    std::uint64_t asked_ = 0;     ///< being opened, or open
    std::uint64_t opened_ = 0;    ///< allowed to come
};

}  // namespace ovsdr::bench
