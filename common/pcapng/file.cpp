#include "common/pcapng/file.hpp"

#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace ovsdr::pcapng {
namespace {

constexpr std::size_t buffer_size = 256 << 10;

}  // namespace

File::File(int descriptor) : descriptor_(descriptor), buffer_(buffer_size) {}

void File::flush() {
    std::size_t done = 0;
    while (done < used_) {
        const ssize_t size = ::write(descriptor_, buffer_.data() + done, used_ - done);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) throw std::system_error(errno, std::generic_category());
        done += static_cast<std::size_t>(size);
    }
    used_ = 0;
}

void File::make_room(std::size_t size) {
    flush();
    if (buffer_.size() < size) buffer_.resize(size);
}

}  // namespace ovsdr::pcapng
