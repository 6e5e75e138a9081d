/* SPDX-License-Identifier: MIT
 *
 * The tiers of a cache object: choosing them when it is opened. */
#ifndef ATTNS_CACHE_TIERS_H_
#define ATTNS_CACHE_TIERS_H_

#include "bundle_file.h"
#include "state.h"

/* Fills tiers, num_tiers and readonly_dirs. false if memory is exhausted; attns_cache_tiers_close is due either way. */
bool attns_cache_tiers_open(attns_cache *cache, const attns_cache_params *params);
void attns_cache_tiers_close(attns_cache *cache);

/* The bundle of a tier that is only read, if it is one and not a directory: opened when first asked for, since it may
 * have been mounted meanwhile. NULL otherwise; *fault is touched only if there is something to tell. */
const attns_cache_bundle *attns_cache_tier_bundle(attns_cache_tier *tier, attns_cache_fault *fault);

#endif
