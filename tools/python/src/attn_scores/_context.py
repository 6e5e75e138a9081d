# SPDX-License-Identifier: MIT
"""Contexts: where kernels are kept once they are loaded, and how they are compiled and cached."""
from __future__ import annotations

import _thread
import ctypes
import os

from . import _abi, _library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from ._records import Counters

LEVELS = {"none": 0, "error": 1, "warning": 2, "info": 3, "debug": 4}


def _as_dict(struct: ctypes.Structure) -> Dict[str, Any]:
    values = {field[0]: getattr(struct, field[0]) for field in struct._fields_}
    return {name: os.fsdecode(value) if isinstance(value, bytes) else value for name, value in values.items()}


class Context:
    """Holds loaded kernels and says where they come from.

    Every argument may be left out; then the environment variable of the C library decides (``ATTNS_CACHE_DIR`` and so
    on, read when the context is created). Nothing of CUDA is touched before the first call. One context may be used by
    any number of threads.

    Args:
        cache_dir: the writable kernel cache; "" for none.
        cache_readonly_dirs: ':'-separated caches and bundles that are only read.
        cache_max_bytes: size bound of the writable cache; 0 is 1 GiB.
        cache_shared: caches may be writable by their group.
        forbid_compile: a kernel that no cache holds raises WouldCompileError instead of being compiled.
        allow_compile_in_capture: compile even while the stream is being captured.
        compile_threads: kernels compiled at a time; 0 is one per CPU.
        libcuda_path, libnvrtc_path: files or SONAMEs.
        template_dir, dump_dir, record_path, load_ptx, kernel_family, arch: as in ``attns_context_params``.
        log: called with a level ("error", "warning", "info", "debug") and a line, from any thread; None: stderr.
        log_level: the most that is delivered; None: "warning".
    """

    def __init__(self, *, cache_dir: Optional[str] = None, cache_readonly_dirs: Optional[str] = None,
                 cache_max_bytes: int = 0, cache_shared: bool = False, forbid_compile: bool = False,
                 allow_compile_in_capture: bool = False, compile_threads: int = 0,
                 libcuda_path: Optional[str] = None, libnvrtc_path: Optional[str] = None,
                 template_dir: Optional[str] = None, dump_dir: Optional[str] = None, record_path: Optional[str] = None,
                 load_ptx: bool = False, kernel_family: Optional[str] = None, arch: Optional[str] = None,
                 log: Optional[Callable[[str, str], None]] = None, log_level: Optional[str] = None) -> None:
        self.handle: Optional[ctypes.c_void_p] = None
        library = _library.load()
        params = _abi.attns_context_params(
            cache_max_bytes=cache_max_bytes, cache_shared=cache_shared, forbid_compile=forbid_compile,
            allow_compile_in_capture=allow_compile_in_capture, compile_threads=compile_threads, load_ptx=load_ptx)
        for name, value in (
                ("cache_dir", cache_dir), ("cache_readonly_dirs", cache_readonly_dirs), ("libcuda_path", libcuda_path),
                ("libnvrtc_path", libnvrtc_path), ("template_dir", template_dir), ("dump_dir", dump_dir),
                ("record_path", record_path), ("kernel_family", kernel_family), ("arch", arch)):
            if value is not None:
                setattr(params, name, os.fsencode(value))
        if log_level is not None:
            if log_level not in LEVELS:
                raise ValueError(f"log_level: is {log_level!r}, accepted: {', '.join(LEVELS)}")
            params.log_level = LEVELS[log_level]
        self._log = None
        if log is not None:
            names = {level: name for name, level in LEVELS.items()}
            self._log = _abi.LogFunction(
                lambda _user, level, line: log(names.get(level, "debug"), line.decode(errors="replace")))
            params.log = self._log
            if log_level is None:
                params.log_level = LEVELS["warning"]
        handle = ctypes.c_void_p()
        _library.check(library.attns_context_create(ctypes.byref(handle), ctypes.byref(params)))
        self.handle = handle

    def close(self) -> None:
        """Unloads the kernels. Work queued through the context must have completed, and CUDA graphs that hold its
        kernels must not be launched again; that is why it does not happen by itself."""
        handle, self.handle = self.handle, None
        if handle is not None:
            _library.load().attns_context_destroy(handle)

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def counters(self) -> Counters:
        from ._records import Counters

        counters = _abi.attns_counters()
        _library.load().attns_get_counters(self.handle, ctypes.byref(counters))
        return Counters(*(getattr(counters, name) for name in Counters._fields))

    def info(self) -> Dict[str, Any]:
        """Driver, NVRTC and caches; the fields of ``attns_info``."""
        info = _abi.attns_info()
        _library.check(_library.load().attns_get_info(self.handle, ctypes.byref(info)))
        return _as_dict(info)

    def device_info(self, ordinal: int = 0) -> Dict[str, Any]:
        """A CUDA device; the fields of ``attns_device_info``."""
        info = _abi.attns_device_info()
        _library.check(_library.load().attns_get_device_info(self.handle, ordinal, ctypes.byref(info)))
        return _as_dict(info)


_lock = _thread.allocate_lock()
_default: Optional[Context] = None


def default_context() -> Context:
    """The context of calls that name none: made on first use, never closed."""
    global _default
    if _default is None:
        with _lock:
            if _default is None:
                _default = Context()
    return _default


def set_default_context(context: Optional[Context]) -> None:
    """Makes ``context`` the one of calls that name none; None: a new one on next use."""
    global _default
    with _lock:
        _default = context


def _after_fork() -> None:
    # The parent's kernels are loaded in its CUDA context, which a child does not have; its lock may be held.
    global _lock, _default
    _lock, _default = _thread.allocate_lock(), None


os.register_at_fork(after_in_child=_after_fork)
