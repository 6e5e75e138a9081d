# SPDX-License-Identifier: MIT
"""One call of the C library: tensors and options into a params struct, the status out as an exception.

torch tensors take a path that makes as few Python objects as it can: params structs with their DLTensors are kept and
reused, the addresses in them are overwritten for each call. Everything else goes through __dlpack__.
"""
import ctypes
import sys
from typing import Any, Callable, Dict, Optional, Tuple

from . import _abi, _library
from ._context import Context, default_context
from ._dlpack import borrow, not_a_tensor
from .errors import InvalidArgumentError


class _Frame:
    """A params struct that belongs to one call at a time, wired to its DLTensors."""

    __slots__ = ("params", "reference", "slots", "targets", "options")

    def __init__(self, struct: Any, fields: Tuple[str, ...], torch_path: Any) -> None:
        self.params = struct()
        self.reference = ctypes.byref(self.params)
        self.slots, self.targets = torch_path.new_slots(len(fields))
        for field, slot in zip(fields, self.slots):
            setattr(self.params, field, slot.address)
        self.options: Optional[tuple] = None


_paths: Dict[tuple, Any] = {}  # types of a call's tensors: the module _torch, or None


def torch_path(values: tuple) -> Any:
    """The module _torch if every one of `values` is a torch.Tensor, no subclass, or None; else None."""
    types = tuple(map(type, values))
    try:
        return _paths[types]
    except KeyError:
        return _classify(types)


def _classify(types: tuple) -> Any:
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    path = None
    if tensor in types and all(kind is tensor or kind is type(None) for kind in types):
        from . import _torch as path  # type: ignore[no-redef]
    if len(_paths) < 1000:
        _paths[types] = path
    return path


def is_torch(value: Any) -> bool:
    """Whether `value` is a torch tensor, subclasses included. Does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


class Call:
    """A function of the library that takes (context, params, stream).

    Args:
        name: of the C function.
        struct: its params struct.
        tensors: the fields that a call gives tensors for, in the order of its arguments.
        options: the other fields, likewise.
        outputs: those of `tensors` that are written.
        names: what Python calls the tensors, where that differs.
    """

    def __init__(self, name: str, struct: Any, tensors: Tuple[str, ...], options: Tuple[str, ...],
                 outputs: Tuple[str, ...], names: Optional[Dict[str, str]] = None) -> None:
        self.name, self.struct = name, struct
        self.tensors, self.options, self.outputs = tensors, options, outputs
        self.names = names or {}
        self.function: Any = None
        self.idle: list = []  # frames; pop and append are atomic

    def __call__(self, context: Optional[Context], tensors: tuple, options: tuple,
                 stream: Optional[int] = None) -> None:
        """Raises what the library has against the arguments, or what went wrong. `stream` is a CUstream handle; None:
        torch's current one for torch tensors, else the legacy default stream."""
        path = torch_path(tensors)
        if path is None:
            self.run_any(context, tensors, options, stream)
        else:
            self.run_torch(path, context, tensors, options, stream)

    def run_torch(self, path: Any, context: Optional[Context], tensors: tuple, options: tuple,
                  stream: Optional[int]) -> None:
        """The call with torch tensors. `path` is what torch_path has returned."""
        try:
            frame = self.idle.pop()
        except IndexError:
            frame = None
        if frame is None:
            frame = self._new_frame(path)
        try:
            any(map(path.fill, tensors, frame.targets))  # each returns 0
        except Exception as error:
            self._explain(path, tensors, frame, error)
        if frame.options != options:
            self._set_options(frame.params, options)
            frame.options = options
        handle = (context or default_context()).handle
        device = tensors[0].get_device()
        if device < 0:  # not on a CUDA device: for the library to judge
            status = self.function(handle, frame.reference, stream or 0)
        else:
            if stream is None:
                stream = path.raw_stream(device)
            if device == path.current_device():
                status = self.function(handle, frame.reference, stream)
            else:
                with path.on_device(device):  # the default stream is that of the current device
                    status = self.function(handle, frame.reference, stream)
        self.idle.append(frame)
        if status:
            _library.raise_status(status)

    def _new_frame(self, path: Any) -> _Frame:
        if self.function is None:
            self.function = getattr(_library.load(), self.name)
        return _Frame(self.struct, self.tensors, path)

    def _explain(self, path: Any, tensors: tuple, frame: _Frame, error: Exception) -> None:
        """Raises `error`, which torch has for one of the tensors, with the name of that one."""
        for field, value, target in zip(self.tensors, tensors, frame.targets):
            try:
                path.fill(value, target)
            except Exception as cause:
                name = self.names.get(field, field)
                if value is None:
                    raise not_a_tensor(name, value) from None
                raise InvalidArgumentError(f"{name}: cannot be read in place: {cause}") from cause
        raise error

    def _set_options(self, params: Any, options: tuple) -> None:
        for name, value in zip(self.options, options):
            try:
                setattr(params, name, value)
            except TypeError as error:
                raise TypeError(f"{name}: is {value!r}, accepted: a number ({error})") from None

    def run_any(self, context: Optional[Context], tensors: tuple, options: tuple, stream: Optional[int],
                adjust: Optional[Callable[[Dict[str, _abi.DLTensor]], None]] = None) -> None:
        """The same for any objects. `adjust` may change the DLTensors, which are copies."""
        params = self.struct()
        self._set_options(params, options)
        guard = None
        if stream is None:
            device = next((value.get_device() for value in tensors if is_torch(value)), -1)
            stream = 0
            if device >= 0:
                from . import _torch

                stream, guard = _torch.raw_stream(device), _torch.on_device(device)
        alive, described = [], {}  # owners of the memory, DLTensors
        for field, value in zip(self.tensors, tensors):
            owner, tensor = self._borrow(field, value, stream)
            described[field] = _abi.DLTensor.from_buffer_copy(tensor)
            alive.append(owner)
            setattr(params, field, ctypes.addressof(described[field]))
        if adjust is not None:
            adjust(described)
        if self.function is None:
            self.function = getattr(_library.load(), self.name)
        handle = (context or default_context()).handle
        if guard is None:
            status = self.function(handle, ctypes.byref(params), stream)
        else:
            with guard:
                status = self.function(handle, ctypes.byref(params), stream)
        if status:
            _library.raise_status(status)

    def _borrow(self, field: str, value: Any, stream: int) -> Tuple[Any, _abi.DLTensor]:
        if is_torch(value):
            from . import _torch

            slot = _torch.Slot()
            _torch.fill_slot(value, slot)
            return (value, slot), slot.tensor
        return borrow(value, self.names.get(field, field), stream, field in self.outputs)
