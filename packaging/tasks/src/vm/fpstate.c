/*
 * Preloaded into linux.uml. The kernel takes a tracee's extended floating-point state only as one
 * whole XSAVE area; User-Mode Linux 6.1 keeps a buffer of fixed size, which newer processors (AMX,
 * AVX-512) outgrow, and then dies at start with "ptrace set fp regs failed, errno = 14". This wrapper
 * widens what UML writes, and leaves out of what UML reads the components that do not fit in. On a
 * processor whose area fits, every call passes unchanged.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

/* Offset of XSTATE_BV, the set of components present, behind the 512 bytes of the legacy area. */
#define PRESENT 512
/* x87 and SSE live in the legacy area and always fit. */
#define ALWAYS 3ull

static long (*next)(int, ...);
static unsigned char wide[64 * 1024] __attribute__((aligned(64)));
static size_t whole;

__attribute__((constructor)) static void find_next(void)
{
	next = (long (*)(int, ...))dlsym(RTLD_NEXT, "ptrace");
}

/* The components that lie wholly within the first `length` bytes of a standard XSAVE area. */
static uint64_t within(size_t length)
{
	static size_t asked;
	static uint64_t answer;
	unsigned component, size, offset, c, d;

	if (asked == length)
		return answer;
	answer = ALWAYS;
	for (component = 2; component < 63; component++) {
		if (!__get_cpuid_count(0xd, component, &size, &offset, &c, &d))
			break;
		if (size != 0 && (size_t)offset + size <= length)
			answer |= 1ull << component;
	}
	asked = length;
	return answer;
}

long ptrace(enum __ptrace_request request, ...)
{
	struct iovec *narrow;
	uint64_t *present;
	void *address, *data;
	va_list arguments;
	long pid, result;

	va_start(arguments, request);
	pid = va_arg(arguments, long);
	address = va_arg(arguments, void *);
	data = va_arg(arguments, void *);
	va_end(arguments);

	if ((request != PTRACE_GETREGSET && request != PTRACE_SETREGSET) ||
	    (uintptr_t)address != NT_X86_XSTATE)
		return next(request, pid, address, data);

	if (whole == 0) {
		struct iovec all = { wide, sizeof(wide) };

		if (next(PTRACE_GETREGSET, pid, address, &all) != 0)
			return next(request, pid, address, data);
		whole = all.iov_len;
	}
	narrow = data;
	if (narrow->iov_len >= whole || narrow->iov_len < PRESENT + sizeof(*present))
		return next(request, pid, address, data);

	if (request == PTRACE_GETREGSET) {
		result = next(request, pid, address, data);
		present = (uint64_t *)((char *)narrow->iov_base + PRESENT);
		if (result == 0)
			*present &= within(narrow->iov_len);
		return result;
	}
	memset(wide, 0, whole);
	memcpy(wide, narrow->iov_base, narrow->iov_len);
	present = (uint64_t *)(wide + PRESENT);
	*present &= within(narrow->iov_len);
	return next(request, pid, address, &(struct iovec){ wide, whole });
}
