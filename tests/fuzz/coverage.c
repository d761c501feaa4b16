/* Tells libFuzzer which ways through the compiled parts an input takes, with the compiler that builds them anyway.

   gcc calls __sanitizer_cov_trace_pc at every basic block and others at every comparison, where clang and libFuzzer have
   counters. And what libFuzzer offers for that AddressSanitizer offers too, to do nothing, in a library that must be
   loaded first. So this one is loaded before it, counts, and passes everything on to libFuzzer, as soon as run.py
   says where that is. */

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define BITS 17

static uint8_t counters[1 << BITS];
static struct { uintptr_t pc, flags; } places[1 << BITS];

void __sanitizer_cov_trace_pc(void) {
    counters[(uintptr_t)__builtin_return_address(0) * 0x9E3779B97F4A7C15u >> (64 - BITS)]++;
}

#define PASS_ON(name, first, second)                           \
    static void (*on_##name)(first, second);                   \
    void __sanitizer_cov_##name(first a, second b) {           \
        if (on_##name) on_##name(a, b);                        \
    }
#define EACH(do)                                                                        \
    do(8bit_counters_init, void*, void*) do(pcs_init, void*, void*)                     \
    do(trace_cmp1, uint8_t, uint8_t) do(trace_const_cmp1, uint8_t, uint8_t)             \
    do(trace_cmp2, uint16_t, uint16_t) do(trace_const_cmp2, uint16_t, uint16_t)         \
    do(trace_cmp4, uint32_t, uint32_t) do(trace_const_cmp4, uint32_t, uint32_t)         \
    do(trace_cmp8, uint64_t, uint64_t) do(trace_const_cmp8, uint64_t, uint64_t)         \
    do(trace_switch, uint64_t, void*)

EACH(PASS_ON)

void __sanitizer_cov_trace_cmpf(float a, float b) { (void)a; (void)b; }
void __sanitizer_cov_trace_cmpd(double a, double b) { (void)a; (void)b; }

#define FIND(name, first, second) on_##name = (void (*)(first, second))dlsym(fuzzer, "__sanitizer_cov_" #name);

void mqks_tell(const char* libfuzzer) {
    void* fuzzer = dlopen(libfuzzer, RTLD_NOW | RTLD_NOLOAD);
    if (fuzzer == NULL) return;
    EACH(FIND)
    for (size_t i = 0; i < 1 << BITS; i++) places[i].pc = (uintptr_t)&places[i];
    on_8bit_counters_init(counters, counters + (1 << BITS));
    on_pcs_init(places, places + (1 << BITS));
}
