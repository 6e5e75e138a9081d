# SPDX-License-Identifier: MIT
"""The operations as torch operators, for torch.compile, torch.export and whatever else looks into a graph.

Importing this module registers, in the namespace ``attn_scores``:

    fp8_paged_mqa_logits, fp4_paged_mqa_logits              return a new tensor [B*next_n, max_seq_len]
    fp8_paged_mqa_logits_out, fp4_paged_mqa_logits_out      write a given one
    compute_paged_mqa_logits_schedule                       returns a new tensor [num_sms+1, 2]
    indexer_scores                                          writes `scores`

with fake implementations, which say what shapes come out without a device. The functions of the same names in this
module call them. None has a derivative. In eager code the plain functions of the package are quicker: an operator
passes through torch's dispatcher.

Needs torch 2.4 or newer.
"""
from __future__ import annotations

from typing import Optional

import torch

from . import _logits, ops

_library = torch.library.Library("attn_scores", "DEF")
# A compiler must hand over inputs with the strides they have in eager code, for the library checks them.
_TAGS = (getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order),)


def _operator(schema: str):
    """Registers what it decorates as the operator `schema` for CUDA tensors, and for CPU tensors, which the library
    computes or refuses. torch.library.custom_op would do the same, with some 20 us of Python in each call."""

    def register(function):
        name = schema.partition("(")[0]
        _library.define(schema, tags=_TAGS)
        for key in ("CUDA", "CPU"):
            _library.impl(name, function, key)
        return getattr(torch.ops.attn_scores, name).default

    return register


def _fake(*names: str):
    def register(function):
        for name in names:
            torch.library.register_fake(f"attn_scores::{name}", function, lib=_library)
        return function

    return register


_FP8 = "Tensor q, Tensor kv_fused, Tensor weights, Tensor block_tables, Tensor seq_lens, SymInt max_seq_len"
_FP4 = _FP8.replace("q,", "q, Tensor q_sf,", 1)
_LAST = "Tensor? schedule_meta=None, bool clean_logits=False"


@_operator(f"fp8_paged_mqa_logits({_FP8}, ScalarType output_dtype=float32, ScalarType epi_dtype=float32, "
           f"ScalarType acc_dtype=float32, {_LAST}) -> Tensor")
def _fp8(q, kv_fused, weights, block_tables, seq_lens, max_seq_len, output_dtype=torch.float32,
         epi_dtype=torch.float32, acc_dtype=torch.float32, schedule_meta=None, clean_logits=False):
    return ops.fp8_paged_mqa_logits(
        q, kv_fused, weights, block_tables, seq_lens, max_seq_len, output_dtype=output_dtype, epi_dtype=epi_dtype,
        acc_dtype=acc_dtype, schedule_meta=schedule_meta, clean_logits=clean_logits)


@_operator(f"fp8_paged_mqa_logits_out({_FP8}, Tensor(a!) out, ScalarType epi_dtype=float32, "
           f"ScalarType acc_dtype=float32, {_LAST}) -> ()")
def _fp8_out(q, kv_fused, weights, block_tables, seq_lens, max_seq_len, out, epi_dtype=torch.float32,
             acc_dtype=torch.float32, schedule_meta=None, clean_logits=False):
    ops.fp8_paged_mqa_logits(
        q, kv_fused, weights, block_tables, seq_lens, max_seq_len, output_dtype=out.dtype, epi_dtype=epi_dtype,
        acc_dtype=acc_dtype, schedule_meta=schedule_meta, out=out, clean_logits=clean_logits)


@_operator(f"fp4_paged_mqa_logits({_FP4}, int sf_vec_size=32, ScalarType output_dtype=bfloat16, "
           f"ScalarType epi_dtype=float32, bool is_kv_sf_interleaved=False, {_LAST}) -> Tensor")
def _fp4(q, q_sf, kv_fused, weights, block_tables, seq_lens, max_seq_len, sf_vec_size=32, output_dtype=torch.bfloat16,
         epi_dtype=torch.float32, is_kv_sf_interleaved=False, schedule_meta=None, clean_logits=False):
    return ops.fp4_paged_mqa_logits(
        q, q_sf, kv_fused, weights, block_tables, seq_lens, max_seq_len, sf_vec_size=sf_vec_size,
        output_dtype=output_dtype, epi_dtype=epi_dtype, is_kv_sf_interleaved=is_kv_sf_interleaved,
        schedule_meta=schedule_meta, clean_logits=clean_logits)


@_operator(f"fp4_paged_mqa_logits_out({_FP4}, Tensor(a!) out, int sf_vec_size=32, bool is_kv_sf_interleaved=False, "
           f"{_LAST}) -> ()")
def _fp4_out(q, q_sf, kv_fused, weights, block_tables, seq_lens, max_seq_len, out, sf_vec_size=32,
             is_kv_sf_interleaved=False, schedule_meta=None, clean_logits=False):
    ops.fp4_paged_mqa_logits(
        q, q_sf, kv_fused, weights, block_tables, seq_lens, max_seq_len, sf_vec_size=sf_vec_size,
        output_dtype=out.dtype, is_kv_sf_interleaved=is_kv_sf_interleaved, schedule_meta=schedule_meta, out=out,
        clean_logits=clean_logits)


@_operator("compute_paged_mqa_logits_schedule(Tensor seq_lens, SymInt num_sms, int next_n=1, str variant='fp8') "
           "-> Tensor")
def _schedule(seq_lens, num_sms, next_n=1, variant="fp8"):
    out = seq_lens.new_empty((num_sms + 1, 2), dtype=torch.int32)
    return ops.compute_paged_mqa_logits_schedule(seq_lens, next_n=next_n, variant=variant, out=out)


@_operator("indexer_scores(Tensor query, Tensor key_cache, Tensor block_table, Tensor context_lengths, "
           "Tensor requests, Tensor(a!) scores, Tensor? query_scales=None, Tensor? key_scales=None) -> ()")
def _indexer(query, key_cache, block_table, context_lengths, requests, scores, query_scales=None, key_scales=None):
    ops.indexer_scores(query, key_cache, block_table, context_lengths, requests=requests, scores=scores,
                       query_scales=query_scales, key_scales=key_scales)


# ---- Fake implementations --------------------------------------------------------------------------------------------


def _fake_logits(q, max_seq_len, output_dtype):
    torch._check(q.dim() == 4, lambda: f"q: rank is {q.dim()}, accepted: 4")
    # As _logits.new_output, strides included.
    rows = q.shape[0] * q.shape[1]
    return q.new_empty((rows, _logits.padded(max_seq_len)), dtype=output_dtype)[:, :max_seq_len]


@_fake("fp8_paged_mqa_logits")
def _(q, kv_fused, weights, block_tables, seq_lens, max_seq_len, output_dtype=torch.float32, epi_dtype=torch.float32,
      acc_dtype=torch.float32, schedule_meta=None, clean_logits=False):
    return _fake_logits(q, max_seq_len, output_dtype)


@_fake("fp4_paged_mqa_logits")
def _(q, q_sf, kv_fused, weights, block_tables, seq_lens, max_seq_len, sf_vec_size=32, output_dtype=torch.bfloat16,
      epi_dtype=torch.float32, is_kv_sf_interleaved=False, schedule_meta=None, clean_logits=False):
    return _fake_logits(q, max_seq_len, output_dtype)


@_fake("compute_paged_mqa_logits_schedule")
def _(seq_lens, num_sms, next_n=1, variant="fp8"):
    return seq_lens.new_empty((num_sms + 1, 2), dtype=torch.int32)


@_fake("fp8_paged_mqa_logits_out", "fp4_paged_mqa_logits_out", "indexer_scores")
def _(*arguments, **options):
    return None


# ---- What callers see ------------------------------------------------------------------------------------------------


def fp8_paged_mqa_logits(q: torch.Tensor, kv_fused: torch.Tensor, weights: torch.Tensor, block_tables: torch.Tensor,
                         seq_lens: torch.Tensor, max_seq_len: int, output_dtype: torch.dtype = torch.float32,
                         epi_dtype: torch.dtype = torch.float32, acc_dtype: torch.dtype = torch.float32,
                         schedule_meta: Optional[torch.Tensor] = None, clean_logits: bool = False) -> torch.Tensor:
    """attn_scores.fp8_paged_mqa_logits without ``out``."""
    return _fp8(q, kv_fused, weights, block_tables, seq_lens, max_seq_len, output_dtype, epi_dtype, acc_dtype,
                schedule_meta, clean_logits)


def fp8_paged_mqa_logits_out(q: torch.Tensor, kv_fused: torch.Tensor, weights: torch.Tensor,
                             block_tables: torch.Tensor, seq_lens: torch.Tensor, max_seq_len: int, out: torch.Tensor,
                             epi_dtype: torch.dtype = torch.float32, acc_dtype: torch.dtype = torch.float32,
                             schedule_meta: Optional[torch.Tensor] = None, clean_logits: bool = False) -> None:
    """attn_scores.fp8_paged_mqa_logits into ``out``, whose dtype is the output's. Slice it for the view."""
    _fp8_out(q, kv_fused, weights, block_tables, seq_lens, max_seq_len, out, epi_dtype, acc_dtype, schedule_meta,
             clean_logits)


def fp4_paged_mqa_logits(q: torch.Tensor, q_sf: torch.Tensor, kv_fused: torch.Tensor, weights: torch.Tensor,
                         block_tables: torch.Tensor, seq_lens: torch.Tensor, max_seq_len: int, sf_vec_size: int = 32,
                         output_dtype: torch.dtype = torch.bfloat16, epi_dtype: torch.dtype = torch.float32,
                         is_kv_sf_interleaved: bool = False, schedule_meta: Optional[torch.Tensor] = None,
                         clean_logits: bool = False) -> torch.Tensor:
    """attn_scores.fp4_paged_mqa_logits without ``out``."""
    return _fp4(q, q_sf, kv_fused, weights, block_tables, seq_lens, max_seq_len, sf_vec_size, output_dtype, epi_dtype,
                is_kv_sf_interleaved, schedule_meta, clean_logits)


def fp4_paged_mqa_logits_out(q: torch.Tensor, q_sf: torch.Tensor, kv_fused: torch.Tensor, weights: torch.Tensor,
                             block_tables: torch.Tensor, seq_lens: torch.Tensor, max_seq_len: int, out: torch.Tensor,
                             sf_vec_size: int = 32, is_kv_sf_interleaved: bool = False,
                             schedule_meta: Optional[torch.Tensor] = None, clean_logits: bool = False) -> None:
    """attn_scores.fp4_paged_mqa_logits into ``out``, whose dtype is the output's. Slice it for the view."""
    _fp4_out(q, q_sf, kv_fused, weights, block_tables, seq_lens, max_seq_len, out, sf_vec_size, is_kv_sf_interleaved,
             schedule_meta, clean_logits)


def compute_paged_mqa_logits_schedule(seq_lens: torch.Tensor, num_sms: int, next_n: int = 1,
                                      variant: str = "fp8") -> torch.Tensor:
    """attn_scores.compute_paged_mqa_logits_schedule on the device of ``seq_lens``."""
    return _schedule(seq_lens, num_sms, next_n, variant)


def indexer_scores(query: torch.Tensor, key_cache: torch.Tensor, block_table: torch.Tensor,
                   context_lengths: torch.Tensor, requests: torch.Tensor, scores: torch.Tensor,
                   query_scales: Optional[torch.Tensor] = None, key_scales: Optional[torch.Tensor] = None) -> None:
    """attn_scores.indexer_scores."""
    _indexer(query, key_cache, block_table, context_lengths, requests, scores, query_scales, key_scales)
