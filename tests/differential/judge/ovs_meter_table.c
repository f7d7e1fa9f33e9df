#include <config.h>

#include "tests/differential/judge/ovs_meter_table.h"

#include <string.h>

#include "util.h"

void
ovs_meter_table_set(struct ovs_meter_table *table, uint32_t number, const struct ovs_judge_meter *config)
{
    struct judge_meter *meter = &table->meters[number];

    ovs_assert(number < OVS_METERS && (!config || config->n_bands <= OVS_METER_BANDS));
    memset(meter, 0, sizeof *meter);
    if (!config) {
        return;
    }
    meter->is_set = true;
    meter->config = *config;
    for (int i = 0; i < config->n_bands; i++) {
        meter->buckets[i] = config->bursts[i] * 1000ULL + config->bytes_more * 8ULL;
    }
}

void
ovs_meter_table_exhaust(struct ovs_meter_table *table, uint32_t number)
{
    memset(table->meters[number].buckets, 0, sizeof table->meters[number].buckets);
}

/* Each bucket that can pays, whatever the others do; the band that drops is the one with the highest rate. */
static bool
exceeds(struct judge_meter *meter, uint32_t size)
{
    uint64_t price = meter->config.by_packets ? 1000 : size * 8ULL;
    bool exceeded = false;

    for (int i = 0; i < meter->config.n_bands; i++) {
        if (meter->buckets[i] >= price) {
            meter->buckets[i] -= price;
        } else {
            exceeded = true;
        }
    }
    return exceeded;
}

void
ovs_meter_table_run(struct ovs_meter_table *table, uint32_t number, struct dp_packet_batch *batch)
{
    size_t n = dp_packet_batch_size(batch);
    struct judge_meter *meter;
    struct dp_packet *packet;
    size_t i;

    if (number >= OVS_METERS || !table->meters[number].is_set) {
        return;
    }
    meter = &table->meters[number];
    DP_PACKET_BATCH_REFILL_FOR_EACH (i, n, packet, batch) {
        uint32_t size = dp_packet_size(packet);

        meter->counts.packets++;
        meter->counts.bytes += size;
        if (!exceeds(meter, size)) {
            dp_packet_batch_refill(batch, packet, i);
            continue;
        }
        meter->counts.dropped_packets++;
        meter->counts.dropped_bytes += size;
        dp_packet_delete(packet);
    }
}
