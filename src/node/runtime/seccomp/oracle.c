// Lets libseccomp compile rules, for comparison with our own compiler: rules on standard input, one
// a line, the program for the kernel on standard output. Compiled by a test; never part of fardel.
//
// ACTION CALL [ARGUMENT MASK VALUE]: the action when all bits of MASK in the argument are VALUE's.
#include <errno.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what, int error) {
    fprintf(stderr, "%s: %s\n", what, strerror(-error));
    return 1;
}

int main(void) {
    // Questions to a supervisor are a matter of the kernel's age, which is not asked here.
    int error = seccomp_api_set(5);
    if (error) return fail("seccomp_api_set", error);
    scmp_filter_ctx rules = seccomp_init(SCMP_ACT_ALLOW);
    if (!rules) return fail("seccomp_init", -ENOMEM);
    error = seccomp_attr_set(rules, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (error) return fail("seccomp_attr_set", error);
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long action, call, argument;
        unsigned long long mask, value;
        int count = sscanf(line, "%lu %lu %lu %llu %llu", &action, &call, &argument, &mask, &value);
        if (count == 2) {
            error = seccomp_rule_add_exact(rules, (uint32_t)action, (int)call, 0);
        } else if (count == 5) {
            struct scmp_arg_cmp compared = {(unsigned)argument, SCMP_CMP_MASKED_EQ, mask, value};
            error = seccomp_rule_add_exact_array(rules, (uint32_t)action, (int)call, 1, &compared);
        } else {
            error = -EINVAL;
        }
        if (error) return fail(line, error);
    }
    error = seccomp_export_bpf(rules, 1);
    return error ? fail("seccomp_export_bpf", error) : 0;
}
