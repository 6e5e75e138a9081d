# SPDX-License-Identifier: MIT
"""Finds and opens libattn_scores, once, when it is first needed."""
from __future__ import annotations

import _thread
import ctypes
import os

from . import _abi
from .errors import BY_STATUS, InternalError, LibraryNotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

VARIABLE = "ATTN_SCORES_LIBRARY"
BUNDLED = "libattn_scores.so.0"

_lock = _thread.allocate_lock()
_library: Optional[ctypes.CDLL] = None


def candidates() -> List[str]:
    """Where the library may be: $ATTN_SCORES_LIBRARY alone if it is set; else the copy in this package, if there is
    one; else the system's."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return [chosen]
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), BUNDLED)
    if os.path.exists(bundled):
        return [bundled]
    return [BUNDLED]


def _open(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    try:
        for name, (result, arguments) in _abi.FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError as error:
        raise LibraryNotFoundError(f"{path} is no libattn_scores of this package's version: {error}") from error
    version = library.attns_version().decode()
    if tuple(int(part) for part in version.split(".")[:2]) != _abi.VERSION:
        raise LibraryNotFoundError(
            f"{path} is libattn_scores {version}, this package is for {_abi.VERSION[0]}.{_abi.VERSION[1]}")
    return library


def load() -> ctypes.CDLL:
    """The open library. Raises LibraryNotFoundError."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                problems = []
                for path in candidates():
                    try:
                        _library = _open(path)
                        break
                    except OSError as error:
                        problems.append(f"{path}: {error}")
                else:
                    raise LibraryNotFoundError(
                        "libattn_scores cannot be opened. " + "; ".join(problems) +
                        f". Set {VARIABLE} to the file, or install the library")
    return _library


def raise_status(status: int) -> None:
    """Raises the exception of a status other than ATTNS_OK, with this thread's message."""
    message = load().attns_last_error().decode(errors="replace")
    raise BY_STATUS.get(status, InternalError)(message)


def check(status: int) -> None:
    if status:
        raise_status(status)
