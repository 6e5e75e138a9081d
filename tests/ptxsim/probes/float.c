/* SPDX-License-Identifier: MIT
 *
 * Arithmetic of floats that is exact or correctly rounded. What the ISA calls approximate (ex2, lg2, rcp.approx, sin,
 * ...) is left out: the software GPU computes it more accurately. */
#include "scalar.h"

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
    {NULL, NULL, NULL},
};

void probes_float(probe_list *list) {
    scalar_probes(list, "float", table);
}
