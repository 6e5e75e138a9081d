/* SPDX-License-Identifier: MIT
 *
 * Arithmetic of floats that is exact or correctly rounded. What the ISA calls approximate (ex2, lg2, rcp.approx, sin,
 * ...) is left out: the software GPU computes it more accurately. */
#include "scalar.h"

#define F32_EDGE "and.b32 %x, %a, 7; sub.u32 %x, 0x3f800000, %x; and.b32 %y, %b, 7; add.u32 %y, %y, 0x00800000; "
#define F16_EDGE "and.b16 %a, %a, 7; sub.u16 %a, 0x3c00, %a; and.b16 %b, %b, 7; add.u16 %b, %b, 0x0400; "

static const scalar_probe table[] = {
    {"f=ff", "{add,sub,mul}{.rn,.rz,.rm,.rp}.f32", NULL},
    {"f=ff", "{add,sub,mul}{.ftz,.sat,.rz.ftz.sat}.f32", NULL},
    {"f=fff", "fma.{rn,rz,rm,rp}.f32", NULL},
    {"f=fff", "fma.rn{.ftz,.sat,.ftz.sat}.f32", NULL},
    {"f=ff", "div.{rn,rz}.f32", NULL},
    {"f=f", "{rcp,sqrt}.{rn,rz}.f32", NULL},
    {"f=ff", "{min,max}{,.ftz}{,.NaN}.f32", NULL},
    {"f=ff", "{min,max}{,.NaN}.xorsign.abs.f32", NULL},
    {"f=f", "{abs,neg}{,.ftz}.f32", NULL},
    {"f=ff", "copysign.f32", NULL},
    {"d=dd", "{add,sub,mul}.{rn,rz}.f64", NULL},
    {"d=ddd", "fma.{rn,rz}.f64", NULL},
    {"d=dd", "{min,max}.f64", NULL},
    {"d=dd", "div.rn.f64", NULL},
    {"d=d", "sqrt.rn.f64", NULL},
    {"h=hh", "{add,sub,mul}{,.ftz,.sat}.f16", NULL},
    {"x=xx", "{add,sub,mul}{,.ftz,.sat}.f16x2", NULL},
    {"h=hhh", "fma.rn{,.ftz,.sat,.relu}.f16", NULL},
    {"x=xxx", "fma.rn{,.ftz,.sat,.relu}.f16x2", NULL},
    {"h=hh", "{min,max}{,.ftz}{,.NaN}.f16", NULL},
    {"x=xx", "{min,max}{,.NaN}{,.xorsign.abs}.f16x2", NULL},
    {"h=h", "{abs,neg}.f16", NULL},
    {"x=x", "{abs,neg}.f16x2", NULL},
    {"b=bb", "{add,sub,mul}.bf16", NULL},
    {"y=yy", "{add,sub,mul}.bf16x2", NULL},
    {"b=bbb", "fma.rn{,.relu}.bf16", NULL},
    {"y=yyy", "fma.rn{,.relu}.bf16x2", NULL},
    {"b=bb", "{min,max}{,.NaN}.bf16", NULL},
    {"y=yy", "{min,max}{,.NaN}{,.xorsign.abs}.bf16x2", NULL},
    {"b=b", "{abs,neg}.bf16", NULL},
    {"y=y", "{abs,neg}.bf16x2", NULL},
    {"d=d", "{abs,neg}.f64", NULL},
    {"d=d", "rcp.rn.f64", NULL},
    /* around 2^-126 and 2^-14, products at which .ftz has to decide */
    {"f=ii", F32_EDGE "mul.{rn,rz,rm,rp}.ftz.f32 %d, %x, %y;", "mul.{rn,rz,rm,rp}.ftz.f32_edge"},
    {"f=ii", F32_EDGE "fma.{rn,rz,rm,rp}.ftz.f32 %d, %x, %y, 0f80000000;", "fma.{rn,rz,rm,rp}.ftz.f32_edge"},
    {"h=ss", F16_EDGE "mul.ftz.f16 %d, %a, %b;", "mul.ftz.f16_edge"},
    {"h=ss", ".reg .b16 %a2; " F16_EDGE "mov.b16 %a2, 0x8000; fma.rn.ftz.f16 %d, %a, %b, %a2;", "fma.rn.ftz.f16_edge"},
    {NULL, NULL, NULL},
};

void probes_float(probe_list *list) {
    scalar_probes(list, "float", table);
}
