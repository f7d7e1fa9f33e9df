/* Firmware that takes its time: preloaded, each call that makes a firmware object takes OVSDR_FIRMWARE_US microseconds
 * more, asleep.
 *
 * Threads: any. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

#include <infiniband/mlx5dv.h>

static void
wait_for_firmware(void)
{
    const char *text = getenv("OVSDR_FIRMWARE_US");
    long microseconds = text ? atol(text) : 0;
    struct timespec delay = {.tv_sec = microseconds / 1000000, .tv_nsec = microseconds % 1000000 * 1000};

    nanosleep(&delay, NULL);
}

/* The provider's function of this name, called after the wait. Where it is a plugin's, RTLD_NEXT does not find it. */
#define SLOW(NAME, ...)                                                             \
    ({                                                                              \
        typeof(&NAME) function = dlsym(dlopen("libmlx5.so.1", RTLD_LAZY), #NAME);   \
                                                                                    \
        wait_for_firmware();                                                        \
        function(__VA_ARGS__);                                                      \
    })

struct mlx5dv_devx_obj *
mlx5dv_devx_obj_create(struct ibv_context *context, const void *in, size_t in_size, void *out, size_t out_size)
{
    return SLOW(mlx5dv_devx_obj_create, context, in, in_size, out, out_size);
}

struct mlx5dv_dr_action *
mlx5dv_dr_action_create_modify_header(struct mlx5dv_dr_domain *domain, uint32_t flags, size_t size, __be64 actions[])
{
    return SLOW(mlx5dv_dr_action_create_modify_header, domain, flags, size, actions);
}

struct mlx5dv_dr_action *
mlx5dv_dr_action_create_packet_reformat(struct mlx5dv_dr_domain *domain, uint32_t flags,
                                        enum mlx5dv_flow_action_packet_reformat_type type, size_t size, void *data)
{
    return SLOW(mlx5dv_dr_action_create_packet_reformat, domain, flags, type, size, data);
}

struct mlx5dv_dr_action *
mlx5dv_dr_action_create_dest_array(struct mlx5dv_dr_domain *domain, size_t length,
                                   struct mlx5dv_dr_action_dest_attr *destinations[])
{
    return SLOW(mlx5dv_dr_action_create_dest_array, domain, length, destinations);
}
