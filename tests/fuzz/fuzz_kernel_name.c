/* SPDX-License-Identifier: MIT
 *
 * The reader of logs and kernel names: what it finds lies in the text and prints as it was written. */
#include "fuzz.h"
#include "plan/kernel_name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *const text = (char *)malloc(size + 1);
    PROMISE(text != NULL);
    if (size != 0)
        memcpy(text, data, size);
    text[size] = '\0';
    const char *const text_end = text + strlen(text);
    const char *start, *end;
    for (const char *at = text;; at = end) {
        attns_kernel_reference reference;
        const attns_kernel_found found = attns_kernel_reference_find(at, &reference, &start, &end);
        PROMISE(start >= at && end >= start && end <= text_end);
        if (found != ATTNS_KERNEL_FOUND)
            break;
        char name[128];
        attns_kernel_name_print(&reference.problem, reference.portable, name, sizeof name);
        PROMISE(strlen(name) <= (size_t)(end - start) && memcmp(name, start, strlen(name)) == 0);
    }
    free(text);
    return 0;
}
