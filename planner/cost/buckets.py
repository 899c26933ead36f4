"""Buckets: what a layer's collectives take that are launched by bucket, not by layer.

Frameworks reduce gradients as buckets of S parameters fill, whatever layers these are of, and
gather updated parameters in the same ones. With t(S) for one bucket and n_l parameters of layer l,
a stage of N = sum_l n_l parameters takes

    N / S t(S) = sum_l n_l / S t(S),   S at most N,

of which every layer has its share: latency and hops are paid once a bucket, by a model of few
trained parameters once, and a layer's price depends on no other layer's choice. A layer of more
than S parameters is taken to be one bucket: rings of several that follow one another wait for hops
at the same time, as it seems. MLPerf's Llama-3.1-8B, whose layers have up to five buckets, takes
5, 5 and 2 % longer on 64, 128 and 256 B200 than with a latency a layer, and 2, 16 and 13 % less
than with one a bucket of whole matrices.

    torch      a layer's own under fully_shard, 25 MiB under DistributedDataParallel;
    megatron   max(40e6, 1e6 d), d being the data-parallel ranks, context parallel ones aside;
    deepspeed  5e8, reduce_bucket_size and allgather_bucket_size.

Source: torch/nn/parallel/distributed.py; Megatron-LM core/distributed/distributed_data_parallel.py;
DeepSpeed runtime/zero/config.py.

Ignored: that the last bucket of a stage is not full, that DDP's first has 1 MiB, that virtual
stages have buckets of their own, and that Megatron has one for all where nothing is overlapped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats
from planner.cost.setting import Setting
from planner.hardware_profiles import BucketProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """The buckets of a layer's `parameters`, of `size` each; arrays [configurations, 1]."""

    parameters: Floats
    size: Floats

    @staticmethod
    def of(
        parameters: Floats,
        *,
        stage: Floats,
        profile: BucketProfile | None,
        setting: Setting,
    ) -> Buckets:
        """Return the buckets of a layer in a stage of so many; its own without a profile."""
        if profile is None:
            return Buckets(parameters=parameters, size=np.maximum(parameters, 1.0))
        ranks = setting.shard * setting.replicate
        filled = np.maximum(profile.parameters, profile.parameters_per_rank * ranks)
        size = np.maximum(np.minimum(filled, stage), parameters)
        return Buckets(parameters=parameters, size=np.maximum(size, 1.0))

    def seconds(self, collective: Callable[[Floats], Floats], element_bytes: float) -> Floats:
        """Return the layer's share of the seconds of one collective a bucket."""
        return np.asarray(self.parameters / self.size * collective(self.size * element_bytes))
