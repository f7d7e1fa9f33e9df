#include "datapath/ports/descriptors.hpp"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <cstdlib>

namespace ovsdr::soft {

std::vector<int> open_descriptors() {
    std::vector<int> descriptors;
    DIR* folder = opendir("/proc/self/fd");
    if (folder == nullptr) return descriptors;
    while (const dirent* item = readdir(folder)) {
        if (item->d_name[0] == '.') continue;
        const int descriptor = std::atoi(item->d_name);
        if (descriptor != dirfd(folder)) descriptors.push_back(descriptor);
    }
    closedir(folder);
    std::sort(descriptors.begin(), descriptors.end());
    return descriptors;
}

CloseOnExec::~CloseOnExec() {
    for (const int descriptor : open_descriptors()) {
        const bool is_new = !std::binary_search(before_.begin(), before_.end(), descriptor);
        if (is_new) (void)fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    }
}

}  // namespace ovsdr::soft
