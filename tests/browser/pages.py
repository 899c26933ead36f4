"""The kinds of pages that there are, over the seeds."""

CONFIG_LINK = "%7B%22tensor_parallel_degree%22%3A2%2C%22data_parallel_degree%22%3A4%7D"
PAGES = [
    "/",
    "/?q=no+such+plan",
    "/plans/new",
    "/plans/plan-proven",
    "/plans/plan-infeasible",
    "/plans/plan-proven/why",
    "/plans/plan-proven/trade-offs",
    "/plans/plan-proven/placement",
    "/plans/plan-proven/exports/megatron-lm",
    "/plans/plan-proven/runs",
    "/compare?plan=plan-proven&plan=plan-wide&plan=plan-third",
    f"/compare?plan=plan-proven&config={CONFIG_LINK}",
    "/compare?plan=plan-proven",
    "/runs",
    "/fleet",
    "/tunings",
    "/tunings/tuning-ended",
    "/agents",
    "/keys",
    "/audit",
    "/projects",
    "/login",
]
