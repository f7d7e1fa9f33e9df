// A file's content replaced as a whole: whoever reads it, even after a crash, finds the old or the new.
#pragma once

#include <string>
#include <string_view>

namespace ovsdr::soft {

/// Writes a new file beside the old one, with its owner and mode, and renames it. A symbolic link stays, and its
/// target is replaced. Returns an errno and leaves the file as it was: EACCES, EROFS and the like where it is not
/// writable (though its folder may be), EPERM where the owner cannot be kept, EBUSY where the file is a mount point.
/// Threads: any.
[[nodiscard]] int replace_file(const std::string& path, std::string_view content);

}  // namespace ovsdr::soft
