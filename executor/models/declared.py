"""Declared: whatever model a script builds, and what it declares."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch._dynamo.eval_frame import OptimizedModule
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from executor.apply.materialise import tie, unsplit_name
from executor.apply.whole import check_whole
from executor.errors import ModelMismatchError, WeightsError
from executor.export import Origin
from executor.models.adapters import (
    Adapters,
    check_planned_adapters,
    check_split_adapters,
    with_adapter_values,
    without_wrapper,
)
from executor.models.declaration import ModelDeclaration
from executor.models.decoder import Decoder
from executor.models.embeddings import check_embeddings
from executor.models.file_names import FileNames
from executor.models.first_values import (
    AwaitedValues,
    DrawnValues,
    FirstValues,
    padding_rows,
)
from executor.models.forward_inputs import ForwardInputs
from executor.models.huggingface import (
    HUGGING_FACE_CLASSES,
    hugging_face_chain,
    is_hugging_face,
)
from executor.models.huggingface_inputs import with_labels
from executor.models.initial_state import InitialState, empty_parameter
from executor.models.own import Declaration, OwnModel
from executor.models.parameter_storage import check_held_once, check_storage
from executor.models.quantized_linear import replace_floating
from executor.models.script_values import ScriptValues
from executor.quantized_values import QuantizedValues
from executor.tensor_source import StateDict
from executor.weights import LoadedValues, Weights, loaded_values
from planner.schema.job import Job
from planner.schema.strategy import Strategy

Known = tuple[nn.Module, ModelDeclaration]
_WRAPPERS = (OptimizedModule, nn.DataParallel, DistributedDataParallel, FSDPModule)
_HOST = torch.device("cpu")
# Source: `Module._load_from_state_dict` of torch 2.13.
_LOST_VALUES = "for .*: copying from a non-meta parameter in the checkpoint to a meta parameter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The model that a plan is applied to: a chain, or a module that stays whole.

    A chain lies on the meta device. What declares nothing lies on the CPU with its values, since
    nothing is known of how it begins, and without parameters' values where these come from
    elsewhere. `values` are to be forgotten once it is applied.
    """

    model: nn.Module
    declaration: ModelDeclaration
    values: FirstValues
    origin: Origin = field(default_factory=Origin)


def subject(  # noqa: PLR0913 - what a model is made of, and how it begins
    build_model: Callable[[], nn.Module],
    *,
    own: Declaration | None,
    strategy: Strategy,
    job: Job,
    seed: int,
    weights: Weights | None = None,
    checkpoint_follows: bool = False,
    device: torch.device = _HOST,
) -> Subject:
    """Return the model as the plan's techniques can take it.

    Neither are values drawn nor `weights` read where `checkpoint_follows`. Weights of linears that
    bitsandbytes is to quantize are packed on `device`.

    Raises:
        UnsupportedPlanError: if the plan asks for what is not declared.
        ModelMismatchError: if the declaration does not go with the model.
        WeightsError: if `weights` are not those of the model.
    """
    given = ScriptValues()
    whole, has_loaded = _built(build_model, given)
    built, adapters = without_wrapper(whole)
    check_planned_adapters(adapters, built, job)
    check_split_adapters(adapters, strategy.tensor_parallel_degree)
    _check_empty(built, own, weights)
    check_embeddings(built)
    check_storage(built)
    _check_loaded(built, own, weights, has_lost=has_loaded and not checkpoint_follows)
    comes_otherwise = weights is not None or checkpoint_follows
    state = InitialState(
        lambda: without_wrapper(build_model())[0],
        seed=seed,
        has_parameters=not comes_otherwise and (own is None or own.initial_value is None),
        is_recorded=all(type(item) is nn.Parameter and item.is_meta for item in built.parameters()),
    )
    known = None if own is not None else _known_on_meta(built, seed=seed)
    if known is None:
        check_held_once(built)
    if known is not None:
        taken = known
    elif own is not None:
        module = OwnModel(
            module=_own_to_split(built, state), declaration=own, initial_state=state, seed=seed
        )
        taken = _own(module, strategy, job)
    else:
        check_whole(built, strategy)
        declaration = ModelDeclaration.whole(
            state.restore_buffers,
            FileNames.of(built),
            with_labels(ForwardInputs.of_module(built), built),
        )
        taken = Subject(model=state.frame(), declaration=declaration, values=state)
    would_be_lost = [] if known is None else _names_given(taken, given)
    origin = Origin.of(built, None if weights is None else weights.folder, adapters)
    if origin.config is not None:
        _widen(taken.model)
    values: FirstValues = AwaitedValues()
    if not checkpoint_follows:
        values = taken.values if weights is None else _loaded(taken, weights, adapters)
    _check_kept(would_be_lost, values)
    packed = replace_floating(taken.model, device)
    if packed and not checkpoint_follows:
        values = QuantizedValues(values, packed, device=device)
    return replace(taken, values=values, origin=origin)


def _loaded(taken: Subject, weights: Weights, adapters: Adapters | None) -> LoadedValues:
    """Return the values of `weights` for a model with `adapters`."""
    if (folder := weights.adapters) is not None:
        folder.check_scale(adapters)
    return loaded_values(weights, taken.model, declaration=taken.declaration, drawn=taken.values)


def _built(build_model: Callable[[], nn.Module], given: ScriptValues) -> tuple[nn.Module, bool]:
    """Return what `build_model` builds on the meta device, and whether it has loaded values there.

    What it loads is lost, of which torch warns.
    """
    try:
        with warnings.catch_warnings(record=True) as caught, given, torch.device("meta"):
            warnings.filterwarnings("always", message=_LOST_VALUES)
            built = build_model()
    except RuntimeError as error:
        if "meta tensor" in str(error):
            raise _lost("reading values, as .item() does") from error
        # transformers' from_pretrained refuses to read values where they have no place.
        if "from_pretrained" not in str(error):
            raise
        raise ModelMismatchError(
            "is called on the meta device, where from_pretrained can read no values",
            field="build_model",
            value="from_pretrained",
            remedy="build from the configuration, as by AutoModelForCausalLM.from_config("
            "AutoConfig.from_pretrained(folder)), and pass weights=folder to parallelize()",
        ) from error
    if not isinstance(built, nn.Module):
        raise ModelMismatchError(
            "must return a torch.nn.Module",
            field="build_model",
            value=type(built).__qualname__,
            remedy="return the model itself",
        )
    _check_bare(built)
    _check_initialized(built)
    lost = [item for item in caught if re.match(_LOST_VALUES, str(item.message))]
    for item in caught:
        if item not in lost:
            warnings.warn_explicit(item.message, item.category, item.filename, item.lineno)
    return built, bool(lost)


def _check_loaded(
    built: nn.Module, own: Declaration | None, weights: Weights | None, *, has_lost: bool
) -> None:
    """Return unless values were lost that a module does not load once more, where it can."""
    is_drawn = _is_known(built) if own is None else own.initial_value is not None
    if has_lost and (is_drawn or weights is not None):
        raise _lost("load_state_dict")


def _names_given(taken: Subject, given: ScriptValues) -> list[str]:
    """Return the parameters of a known class that the script itself has given values on meta."""
    return [
        unsplit_name(name, taken.declaration)
        for name, parameter in taken.model.named_parameters()
        if given.has(parameter)
    ]


def _check_kept(names: Sequence[str], values: FirstValues) -> None:
    """Return unless parameters that the script has given values begin as drawn."""
    loaded = values.loaded_names() if isinstance(values, LoadedValues) else ()
    lost = [name for name in names if name not in loaded]
    if lost and not isinstance(values, AwaitedValues):
        raise _lost(f"values given to {lost[0]}")


def _lost(what: str) -> ModelMismatchError:
    return ModelMismatchError(
        "is called on the meta device, where tensors have no values and what it gives them is lost",
        field="build_model",
        value=what,
        remedy="pass weights=, a state dict or a path, to parallelize() and load nothing, or "
        'give values inside `with torch.device("cpu")`, where the model is built too',
    )


def _check_bare(built: nn.Module) -> None:
    """Return unless a wrapper is around the module, or hooks wait for whole gradients."""
    if isinstance(built, _WRAPPERS):
        raise ModelMismatchError(
            "is another's to make parallel or to compile, and the plan does both",
            field="build_model",
            value=type(built).__qualname__,
            remedy="return the module itself; the executor compiles blocks where "
            "MESHWRIGHT_COMPILER is inductor",
        )
    for name, parameter in built.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:  # noqa: SLF001
            raise ModelMismatchError(
                "has a hook of its gradient, of which ranks have parts at times of their own",
                field="build_model",
                value=name,
                remedy="freeze it by requires_grad_(False), or have the module's forward do what "
                "the hook does",
            )


def _check_initialized(built: nn.Module) -> None:
    tensors = (*built.named_parameters(), *built.named_buffers())
    lazy = next((name for name, item in tensors if is_lazy(item)), None)
    if lazy is not None:
        raise ModelMismatchError(
            "leaves a lazy module's shapes to the first batch, and they are needed before it",
            field="build_model",
            value=lazy,
            remedy="give the module its sizes, as nn.Linear in place of nn.LazyLinear",
        )


def _check_empty(built: nn.Module, own: Declaration | None, weights: Weights | None) -> None:
    """Return if no values of the model would be overwritten by others."""
    held = [name for name, item in built.named_parameters() if not item.is_meta]
    if weights is not None and held:
        raise WeightsError(
            f"would overwrite values that build_model() gave to {held[0]}",
            field="weights",
            value=weights.folder or "given",
            remedy="build the model without values, from its configuration, or leave weights out",
        )
    if own is not None and own.initial_value is not None and held:
        raise ModelMismatchError(
            "would draw anew what build_model() has given values",
            field="declaration.initial_value",
            value=held[0],
            remedy="build the model without values, or leave initial_value out",
        )


def _own_to_split(built: nn.Module, state: InitialState) -> nn.Module:
    """Return `built`, or a copy without values of what `build_model` returns each time."""
    if _is_on_meta(built) or state.frame() is not built:
        return built
    empty: dict[int, Any] = {}
    for item in built.parameters():
        empty[id(item)] = empty_parameter(item)
    return copy.deepcopy(built, empty)


def _widen(model: nn.Module) -> None:
    """Let parameters have the format of states, whatever the configuration says of files."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(torch.get_default_dtype())


def _known_on_meta(built: nn.Module, *, seed: int) -> Subject | None:
    """Return a model of a class that we know; values that it has already are its first."""
    held = {} if _is_on_meta(built) else built.state_dict()
    known = _known(built)
    if known is None:
        return None
    model, declaration = known
    assert declaration.initial_value is not None  # noqa: S101 - these classes say it
    begins = with_adapter_values(declaration.initial_value, model)
    values: FirstValues = DrawnValues(begins, seed=seed, zero_rows=padding_rows(model))
    if held:
        model.to("meta")
        tie(model, declaration)
        values = _held_values(model, declaration, values, held)
    return Subject(model=model, declaration=declaration, values=values)


def _held_values(
    model: nn.Module,
    declaration: ModelDeclaration,
    drawn: FirstValues,
    held: Mapping[str, torch.Tensor],
) -> LoadedValues:
    with_values = {name: item for name, item in held.items() if not item.is_meta}
    empty = tuple(name for name, item in held.items() if item.is_meta)
    source = StateDict(with_values, place="what build_model() returned")
    weights = Weights(source=with_values, new=empty)
    return loaded_values(weights, model, declaration=declaration, drawn=drawn, source=source)


def _is_on_meta(model: nn.Module) -> bool:
    return all(item.is_meta for item in model.parameters())


def declared(model: nn.Module) -> Known:
    """Return `model` as a chain that can lose parts, and what it declares.

    Raises:
        ModelMismatchError: if the model's class declares nothing.
    """
    known = _known(model)
    if known is not None:
        return known
    raise ModelMismatchError(
        "declares no sharding",
        field="build_model",
        value=type(model).__qualname__,
        remedy="pass declaration=meshwright.Declaration(...) to parallelize(), or build "
        f"executor.models.decoder.Decoder or one of {', '.join(HUGGING_FACE_CLASSES)}",
    )


def _is_known(model: nn.Module) -> bool:
    """Return whether `model` is of a class that we know."""
    return isinstance(model, Decoder) or is_hugging_face(model)


def _known(model: nn.Module) -> Known | None:
    """Return the chain and declaration of a class that we know, `None` for any other."""
    if isinstance(model, Decoder):
        return model, model.declaration()
    if is_hugging_face(model):
        return hugging_face_chain(model)
    return None


def _own(model: OwnModel, strategy: Strategy, job: Job) -> Subject:
    declaration = model.declared()
    model.check_tensor_parallel(
        strategy.tensor_parallel_degree, sequence_parallel=strategy.sequence_parallel
    )
    model.check_context_parallel(strategy.context_parallel_degree, strategy.context_parallel_kind)
    chain: nn.Module = model.module
    if strategy.pipeline_parallel_degree > 1:
        tokens = (strategy.micro_batch_size, job.sequence_length or 1)
        own = model.pipelined(torch.zeros(tokens, dtype=torch.long, device="meta"))
        chain, declaration = own, replace(declaration, inputs=own.inputs)
    return Subject(model=chain, declaration=declaration, values=model.first_values())
