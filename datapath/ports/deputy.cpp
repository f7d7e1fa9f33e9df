#include "datapath/ports/deputy.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "datapath/packet.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds shortest_nap = 1ms, longest_nap = 4ms;
constexpr std::chrono::nanoseconds longest_quiet = 2s;
// In a row.
constexpr unsigned most_turns_missed = 3, most_turns_for_nothing = 16, most_passes_awake = 8;
// A deputy that has taken so many turns has proved itself, whatever it has missed before.
constexpr std::uint64_t turns_of_a_good_one = 64;

}  // namespace

void Deputy::worker_passed(const Pass& pass) noexcept {
    const std::shared_ptr<Lookout> woken = std::exchange(woken_, nullptr);
    if (appointed()) {
        if (!pass.slept) {
            if (++passes_awake_ == most_passes_awake) dismiss();
        } else if (!pass.rang && turns_ == turns_before_nap_ && ++turns_missed_ == most_turns_missed) {
            missed();
        }
        return;
    }
    if (!pass.slept) return;
    const Lookout::Thread thread = woken == nullptr || pass.forwarded ? nullptr : woken->waiter();
    wakes_ = thread != nullptr && thread == woken_thread_ ? wakes_ + 1 : 0;
    woken_thread_ = thread;
    if (thread != nullptr && wakes_ >= woken->wakes_wanted && pass.may_be_stood_in_for) appoint(woken);
}

void Deputy::appoint(const std::shared_ptr<Lookout>& lookout) noexcept {
    wakes_ = 0;
    if (!lookout->will_come() || !sleeper_.gather() || !lookout->show(sleeper_.gathered())) {
        sleeper_.scatter();
        return;
    }
    lookout_ = lookout;
    turns_ = turns_before_nap_ = 0;
    turns_missed_ = turns_for_nothing_ = passes_awake_ = 0;
    thread_.store(lookout->waiter(), std::memory_order_relaxed);
}

void Deputy::missed() noexcept {
    if (turns_ < turns_of_a_good_one) {
        lookout_->wakes_wanted = std::min(2 * lookout_->wakes_wanted, Lookout::most_wakes_wanted);
    }
    dismiss();
}

void Deputy::dismiss() noexcept {
    if (!appointed()) return;
    thread_.store(nullptr, std::memory_order_relaxed);
    if (turns_ >= turns_of_a_good_one) lookout_->wakes_wanted = Lookout::fewest_wakes_wanted;
    lookout_->hide(sleeper_.gathered());
    sleeper_.scatter();
    lookout_.reset();
    wakes_ = 0;
    woken_thread_ = nullptr;
}

bool Deputy::took_turn(unsigned received, bool forwarded) noexcept {
    const std::shared_ptr<Lookout> woken = std::exchange(woken_, nullptr);
    const bool others = woken != nullptr && woken->waiter() != Lookout::this_thread();
    turns_for_nothing_ = received == 0 || forwarded || others ? turns_for_nothing_ + 1 : 0;
    if (received > 0) ++turns_;
    if (received < poll_length && turns_for_nothing_ <= most_turns_for_nothing) return true;
    dismiss();
    return false;
}

std::chrono::nanoseconds Deputy::begin_nap(bool first) noexcept {
    if (first) {
        nap_ = shortest_nap;
        quiet_ = 0ns;
        passes_awake_ = 0;
    }
    turns_before_nap_ = turns_;
    return nap_;
}

bool Deputy::end_nap(bool rang) noexcept {
    if (!appointed()) return false;
    const bool came = turns_ != turns_before_nap_;
    std::array<unsigned, 1> place;
    if (!came && sleeper_.readable(place) != 0) return false;
    if (came) turns_missed_ = 0;
    quiet_ = came ? 0ns : quiet_ + nap_;
    nap_ = came || !lookout_->is_waiting() ? shortest_nap : std::min(2 * nap_, longest_nap);
    if (quiet_ >= longest_quiet) dismiss();
    return !rang && appointed();
}

}  // namespace ovsdr::soft
