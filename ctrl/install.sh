#!/bin/sh
# Run by `meson install`: the wrapper under its own name, and the OVS libraries that the daemon was linked with.
#   install.sh PROGRAM_FOLDER LIBRARY_FOLDER OVS_BUILD
set -eu
programs=${DESTDIR:-}$1
libraries=${DESTDIR:-}$2
ovs_build=$3
mkdir -p "$programs" "$libraries"
install -m 755 "$MESON_BUILD_ROOT/ctrl/ovs-vswitchd.installed" "$programs/ovs-vswitchd"
for library in ofproto/.libs/libofproto lib/.libs/libsflow lib/.libs/libopenvswitch; do
    cp -P "$ovs_build/$library"*.so.* "$libraries/"
done
