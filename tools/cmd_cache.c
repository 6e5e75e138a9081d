/* SPDX-License-Identifier: MIT
 *
 * attn-scores cache: what is in the kernel cache, whether it is sound, and moving it about. */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "core/context.h"
#include "from_log.h"
#include "manage.h"
#include "report.h"

struct options {
    attns_context_params context;
    const char *action;
    const char *operand; /* FILE of import */
    const char *out;
    cli_strings archs, compilers, globs;
    const char *log;
    kernel_names names;
    uint64_t max_bytes;
    int unused_days; /* -1: not given */
    bool has_max_bytes, newest, all, dry_run, remove, json;
};

/* ---- Entries in memory --------------------------------------------------------------------------------------- */

/* A copy of what a visit showed, with the metadata that image.c wrote taken apart. */
struct entry {
    char *tier;
    bool writable, bundled, matches;
    uint8_t digest[ATTNS_CACHE_KEY_BYTES];
    uint32_t build;
    uint64_t size;
    int64_t used;
    char *damage; /* NULL: sound */
    char *kernel, *arch, *compiler;
    int registers, spill_bytes;
    uint8_t *bytes; /* only for export and import */
};

struct entries {
    const struct options *options;
    bool keep_bytes;
    struct entry *items;
    size_t count, capacity;
};

static char *copy_text(const char *text, size_t size) {
    char *copy = cli_allocate(size + 1);
    memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

/* The value of a "tag=value" line. "?" if there is none. */
static char *meta_text(const attns_cache_entry_view *view, const char *tag) {
    const size_t length = strlen(tag);
    const char *const end = view->meta + view->meta_size;
    for (const char *at = view->meta; at < end;) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (line_end == NULL) {
            line_end = end;
        }
        if ((size_t)(line_end - at) > length && memcmp(at, tag, length) == 0 && at[length] == '=') {
            return copy_text(at + length + 1, (size_t)(line_end - at) - length - 1);
        }
        at = line_end + 1;
    }
    return copy_text("?", 1);
}

static int meta_number(const attns_cache_entry_view *view, const char *tag) {
    char *text = meta_text(view, tag), *end;
    const long value = strtol(text, &end, 10);
    const bool good = end != text && *end == '\0' && value >= -1 && value <= INT32_MAX;
    free(text);
    return good ? (int)value : -1;
}

static bool is_listed(const cli_strings *list, const char *text) {
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->values[i], text) == 0) {
            return true;
        }
    }
    return list->count == 0;
}

/* "NVRTC 13.0" for 13.0 */
static bool compiler_is_listed(const cli_strings *list, const char *compiler) {
    const char *const version = strrchr(compiler, ' ');
    return is_listed(list, version == NULL ? compiler : version + 1);
}

/* Names with and without a target. */
static bool is_named(const kernel_names *names, const struct entry *entry) {
    const size_t length = strlen(entry->kernel);
    const char *const number = strchr(entry->arch, '_');
    for (size_t i = 0; i < names->count; i++) {
        const char *const rest = names->values[i] + length;
        if (strncmp(names->values[i], entry->kernel, length) != 0) {
            continue;
        }
        if (*rest == '\0') {
            return true;
        }
        /* PTX is stored under compute_90a and named "for sm_90a (PTX)". */
        const char *const named = strncmp(rest, " for ", 5) == 0 ? strchr(rest, '_') : NULL;
        const size_t digits = named == NULL ? 0 : strcspn(named, " ");
        if (named != NULL && number != NULL && strlen(number) == digits && strncmp(named, number, digits) == 0) {
            return true;
        }
    }
    return names->count == 0;
}

/* Without filters everything matches; a damaged entry, of which nothing is known, only then. */
static bool matches(const struct options *o, const struct entry *entry) {
    if (entry->damage != NULL) {
        return o->archs.count + o->compilers.count + o->globs.count + o->names.count == 0;
    }
    bool by_glob = o->globs.count == 0;
    for (size_t i = 0; i < o->globs.count && !by_glob; i++) {
        by_glob = fnmatch(o->globs.values[i], entry->kernel, 0) == 0;
    }
    return by_glob && is_listed(&o->archs, entry->arch) && compiler_is_listed(&o->compilers, entry->compiler) &&
           is_named(&o->names, entry);
}

static void take(void *user, const attns_cache_found *found) {
    struct entries *all = user;
    if (all->count == all->capacity) {
        const size_t capacity = all->capacity == 0 ? 64 : 2 * all->capacity;
        struct entry *grown = cli_allocate(capacity * sizeof(grown[0]));
        if (all->count != 0) {
            memcpy(grown, all->items, all->count * sizeof(grown[0]));
        }
        free(all->items);
        all->items = grown;
        all->capacity = capacity;
    }
    struct entry *entry = &all->items[all->count++];
    *entry = (struct entry){.tier = copy_text(found->tier, strlen(found->tier)),
                            .writable = found->writable,
                            .bundled = found->bundled,
                            .build = found->build,
                            .size = found->size,
                            .used = found->used,
                            .registers = -1,
                            .spill_bytes = -1};
    memcpy(entry->digest, found->digest, sizeof(entry->digest));
    if (found->damage != NULL) {
        entry->damage = copy_text(found->damage, strlen(found->damage));
    } else {
        entry->kernel = meta_text(&found->entry, "kernel");
        entry->arch = meta_text(&found->entry, "arch");
        entry->compiler = meta_text(&found->entry, "compiler");
        entry->registers = meta_number(&found->entry, "registers");
        entry->spill_bytes = meta_number(&found->entry, "spill_bytes");
    }
    entry->matches = matches(all->options, entry);
    if (all->keep_bytes && entry->matches && entry->damage == NULL) {
        entry->bytes = (uint8_t *)copy_text((const char *)found->bytes, (size_t)found->size);
    }
}

static int compare_texts(const char *a, const char *b) {
    return strcmp(a == NULL ? "" : a, b == NULL ? "" : b);
}

/* By kernel, target, newest compiler first; damaged ones before all. Tiers stay in their order. */
static int compare_entries(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    int order = compare_texts(x->kernel, y->kernel);
    if (order == 0) {
        order = compare_texts(x->arch, y->arch);
    }
    if (order == 0) {
        order = (x->build < y->build) - (x->build > y->build);
    }
    return order != 0 ? order : memcmp(x->digest, y->digest, sizeof(x->digest));
}

static void free_entries(struct entries *all) {
    for (size_t i = 0; i < all->count; i++) {
        struct entry *entry = &all->items[i];
        free(entry->tier);
        free(entry->damage);
        free(entry->kernel);
        free(entry->arch);
        free(entry->compiler);
        free(entry->bytes);
    }
    free(all->items);
}

static void key_text(const struct entry *entry, char text[2 * ATTNS_CACHE_KEY_BYTES + 1]) {
    for (size_t i = 0; i < ATTNS_CACHE_KEY_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", entry->digest[i]);
    }
}

/* ---- list, path ---------------------------------------------------------------------------------------------- */

/* "5 min", "3 h", "12 d" */
static const char *age_text(int64_t used, char *buffer, size_t size) {
    const int64_t age = (int64_t)time(NULL) - used;
    if (used == 0) {
        snprintf(buffer, size, "-");
    } else if (age < 0) {
        snprintf(buffer, size, "future");
    } else if (age < 3600) {
        snprintf(buffer, size, "%" PRId64 " min", age / 60);
    } else if (age < 48 * 3600) {
        snprintf(buffer, size, "%" PRId64 " h", age / 3600);
    } else {
        snprintf(buffer, size, "%" PRId64 " d", age / 86400);
    }
    return buffer;
}

static void report_entry(const char *type, const struct entry *entry) {
    char key[2 * ATTNS_CACHE_KEY_BYTES + 1];
    key_text(entry, key);
    report_object(NULL);
    report_text("type", type);
    report_text("kernel", entry->kernel);
    report_text("arch", entry->arch);
    report_text("compiler", entry->compiler);
    report_int("build", entry->build);
    report_int("registers", entry->registers);
    report_int("spill_bytes", entry->spill_bytes);
    report_int("bytes", (int64_t)entry->size);
    if (entry->bundled) {
        report_text("used", NULL);
    } else {
        report_int("used", entry->used);
    }
    report_text("tier", entry->tier);
    report_bool("writable", entry->writable);
    report_text("key", key);
    report_text("damage", entry->damage);
    report_close();
}

static void report_totals(size_t entries, uint64_t bytes, size_t damaged) {
    report_object(NULL);
    report_text("type", "totals");
    report_int("entries", (int64_t)entries);
    report_int("bytes", (int64_t)bytes);
    report_int("damaged", (int64_t)damaged);
    report_close();
}

static int list(const struct options *o, struct entries *all) {
    size_t shown = 0, damaged = 0;
    uint64_t bytes = 0;
    char size[24], age[24];
    if (all->count > 0) {
        qsort(all->items, all->count, sizeof(all->items[0]), compare_entries);
    }
    for (size_t i = 0; i < all->count; i++) {
        const struct entry *entry = &all->items[i];
        if (!entry->matches) {
            continue;
        }
        if (!o->json && shown == 0) {
            printf("%-9s %-8s %-12s %-11s %4s %6s  %s\n", "SIZE", "UNUSED", "TARGET", "COMPILER", "REGS", "SPILLS",
                   "KERNEL, CACHE");
        }
        shown++;
        bytes += entry->size;
        damaged += entry->damage != NULL;
        if (o->json) {
            report_entry("entry", entry);
        } else if (entry->damage != NULL) {
            printf("%-9s %-8s damaged: %s, %s\n", cli_bytes(entry->size, size, sizeof(size)),
                   age_text(entry->used, age, sizeof(age)), entry->damage, entry->tier);
        } else {
            printf("%-9s %-8s %-12s %-11s %4d %6d  %s, %s\n", cli_bytes(entry->size, size, sizeof(size)),
                   age_text(entry->used, age, sizeof(age)), entry->arch, entry->compiler, entry->registers,
                   entry->spill_bytes, entry->kernel, entry->tier);
        }
    }
    if (o->json) {
        report_totals(shown, bytes, damaged);
    } else {
        printf("%zu kernels, %s%s\n", shown, cli_bytes(bytes, size, sizeof(size)),
               damaged == 0 ? "" : ", some damaged (see attn-scores cache verify)");
    }
    return CLI_OK;
}

static int path(const struct options *o, attns_context *ctx) {
    attns_cache_stats stats;
    attns_cache_get_stats(ctx->cache, &stats);
    if (o->json) {
        report_object(NULL);
        report_text("dir", stats.dir);
        report_text("readonly", stats.readonly_dirs);
        report_int("entries", (int64_t)stats.entries);
        report_int("bytes", (int64_t)stats.bytes);
        report_int("max_bytes", (int64_t)stats.max_bytes);
        report_close();
    } else if (stats.dir != NULL) {
        printf("%s\n", stats.dir);
    }
    return stats.dir != NULL ? CLI_OK : cli_error("cache", "there is no cache directory that can be written");
}

/* ---- verify, prune ------------------------------------------------------------------------------------------- */

static int verify(const struct options *o, attns_context *ctx, const struct entries *all) {
    size_t sound = 0, damaged = 0, left = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < all->count; i++) {
        const struct entry *entry = &all->items[i];
        bytes += entry->size;
        if (entry->damage == NULL) {
            sound++;
            continue;
        }
        damaged++;
        const bool removed =
            o->remove && entry->writable && attns_cache_remove(ctx->cache, entry->digest, entry->build);
        left += !removed;
        char key[2 * ATTNS_CACHE_KEY_BYTES + 1];
        key_text(entry, key);
        if (o->json) {
            report_entry("damaged", entry);
        } else {
            printf("damaged%s: %s-%" PRIu32 " in %s: %s\n", removed ? ", removed" : "", key, entry->build, entry->tier,
                   entry->damage);
        }
    }
    if (o->json) {
        report_totals(sound + damaged, bytes, damaged);
    } else {
        printf("%zu kernels are sound, %zu damaged\n", sound, damaged);
    }
    return left == 0 ? CLI_OK : CLI_FAILED;
}

static int compare_use(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return (x->used > y->used) - (x->used < y->used);
}

static int prune(const struct options *o, attns_context *ctx, struct entries *all) {
    attns_cache_stats stats;
    attns_cache_get_stats(ctx->cache, &stats);
    if (stats.dir == NULL) {
        return cli_error("cache", "prune: there is no cache directory that can be written");
    }
    const bool filtered = o->archs.count + o->compilers.count + o->globs.count + o->names.count != 0;
    const uint64_t bound = o->has_max_bytes ? o->max_bytes : stats.max_bytes;
    uint64_t left = 0, removed_bytes = 0;
    size_t removed = 0, failed = 0;
    for (size_t i = 0; i < all->count; i++) {
        left += all->items[i].writable ? all->items[i].size : 0;
    }
    if (all->count > 0) {
        qsort(all->items, all->count, sizeof(all->items[0]), compare_use);
    }
    const int64_t now = (int64_t)time(NULL);
    for (size_t i = 0; i < all->count; i++) {
        struct entry *entry = &all->items[i];
        if (!entry->writable) {
            continue;
        }
        const bool unused = o->unused_days >= 0 && now - entry->used >= (int64_t)o->unused_days * 86400;
        const bool chosen = o->all || entry->damage != NULL ||
                            (filtered && entry->matches && (o->unused_days < 0 || unused)) || (!filtered && unused);
        if (!chosen && left <= bound) {
            continue;
        }
        if (!o->dry_run && !attns_cache_remove(ctx->cache, entry->digest, entry->build)) {
            failed++;
            continue;
        }
        left -= entry->size;
        removed++;
        removed_bytes += entry->size;
        if (o->json) {
            report_entry("removed", entry);
        }
    }
    const size_t temporary = o->dry_run ? 0 : attns_cache_sweep(ctx->cache);
    char a[24], b[24];
    if (o->json) {
        report_object(NULL);
        report_text("type", "totals");
        report_int("removed", (int64_t)removed);
        report_int("removed_bytes", (int64_t)removed_bytes);
        report_int("temporary_files", (int64_t)temporary);
        report_int("left_bytes", (int64_t)left);
        report_int("failed", (int64_t)failed);
        report_close();
    } else {
        printf("%s %zu kernels (%s) and %zu temporary files; %s are left\n", o->dry_run ? "would remove" : "removed",
               removed, cli_bytes(removed_bytes, a, sizeof(a)), temporary, cli_bytes(left, b, sizeof(b)));
    }
    return failed == 0 ? CLI_OK : cli_error("cache", "prune: %zu kernels could not be removed", failed);
}

/* ---- export, import ------------------------------------------------------------------------------------------ */

static bool is_superseded(const struct entries *all, const struct entry *entry) {
    for (size_t i = 0; i < all->count; i++) {
        const struct entry *other = &all->items[i];
        if (other->bytes != NULL && other->build > entry->build &&
            memcmp(other->digest, entry->digest, sizeof(entry->digest)) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_exported(const attns_cache_bundle_item *items, uint32_t count, const struct entry *entry) {
    for (uint32_t i = 0; i < count; i++) {
        if (items[i].build == entry->build && memcmp(items[i].digest, entry->digest, sizeof(entry->digest)) == 0) {
            return true;
        }
    }
    return false;
}

static int export(const struct options *o, const struct entries *all) {
    attns_cache_bundle_item *items = cli_allocate((all->count + 1) * sizeof(items[0]));
    uint32_t count = 0;
    uint64_t bytes = 0;
    size_t damaged = 0;
    for (size_t i = 0; i < all->count; i++) {
        const struct entry *entry = &all->items[i];
        damaged += entry->damage != NULL;
        if (entry->bytes == NULL || is_exported(items, count, entry) || (o->newest && is_superseded(all, entry))) {
            continue;
        }
        items[count++] = (attns_cache_bundle_item){
            .digest = entry->digest, .build = entry->build, .bytes = entry->bytes, .size = (size_t)entry->size};
        bytes += entry->size;
    }
    attns_cache_fault fault = {0};
    int exit_code = CLI_OK;
    char size[24];
    if (count == 0) {
        exit_code = cli_error("cache", "export: no kernel matches; nothing was written");
    } else if (!attns_cache_bundle_write(o->out, items, count, &fault)) {
        exit_code = cli_error("cache", "export: %s", fault.text);
    } else if (o->json) {
        report_totals(count, bytes, damaged);
    } else {
        printf("%s: %" PRIu32 " kernels, %s\n", o->out, count, cli_bytes(bytes, size, sizeof(size)));
    }
    free(items);
    return exit_code;
}

static int import(const struct options *o, attns_context *ctx, struct entries *all) {
    attns_cache_fault fault = {0};
    if (attns_cache_writable_dir(ctx->cache) == NULL) {
        return cli_error("cache", "import: there is no cache directory that can be written");
    }
    if (!attns_cache_bundle_visit(o->operand, take, all, &fault)) {
        return cli_error("cache", "import: %s", fault.text);
    }
    size_t counts[3] = {0}, damaged = 0;
    for (size_t i = 0; i < all->count; i++) {
        const struct entry *entry = &all->items[i];
        damaged += entry->damage != NULL;
        if (entry->bytes == NULL) {
            continue;
        }
        const attns_cache_found found = {
            .digest = entry->digest, .build = entry->build, .size = entry->size, .bytes = entry->bytes};
        counts[attns_cache_import(ctx->cache, &found)]++;
    }
    if (o->json) {
        report_object(NULL);
        report_text("type", "totals");
        report_int("stored", (int64_t)counts[ATTNS_CACHE_STORED]);
        report_int("present", (int64_t)counts[ATTNS_CACHE_PRESENT]);
        report_int("failed", (int64_t)counts[ATTNS_CACHE_NOT_STORED]);
        report_int("damaged", (int64_t)damaged);
        report_close();
    } else {
        printf("%zu kernels stored in %s, %zu were there, %zu failed, %zu damaged\n", counts[ATTNS_CACHE_STORED],
               attns_cache_writable_dir(ctx->cache), counts[ATTNS_CACHE_PRESENT], counts[ATTNS_CACHE_NOT_STORED],
               damaged);
    }
    return counts[ATTNS_CACHE_NOT_STORED] + damaged == 0 ? CLI_OK : CLI_FAILED;
}

/* ---- Arguments ----------------------------------------------------------------------------------------------- */

enum {
    KEY_OUT = 0x300,
    KEY_ARCH,
    KEY_COMPILER,
    KEY_KERNEL,
    KEY_FROM_LOG,
    KEY_NEWEST,
    KEY_MAX_SIZE,
    KEY_UNUSED_DAYS,
    KEY_ALL,
    KEY_DRY_RUN,
    KEY_REMOVE,
    KEY_JSON
};

/* "500M": digits and K, M or G for powers of 1024. */
static uint64_t parse_size(const struct argp_state *state, const char *text) {
    static const char units[] = "KMG";
    char *end;
    const unsigned long long number = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    const char *const unit = text[0] >= '0' && text[0] <= '9' && *end != '\0' ? strchr(units, *end) : NULL;
    const int shift = unit == NULL ? 0 : 10 * (int)(unit - units + 1);
    const bool good = text[0] >= '0' && text[0] <= '9' && (*end == '\0' || (unit != NULL && end[1] == '\0')) &&
                      number <= (UINT64_MAX >> shift) && number < (UINT64_C(1) << 50);
    if (!good) {
        argp_error(state, "--max-size: '%s' is not accepted; give bytes, or a number with K, M or G", text);
    }
    return (uint64_t)number << shift;
}

static void check_action(struct argp_state *state, const struct options *o) {
    static const char *const actions[] = {"list", "verify", "prune", "export", "import", "path"};
    bool known = false;
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        known = known || (o->action != NULL && strcmp(o->action, actions[i]) == 0);
    }
    if (!known) {
        argp_error(state, "action: '%s' is not accepted; accepted: list, verify, prune, export, import, path",
                   o->action == NULL ? "" : o->action);
    }
    if (strcmp(o->action, "export") == 0 && o->out == NULL) {
        argp_error(state, "export: --out FILE is needed");
    }
    if (strcmp(o->action, "import") == 0 ? o->operand == NULL : o->operand != NULL) {
        argp_error(state, o->operand == NULL ? "import: the bundle's name is needed" : "'%s' is not accepted",
                   o->operand);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->context;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num >= 2) {
            argp_error(state, "'%s' is not accepted", arg);
        }
        *(state->arg_num == 0 ? &o->action : &o->operand) = arg;
        return 0;
    case ARGP_KEY_END:
        check_action(state, o);
        return 0;
    case KEY_OUT:
        o->out = arg;
        return 0;
    case KEY_ARCH:
        cli_parse_strings(state, "--arch", arg, &o->archs);
        return 0;
    case KEY_COMPILER:
        cli_parse_strings(state, "--compiler", arg, &o->compilers);
        return 0;
    case KEY_KERNEL:
        cli_parse_strings(state, "--kernel", arg, &o->globs);
        return 0;
    case KEY_FROM_LOG:
        o->log = arg;
        return 0;
    case KEY_NEWEST:
        o->newest = true;
        return 0;
    case KEY_MAX_SIZE:
        o->max_bytes = parse_size(state, arg);
        o->has_max_bytes = true;
        return 0;
    case KEY_UNUSED_DAYS:
        o->unused_days = cli_parse_int(state, "--unused-days", arg, 0, 36500);
        return 0;
    case KEY_ALL:
        o->all = true;
        return 0;
    case KEY_DRY_RUN:
        o->dry_run = true;
        return 0;
    case KEY_REMOVE:
        o->remove = true;
        return 0;
    case KEY_JSON:
        o->json = cli_accept_json(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option option_list[] = {
    {"json", KEY_JSON, NULL, 0, "One JSON object a line", 0},
    {NULL, 0, NULL, 0, "Which kernels (list, prune, export, import; default: all):", 1},
    {"arch", KEY_ARCH, "LIST", 0, "Targets, such as sm_90a; compute_90a for PTX", 1},
    {"kernel", KEY_KERNEL, "PATTERNS", 0, "Names, with * and ?, separated by commas", 1},
    {"compiler", KEY_COMPILER, "LIST", 0, "NVRTC versions, such as 13.0", 1},
    {"from-log", KEY_FROM_LOG, "FILE", 0, "Those that FILE names, as for precompile", 1},
    {NULL, 0, NULL, 0, "Options of single actions:", 2},
    {"out", KEY_OUT, "FILE", 0, "export: the bundle to write", 2},
    {"newest", KEY_NEWEST, NULL, 0, "export: of each kernel only what the newest compiler made", 2},
    {"remove", KEY_REMOVE, NULL, 0, "verify: remove damaged entries from the writable cache", 2},
    {"max-size", KEY_MAX_SIZE, "BYTES", 0,
     "prune: least recently used ones go until so much is left (default: the cache's bound); 500M, 2G", 2},
    {"unused-days", KEY_UNUSED_DAYS, "N", 0, "prune: those not used for so long", 2},
    {"all", KEY_ALL, NULL, 0, "prune: everything", 2},
    {"dry-run", KEY_DRY_RUN, NULL, 0, "prune: only say what would go", 2},
    {0},
};

static int run(const struct options *o, attns_context *ctx) {
    struct entries all = {.options = o};
    int exit_code;
    all.keep_bytes = strcmp(o->action, "export") == 0 || strcmp(o->action, "import") == 0;
    if (strcmp(o->action, "import") != 0 && strcmp(o->action, "path") != 0) {
        attns_cache_visit(ctx->cache, take, &all);
    }
    if (strcmp(o->action, "list") == 0) {
        exit_code = list(o, &all);
    } else if (strcmp(o->action, "verify") == 0) {
        exit_code = verify(o, ctx, &all);
    } else if (strcmp(o->action, "prune") == 0) {
        exit_code = prune(o, ctx, &all);
    } else if (strcmp(o->action, "export") == 0) {
        exit_code = export(o, &all);
    } else if (strcmp(o->action, "import") == 0) {
        exit_code = import(o, ctx, &all);
    } else {
        exit_code = path(o, ctx);
    }
    free_entries(&all);
    return exit_code;
}

int cmd_cache(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_context_argp, 0, "Library settings:", 10}, {0}};
    static const struct argp argp = {
        .options = option_list,
        .parser = parse,
        .args_doc = "list|verify|prune|path\nexport --out FILE\nimport FILE",
        .doc =
            "Looks after the kernel cache: list what is in it, verify it, prune what is not needed, export kernels "
            "into "
            "one file (a bundle), import them from one, or print the path of the directory that is written to. Takes "
            "the caches that a program would use, those that are only read too; changes the writable one alone.\v"
            "Example, to ship what a run used:\n"
            "  attn-scores precompile --from-log used.txt --cache-dir kernels\n"
            "  attn-scores cache export --cache-dir kernels --out kernels.attns",
        .children = children,
    };
    struct options options = {.unused_days = -1};
    argp_parse(&argp, argc, argv, 0, NULL, &options);

    int exit_code = kernel_names_read(&options.names, options.log);
    if (exit_code == CLI_OK) {
        attns_context *ctx = cli_context_create(&options.context);
        exit_code = ctx != NULL ? run(&options, ctx) : CLI_FAILED;
        attns_context_destroy(ctx);
    }
    kernel_names_free(&options.names);
    cli_strings_free(&options.archs);
    cli_strings_free(&options.compilers);
    cli_strings_free(&options.globs);
    return exit_code;
}
