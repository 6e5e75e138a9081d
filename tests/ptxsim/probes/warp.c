/* SPDX-License-Identifier: MIT
 *
 * Exchange between the lanes of a warp, and what a lane knows of itself. */
#include "scalar.h"

/* Half of the lanes, in no regular pattern. */
#define SOME "0x53a6c10f"

static const scalar_probe table[] = {
    {"l=icc", "shfl.sync.{up,down,bfly,idx}.b32 %x|%q, %a, %b, %c, -1; selp.b32 %y, 1, 0, %q; mov.b64 %d, {%x, %y};",
     "shfl.{up,down,bfly,idx}"},
    {"l=ii", "shfl.sync.{up,down,bfly,idx}.b32 %x|%q, %a, 3, 0x0c1f, -1; selp.b32 %y, 1, 0, %q; mov.b64 %d, {%x, %y};",
     "shfl.{up,down,bfly,idx}_segments"},
    {"i=p", "vote.sync.ballot.b32|-1", NULL},
    {"p=p", "vote.sync.{all,any,uni}.pred|-1", NULL},
    {"i=c", "match.any.sync.b32|-1", NULL},
    {"i=l", "match.any.sync.b64|-1", NULL},
    {"l=i",
     "shr.u32 %x, %thread, 5; and.b32 %x, %x, 1; and.b32 %y, %a, 1; and.b32 %x, %x, %y; shr.u32 %y, %gtid, 5; "
     "mul.lo.u32 %y, %y, %x; match.all.sync.b32 %x|%q, %y, -1; selp.b32 %y, 1, 0, %q; mov.b64 %d, {%x, %y};",
     "match.all.b32"},
    {"l=l", "match.all.sync.b64 %x|%q, %a, -1; selp.b32 %y, 1, 0, %q; mov.b64 %d, {%x, %y};", "match.all.b64"},
    {"i=i", "redux.sync.{add,min,max}.{u32,s32}|-1", NULL},
    {"i=i", "redux.sync.{and,or,xor}.b32|-1", NULL},
/* by some of the lanes; the others' results stay */
#define BY_SOME(text) "mov.u32 %x, %lanemask_eq; and.b32 %x, %x, " SOME "; setp.ne.u32 %q, %x, 0; mov.b32 %d, -7; " text
    {"i=i", BY_SOME("@%q redux.sync.{add.u32,max.s32,xor.b32} %d, %a, " SOME ";"), "redux.{add,max,xor}.some"},
    {"i=ic", BY_SOME("@%q match.any.sync.b32 %d, %b, " SOME ";"), "match.any.some"},
    {"i=ip", BY_SOME("@%q vote.sync.ballot.b32 %d, %b, " SOME ";"), "vote.ballot.some"},
    {"i=i", BY_SOME("@%q activemask.b32 %d;"), "activemask.some"},
    {"i=i", BY_SOME("@%q elect.sync %d|%p1, " SOME ";"), "elect.some"},
    {"l=i", "elect.sync %x|%q, -1; selp.b32 %y, 1, 0, %q; mov.b64 %d, {%x, %y};", "elect"},
    {"i=i", "activemask.b32 %d;", "activemask"},
    {"i=i", "mov.u32 %d, %{laneid,lanemask_eq,lanemask_lt,lanemask_le,lanemask_gt,lanemask_ge};",
     "mov.{laneid,lanemask_eq,lanemask_lt,lanemask_le,lanemask_gt,lanemask_ge}"},
    {"i=i", "mov.u32 %d, %{tid.x,tid.y,ntid.x,ntid.z,ctaid.x,ctaid.y,nctaid.x,nctaid.y};",
     "mov.{tid.x,tid.y,ntid.x,ntid.z,ctaid.x,ctaid.y,nctaid.x,nctaid.y}"},
    {"i=i",
     "mov.u32 %d, %{cluster_ctaid.x,cluster_nctaid.x,cluster_ctarank,cluster_nctarank,clusterid.x,nclusterid.x};",
     "mov.{cluster_ctaid.x,cluster_nctaid.x,cluster_ctarank,cluster_nctarank,clusterid.x,nclusterid.x}"},
    {"i=i", "mov.u32 %d, %{dynamic_smem_size,total_smem_size};", "mov.{dynamic_smem_size,total_smem_size}"},
    {"p=i", "mov.pred %d, %is_explicit_cluster;", "mov.is_explicit_cluster"},
    {"i=i", "griddepcontrol.launch_dependents; griddepcontrol.wait; mov.b32 %d, %a;", "griddepcontrol"},
    {"l=pi",
     "bar.red.popc.u32 %x, 0, %a; bar.red.and.pred %q, 1, %a; selp.b32 %y, 1, 0, %q; "
     "bar.red.or.pred %q, 0, %a; @%q or.b32 %y, %y, 2; mov.b64 %d, {%x, %y};",
     "bar.red"},
    {NULL, NULL, NULL},
};

void probes_warp(probe_list *list) {
    scalar_probes(list, "warp", table);
}
