# SPDX-License-Identifier: MIT
"""Names of dtypes: strings, torch's, numpy's, whatever calls itself by the same name."""
from __future__ import annotations

from . import _abi
from .errors import InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

CODES = {"float32": _abi.F32, "float16": _abi.F16, "bfloat16": _abi.BF16}
DL_TYPES = {_abi.F32: (_abi.DL_FLOAT, 32), _abi.F16: (_abi.DL_FLOAT, 16), _abi.BF16: (_abi.DL_BFLOAT, 16)}
NAMES = {code: name for name, code in CODES.items()}

_known: Dict[Any, int] = dict(CODES)


def code(argument: str, dtype: Any) -> int:
    """The attns_dtype of "float32", torch.float32, numpy.float32, ..."""
    try:
        return _known[dtype]
    except (KeyError, TypeError):
        return _learn(argument, dtype)


def _learn(argument: str, dtype: Any) -> int:
    name = getattr(dtype, "__name__", None) or str(dtype)
    found = CODES.get(name.rpartition(".")[2])
    if found is None:
        raise InvalidArgumentError(f"{argument}: is {dtype}, accepted: float32, float16 or bfloat16")
    if len(_known) < 100:
        _known[dtype] = found
    return found
