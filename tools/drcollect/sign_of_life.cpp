#include "tools/drcollect/sign_of_life.hpp"

#include <exception>

namespace ovsdr::drcollect {

SignOfLife::SignOfLife(mirror::MessageSocket& socket, Rhythm rhythm)
    : socket_(socket), rhythm_(rhythm), thread_([this] { run(); }) {}

SignOfLife::~SignOfLife() {
    {
        const std::lock_guard guard(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

SignOfLife::Busy SignOfLife::begin(const mirror::Message& sign) {
    const std::lock_guard guard(mutex_);
    sign_ = sign;
    said_ = progressed_ = Clock::now();
    return Busy(*this);
}

bool SignOfLife::progressed(const mirror::Message& sign) {
    const std::lock_guard guard(mutex_);
    sign_ = sign;
    progressed_ = Clock::now();
    return !has_gone_;
}

void SignOfLife::end() noexcept {
    const std::lock_guard guard(mutex_);
    sign_.reset();
}

/// It looks twice as often as it speaks: to wake it for each sync would cost more than the syncs' own bookkeeping.
void SignOfLife::run() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, rhythm_.every / 2, [this] { return stopping_; })) {
        const auto now = Clock::now();
        if (!sign_ || now - said_ < rhythm_.every || now - progressed_ > rhythm_.patience) continue;
        said_ = now;
        try {
            if (!socket_.send(*sign_)) has_gone_ = true;
        } catch (const std::exception&) {
            continue;   // no memory: the next sign may have some
        }
    }
}

}  // namespace ovsdr::drcollect
