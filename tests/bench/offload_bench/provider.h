/* OVS's side of the benchmark: the flow-API provider "dr", asked as dpif-netdev's offload threads ask it.
 *
 * Threads: any; one thread at a time for one provider_put.
 */
#ifndef TESTS_BENCH_OFFLOAD_BENCH_PROVIDER_H
#define TESTS_BENCH_OFFLOAD_BENCH_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ovsdr_port;
struct provider_netdev;
struct provider_flows;

struct provider_netdev *provider_netdev_new(struct ovsdr_port *);
void provider_netdev_free(struct provider_netdev *);

/* dpif-netdev's flows, as many as there will be megaflows: the provider is given their addresses. */
struct provider_flows *provider_flows_new(size_t n);
void provider_flows_free(struct provider_flows *);
void provider_flow_name(struct provider_flows *, size_t i, const uint64_t mega_ufid[2]);

/* What a megaflow asks for, in the forms of OVS: a match and netlink attributes. */
struct provider_put;
struct provider_put *provider_put_new(uint32_t in_port, uint32_t out_port);
void provider_put_free(struct provider_put *);
void provider_put_from(struct provider_put *, uint32_t source_ip, uint16_t source_port);

/* flow_put, flow_get; false: refused, unknown. */
bool provider_flow_put(struct provider_netdev *, struct provider_flows *, size_t i, struct provider_put *);
bool provider_flow_get(struct provider_netdev *, struct provider_flows *, size_t i);

#ifdef __cplusplus
}
#endif
#endif
