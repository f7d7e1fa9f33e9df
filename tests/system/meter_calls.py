"""Which calls of the NIC's provider offload/ makes for OpenFlow meters, and when."""

from __future__ import annotations

# The soft NIC's name for an ACCESS_ASO, which writes a meter's rate and burst. It is posted, and no function.
REQUEST = "work_request_aso"

# The first megaflow of a device's first meter: an ASO object, and the queue that writes it; on a ConnectX-5 a legacy
# meter.
OF_ASO = {"mlx5dv_dr_action_create_aso", "mlx5dv_devx_obj_modify", "mlx5dv_devx_query_eqn", "mlx5dv_devx_umem_reg"}
OF_LEGACY = {"mlx5dv_dr_action_create_flow_meter"}
INSTALL = OF_ASO | OF_LEGACY
# And calls that others make as well.
SHARED = {"mlx5dv_devx_obj_create", "mlx5dv_init_obj", "mlx5dv_dr_table_create", "mlx5dv_dr_matcher_create",
          "mlx5dv_dr_rule_create", "mlx5dv_dr_action_create_dest_table", "mlx5dv_dr_action_create_drop"}
# Older kernels have no doorbell page of the first kind: the other kind is asked for.
HARMLESS = {"mlx5dv_devx_alloc_uar"}

# A meter gets another rate.
CHANGE = {"mlx5dv_dr_action_modify_flow_meter"}

# The last port goes, and with it all meters.
ALL_GO = {"mlx5dv_devx_umem_dereg"}
ALL_GO_SHARED = {"mlx5dv_devx_obj_destroy", "mlx5dv_dr_action_destroy"}
