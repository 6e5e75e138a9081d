/* SPDX-License-Identifier: MIT
 *
 * What a plan fills into its template, by name. An absent name, one that stands twice, or text where a number is asked
 * for ends the test. */
#ifndef ATTNS_TESTS_PLAN_PLACEHOLDERS_H_
#define ATTNS_TESTS_PLAN_PLACEHOLDERS_H_

#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "testing.h"

static inline const char *text_of(const attns_plan *plan, const char *placeholder) {
    const char *value = NULL;
    for (size_t i = 0; i < plan->num_placeholders; i++) {
        if (strcmp(plan->placeholders[i].name, placeholder) == 0) {
            if (value)
                fail_msg("%s: %s stands twice", plan->name, placeholder);
            value = plan->placeholders[i].value;
        }
    }
    if (!value)
        fail_msg("%s: there is no placeholder %s", plan->name, placeholder);
    return value;
}

static inline int value_of(const attns_plan *plan, const char *placeholder) {
    const char *text = text_of(plan, placeholder);
    char *end;
    const long value = strtol(text, &end, 10);
    if (end == text || *end)
        fail_msg("%s: %s is \"%s\", which is no number", plan->name, placeholder, text);
    return (int)value;
}

#endif
