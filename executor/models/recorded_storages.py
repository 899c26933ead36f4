"""Recorded storages: a module's code draws its parameters, and few of them are kept at a time.

Inside the block `build_model` runs as it would alone, on the CPU, each operator with its values. A
storage whose content operators alone have made is known by them: beyond a budget of bytes, those
that were not used for longest let go of their memory, and get the same content again by the same
operators, each from the state that its generator had. What comes from elsewhere, or is looked at
past torch's operators (`numpy`, `data_ptr`), stays in memory, and so does all that there is when
the script starts a thread, whose operators nobody sees here.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from executor.tensor_source import Ranges
from planner.units import GIB

BUDGET_BYTES = GIB // 4
_SMALL_BYTES = 2**16  # storages up to this stay in memory, and are copied as arguments
_LONGEST_ORIGIN = 64  # operators; a loop over rows is not recorded
_FIRST_BYTES = 1024
_PLAIN = (torch.Tensor, nn.Parameter)
_OVERWRITING = frozenset(
    f"aten::{name}_"
    for name in (
        "normal", "uniform", "fill", "zero", "copy", "exponential", "log_normal", "cauchy",
        "geometric", "random",
    )
)  # fmt: skip
_EMPTY = ("aten::empty", "aten::new_empty")  # and what goes on from there, as empty_like
# What gives memory itself away, past the operators.
_LOOKS = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        "numpy", "tolist", "data_ptr", "untyped_storage", "storage", "_typed_storage",
        "share_memory_", "pin_memory", "__array__", "__dlpack__", "__deepcopy__", "__reduce_ex__",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """An argument: how a tensor lies on the storage in one of an operator's slots."""

    slot: int
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int

    def on(self, storage: torch.UntypedStorage) -> torch.Tensor:
        empty = torch.empty((), dtype=self.dtype, device="cpu")
        return empty.set_(storage, self.offset, self.size, self.stride)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Origin:
    """The operator that last made or changed a storage, and what its arguments were.

    A slot holds another storage's origin, or a copy of its content, or its bytes where the operator
    does not ask for the content. `made` says which is the storage: one of the slots, which the
    operator writes to, or else that of one of its results. `state` is its generator's before it.
    """

    operator: Any
    arguments: Any
    slots: tuple[Slot, ...]
    made: int
    is_written: bool
    state: torch.Tensor | None
    default_dtype: torch.dtype
    length: int

    def storage(self) -> torch.UntypedStorage:
        """Return the content once more, in memory of its own."""
        storages = [_content(slot) for slot in self.slots]

        def argument(leaf: Any) -> Any:
            if isinstance(leaf, torch.Generator) and self.state is not None:
                return torch.Generator().set_state(self.state)
            return leaf.on(storages[leaf.slot]) if isinstance(leaf, _View) else leaf

        args, kwargs = tree_map(argument, self.arguments)
        default_dtype = torch.get_default_dtype()
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            if self.state is not None:
                torch.set_rng_state(self.state)
            torch.set_default_dtype(self.default_dtype)
            try:
                result = self.operator(*args, **kwargs)
            finally:
                torch.set_default_dtype(default_dtype)
        if self.is_written:
            return storages[self.made]
        return _tensors(result)[self.made].untyped_storage()


Slot = _Origin | torch.UntypedStorage | int


class NotRepeatedError(RuntimeError):
    """The operators that were recorded have not made the same content again."""


@dataclass(slots=True, kw_only=True)
class _Known:
    """A storage whose content can be made again.

    While it rests, `first` are its first bytes and `bit_sum` is the sum of all, `None` where it has
    no content yet. The weak reference keeps the storage's number from becoming another's.
    """

    alive: StorageWeakRef
    origin: _Origin
    size_bytes: int
    first: torch.UntypedStorage | None = None
    bit_sum: int | None = None

    def storage(self) -> torch.UntypedStorage | None:
        """Return the storage, `None` where nobody has it any more."""
        if self.alive.expired():  # type: ignore[no-untyped-call]
            return None
        return torch.UntypedStorage._new_with_weak_ptr(self.alive.cdata)  # noqa: SLF001


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """An operator and its arguments, as they came."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    state: torch.Tensor | None

    @property
    def tensors(self) -> list[torch.Tensor]:
        return _tensors((self.args, self.kwargs))

    def written(self) -> Iterator[int]:
        """Yield the numbers of storages that it changes."""
        for index, argument in enumerate(self.operator._schema.arguments):  # noqa: SLF001
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = self.args[index : index + 1] or self.kwargs.get(argument.name)
                yield from (
                    _number(item) for item in map(_storage, _tensors(given)) if item is not None
                )

    def origin(self, slots: Mapping[int, Slot], made: int, *, is_written: bool) -> _Origin | None:
        """Return it as what has made a storage, `None` where it cannot be run again as it was."""
        places = {number: index for index, number in enumerate(slots)}
        origins = [slot for slot in slots.values() if isinstance(slot, _Origin)]
        length = 1 + max((each.length for each in origins), default=0)
        if length > _LONGEST_ORIGIN or not all(map(_is_plain, self.tensors)):
            return None

        def argument(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            return _View(
                slot=places[_number(leaf.untyped_storage())],
                dtype=leaf.dtype,
                size=leaf.shape,
                stride=leaf.stride(),
                offset=int(leaf.storage_offset()),
            )

        return _Origin(
            operator=self.operator,
            arguments=tree_map(argument, (self.args, dict(self.kwargs))),
            slots=tuple(slots.values()),
            made=places[made] if is_written else made,
            is_written=is_written,
            state=self.state,
            default_dtype=torch.get_default_dtype(),
            length=length,
        )


class RecordedStorages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Large storages that are made inside the block, `budget_bytes` of them awake at a time."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._budget_bytes = budget_bytes
        self._known: dict[int, _Known] = {}
        self._awake: dict[int, None] = {}  # what was used last is behind
        self._awake_bytes = 0
        self._looks = _Looks(self)
        self._start_thread = threading.Thread.start

    def __enter__(self) -> Self:
        """Begin to record."""
        start = self._start_thread = threading.Thread.start

        def start_beside(thread: threading.Thread) -> None:
            self.keep_all(but=())
            start(thread)

        threading.Thread.start = start_beside  # type: ignore[assignment, method-assign]
        self._looks.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        """Record no more."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._looks.__exit__(*error)  # type: ignore[no-untyped-call]
        threading.Thread.start = self._start_thread  # type: ignore[method-assign]

    def __torch_dispatch__(
        self,
        operator: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run `operator` on storages that are awake, and record what it makes of them."""
        del types
        with _unseen():
            named = kwargs or {}
            state = _generator_state(operator, args, named)
            call = _Call(operator=operator, args=args, kwargs=named, state=state)
            used = {_number(item): item for item in map(_storage, call.tensors) if item is not None}
            written = set(call.written())
            overwritten = self._overwritten(call)
            for number, storage in used.items():
                self._wake(number, storage, is_filled=number != overwritten)
            is_change = any(number in self._known for number in written)
            slots = self._slots(used, overwritten) if is_change else None
            try:
                result = operator(*args, **named)
            except Exception:
                for number in written & self._known.keys():
                    used[number].copy_(self._known[number].origin.storage())
                raise
            if is_change:
                self._change(call, written, used, slots)
            elif not written:
                self._add(call, result, used)
            self._rest(but=used)
        return result

    def keep(self, tensor: torch.Tensor) -> None:
        """Leave `tensor` in memory from now on: others may see its content, and change it."""
        with _unseen():
            storage = _storage(tensor)
            if storage is not None:
                self._wake(_number(storage), storage)
                self._forget(_number(storage))

    def keep_all(self, *, but: Iterable[torch.Tensor]) -> None:
        """Leave all tensors in memory from now on, but for some."""
        with _unseen():
            others = set(_numbers(but))
            for number in [number for number in self._known if number not in others]:
                storage = self._known[number].storage()
                if storage is not None:
                    self._wake(number, storage)
                self._forget(number)
            self._rest(but=())

    def part(self, tensor: torch.Tensor, ranges: Ranges) -> torch.Tensor:
        """Return a copy of a part of `tensor`; it is for the time after the block."""
        storage = _storage(tensor)
        if storage is None:
            return tensor[ranges].clone()
        number = _number(storage)
        if (first := self._first(tensor, number, ranges)) is not None:
            return first
        self._wake(number, storage)
        found = tensor[ranges].clone()
        self._rest(but=())
        return found

    def held(self, tensors: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
        """Return those of `tensors` by name that stay in memory."""
        storages = {name: _storage(tensor) for name, tensor in tensors.items()}
        return {
            name: tensors[name]
            for name, storage in storages.items()
            if storage is None or _number(storage) not in self._known
        }

    def _overwritten(self, call: _Call) -> int | None:
        """Return the number of a known storage of which `call` leaves nothing as it was, if any."""
        if call.operator._schema.name not in _OVERWRITING:  # noqa: SLF001
            return None
        target, *others = call.tensors
        storage = _storage(target)
        known = None if storage is None else self._known.get(_number(storage))
        if storage is None or known is None or not target.is_contiguous():
            return None
        is_read = any(
            _number(item) == _number(storage) for item in map(_storage, others) if item is not None
        )
        is_whole = target.numel() * target.element_size() == known.size_bytes
        return _number(storage) if is_whole and not is_read else None

    def _slots(
        self, used: Mapping[int, torch.UntypedStorage], overwritten: int | None = None
    ) -> dict[int, Slot] | None:
        """Return what storages hold, `None` where one holds what cannot be had again."""
        slots: dict[int, Slot] = {}
        for number, storage in used.items():
            known = self._known.get(number)
            if number == overwritten:
                slots[number] = storage.nbytes()
            elif known is not None:
                slots[number] = known.origin
            elif storage.nbytes() <= _SMALL_BYTES:
                slots[number] = _copy(storage)
            else:
                return None
        return slots

    def _change(
        self,
        call: _Call,
        written: set[int],
        used: Mapping[int, torch.UntypedStorage],
        slots: Mapping[int, Slot] | None,
    ) -> None:
        """Note that known storages have another content."""
        origin = None
        if slots is not None and len(written) == 1:
            origin = call.origin(slots, next(iter(written)), is_written=True)
        for number in written & self._known.keys():
            known = self._known[number]
            if origin is None or used[number].nbytes() != known.size_bytes:
                self._forget(number)
            else:
                known.origin = origin

    def _add(self, call: _Call, result: Any, used: Mapping[int, torch.UntypedStorage]) -> None:
        """Note the storages that an operator has made."""
        for index, tensor in enumerate(_tensors(result)):
            storage = _storage(tensor)
            if storage is None or _number(storage) in used or storage.nbytes() <= _SMALL_BYTES:
                continue
            slots = self._slots(used)
            origin = None if slots is None else call.origin(slots, index, is_written=False)
            if origin is not None:
                self._known[_number(storage)] = _Known(
                    alive=StorageWeakRef(storage),  # type: ignore[no-untyped-call]
                    origin=origin,
                    size_bytes=storage.nbytes(),
                )
                self._put_awake(_number(storage))

    def _wake(self, number: int, storage: torch.UntypedStorage, *, is_filled: bool = True) -> None:
        """Let a storage be used, with its content unless it is to be overwritten."""
        known = self._known.get(number)
        if known is None:
            return
        if number not in self._awake:
            storage.resize_(known.size_bytes)
            if is_filled:
                storage.copy_(known.origin.storage())
                if known.bit_sum not in (None, _bit_sum(storage)):
                    raise NotRepeatedError(f"{known.origin.operator} gives other numbers by now")
            known.first = None
        self._put_awake(number)

    def _put_awake(self, number: int) -> None:
        if number in self._awake:
            del self._awake[number]
        else:
            self._awake_bytes += self._known[number].size_bytes
        self._awake[number] = None

    def _rest(self, *, but: Collection[int]) -> None:
        """Let the memory of those go that were not used for longest, down to the budget."""
        while self._awake_bytes > self._budget_bytes:
            number = next((each for each in self._awake if each not in but), None)
            if number is None:
                return
            known = self._known[number]
            storage = known.storage()
            del self._awake[number]
            self._awake_bytes -= known.size_bytes
            if storage is None:
                del self._known[number]
            else:
                is_empty = known.origin.operator._schema.name.startswith(_EMPTY)  # noqa: SLF001
                known.bit_sum = None if is_empty else _bit_sum(storage)
                known.first = _copy(storage[:_FIRST_BYTES])
                storage.resize_(0)

    def _forget(self, number: int) -> None:
        """Hold a storage that is awake as it is."""
        known = self._known.pop(number, None)
        if known is not None and number in self._awake:
            del self._awake[number]
            self._awake_bytes -= known.size_bytes

    def _first(self, tensor: torch.Tensor, number: int, ranges: Ranges) -> torch.Tensor | None:
        """Return a part that lies in the first bytes of a storage that rests, if it does."""
        first = self._known[number].first if number in self._known else None
        if first is None or not tensor.is_contiguous() or tensor.storage_offset():
            return None
        size = [item.stop - item.start for item in ranges]
        is_row = all(item.start == 0 for item in ranges) and all(each == 1 for each in size[:-1])
        if not is_row or size[-1] * tensor.element_size() > _FIRST_BYTES:
            return None
        empty = torch.empty((), dtype=tensor.dtype, device="cpu")
        return empty.set_(first, 0, (size[-1],), (1,)).reshape(size).clone()


class _Looks(TorchFunctionMode):
    """Sees which functions look past the operators."""

    def __init__(self, storages: RecordedStorages) -> None:
        super().__init__()
        self._storages = storages

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Keep what others may look at from now on."""
        del types
        if function in _LOOKS:
            self._storages.keep(args[0])
        return function(*args, **(kwargs or {}))


@contextmanager
def _unseen() -> Iterator[None]:
    """Let operators and functions inside go past all modes: they are the recorder's own."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():  # noqa: SLF001
        yield


def _content(slot: Slot) -> torch.UntypedStorage:
    if isinstance(slot, _Origin):
        return slot.storage()
    if isinstance(slot, int):
        return torch.UntypedStorage(slot)  # type: ignore[no-untyped-call]
    return _copy(slot)


def _copy(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    copied: torch.UntypedStorage = storage.clone()  # type: ignore[no-untyped-call]
    return copied


def _bit_sum(storage: torch.UntypedStorage) -> int:
    """Return the sum of the bits of a storage, eight bytes at a time: nothing is rounded."""
    view = _View(
        slot=0,
        dtype=torch.int64,
        size=torch.Size((storage.nbytes() // 8,)),
        stride=(1,),
        offset=0,
    )
    return int(view.on(storage).sum())


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a view of host memory and nothing else."""
    is_dense = tensor.device.type == "cpu" and tensor.layout is torch.strided
    return type(tensor) in _PLAIN and is_dense and not (tensor.is_conj() or tensor.is_neg())


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    return tensor.untyped_storage() if _is_plain(tensor) else None


def _number(storage: torch.UntypedStorage) -> int:
    return int(storage._cdata)  # noqa: SLF001 - no public identity


def _numbers(tensors: Iterable[torch.Tensor]) -> Iterator[int]:
    return (_number(storage) for storage in map(_storage, tensors) if storage is not None)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _generator_state(
    operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> torch.Tensor | None:
    """Return the state that a random operator begins with."""
    if torch.Tag.nondeterministic_seeded not in operator.tags:
        return None
    generators = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Generator))
    given = next(generators, None)
    return torch.get_rng_state() if given is None else given.get_state()
