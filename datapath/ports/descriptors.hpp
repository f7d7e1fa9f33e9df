// The process's file descriptors: libraries open some that they neither hand out nor close on exec.
//
// Threads: any; what other threads open meanwhile is taken for the library's.
#pragma once

#include <vector>

namespace ovsdr::soft {

/// In ascending order.
[[nodiscard]] std::vector<int> open_descriptors();

/// What is opened while it lives is not passed on to programs that the process starts.
class CloseOnExec {
public:
    CloseOnExec() : before_(open_descriptors()) {}
    ~CloseOnExec();
    CloseOnExec(const CloseOnExec&) = delete;
    CloseOnExec& operator=(const CloseOnExec&) = delete;

private:
    const std::vector<int> before_;
};

}  // namespace ovsdr::soft
