/* What OVS's judge (ovs.c) has for its meters. Of C only: it knows OVS's packets. */
#ifndef TESTS_DIFFERENTIAL_JUDGE_OVS_METER_TABLE_H
#define TESTS_DIFFERENTIAL_JUDGE_OVS_METER_TABLE_H

#include "dp-packet.h"
#include "tests/differential/judge/ovs_meters.h"

struct judge_meter {
    bool is_set;
    struct ovs_judge_meter config;
    uint64_t buckets[OVS_METER_BANDS];   /* bits, or thousandths of packets */
    struct ovs_judge_meter_counts counts;
};

struct ovs_meter_table {
    struct judge_meter meters[OVS_METERS];
};

/* With full buckets and no counts. NULL: there is none any more. */
void ovs_meter_table_set(struct ovs_meter_table *, uint32_t number, const struct ovs_judge_meter *);
/* Its buckets are empty from now on. */
void ovs_meter_table_exhaust(struct ovs_meter_table *, uint32_t number);
/* Takes out of the batch, and deletes, what exceeds the meter. One that is not set lets all pass. */
void ovs_meter_table_run(struct ovs_meter_table *, uint32_t number, struct dp_packet_batch *);

#endif
