// Where the sources are and what was built of them: absolute, so that a test program runs from anywhere.
//
// They come from one small file of their own: as macros of the command line they would keep what a compiler cache knows
// from every other checkout.
#pragma once

#include <string>

namespace ovsdr::test {

extern const std::string source_folder;   ///< the checkout
extern const std::string library_folder;  ///< of the soft NIC's libibverbs.so.1

}  // namespace ovsdr::test
