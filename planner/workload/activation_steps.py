"""Activation steps: what GELU written out moves, launches and keeps beside one kernel of it.

    0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))

Forward is 8 operations over the row inside, which read and write 18 elements for each of it where
one kernel reads and writes 2; backward is 11, and 28 elements for 3. Kept are x, 0.5 x, the tangent
and 1 + it, where one kernel keeps x.

Autocast gives the third power 32 bits, and all that it meets then has them: with copies of x and of
the result 10 operations read and write 76 bytes an element, 15 backward 118; x, the tangent and 1 +
it are kept in 4 bytes, 0.5 x in 2.

Source: counted in torch 2.13 on `NewGELU` of karpathy/minGPT `mingpt/model.py`, which is
`gelu_new` of transformers `activations.py`; `pow` among `AT_FORALL_FP32` of torch
`aten/src/ATen/autocast_mode.h`.
"""

from __future__ import annotations

from planner.schema.model import Activation, DenseFeedForward, FeedForward
from planner.workload.layer import ActivationSteps

_KERNEL_BYTES = 2 * (2.0 + 3.0)  # forward and backward of one kernel, in 16 bits
_COPIES = 3.0  # beside x, narrow or wide: of 4 bytes 3 x 4 = 4 + 4 + 4 + 2 - 2


def activation_steps(feed_forward: FeedForward) -> ActivationSteps | None:
    """Return what the activation's steps add to one kernel; none where it is one."""
    kind = _kind(feed_forward)
    if kind is Activation.KERNEL or not isinstance(feed_forward, DenseFeedForward):
        return None
    width = feed_forward.ffn_size
    if kind is Activation.GELU_STEPS:
        return ActivationSteps(
            forward=(18.0 - 2.0) * width, backward=(28.0 - 3.0) * width, kernel_count=7, wide=False
        )
    return ActivationSteps(
        forward=(76.0 - 4.0) / 4.0 * width,
        backward=(118.0 - 6.0) / 4.0 * width,
        kernel_count=9,
        wide=True,
    )


def step_copies(feed_forward: FeedForward) -> dict[str, float]:
    """Return the elements that steps keep beside what one kernel does, by their kind."""
    kind = _kind(feed_forward)
    if kind is Activation.KERNEL or not isinstance(feed_forward, DenseFeedForward):
        return {}
    name = "step_copies" if kind is Activation.GELU_STEPS else "wide_step_copies"
    return {name: _COPIES * feed_forward.ffn_size}


def _kind(feed_forward: FeedForward) -> Activation:
    if isinstance(feed_forward, DenseFeedForward):
        return feed_forward.activation
    return Activation.KERNEL
