# SPDX-License-Identifier: MIT
"""The operations as torch operators, for torch.compile, torch.export and whatever else looks into a graph.

Importing this module registers, in the namespace ``attn_scores``:

    fp8_paged_mqa_logits, fp4_paged_mqa_logits              return a new tensor [B*next_n, max_seq_len]
    fp8_paged_mqa_logits_out, fp4_paged_mqa_logits_out      write a given one
    compute_paged_mqa_logits_schedule                       returns a new tensor [num_sms+1, 2]
    indexer_scores                                          writes `scores`

with fake implementations, which say what shapes come out without a device. The functions of the same names in this
module call them. In eager code the plain functions of the package are quicker: an operator passes through torch's
dispatcher.

Needs torch 2.4 or newer.
"""
from typing import Optional

import torch

from . import _logits, ops

# The schemas come from the annotations, which must therefore not be strings.
_op = torch.library.custom_op


@_op("attn_scores::fp8_paged_mqa_logits", mutates_args=())
def fp8_paged_mqa_logits(q: torch.Tensor, kv_fused: torch.Tensor, weights: torch.Tensor, block_tables: torch.Tensor,
                         seq_lens: torch.Tensor, max_seq_len: int, output_dtype: torch.dtype = torch.float32,
                         epi_dtype: torch.dtype = torch.float32, acc_dtype: torch.dtype = torch.float32,
                         schedule_meta: Optional[torch.Tensor] = None, clean_logits: bool = False) -> torch.Tensor:
    """attn_scores.fp8_paged_mqa_logits without ``out``."""
    return ops.fp8_paged_mqa_logits(
        q, kv_fused, weights, block_tables, seq_lens, max_seq_len, output_dtype=output_dtype, epi_dtype=epi_dtype,
        acc_dtype=acc_dtype, schedule_meta=schedule_meta, clean_logits=clean_logits)


@_op("attn_scores::fp4_paged_mqa_logits", mutates_args=())
def fp4_paged_mqa_logits(q: torch.Tensor, q_sf: torch.Tensor, kv_fused: torch.Tensor, weights: torch.Tensor,
                         block_tables: torch.Tensor, seq_lens: torch.Tensor, max_seq_len: int, sf_vec_size: int = 32,
                         output_dtype: torch.dtype = torch.bfloat16, epi_dtype: torch.dtype = torch.float32,
                         is_kv_sf_interleaved: bool = False, schedule_meta: Optional[torch.Tensor] = None,
                         clean_logits: bool = False) -> torch.Tensor:
    """attn_scores.fp4_paged_mqa_logits without ``out``."""
    return ops.fp4_paged_mqa_logits(
        q, q_sf, kv_fused, weights, block_tables, seq_lens, max_seq_len, sf_vec_size=sf_vec_size,
        output_dtype=output_dtype, epi_dtype=epi_dtype, is_kv_sf_interleaved=is_kv_sf_interleaved,
        schedule_meta=schedule_meta, clean_logits=clean_logits)


def _fake_logits(q: torch.Tensor, max_seq_len: int, output_dtype: torch.dtype) -> torch.Tensor:
    torch._check(q.dim() == 4, lambda: f"q: rank is {q.dim()}, accepted: 4")
    # As _logits.torch_output, strides included.
    rows = q.shape[0] * q.shape[1]
    return q.new_empty((rows, _logits.padded(max_seq_len)), dtype=output_dtype)[:, :max_seq_len]


@fp8_paged_mqa_logits.register_fake
def _(q, kv_fused, weights, block_tables, seq_lens, max_seq_len, output_dtype=torch.float32, epi_dtype=torch.float32,
      acc_dtype=torch.float32, schedule_meta=None, clean_logits=False):
    return _fake_logits(q, max_seq_len, output_dtype)


@fp4_paged_mqa_logits.register_fake
def _(q, q_sf, kv_fused, weights, block_tables, seq_lens, max_seq_len, sf_vec_size=32, output_dtype=torch.bfloat16,
      epi_dtype=torch.float32, is_kv_sf_interleaved=False, schedule_meta=None, clean_logits=False):
    return _fake_logits(q, max_seq_len, output_dtype)


@_op("attn_scores::fp8_paged_mqa_logits_out", mutates_args=("out",))
def fp8_paged_mqa_logits_out(q: torch.Tensor, kv_fused: torch.Tensor, weights: torch.Tensor,
                             block_tables: torch.Tensor, seq_lens: torch.Tensor, max_seq_len: int, out: torch.Tensor,
                             epi_dtype: torch.dtype = torch.float32, acc_dtype: torch.dtype = torch.float32,
                             schedule_meta: Optional[torch.Tensor] = None, clean_logits: bool = False) -> None:
    """attn_scores.fp8_paged_mqa_logits into ``out``, whose dtype is the output's. Slice it for the view."""
    ops.fp8_paged_mqa_logits(
        q, kv_fused, weights, block_tables, seq_lens, max_seq_len, output_dtype=out.dtype, epi_dtype=epi_dtype,
        acc_dtype=acc_dtype, schedule_meta=schedule_meta, out=out, clean_logits=clean_logits)


@_op("attn_scores::fp4_paged_mqa_logits_out", mutates_args=("out",))
def fp4_paged_mqa_logits_out(q: torch.Tensor, q_sf: torch.Tensor, kv_fused: torch.Tensor, weights: torch.Tensor,
                             block_tables: torch.Tensor, seq_lens: torch.Tensor, max_seq_len: int, out: torch.Tensor,
                             sf_vec_size: int = 32, is_kv_sf_interleaved: bool = False,
                             schedule_meta: Optional[torch.Tensor] = None, clean_logits: bool = False) -> None:
    """attn_scores.fp4_paged_mqa_logits into ``out``, whose dtype is the output's. Slice it for the view."""
    ops.fp4_paged_mqa_logits(
        q, q_sf, kv_fused, weights, block_tables, seq_lens, max_seq_len, sf_vec_size=sf_vec_size,
        output_dtype=out.dtype, is_kv_sf_interleaved=is_kv_sf_interleaved, schedule_meta=schedule_meta, out=out,
        clean_logits=clean_logits)


@_op("attn_scores::compute_paged_mqa_logits_schedule", mutates_args=())
def compute_paged_mqa_logits_schedule(seq_lens: torch.Tensor, num_sms: int, next_n: int = 1,
                                      variant: str = "fp8") -> torch.Tensor:
    """attn_scores.compute_paged_mqa_logits_schedule on the device of ``seq_lens``."""
    out = seq_lens.new_empty((num_sms + 1, 2), dtype=torch.int32)
    return ops.compute_paged_mqa_logits_schedule(seq_lens, next_n=next_n, variant=variant, out=out)


@compute_paged_mqa_logits_schedule.register_fake
def _(seq_lens, num_sms, next_n=1, variant="fp8"):
    return seq_lens.new_empty((num_sms + 1, 2), dtype=torch.int32)


@_op("attn_scores::indexer_scores", mutates_args=("scores",))
def indexer_scores(query: torch.Tensor, key_cache: torch.Tensor, block_table: torch.Tensor,
                   context_lengths: torch.Tensor, requests: torch.Tensor, scores: torch.Tensor,
                   query_scales: Optional[torch.Tensor] = None, key_scales: Optional[torch.Tensor] = None) -> None:
    """attn_scores.indexer_scores."""
    ops.indexer_scores(query, key_cache, block_table, context_lengths, requests=requests, scores=scores,
                       query_scales=query_scales, key_scales=key_scales)


@fp8_paged_mqa_logits_out.register_fake
@fp4_paged_mqa_logits_out.register_fake
@indexer_scores.register_fake
def _(*arguments, **options):
    return None
