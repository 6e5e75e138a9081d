/* SPDX-License-Identifier: MIT */
#include "symbols.h"

#include <string.h>

/* Members of ranges are numbered with at most this many digits. */
#define MAX_INDEX_DIGITS 9

static size_t hash(const char *name, size_t length) {
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++)
        sum = (sum ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    return (size_t)(sum ^ (sum >> 29));
}

static ptx_symbol **bucket(const symbol_table *table, const ptx_symbol *symbol) {
    return &table->buckets[hash(symbol->name, symbol->length) & (table->num_buckets - 1)];
}

/* Rebuilt from the oldest symbol on, so that inner ones come first in their buckets again. */
static bool grow(symbol_table *table) {
    size_t num_buckets = table->num_buckets ? table->num_buckets * 2 : 64;
    ptx_symbol **buckets = storage_alloc(table->memory, num_buckets * sizeof(ptx_symbol *));
    ptx_symbol **order = storage_alloc(table->memory, (table->count + 1) * sizeof(ptx_symbol *));
    if (!buckets || !order)
        return false;
    table->buckets = buckets;
    table->num_buckets = num_buckets;
    size_t count = 0;
    for (ptx_symbol *each = table->top; each; each = each->below)
        order[count++] = each;
    while (count > 0) {
        ptx_symbol *each = order[--count];
        ptx_symbol **head = bucket(table, each);
        each->next = *head;
        *head = each;
    }
    return true;
}

void symbols_enter(symbol_table *table) {
    table->depth++;
}

void symbols_leave(symbol_table *table) {
    for (ptx_symbol *top = table->top; top && top->depth == table->depth; top = table->top) {
        *bucket(table, top) = top->next;
        table->top = top->below;
        table->count--;
    }
    table->depth--;
}

ptx_symbol *symbols_add(symbol_table *table, symbol_kind kind, const char *name, size_t length) {
    if (table->count >= table->num_buckets && !grow(table))
        return NULL;
    ptx_symbol *added = storage_alloc(table->memory, sizeof *added);
    if (!added)
        return NULL;
    added->kind = kind;
    added->name = name;
    added->length = length;
    added->depth = table->depth;
    added->slot = -1;
    ptx_symbol **head = bucket(table, added);
    added->next = *head;
    *head = added;
    added->below = table->top;
    table->top = added;
    table->count++;
    return added;
}

/* The innermost range that has this member, or, for index -1, the innermost symbol that is no range. */
static ptx_symbol *find(const symbol_table *table, const char *name, size_t length, int index) {
    if (!table->num_buckets)
        return NULL;
    ptx_symbol *each = table->buckets[hash(name, length) & (table->num_buckets - 1)];
    for (; each; each = each->next) {
        bool wanted = each->kind == SYMBOL_RANGE ? index >= 0 && index < each->count : index < 0;
        if (wanted && each->length == length && memcmp(each->name, name, length) == 0)
            return each;
    }
    return NULL;
}

ptx_symbol *symbols_find(const symbol_table *table, const char *name, size_t length) {
    return find(table, name, length, -1);
}

bool symbols_taken(const symbol_table *table, symbol_kind kind, const char *name, size_t length) {
    if (!table->num_buckets)
        return false;
    const ptx_symbol *each = table->buckets[hash(name, length) & (table->num_buckets - 1)];
    for (; each && each->depth == table->depth; each = each->next) {
        bool same = (each->kind == SYMBOL_RANGE) == (kind == SYMBOL_RANGE);
        if (same && each->length == length && memcmp(each->name, name, length) == 0)
            return true;
    }
    return false;
}

ptx_symbol *symbols_resolve(const symbol_table *table, const char *name, size_t length, int *slot) {
    ptx_symbol *best = symbols_find(table, name, length);
    *slot = best ? best->slot : -1;
    int index = 0, scale = 1;
    for (size_t digits = 1; digits < length && digits <= MAX_INDEX_DIGITS; digits++, scale *= 10) {
        char c = name[length - digits];
        if (c < '0' || c > '9')
            break;
        index += (c - '0') * scale;
        if (c == '0' && digits > 1)
            continue; /* %r01 is not a member of %r<...> */
        ptx_symbol *range = find(table, name, length - digits, index);
        if (range && (!best || range->depth > best->depth)) {
            best = range;
            *slot = range->slot + index;
        }
    }
    return best;
}
