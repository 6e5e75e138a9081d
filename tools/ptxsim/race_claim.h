/* SPDX-License-Identifier: MIT
 *
 * Claims: reads whose result may turn out not to be used.
 *
 * A wgmma may read rows of B that mean nothing, because the kernel ignores the columns that they make. Whoever writes
 * to such a row meanwhile does nothing wrong. Therefore the reads of each row belong to a claim, and the results carry
 * it through the registers, as they carry whether they are defined. A write that conflicts with a read of the claim is
 * a data race once a value with that claim is used, no matter which of both comes first; what counts as use is what is
 * reported for an undefined value.
 *
 * Claims are nodes, named by numbers from 1 on: of a row, or of a value that depends on several (left and right). */
#ifndef PTXSIM_RACE_CLAIM_H_
#define PTXSIM_RACE_CLAIM_H_

#include "engine.h"
#include "race_state.h"

/* Whether the CTA has claims from now on: false if races are not looked for, or out of memory. */
bool race_claims_begin(sim_cta *cta);

/* A new claim for what the unit reads from now on, until the next call; 0: out of memory, and such reads should not be
 * kept. */
uint32_t race_claim_new(sim_cta *cta, const struct sim_async *op);
/* The same, as part of a claim that is there already. */
bool race_claim_extend(sim_cta *cta, const struct sim_async *op, uint32_t claim);
/* The claim of a value made of values with these claims (0: none). */
uint32_t race_claim_join(sim_cta *cta, uint32_t a, uint32_t b);

/* Claim of a register's lane, 0: none. */
uint32_t race_claim_of(const sim_warp *warp, int slot, int lane);
/* Gives the lanes these claims. */
void race_claim_set(sim_warp *warp, int slot, uint32_t lanes, const uint32_t claims[SIM_LANES]);

/* Before an instruction runs: its inputs are used, or their claims go on to its results. For the warps of CTAs that
 * have claims. false after sim_fault. */
bool race_claim_step(sim_warp *warp, const sim_step *step, uint32_t mask);
/* The lanes use the register's value. */
bool race_claim_use(sim_warp *warp, const ptx_instr *instr, int slot, uint32_t lanes);

/* Whether the kept read, with which the party's access conflicts, belongs to a claim that has not been used; its use is
 * a fault from now on. */
bool race_claim_excuses(struct sim_race *race, const race_party *party, const race_memory *memory, size_t offset,
                        unsigned kind, race_entry read);

/* The kept read, if it has a claim, is forgotten for one of the newest claim that is ordered after it. A write that
 * does not know the old one does not know the new one either. */
bool race_claim_follows(struct sim_race *race, race_entry read);

void race_claims_reset(struct sim_race *race);
void race_claims_free(struct sim_race *race);

#endif
