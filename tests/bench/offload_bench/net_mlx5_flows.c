/* DPDK's own mlx5 driver, with the same 5-tuples as offload_bench: rules that count, created and destroyed one by one,
 * their counters read before. Prints one JSON object.
 *
 *   net_mlx5_flows EAL-OPTION... -- RULES
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_flow.h>

/* Seconds by the clock and of the processor, and pages that were touched for the first time. */
struct took {
    double seconds, cpu, faults;
};

static double
time_by(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static struct took
now(void)
{
    struct rusage usage = {.ru_minflt = 0};

    getrusage(RUSAGE_THREAD, &usage);
    return (struct took) {.seconds = time_by(CLOCK_MONOTONIC), .cpu = time_by(CLOCK_THREAD_CPUTIME_ID),
                          .faults = usage.ru_minflt};
}

static struct took
since(struct took start)
{
    struct took end = now();

    return (struct took) {.seconds = end.seconds - start.seconds, .cpu = end.cpu - start.cpu,
                          .faults = end.faults - start.faults};
}

static void
check(int code, const char *what)
{
    if (code < 0) {
        fprintf(stderr, "net_mlx5_flows: %s: %s\n", what, rte_strerror(-code));
        exit(1);
    }
}

static struct rte_flow *
create(uint32_t group, const struct rte_flow_item *items, const struct rte_flow_action *actions)
{
    const struct rte_flow_attr attributes = {.ingress = 1, .group = group};
    struct rte_flow_error error = {.message = NULL};
    struct rte_flow *flow = rte_flow_create(0, &attributes, items, actions, &error);

    if (!flow) {
        fprintf(stderr, "net_mlx5_flows: rte_flow_create: %s\n", error.message ? error.message : "no reason given");
        exit(1);
    }
    return flow;
}

static void
start_port(void)
{
    const struct rte_eth_conf conf = {.rxmode = {.mtu = 1500}};
    struct rte_mempool *pool = rte_pktmbuf_pool_create("mbufs", 1023, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);

    if (!pool) {
        check(-rte_errno, "rte_pktmbuf_pool_create");
    }
    check(rte_eth_dev_configure(0, 1, 1, &conf), "rte_eth_dev_configure");
    check(rte_eth_rx_queue_setup(0, 0, 256, SOCKET_ID_ANY, NULL, pool), "rte_eth_rx_queue_setup");
    check(rte_eth_tx_queue_setup(0, 0, 256, SOCKET_ID_ANY, NULL), "rte_eth_tx_queue_setup");
    check(rte_eth_dev_start(0), "rte_eth_dev_start");
}

/* Rules of group 0 are firmware commands; the application's group is reached by a jump. */
static void
lead_to_group(uint32_t group)
{
    const struct rte_flow_item items[] = {{.type = RTE_FLOW_ITEM_TYPE_ETH}, {.type = RTE_FLOW_ITEM_TYPE_END}};
    const struct rte_flow_action_jump jump = {.group = group};
    const struct rte_flow_action actions[] = {{.type = RTE_FLOW_ACTION_TYPE_JUMP, .conf = &jump},
                                              {.type = RTE_FLOW_ACTION_TYPE_END}};

    create(0, items, actions);
}

static struct rte_flow *
add_rule(uint64_t i)
{
    const struct rte_flow_item_ipv4 ip = {.hdr = {.src_addr = rte_cpu_to_be_32(0x0a010000 + i / 50000),
                                                  .dst_addr = rte_cpu_to_be_32(0x0a020001)}};
    const struct rte_flow_item_tcp tcp = {.hdr = {.src_port = rte_cpu_to_be_16(1024 + i % 50000),
                                                  .dst_port = rte_cpu_to_be_16(443)}};
    const struct rte_flow_item items[] = {
        {.type = RTE_FLOW_ITEM_TYPE_ETH},
        {.type = RTE_FLOW_ITEM_TYPE_IPV4, .spec = &ip, .mask = &rte_flow_item_ipv4_mask},
        {.type = RTE_FLOW_ITEM_TYPE_TCP, .spec = &tcp, .mask = &rte_flow_item_tcp_mask},
        {.type = RTE_FLOW_ITEM_TYPE_END},
    };
    const struct rte_flow_action_queue queue = {.index = 0};
    const struct rte_flow_action actions[] = {
        {.type = RTE_FLOW_ACTION_TYPE_COUNT},
        {.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &queue},
        {.type = RTE_FLOW_ACTION_TYPE_END},
    };

    return create(1, items, actions);
}

static struct took
add_all(struct rte_flow **rules, uint64_t length)
{
    struct took start = now();

    for (uint64_t i = 0; i < length; i++) {
        rules[i] = add_rule(i);
    }
    return since(start);
}

static struct took
delete_all(struct rte_flow **rules, uint64_t length, bool read)
{
    const struct rte_flow_action count[] = {{.type = RTE_FLOW_ACTION_TYPE_COUNT}, {.type = RTE_FLOW_ACTION_TYPE_END}};
    struct took start = now();

    for (uint64_t i = 0; i < length; i++) {
        struct rte_flow_query_count counted = {.reset = 0};
        struct rte_flow_error error;

        if (read) {
            check(rte_flow_query(0, rules[i], count, &counted, &error), "rte_flow_query");
        }
        check(rte_flow_destroy(0, rules[i], &error), "rte_flow_destroy");
    }
    return since(start);
}

/* The order in which they go is random, as with offload_bench. */
static void
shuffle(struct rte_flow **rules, uint64_t length)
{
    srand48(1);
    for (uint64_t i = length; i > 1; i--) {
        uint64_t other = (uint64_t) (drand48() * i);
        struct rte_flow *rule = rules[i - 1];

        rules[i - 1] = rules[other];
        rules[other] = rule;
    }
}

int
main(int argc, char **argv)
{
    int used = rte_eal_init(argc, argv);
    uint64_t length;
    struct rte_flow **rules;
    struct took install[2], delete[2];

    check(used, "rte_eal_init");
    length = used + 1 < argc ? strtoull(argv[used + 1], NULL, 10) : 100000;
    rules = calloc(length, sizeof *rules);
    if (!length || !rules) {
        fprintf(stderr, "net_mlx5_flows: RULES must be a number above 0\n");
        return 1;
    }
    start_port();
    lead_to_group(1);
    for (int read = 0; read < 2; read++) {
        install[read] = add_all(rules, length);
        shuffle(rules, length);
        delete[read] = delete_all(rules, length, read);
    }
    printf("{\"rules\": %" PRIu64 ", \"install\": %.0f, \"install_ns\": %.0f, "
           "\"install_faults\": %.3f, \"install_again\": %.0f, "
           "\"install_again_ns\": %.0f, \"delete\": %.0f, \"delete_read\": %.0f, \"delete_read_ns\": %.0f}\n", length,
           length / install[0].seconds, install[0].cpu * 1e9 / length, install[0].faults / length,
           length / install[1].seconds,
           install[1].cpu * 1e9 / length, length / delete[0].seconds, length / delete[1].seconds,
           delete[1].cpu * 1e9 / length);
    fflush(stdout);
    _exit(0);   /* Nothing of the port is needed any more, and its end is not what is measured. */
}
