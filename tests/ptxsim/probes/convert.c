/* SPDX-License-Identifier: MIT
 *
 * cvt: every form that sm_90 has between the types the kernels use, and the others between numbers. */
#include "scalar.h"

static const scalar_probe table[] = {
    /* packed and narrow floats */
    {"i=ff", "cvt.{rn,rz}{,.relu}.f16x2.f32", NULL},
    {"i=ff", "cvt.{rn,rz}{,.relu}.bf16x2.f32", NULL},
    {"s=ff", "cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32", NULL},
    {"s=x", "cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f16x2", NULL},
    {"i=s", "cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2}", NULL},
    /* between floats */
    {"h=f", "cvt.{rn,rz}{,.relu}.{f16,bf16}.f32", NULL},
    {"h=f", "cvt.{rm,rp}.f16.f32", NULL},
    {"h=f", "cvt.rn{.ftz,.sat,.ftz.sat}.f16.f32", NULL},
    {"i=f", "cvt.rna.tf32.f32", NULL},
    {"i=f", "cvt.{rn,rz}{,.relu}.tf32.f32", NULL},
    {"f=h", "cvt{,.ftz,.sat}.f32.f16", NULL},
    {"f=b", "cvt.f32.bf16", NULL},
    {"f=d", "cvt.{rn,rz,rm,rp}{,.ftz}.f32.f64", NULL},
    {"d=f", "cvt{,.ftz}.f64.f32", NULL},
    {"h=d", "cvt.{rn,rz}.f16.f64", NULL},
    {"h=d", "cvt.rn.bf16.f64", NULL},
    {"d=h", "cvt.f64.f16", NULL},
    {"d=b", "cvt.f64.bf16", NULL},
    {"h=h", "cvt.rn.bf16.f16", NULL},
    {"h=b", "cvt.rn.f16.bf16", NULL},
    {"f=d", "cvt.rn.sat.f32.f64", NULL},
    {"d=f", "cvt.sat.f64.f32", NULL},
    {"f=f", "cvt.{rni,rzi,rmi,rpi}{,.ftz}.f32.f32", NULL},
    {"f=f", "cvt.{rni,rzi}{.sat}.f32.f32", NULL},
    {"h=h", "cvt.{rni,rzi,rmi,rpi}.f16.f16", NULL},
    {"d=d", "cvt.{rni,rzi,rmi,rpi}.f64.f64", NULL},
    /* to integers */
    {"i=f", "cvt.{rni,rzi,rmi,rpi}{,.ftz}.{u32,s32}.f32", NULL},
    {"l=f", "cvt.{rni,rzi}.{u64,s64}.f32", NULL},
    {"s=f", "cvt.{rni,rzi}.{u16,s16}.f32", NULL},
    {"i=f", "cvt.{rni,rzi}.{u8,s8}.f32", NULL},
    {"i=h", "cvt.{rni,rzi,rmi,rpi}.{u32,s32}.f16", NULL},
    {"s=h", "cvt.{rni,rzi}.{u16,s16}.f16", NULL},
    {"i=b", "cvt.{rni,rzi}.{u32,s32}.bf16", NULL},
    {"i=d", "cvt.{rni,rzi}.{u32,s32}.f64", NULL},
    {"l=d", "cvt.{rni,rzi}.{u64,s64}.f64", NULL},
    /* from integers */
    {"f=i", "cvt.{rn,rz,rm,rp}.f32.{u32,s32}", NULL},
    {"f=l", "cvt.{rn,rz}.f32.{u64,s64}", NULL},
    {"f=s", "cvt.rn.f32.{u16,s16}", NULL},
    {"f=i", "cvt.rn.f32.{u8,s8}", NULL},
    {"h=i", "cvt.{rn,rz}.{f16,bf16}.{u32,s32}", NULL},
    {"h=s", "cvt.{rn,rz}.f16.{u16,s16}", NULL},
    {"d=i", "cvt.rn.f64.{u32,s32}", NULL},
    {"d=l", "cvt.{rn,rz}.f64.{u64,s64}", NULL},
    /* between integers */
    {"i=i", "cvt.{u8,s8,u16,s16}.{u32,s32}", NULL},
    {"i=i", "cvt.sat.{u8,s8,u16,s16,u32}.s32", NULL},
    {"i=i", "cvt.sat.{u8,s8,u16,s16,s32}.u32", NULL},
    {"i=l", "cvt{,.sat}.{u32,s32}.{u64,s64}", NULL},
    {"l=i", "cvt.{u64,s64}.{u32,s32}", NULL},
    {"l=s", "cvt.{u64,s64}.{u16,s16}", NULL},
    {"i=s", "cvt.{u32,s32}.{u8,s8}", NULL},
    {"i=ii", "cvt.pack.sat.{u16,s16}.s32", NULL},
    {"i=iii", "cvt.pack.sat.{u8,s8,u4,s4,u2,s2}.s32.b32", NULL},
    {NULL, NULL, NULL},
};

void probes_convert(probe_list *list) {
    scalar_probes(list, "convert", table);
}
