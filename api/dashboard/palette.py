"""The parts of a step, of memory and of a pipeline: order, words, one colour each for all charts.

Colours are CSS custom properties (static/palette.css), so that light and dark are decided in the
browser and legends, bars and tables cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.schema.plan import MemoryBreakdown, StepBreakdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One cause of seconds, or one use of memory. `name` is the document's field."""

    name: str
    label: str
    meaning: str
    kind: str

    @property
    def colour_class(self) -> str:
        """Return the CSS class that colours a swatch."""
        return f"{self.kind}-{self.name.replace('_', '-')}"

    @property
    def colour(self) -> str:
        """Return the reference that the chart script resolves to a colour."""
        return f"var(--{self.colour_class})"


def _parts(kind: str, words: dict[str, tuple[str, str]]) -> tuple[Part, ...]:
    return tuple(
        Part(name=name, label=label, meaning=meaning, kind=kind)
        for name, (label, meaning) in words.items()
    )


STEP_PARTS = _parts(
    "cause",
    {
        "compute": ("Compute", "forward and backward arithmetic"),
        "recompute": ("Recompute", "forward work repeated by activation checkpointing"),
        "tensor_parallel": ("Tensor parallel", "collectives inside layers"),
        "context_parallel": ("Context parallel", "exchange of keys and values"),
        "expert_parallel": ("Expert parallel", "all-to-all of routed tokens"),
        "pipeline_point_to_point": ("Pipeline send/recv", "activations between stages"),
        "bubble": ("Bubble", "waiting while the pipeline fills and drains"),
        "data_parallel_exposed": (
            "Data parallel, exposed",
            "gradient and parameter collectives that compute does not hide",
        ),
        "offload_exposed": ("Offload, exposed", "transfers to and from host memory not hidden"),
        "optimizer": ("Optimizer", "the update of the parameters"),
        "host": ("Host", "launching and synchronising"),
    },
)
MEMORY_PARTS = _parts(
    "memory",
    {
        "parameters": ("Parameters", "weights in training precision"),
        "gradients": ("Gradients", "accumulated over micro-batches"),
        "optimizer": ("Optimizer", "moments and master weights"),
        "activations": ("Activations", "kept from forward for backward"),
        "logits": ("Logits", "output of the LM head and its gradient"),
        "communication_buffers": ("Communication buffers", "collectives in flight"),
        "workspace": ("Workspace", "scratch memory of kernels"),
        "runtime": ("Runtime", "context, allocator and libraries"),
    },
)
ACTION_PARTS = _parts(
    "action",
    {
        "forward": ("Forward", "a micro-batch through a stage"),
        "backward": ("Backward", "its gradients on the way back"),
        "weight_gradient": ("Weight gradient", "where it is taken apart from the inputs'"),
    },
)
IN_TURN = Part(
    name="in_turn",
    label="Forward and backward in turn",
    meaning="micro-batches one after another, too many to be drawn one by one",
    kind="action",
)
BUBBLE = next(part for part in STEP_PARTS if part.name == "bubble")


def step_seconds(breakdown: StepBreakdown) -> tuple[tuple[Part, float], ...]:
    """Return each cause with its seconds, in the order of the charts."""
    return tuple((part, float(getattr(breakdown, part.name))) for part in STEP_PARTS)


def memory_bytes(breakdown: MemoryBreakdown) -> tuple[tuple[Part, float], ...]:
    """Return each use of memory with its bytes, in the order of the charts."""
    return tuple((part, float(getattr(breakdown, part.name))) for part in MEMORY_PARTS)
