# SPDX-License-Identifier: MIT
"""What some calls return. Apart from the rest because named tuples are slow to import."""
from typing import NamedTuple


class Counters(NamedTuple):
    """Counts since a context was created."""

    compiles: int  #: kernels compiled by NVRTC
    disk_hits: int  #: cubins read from a cache
    memory_hits: int  #: calls that found their kernel loaded
    module_loads: int  #: cubins loaded into the driver


class Precompiled(NamedTuple):
    """One finished kernel."""

    kernel: str  #: its configuration, "fp8_paged_mqa_logits h64 d128 b64 n1 out=f32 ..."
    arch: str  #: "sm_90a"
    source: str  #: "compiler", "disk" or "memory"; "" where it failed
    cached: bool  #: a cache holds it now
    seconds: float  #: that it took
    registers: int  #: per thread, -1 where unknown
    spill_bytes: int  #: register spills, -1 where unknown
    error: str  #: "" on success
