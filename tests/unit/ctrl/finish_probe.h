/* What a dr port makes of packets that OVS left unfinished. */
#ifndef TESTS_UNIT_CTRL_FINISH_PROBE_H
#define TESTS_UNIT_CTRL_FINISH_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum probe_left { PROBE_NOTHING, PROBE_TCP, PROBE_UDP, PROBE_SCTP };

/* As OVS found its headers; `left` is what it left to be done. Makes the checksum in place. False: it could not. */
bool probe_finish(uint8_t *frame, size_t size, enum probe_left left);

/* The same, of a packet that was cut to `keep` bytes when its headers had been found, and was to be segmented. */
bool probe_finish_cut(uint8_t *frame, size_t size, size_t keep, enum probe_left left);

/* IPv4's own checksum is asked for, too, or alone (PROBE_NOTHING). */
bool probe_finish_ip(uint8_t *frame, size_t size, enum probe_left left);

/* Segments one behind the other, each with its size as a uint32_t in front, of what OVS has cut to `keep` bytes.
 * Returns all bytes; 0: it could not, or goes as it is. */
size_t probe_segment(const uint8_t *frame, size_t size, size_t keep, enum probe_left left, uint32_t mtu,
                     uint32_t frame_size, uint8_t *segments);

#ifdef __cplusplus
}
#endif
#endif
