# SPDX-License-Identifier: MIT
"""Random inputs as torch tensors, and the operations on them in float64. Error bounds: tools/common/check.c, which
derives them."""
import os

import torch

import attn_scores

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def decode_fp4(packed):
    """The lower nibble first, along the last dim."""
    table = torch.tensor(E2M1, dtype=torch.float64, device=packed.device)
    return torch.stack([table[(packed & 15).long()], table[(packed >> 4).long()]], -1).flatten(-2)


def _fp8_error(products, half):
    u = 2.0**-13
    total = error = torch.zeros(products.shape[:2], dtype=torch.float64, device=products.device)
    for step in products.split(32, -1):
        before = total.abs() + error
        largest = torch.maximum(step.abs().amax(-1), before)
        total = total + step.sum(-1)
        error = error + torch.minimum(step.abs().sum(-1), 32 * u * largest) + (before > 0) * u * largest
        error = error + u * (total.abs() + error)
        if half:
            error = error + 2.0**-10 * (total.abs() + error) + 2.0**-24
    return error


def fp8_tensor_cores_add_fp4(device):
    """Whether the kernel that serves FP4 on `device` lets FP8 tensor cores add, which keep 13 bits below the largest of
    32 products: Hopper's own, unless the environment chooses another. All others add with float32's precision."""
    return (torch.cuda.get_device_capability(device) == (9, 0)
            and os.environ.get("ATTNS_KERNEL_FAMILY") != "portable"
            and os.environ.get("ATTNS_ARCH") in (None, "", "sm_90a"))


def _fp4_error(products, device, output_dtype):
    """Of the dot products of FP4. With float32's precision: a term for each product and for at most 16 groups."""
    head_dim = products.shape[2]
    error = (head_dim + 16) * 2.0**-23 * products.abs().sum(-1)
    if fp8_tensor_cores_add_fp4(device):
        # As for FP8, scales included. Step j takes the 8 dims from 8j on of each quarter of the head dim.
        steps = products.unflatten(2, (4, head_dim // 32, 8)).transpose(2, 3).flatten(2)
        error = error + _fp8_error(steps, False)
        if output_dtype != torch.float32:
            # Dot products become float16 before the head sum, and weights keep 16 bits.
            error = error + (2.0**-11 + 2.0**-16) * (products.sum(-1).clamp(min=0) + error)
    return error


class Case:
    """Inputs of a logits call. Options of the call that change its errors are options here."""

    def __init__(self, variant="fp8", batch=3, next_n=1, heads=64, head_dim=128, block_size=64, max_seq_len=500,
                 lens=None, output_dtype=None, acc_dtype=torch.float32, epi_dtype=torch.float32, per_slot=False, seed=0,
                 device="cuda"):
        generator = torch.Generator(device).manual_seed(seed)

        def integers(low, high, shape, dtype):
            return torch.randint(low, high, shape, generator=generator, device=device).to(dtype)

        def e4m3(shape):
            codes = integers(0, 256, shape, torch.uint8)
            return torch.where(codes & 0x7F == 0x7F, codes ^ 1, codes)

        self.variant, self.next_n, self.block_size, self.max_seq_len = variant, next_n, block_size, max_seq_len
        self.acc_dtype, self.epi_dtype = acc_dtype, epi_dtype
        self.output_dtype = output_dtype or (torch.float32 if variant == "fp8" else torch.bfloat16)
        self.rows = batch * next_n
        columns = -(-max_seq_len // block_size)
        blocks = batch * columns + 3
        if variant == "fp8":
            # Sums that a float16 holds, where there is one: values below 2^-1, weights and scales that fit.
            half = torch.float16 in (self.output_dtype, acc_dtype, epi_dtype)
            limit = 0x37 if half else 0x7F
            q, values = e4m3((batch, next_n, heads, head_dim)), e4m3((blocks, block_size * head_dim))
            if half:
                q, values = (torch.where(v & 0x7F > limit, v & 0xB7, v) for v in (q, values))
            self.q = q.view(torch.float8_e4m3fn)
            low = -4 if half else -8
            exponents = integers(low, 9 + 2 * (low + 4) if half else 9, (blocks, block_size), torch.float32)
            self.scales = torch.exp2(exponents.clamp(max=2) if half else exponents)
            self.values = values.view(torch.float8_e4m3fn).view(blocks, block_size, head_dim).double()
            kv = torch.cat([values, self.scales.view(torch.uint8)], 1)
            self.kv = kv.view(blocks, block_size, 1, head_dim + 4)
            self.decoded_q = self.q.double()
        else:
            groups = head_dim // 32
            self.q = integers(0, 256, (batch, next_n, heads, head_dim // 2), torch.uint8)
            q_scales = integers(122, 132, (batch, next_n, heads, 4), torch.uint8)
            self.q_sf = q_scales.view(torch.int32).squeeze(-1)
            values = integers(0, 256, (blocks, block_size * head_dim // 2), torch.uint8)
            scales = integers(122, 132, (blocks, block_size * groups), torch.uint8)
            self.kv = torch.cat([values, scales], 1).view(blocks, block_size, 1, head_dim // 2 + groups)
            decode = decode_fp4(values.view(blocks, block_size, -1))
            self.values = decode * self.exponents(scales.view(blocks, block_size, groups))
            self.decoded_q = decode_fp4(self.q) * self.exponents(q_scales[..., :groups])
        self.weights = torch.randn(self.rows, heads, generator=generator, device=device) * (heads ** -0.5)
        if variant == "fp4" and self.output_dtype == torch.float16:
            self.weights *= 2.0**-10  # float16 ends at 65504
        permuted = torch.randperm(blocks, generator=generator, device=device)[:batch * columns]
        self.tables = permuted.view(batch, columns).int()
        if lens is None:
            shape = (batch, next_n) if per_slot else (batch,)
            lens = integers(0 if per_slot else next_n, max_seq_len + 1, shape, torch.int32)
        self.lens = torch.as_tensor(lens, dtype=torch.int32, device=device)

    @staticmethod
    def exponents(scales):
        return torch.exp2(scales.double() - 127).repeat_interleave(32, -1)

    @property
    def tensors(self):
        extra = (self.q_sf,) if self.variant == "fp4" else ()
        return (self.q, *extra, self.kv, self.weights, self.tables, self.lens)

    @property
    def options(self):
        if self.variant == "fp4":
            return {"output_dtype": self.output_dtype}
        return {"output_dtype": self.output_dtype, "acc_dtype": self.acc_dtype, "epi_dtype": self.epi_dtype}

    def call(self, **options):
        function = attn_scores.fp8_paged_mqa_logits if self.variant == "fp8" else attn_scores.fp4_paged_mqa_logits
        return function(*self.tensors, self.max_seq_len, **{**self.options, **options})

    def new_out(self, rows=None, columns=None):
        """NaN everywhere."""
        columns = columns or attn_scores.padded_seq_len(self.max_seq_len)
        return torch.full((rows or self.rows, columns), float("nan"), dtype=self.output_dtype, device=self.q.device)

    def limits(self):
        """Tokens that each row sees."""
        lens = self.lens.long()
        if lens.dim() == 1:
            lens = lens[:, None] - self.next_n + 1 + torch.arange(self.next_n, device=lens.device)
        return lens.clamp(0, self.max_seq_len).flatten().tolist()

    def row(self, row, limit):
        """(logits, bound of their error, sums of absolute terms) of the first `limit` columns."""
        request, slot = divmod(row, self.next_n)
        positions = torch.arange(limit, device=self.q.device)
        place = (self.tables[request].long()[positions // self.block_size], positions % self.block_size)
        weights = self.weights[row].double()
        products = self.decoded_q[request, slot][None] * self.values[place][:, None]
        relu = products.sum(-1).clamp(min=0)
        if self.variant == "fp8":
            error = _fp8_error(products, self.acc_dtype == torch.float16)
        else:
            error = _fp4_error(products, self.q.device, self.output_dtype)
        reach = (weights.abs() * (relu + error)).sum(-1)
        bound = (weights.abs() * error).sum(-1)
        if self.epi_dtype == torch.float16:
            bound = bound + (len(weights) + 4) * 2.0**-11 * reach
            bound = bound + 2.0**-25 * (relu + error + weights.abs() + 1).sum(-1)
        else:
            bound = bound + (len(weights) + 4) * 2.0**-24 * reach
        logits, terms = (weights * relu).sum(-1), (weights.abs() * products.abs().sum(-1)).sum(-1)
        if self.variant == "fp8":
            scale = self.scales[place].double()
            logits, terms = logits * scale, terms * scale
            bound = bound * scale + 2.0**-23 * logits.abs()
        return logits, bound, terms

    def allowed_deviation(self):
        if self.variant == "fp4":
            limit = 1e-6 if fp8_tensor_cores_add_fp4(self.q.device) else 1e-12
        else:
            limit = 1e-3 if torch.float16 in (self.acc_dtype, self.epi_dtype) else 1e-6
        return limit + {torch.bfloat16: 2.0**-16, torch.float16: 2.0**-22}.get(self.output_dtype, 0)

    def check(self, got, clean=False):
        """`got` is what the call returned or wrote: at least [rows, max_seq_len], NaN where nothing was written."""
        product = squares = 0.0
        for row, limit in enumerate(self.limits()):
            values = got[row].double()
            expected, bound, terms = self.row(row, limit)
            allowed = bound + (expected.abs() + bound) * ROUNDING[self.output_dtype] + 2.0**-25
            off = (values[:limit] - expected).abs()
            worst = torch.where(off <= allowed, 0.0, off)  # NaN is not within anything
            assert not worst.any(), f"row {row}: off by {off.max().item()} of {allowed.max().item()}"
            x, y = values[:limit] / terms, expected / terms  # so that all scales count alike
            product += (x * y).sum().item()
            squares += (x * x + y * y).sum().item()
            rest = values[limit:]
            if clean:
                assert torch.isneginf(values[limit:self.max_seq_len]).all(), f"row {row} is not clean"
                rest = values[self.max_seq_len:]
            assert torch.isnan(rest).all(), f"row {row} is written past its limit {limit}"
        deviation = 1 - 2 * product / squares if squares else 0
        assert deviation <= self.allowed_deviation(), f"deviation {deviation}"
        assert torch.isnan(got[self.rows:].float()).all(), "rows past the last one are written"
