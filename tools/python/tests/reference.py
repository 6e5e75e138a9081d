# SPDX-License-Identifier: MIT
"""The operations in float64 with numpy, from the bytes that the kernels read, and how far a kernel may be off.

The error bounds are those of tools/common/check.c, which says where they come from.
"""
import numpy as np


def _float8_table():
    codes = np.arange(256)
    sign, exponent, mantissa = codes >> 7, (codes >> 3) & 15, codes & 7
    value = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    value = np.where((exponent == 15) & (mantissa == 7), np.nan, value)
    return np.where(sign == 1, -value, value)


E4M3 = _float8_table()
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def decode_fp4(packed):
    """The lower nibble first, along the last dim."""
    return np.stack([E2M1[packed & 15], E2M1[packed >> 4]], axis=-1).reshape(*packed.shape[:-1], -1)


def _fp8_error(products):
    """Of the float32 sums of [P, H, D] products, in steps of 32."""
    u, total, error = 2.0**-13, 0.0, 0.0
    for start in range(0, products.shape[2], 32):
        step = products[..., start:start + 32]
        before = np.abs(total) + error
        largest = np.maximum(np.abs(step).max(-1), before)
        total = total + step.sum(-1)
        error = error + np.minimum(np.abs(step).sum(-1), 32 * u * largest) + (before > 0) * u * largest
        error = error + u * (np.abs(total) + error)
    return error


def _fp4_error(products):
    return (products.shape[2] + 16) * 2.0**-23 * np.abs(products).sum(-1)


def _scores(q, k, weights, error_of):
    """(logits, error) of queries [H, D] against keys [P, D]."""
    products = q[None, :, :] * k[:, None, :]
    relu, error = np.maximum(products.sum(-1), 0), error_of(products)
    reach = (np.abs(weights) * (relu + error)).sum(-1)
    return (weights * relu).sum(-1), (np.abs(weights) * error).sum(-1) + (len(weights) + 4) * 2.0**-24 * reach


def limits(seq_lens, next_n, max_seq_len):
    """Tokens that each row sees."""
    lens = np.asarray(seq_lens)
    per_slot = lens if lens.ndim == 2 else lens[:, None] - next_n + 1 + np.arange(next_n)
    return np.clip(per_slot, 0, max_seq_len).reshape(-1)


def _rows(q, keys, weights, block_tables, seq_lens, max_seq_len, block_size,
          error_of):
    batch, next_n = q.shape[:2]
    row_limits = limits(seq_lens, next_n, max_seq_len)
    logits = np.full((batch * next_n, max_seq_len), np.nan)
    errors = np.zeros_like(logits)
    for row, limit in enumerate(row_limits):
        request = row // next_n
        positions = np.arange(limit)
        k = keys[block_tables[request, positions // block_size], positions % block_size]
        logits[row, :limit], errors[row, :limit] = _scores(
            q[request, row % next_n], k, weights[row].astype(np.float64), error_of)
    return logits, errors, row_limits


def fp8(q, kv_fused, weights, block_tables, seq_lens, max_seq_len):
    """q [B, next_n, H, D] and kv_fused [num_blocks, block_size, 1, D+4] as uint8. Returns logits with NaN where nothing
    is written, errors, and the tokens that each row sees."""
    blocks, block_size, _, width = kv_fused.shape
    flat = kv_fused.reshape(blocks, -1)
    values = E4M3[flat[:, :block_size * (width - 4)]].reshape(blocks, block_size, width - 4)
    scales = np.ascontiguousarray(flat[:, block_size * (width - 4):]).view(np.float32).astype(np.float64)
    logits, errors, row_limits = _rows(
        E4M3[q], values, weights, block_tables, seq_lens, max_seq_len, block_size, _fp8_error)
    batch, next_n = q.shape[:2]
    for row, limit in enumerate(row_limits):
        positions = np.arange(limit)
        s = scales[block_tables[row // next_n, positions // block_size], positions % block_size]
        logits[row, :limit] *= s
        errors[row, :limit] = errors[row, :limit] * np.abs(s) + 2.0**-23 * np.abs(logits[row, :limit])
    return logits, errors, row_limits


def _rounded_fp4_error(products):
    """Hopper's kernel rounds dot products to float16, and weights to 16 bits or more, before it sums 16-bit scores."""
    error = _fp4_error(products)
    return error + (2.0**-11 + 2.0**-16) * (np.maximum(products.sum(-1), 0) + error)


def fp4(q, q_sf, kv_fused, weights, block_tables, seq_lens, max_seq_len, rounded=False):
    """q [B, next_n, H, D/2], q_sf [B, next_n, H] int32, kv_fused [num_blocks, block_size, 1, D/2 + D/32]. `rounded`: by
    Hopper's kernel, with scores of 16 bits."""
    blocks, block_size = kv_fused.shape[:2]
    half, groups = q.shape[-1], q.shape[-1] // 16
    flat = kv_fused.reshape(blocks, -1)
    values = decode_fp4(flat[:, :block_size * half].reshape(blocks, block_size, half))
    scales = 2.0 ** (flat[:, block_size * half:].reshape(blocks, block_size, groups) - 127.0)
    q_scales = 2.0 ** (np.ascontiguousarray(q_sf).view(np.uint8).reshape(*q_sf.shape, 4)[..., :groups] - 127.0)
    return _rows(decode_fp4(q) * np.repeat(q_scales, 32, -1), values * np.repeat(scales, 32, -1), weights, block_tables,
                 seq_lens, max_seq_len, block_size, _rounded_fp4_error if rounded else _fp4_error)


def indexer(query, key_cache, block_table, context_lengths, requests, max_context):
    """Decoded query [rows, 128] and key_cache [pages, 64, 128]. Returns scores with NaN where nothing is written, and
    the sums of |q_d k_d|."""
    group_rows = len(query) // len(context_lengths)
    scores = np.full((len(query), max_context), np.nan)
    sums = np.zeros_like(scores)
    for row, q in enumerate(query):
        length = min(max(int(context_lengths[row // group_rows]), 0), max_context)
        positions = np.arange(length)
        if length:
            k = key_cache[block_table[requests[row // group_rows], positions // 64], positions % 64]
            scores[row, :length], sums[row, :length] = k @ q, np.abs(k) @ np.abs(q)
    return scores, sums


def to_bfloat16(values):
    """float32 to the bits of bfloat16, cut off."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bfloat16(bits):
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)
